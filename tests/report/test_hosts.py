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


def test_two_slow_hosts_do_not_hide_each_other():
    slow, slower = (dataclasses.replace(ALIKE, host="node", input_wait_seconds=wait) for wait in (0.41, 0.46))
    assert compare(20, of(8, p2=slow, p5=slower)).warning == "process 5 on node is 2.0× slower: input"
    assert compare(20, of(4, p2=slow, p3=slow)).warning == "process 2 on node is 1.8× slower: input"


def test_of_two_processes_the_slow_one_is_named():
    slow = dataclasses.replace(ALIKE, host="node1", input_wait_seconds=0.41)
    assert compare(20, of(2, p1=slow)).warning == "process 1 on node1 is 1.8× slower: input"


@pytest.mark.parametrize(("wait", "named"), [(0.155, False), (0.165, True)])
def test_a_host_is_named_where_it_costs_the_others_a_fifth(wait, named):
    # 0.9 / 1.2 = 0.75: so it is 0.15 s beyond the others' 0.01
    slow = dataclasses.replace(ALIKE, input_wait_seconds=wait)
    assert bool(compare(20, of(8, p7=slow)).warning) == named


def test_the_step_the_wait_and_the_memory_are_those_of_all_processes():
    times = {
        0: dataclasses.replace(ALIKE, step_seconds=1.0, input_wait_seconds=0.02, memory_bytes=3, memory_free_share=0.4),
        1: dataclasses.replace(ALIKE, step_seconds=1.1, input_wait_seconds=0.03, memory_bytes=5, memory_free_share=0.6),
        2: dataclasses.replace(ALIKE, step_seconds=1.5, input_wait_seconds=0.04, memory_bytes=4, memory_free_share=0.5),
    }
    event = compare(7, times)
    assert (event.step, event.processes, event.step_seconds) == (7, 3, 1.1)
    assert (event.input_wait_seconds, event.input_wait_seconds_most, event.input_wait_most_process) == (0.03, 0.04, 2)
    assert (event.memory_bytes_most, event.memory_free_share_least) == (5, 0.4)


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
