"""The proof of exact resume, in short: real processes, real kills."""

import pytest

from podium.bench.chaos import DISTURBANCES
from podium.bench.verify_resume import verify_resume

pytestmark = pytest.mark.slow


def test_a_run_killed_twice_has_the_weights_of_one_that_was_not():
    verified = verify_resume(kills=2, seed=3)
    assert verified.kills == 2
    assert verified.identical
    assert verified.lost_steps_max <= verified.max_lost_steps


def test_whatever_happens_to_a_run_its_weights_are_those_of_one_that_nothing_happened_to():
    verified = verify_resume(kills=len(DISTURBANCES), seed=1, chaos=True)
    assert verified.identical
    assert verified.lost_steps_max <= verified.max_lost_steps
    if verified.rounds == 1:  # else one of them came when the run had ended, and another in its place
        assert verified.happened == dict.fromkeys(DISTURBANCES, 1)
