"""Charts: every value in its place inside the frame, and round numbers beside the axes."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.report import chart
from podium.report.chart import Axis, Panel, Series


def drawn(*series, x=Axis("x"), y=Axis("y")):  # noqa: B008 (frozen)
    return ElementTree.fromstring(chart.draw(Panel("a <title>", x, y, series)))


def test_values_stand_where_their_axes_say():
    root = drawn(Series("a", {4.0: [70.0, 71.5], 64.0: [75.0]}), Series("b & c", {16.0: [73.0]}), x=Axis("x", log=True))
    places = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iterfind(".//{*}circle")]
    assert len(places) == 4
    assert all(0 < x < float(root.get("width")) and 0 < y < float(root.get("height")) for x, y in places)
    by_value = dict(zip([70.0, 71.5, 75.0, 73.0], places, strict=True))
    assert by_value[75.0][1] < by_value[73.0][1] < by_value[71.5][1] < by_value[70.0][1]
    assert by_value[73.0][0] == pytest.approx((by_value[70.0][0] + by_value[75.0][0]) / 2)  # 16 between 4 and 64


def test_several_lines_have_a_key_and_a_comparison_has_neither_dots_nor_key():
    line, other = Series("line", {1: [1.0], 2: [2.0]}), Series("other", {1: [2.0]})
    comparison = Series("comparison", {1: [1.0], 2: [3.0]}, dashed=True)
    keys = [
        [e.text for e in drawn(*s).iterfind(".//{*}text[@class='key']")] for s in ([line, comparison], [line, other])
    ]
    assert keys == [[], ["— line", "— other"]]
    assert len(drawn(line, comparison).findall(".//{*}circle")) == 2


@pytest.mark.parametrize("values", [(1.0, 2.0), (2.0, 1.0)], ids=["rising", "falling"])
def test_the_key_stands_where_no_value_is(values):
    root = drawn(*(Series(name, {k: [v] for k, v in enumerate(values)}) for name in "ab"))
    keys = [(float(e.get("x")), float(e.get("y"))) for e in root.iterfind(".//{*}text[@class='key']")]
    dots = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iterfind(".//{*}circle")]
    assert len(keys) == 2
    assert not any(abs(x - dot_x) < 40 and abs(y - dot_y) < 20 for x, y in keys for dot_x, dot_y in dots)
    assert (keys[0][0] < 300) == (values[1] > values[0])  # a line that rises ends in the upper right corner


def test_panels_stand_side_by_side():
    panel = Panel("p", Axis("x"), Axis("y"), [Series("s", {1: [1.0]})])
    root = ElementTree.fromstring(chart.draw(panel, panel, panel, width=100, height=80, columns=2))
    assert (root.get("width"), root.get("height")) == ("200", "160")
    assert [g.get("transform") for g in root.iterfind("{*}g")] == [
        f"translate({x},{y})" for x, y in ((0, 0), (100, 0), (0, 80))
    ]


@given(st.floats(1e-7, 1e9), st.floats(1, 1e3), st.booleans())
def test_ticks_enclose_the_values(low, factor, log):
    ticks = chart.ticks(low, low * factor, log)
    assert ticks[0] <= low * 1.001
    assert ticks[-1] >= low * factor * 0.999
    assert 2 <= len(ticks) <= 20
    assert ticks == sorted(set(ticks))
