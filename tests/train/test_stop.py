"""When a run is asked to stop: signals, a time limit that is kept, and processes that stop at the same dispatch."""

import os
import signal
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clock import Clock
from tests.support.processes import two_of

from podium.train.meter import DISPATCHES_AHEAD
from podium.train.stop import _TEARDOWN_SECONDS, Pace, Stopper, reserve_seconds

PACE = Pace(dispatch_seconds=10.0, write_seconds=3.0, evaluation_seconds=500.0)


def reserve(pace=PACE, **changed):
    given: dict[str, Any] = {
        "done": 8,
        "evaluations": {12, 24},
        "steps_per_dispatch": 1,
        "vote_dispatches": 0,
    } | changed
    return reserve_seconds(pace, **given)


def test_a_stop_needs_time_for_what_was_sent_the_next_dispatch_and_two_checkpoints():
    assert reserve() == 3 * 10.0 + 2 * 3.0


def test_processes_that_vote_need_two_dispatches_more():
    assert reserve(vote_dispatches=2, done=4) == 5 * 10.0 + 2 * 3.0


@pytest.mark.parametrize(("done", "counts"), [(9, False), (10, True), (11, True), (12, True), (13, False)])
def test_an_evaluation_counts_where_it_comes_before_the_vote_does(done, counts):
    with_one = reserve(done=done, vote_dispatches=2) - reserve(done=1, vote_dispatches=2)
    assert with_one == (500.0 if counts else 0.0)


def test_dispatches_of_several_steps_are_looked_ahead_as_such():
    assert reserve(done=4, vote_dispatches=2, steps_per_dispatch=4) > 500.0
    assert reserve(done=16, vote_dispatches=2, steps_per_dispatch=2) < 500.0


def ended_at(pace: Pace, votes: int, limit: float) -> float | None:
    """When a run of steady pace stops that has `limit` seconds: the loop in miniature. The host is two dispatches ahead
    of the devices; a checkpoint is written while they work, and only one at a time. None: it needed no stop."""
    clock, evaluations, device_free, written = Clock(0.0), {25, 50}, 0.0, 0.0
    stopper, requests, over = Stopper(limit, clock), [], []
    for done in range(1, 51):
        device_free = max(device_free, clock.now) + pace.dispatch_seconds
        over.append(device_free)
        clock.now = max(clock.now, over[-1 - DISPATCHES_AHEAD] if len(over) > DISPATCHES_AHEAD else 0.0)
        asked = reserve_seconds(pace, done=done, evaluations=evaluations, steps_per_dispatch=1, vote_dispatches=votes)
        requests.append(stopper.requested(asked))
        stops = len(requests) > votes and requests[-1 - votes]
        if stops or done in evaluations:
            clock.now = max(device_free, written)
            written = clock.now + pace.write_seconds
        if stops:
            return written + _TEARDOWN_SECONDS
        if done in evaluations:
            clock.advance(pace.evaluation_seconds)
    return None


@given(
    dispatch=st.floats(0.01, 60),
    write=st.floats(0.01, 60),
    evaluation=st.floats(0, 600),
    votes=st.sampled_from([0, 2]),
    share=st.floats(0, 1.2),
)
def test_a_run_of_steady_pace_keeps_its_time_limit_wherever_that_falls(dispatch, write, evaluation, votes, share):
    pace = Pace(dispatch, write, evaluation)
    least = _TEARDOWN_SECONDS + (1 + votes + DISPATCHES_AHEAD) * dispatch + 2 * write
    limit = least + share * (50 * dispatch + 2 * evaluation + 2 * write)
    end = ended_at(pace, votes, limit)
    assert end is None or end <= limit * (1 + 1e-9)


def test_a_stop_comes_no_earlier_than_it_must():
    end = ended_at(Pace(dispatch_seconds=1.0, write_seconds=2.0), votes=0, limit=30.0)
    assert end is not None
    assert 30.0 - 3.0 <= end <= 30.0  # a write less, and the dispatch after which it would have asked again


def test_a_time_limit_is_kept_with_time_to_take_down():
    clock = Clock()
    stopper = Stopper(clock.now + 100.0, clock)
    assert stopper.requested(90.0) is None
    clock.advance(7.9)
    assert stopper.requested(90.0) is None
    clock.advance(0.2)
    assert stopper.requested(90.0) == "time limit"
    assert stopper.requested() is None
    assert stopper.signal() is None


def test_a_deadline_at_the_clocks_zero_is_a_deadline():
    assert Stopper(0.0, Clock(0.0)).requested() == "time limit"
    assert Stopper(None, Clock(0.0)).requested() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_request_whatever_the_time_and_the_next_one_is_not_caught(number, capfd):
    before = signal.getsignal(number)
    with Stopper() as stopper:
        os.kill(os.getpid(), number)
        assert stopper.requested() == stopper.signal() == number.name
        assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert signal.getsignal(number) == before
    assert capfd.readouterr().err == (
        f"{number.name}: stopping after a checkpoint; a second signal stops at once, without one\n"
    )


def test_in_another_thread_no_handler_is_touched():
    before, found = signal.getsignal(signal.SIGTERM), []

    def enter():
        with Stopper():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [before]


VOTES = """
import sys
from podium.mesh import build_mesh, find_devices
from podium.processes.join import Cluster, join
from podium.recipe.torus import lay_out
from podium.train.stop import Vote
address, process = sys.argv[1], int(sys.argv[2])
join(Cluster(address, 2, process))
shape, devices = find_devices("auto")
vote = Vote(build_mesh(lay_out(shape, 8, 4), devices))
requests = [[None, "SIGTERM", None, None, "SIGINT"], [None, None, None, "time limit", "time limit"]][process]
print([vote(request) for request in [*requests, None, None]])
"""


@pytest.mark.slow
def test_two_processes_get_the_same_answers_two_dispatches_later_and_the_one_request_is_enough():
    first, second = two_of(VOTES)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert first.out == second.out
    assert first.out.strip() == str([None, None, None, "SIGTERM", None, "time limit", "time limit"])
