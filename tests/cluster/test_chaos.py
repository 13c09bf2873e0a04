"""Four real processes on network namespaces: one is killed, one frozen, one cut off, at random. Sixteen, each of
them in turn, take longer than a test may: results/processes/sixteen.py."""

import os
import random

import pytest
from tests.cluster.in_turn import happen, in_turn
from tests.support import namespaces

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(namespaces.missing()), reason=namespaces.missing())]


def test_whichever_process_is_killed_frozen_or_cut_off_is_named_and_the_weights_are_the_same(tmp_path, small_data):
    seed = int(os.environ.get("PODIUM_CHAOS_SEED") or random.randrange(1 << 16))
    print(f"\nPODIUM_CHAOS_SEED={seed} repeats this")
    hashes: list[str] = []
    happened = list(happen(tmp_path, small_data, in_turn(4, 3, random.Random(seed)), processes=4, hashes=hashes))
    assert {told.kind for told in happened} == {"killed", "frozen", "cut off"}
    assert hashes[0] == hashes[1]
