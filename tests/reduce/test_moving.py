import re
from pathlib import Path

import numpy as np
import pytest

from podium.reduce.moving import FILES, draw

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", FILES)
def test_the_moving_pictures_in_the_docs_are_of_this_code(name: str) -> None:
    assert (DOCS / name).read_text() == draw(FILES[name]())


@pytest.mark.parametrize("name", FILES)
def test_every_message_is_drawn_at_its_tick_and_every_tick_says_how_many_links_work(name: str) -> None:
    drawn = FILES[name]()
    groups = re.findall(r'<g class="tick" style="animation-delay:([\d.]+)s">(.*?)</g>', draw(drawn))
    assert len(groups) == len(drawn.ticks())
    assert [float(delay) for delay, _ in groups] == sorted(float(delay) for delay, _ in groups)
    for (_, group), together, share in zip(groups, drawn.ticks(), drawn.links_at_work(), strict=True):
        assert group.count("M") == sum(np.count_nonzero(tick.to >= 0) for tick in together)
        assert f"{share:.0%} of the links" in group


def test_two_colours_on_a_square_use_every_link_and_a_hole_leaves_few_idle() -> None:
    assert FILES["torus-moving-4x4.svg"]().links_at_work() == [1.0] * 6
    assert np.mean(FILES["torus-moving-2x8.svg"]().links_at_work()) > 0.9
    assert np.mean(FILES["torus-moving-hole.svg"]().links_at_work()) > 0.7
