"""Which process is gone is found by one judge and told to all, at a cost that does not grow with the square of their
number. The processes here are real `RollCall`s on a store in memory; time is counted in looks."""

import collections
import threading

import jax
import pytest

from podium.train.roll_call import RollCall, Sign, behind, heard, lost


class Store:
    """A key-value store that counts what is asked of it, and may stop answering."""

    def __init__(self):
        self.boards: dict[str, dict[int, object]] = {}
        self.connections: set[str] = set()
        self.messages: collections.Counter[int] = collections.Counter()
        self.answers = threading.Event()
        self.answers.set()
        self.changed = threading.Condition()

    def member(self, process, processes):
        self.connections.add(str(process))
        return RollCall(process, processes, look_seconds=1.0, store=_Seen(self, process))


class _Seen:
    """The store, as one process sees it."""

    def __init__(self, store, process):
        self.store, self.process = store, process

    def post(self, place, value):
        self.store.answers.wait()
        self.store.messages[self.process] += 1
        with self.store.changed:
            self.store.boards.setdefault(place, {})[self.process] = value
            self.store.changed.notify_all()

    def posted(self, place):
        self.store.answers.wait()
        self.store.messages[self.process] += 1
        return dict(self.store.boards.get(place, {}))

    def awaited(self, place, seconds):
        with self.store.changed:
            self.store.changed.wait_for(lambda: 0 in self.store.boards.get(place, {}))
            return self.store.boards[place][0]

    def connection(self):
        return str(self.process)

    def connections(self):
        return set(self.store.connections)


def looks(members, count, but=()):
    """Every member that is not in `but` looks `count` times; returns what each was told last, and when first."""
    told = {}
    for look in range(count):
        for number, member in enumerate(members):
            if number not in but:
                reason = member.look("training, step 3", 3)
                if reason and number not in told:
                    told[number] = look, reason
                if not reason:
                    member._idle.wait()
        heard_by_all(members, but)
    return told


def heard_by_all(members, but):
    """Once process 0 has posted a verdict, the others' threads hear it in their own time."""
    if members[0]._process == 0 and members[0]._verdict:
        for number, member in enumerate(members):
            if number and number not in but:
                member.heard.wait()


def test_nobody_is_lost_where_all_look():
    store = Store()
    assert looks([store.member(k, 4) for k in range(4)], 60) == {}


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_one_that_posts_no_longer_is_named_to_all_by_process_0(gone):
    store = Store()
    members = [store.member(k, 4) for k in range(4)]
    assert looks(members, 6) == {}
    told = looks(members, 20, but=(gone,))
    assert set(told) == {0, 1, 2, 3} - {gone}
    for look, reason in told.values():
        assert f"process {gone} (" in reason
        assert reason.endswith("training, step 3) is gone: not heard of for 10 s")
        assert look <= 16


def test_one_whose_connection_is_closed_is_named_at_once():
    store = Store()
    members = [store.member(k, 4) for k in range(4)]
    assert looks(members, 6) == {}
    store.connections.remove("2")
    told = looks(members, 3, but=(2,))
    assert set(told) == {0, 1, 3}
    assert all(look <= 1 for look, _ in told.values())
    assert told[0][1].startswith("process 2 (")
    assert told[0][1].endswith("training, step 3) is gone: its connection to process 0 is closed")


def test_one_that_leaves_in_order_may_close_its_connection():
    store = Store()
    members = [store.member(k, 4) for k in range(4)]
    assert looks(members, 6) == {}
    members[2].over()
    store.connections.remove("2")
    assert looks(members, 5, but=(2,)) == {}


def test_connections_that_process_0_never_saw_say_nothing():
    store = Store()
    members = [store.member(k, 4) for k in range(4)]
    store.connections.clear()
    assert looks(members, 20) == {}


def test_one_that_never_posted_is_named_too_after_more_patience():
    store = Store()
    members = [store.member(k, 3) for k in range(3)]
    assert looks(members, 28, but=(2,)) == {}
    told = looks(members, 12, but=(2,))
    assert set(told) == {0, 1}
    assert all("process 2 (not heard of yet, starting) is gone" in reason for _, reason in told.values())


