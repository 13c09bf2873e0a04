from pathlib import Path

import pytest

from podium.reduce.colours import torus_routes
from podium.reduce.picture import draw

DOCS = Path(__file__).parents[2] / "docs"


def test_the_drawing_in_the_docs_is_of_this_code() -> None:
    assert (DOCS / "torus-schedule.svg").read_text() == draw(3, 3)


@pytest.mark.parametrize(("rows", "cols"), [(1, 4), (2, 3), (4, 4)])
def test_every_message_of_every_tick_is_drawn(rows: int, cols: int) -> None:
    messages = sum(len(tick.to) for route in torus_routes(rows, cols) for tick in route.ticks)
    assert draw(rows, cols).count("<line ") == messages
