"""The proof of exact resume, in short: real processes, real kills."""

import pytest
from tests.support.processes import ENVIRONMENT

from podium.bench.verify_resume import verify_resume

pytestmark = pytest.mark.slow


def test_a_run_killed_twice_has_the_weights_of_one_that_was_not(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", ENVIRONMENT["XLA_FLAGS"])
    verified = verify_resume(kills=2, seed=3)
    assert verified.kills == 2
    assert verified.identical
    assert verified.lost_steps_max <= verified.max_lost_steps