def test_a_first_process_whose_threads_stand_still_is_named_by_the_others():
    """Its store answers, as that is kept by threads of JAX's own."""
    store = Store()
    members = [store.member(k, 3) for k in range(3)]
    assert looks(members, 6) == {}
    told = looks(members, 20, but=(0,))
    assert set(told) == {1, 2}
    assert all("process 0 (" in reason and "is gone: not heard of for 10 s" in reason for _, reason in told.values())


def test_a_store_that_does_not_answer_blinds_nobody():
    store = Store()
    members = [store.member(k, 3) for k in range(3)]
    assert looks(members, 6) == {}
    store.answers.clear()
    reasons = [member.look("", 0) for _ in range(12) for member in members[1:]]
    assert reasons[:20] == [None] * 20
    assert "process 0 (" in str(reasons[-1])
    assert str(reasons[-1]).endswith("the coordinator, has not answered for 10 s")
    store.answers.set()


def test_a_store_that_refuses_is_told_with_its_words():
    class Refusing:
        def refuse(self, *_):
            raise jax.errors.JaxRuntimeError("UNAVAILABLE: failed to connect\nmore")

        post = posted = awaited = connections = refuse

        def connection(self):
            return ""

    member = RollCall(1, 2, look_seconds=1.0, store=Refusing())
    member.look("", 0)
    member._idle.wait()
    assert member.look("", 0) == "process 0, the coordinator, is gone (UNAVAILABLE: failed to connect)"


@pytest.mark.parametrize(("processes", "lost_seconds"), [(2, 10), (2048, 10), (4096, 10), (16384, 16)])
def test_messages_stay_below_a_rate_and_patience_above_two_signs(processes, lost_seconds):
    store = Store()
    member = store.member(1, processes)
    looks([member], 96)
    assert store.messages[1] * processes / 96 <= (1100 if processes < 8192 else 2600)
    assert member.lost_seconds == lost_seconds


def test_once_a_collective_has_failed_at_one_the_others_have_less_patience():
    store = Store()
    members = [store.member(k, 4) for k in range(4)]
    assert looks(members, 6) == {}
    members[1].broken = True
    told = looks(members, 20, but=(2,))
    assert set(told) == {0, 1, 3}
    for look, reason in told.values():
        assert "process 2 (" in reason
        assert reason.endswith("is gone: not heard of for 4 s")
        assert look <= 7


def test_where_the_watch_is_over_nobody_waits_for_a_verdict():
    store = Store()
    members = [store.member(k, 2) for k in range(2)]
    assert looks(members, 6) == {}
    members[0].over()
    members[1].heard.wait()
    assert looks(members, 6) == {}


def posted(beats):
    return {k: Sign(f"node{k}, pid 7", "training, step 3", moves=3, beat=beat) for k, beat in beats.items()}


def test_a_sign_grows_older_until_it_changes():
    signs: dict[int, Sign] = {}
    for look in range(6):
        assert lost(signs, 10, 10.0) is None
        signs = heard(signs, posted({0: look, 1: 0}), looks=2)
    assert (signs[0].looks, signs[1].looks) == (0, 10)
    assert lost(signs, 10, 10.0) == "process 1 (node1, pid 7, training, step 3) is gone: not heard of for 10 s"
    assert lost(heard(signs, posted({0: 11, 1: 1}), looks=2), 10, 10.0) is None


def test_of_many_that_are_gone_three_are_named():
    signs = {k: Sign(f"node{k}", "training", 1, 1, looks=12) for k in range(64)}
    assert lost(signs, 10, 10.0) == (
        "process 0 (node0, training) and process 1 (node1, training) and process 2 (node2, training) and 61 more "
        "are gone: not heard of for 10 s"
    )


def test_those_that_are_behind_are_named_and_nobody_where_all_are_at_the_same_place():
    at_4, at_5 = Sign("node0, pid 1", "training, step 4", 4, 1), Sign("node1, pid 2", "saving after step 4", 5, 1)
    assert behind({}) is None
    assert behind({0: at_5, 1: at_5}) is None
    assert behind({0: at_4, 1: at_5, 2: at_4}) == (
        "process 0 (node0, pid 1, training, step 4) and process 2 (node0, pid 1, training, step 4) "
        "did not reach where the others are: saving after step 4"
    )
