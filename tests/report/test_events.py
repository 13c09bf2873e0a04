"""Broadcast: every event reaches every listener, in order."""

import inspect

from podium.report.events import Broadcast, Listener


class Noting(Listener):
    """Notes each event with its own name, whichever it is."""

    def __init__(self, name, heard):
        self.name, self.heard = name, heard

    def __getattribute__(self, event):
        if event in EVENTS:
            return lambda *given: self.heard.append((self.name, event, *given))
        return super().__getattribute__(event)


EVENTS = [name for name, _ in inspect.getmembers(Listener, inspect.isfunction)]


def test_each_event_is_passed_on_to_all_in_order():
    heard: list[tuple[str, ...]] = []
    both = Broadcast(Noting("first", heard), Noting("second", heard))
    assert len(EVENTS) == 8
    for event in EVENTS:
        parameters = list(inspect.signature(getattr(Listener, event)).parameters)[1:]
        given = tuple(f"{event}'s {parameter}" for parameter in parameters)
        assert getattr(both, event)(*given) is None
        assert heard == [("first", event, *given), ("second", event, *given)]
        heard.clear()
