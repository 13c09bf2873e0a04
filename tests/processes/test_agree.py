"""Real processes that act together: each keeps what it made, and where one fails none waits for it."""

import pytest
from tests.support.processes import two_of

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
from podium.errors import UserError
from podium.processes import agree
from podium.processes.join import Cluster, join
address, process, *acts = sys.argv[1:]
process = int(process)
join(Cluster(address, 2, process))
def fail(error):
    raise error
for act in acts:
    try:
        print(eval(act))
    except UserError as error:
        print("UserError:", error)
agree.leave()
"""
READ_BY_FIRST = (
    "[(name, str(array.dtype), array.tolist()) for name, array in __import__('podium.processes.broadcast', "
    "fromlist=['x']).read_by_first(lambda: fail(OSError()) if process else "
    "{('w',): __import__('numpy').array([[1.5, -0.0], [float('inf'), 3.0]], 'float32'), "
    "('b', 'half'): __import__('numpy').array([1.25, -0.0, 7.0], __import__('ml_dtypes').bfloat16), "
    "('step',): __import__('numpy').int32(7)}, {}).items()]"
)
# After these the processes go on: two processes do all of them, one after the other.
SURVIVED = {
    "each keeps its own": "agree.everywhere(lambda: {process})",
    "mistake": "agree.everywhere(lambda: process and fail(UserError('no shard')))",
    "collect": "agree.collect({'process': process})",
    "on first": "agree.on_first(lambda: [process, None])",
    "neighbours": "agree._ours().neighbours('node1' if process else 'node12')",
    "on this host": "agree.processes_on_this_host()",
    "difference": "agree.check_same({'recipe': 1, 'data': process})",
    "read by first": READ_BY_FIRST,
}


@pytest.fixture(scope="module")
def answers():
    """What the two processes have printed, by the name of the act."""
    first, second = two_of(PROGRAM, *SURVIVED.values())
    assert (first.code, second.code) == (0, 0), first.err + second.err
    lines = zip(first.out.splitlines(), second.out.splitlines(), strict=True)
    return dict(zip(SURVIVED, lines, strict=True))


def complaints(act):
    """The last lines of two processes' complaints, after an act that ends them."""
    return [end.err.strip().splitlines()[-1] for end in two_of(PROGRAM, act)]


def test_each_keeps_what_it_made_though_it_is_no_json(answers):
    assert answers["each keeps its own"] == ("{0}", "{1}")


def test_a_mistake_of_one_is_told_alike_by_all(answers):
    first, second = answers["mistake"]
    assert first == second
    assert first.startswith("UserError: no shard (process 1 on ")


@pytest.mark.parametrize("together", ["everywhere", "once_per_host"])
def test_any_failure_of_one_ends_all_and_is_raised_as_it_is_where_it_happened(together):
    first, second = complaints(f"agree.{together}(lambda: process and fail(KeyError('loose cable')))")
    assert first.startswith("RuntimeError: process 1 on ")
    assert first.endswith(" has failed: KeyError: 'loose cable'")
    assert second == "KeyError: 'loose cable'"


def test_a_failure_of_the_first_reaches_those_who_only_wait():
    first, second = complaints("agree.on_first(lambda: fail(OSError(28, 'No space left on device')))")
    assert first == "OSError: [Errno 28] No space left on device"
    assert second.endswith(" has failed: OSError: [Errno 28] No space left on device")


def test_only_the_first_reads_what_all_have_to_say(answers):
    assert answers["collect"] == ("[{'process': 0}, {'process': 1}]", "[]")


def test_all_return_what_the_first_has_worked_out(answers):
    assert answers["on first"] == ("[0, None]", "[0, None]")


def test_neighbours_are_counted_on_each_host_and_names_that_begin_alike_are_not_taken_for_one(answers):
    assert answers["neighbours"] == ("[0]", "[1]")
    assert answers["on this host"] == ("2", "2")


def test_a_difference_is_told_alike_by_all(answers):
    first, second = answers["difference"]
    assert first == second
    assert first.startswith("UserError: process 1 on ")
    assert "has a different data from process 0 on " in first


def test_what_the_first_has_read_all_have_to_the_bit_though_the_others_never_look(answers):
    first, second = answers["read by first"]
    assert first == second
    assert "[[1.5, -0.0], [inf, 3.0]]" in first
    assert "('b', 'half'), 'bfloat16', [1.25, -0.0, 7.0]" in first
    assert "(('step',), 'int32', 7)" in first
