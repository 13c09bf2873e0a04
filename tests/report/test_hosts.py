"""The host that holds up the others is named, and nobody where all are alike."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.report.hosts import ProcessTimes, compare

ALIKE = ProcessTimes("node", step_seconds=0.9, input_wait_seconds=0.01, memory_bytes=10**9, memory_free_share=0.5)


def of(count: int, **changed: ProcessTimes) -> dict[int, ProcessTimes]:
    return {k: changed.get(f"p{k}", ALIKE) for k in range(count)}


def test_a_host_that_waits_for_its_input_is_named_with_what_it_costs_the_others():
    # 0.4 of 0.9 s are its wait beyond the others': without it, steps would take 0.5 s
    slow = dataclasses.replace(ALIKE, host="node7", input_wait_seconds=0.41)
    assert compare(20, of(8, p7=slow)).warning == "process 7 on node7 is 1.8× slower: input"


def test_nobody_is_named_where_all_wait_alike():
    waiting = dataclasses.replace(ALIKE, input_wait_seconds=0.6)
    event = compare(20, {k: waiting for k in range(4)})
    assert event.warning == ""
    assert event.input_wait_seconds == 0.6


def test_a_host_that_runs_out_of_memory_is_named():
    full = dataclasses.replace(ALIKE, host="node2", memory_free_share=0.02)
    assert compare(5, of(4, p2=full)).warning == "process 2 on node2 has 2% of its host's memory left"


@given(
    waits=st.lists(st.floats(0, 10), min_size=1, max_size=9),
    step_seconds=st.floats(1e-3, 10),
)
def test_the_worst_wait_is_the_reported_one_whatever_was_measured(waits, step_seconds):
    times = {
        k: dataclasses.replace(ALIKE, step_seconds=step_seconds, input_wait_seconds=wait)
        for k, wait in enumerate(waits)
    }
    event = compare(1, times)
    assert event.input_wait_seconds_most == max(waits) == waits[event.input_wait_most_process]
    assert event.input_wait_seconds <= event.input_wait_seconds_most
    if len(waits) == 1:
        assert event.warning == ""


@pytest.mark.parametrize("missing", [0, 3])
def test_a_process_that_has_said_nothing_yet_is_left_out(missing):
    times = of(4)
    del times[missing]
    assert compare(1, times).processes == 3
