"""Every page in a real browser: no line on the console, no request, every chart drawn, in light and dark, and nothing
wider than the screen."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.support.chromium import PROGRAM, opened, photographed
from tests.support.run_files import write_run

from podium.plan import page as plan_page
from podium.report.run_page import run_page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="needs Chromium"),
]
SWEEP = Path(__file__).parents[2] / "results" / "plan" / "sweep.json"


def _page(kind, folder):
    if kind == "plan":
        rows = json.loads(SWEEP.read_text())["rows"]
        plan_page.write(rows, folder, title="a sweep", command="podium plan")
        return folder / "sweep.html"
    runs = [write_run(folder / "run", evaluated=True)]
    if kind == "several runs":
        runs.append(write_run(folder / "other", changes={"batch_global": 128}))
    (folder / "page.html").write_text(run_page(runs))
    return folder / "page.html"


@pytest.mark.parametrize(("kind", "charts"), [("one run", 7), ("several runs", 19), ("plan", 4)])
def test_a_page_draws_every_chart_asks_no_host_and_has_no_error(kind, charts, tmp_path):
    html, console = opened(_probed(_page(kind, tmp_path)), tmp_path)
    assert console == []
    assert f'data-drawn="{charts}"' in html
    assert len(re.findall(r'<div class="?u-wrap', html)) == charts
    assert 'data-asked="0"' in html


def _probed(page):
    """The page, which then says how many resources it has asked for and how wide it is."""
    probe = """<script>{
        const root = document.documentElement, asked = performance.getEntriesByType("resource");
        root.dataset.asked = asked.filter((entry) => !entry.name.startsWith("data:")).length;
        root.dataset.wide = root.scrollWidth;
    }</script></body>"""
    page.write_text(page.read_text().replace("</body>", probe))
    return page


def test_a_page_that_asks_would_be_noticed(tmp_path):
    page = _probed(_page("plan", tmp_path))
    page.write_text(page.read_text().replace("<h1>", '<img src="http://127.0.0.1:9/x.png"><h1>'))
    _, console = opened(page, tmp_path)
    assert any("Content Security Policy" in line for line in console)


def test_light_and_dark_differ_and_lines_are_visible_in_both(tmp_path):
    page = _page("one run", tmp_path)
    for dark in (False, True):
        pixels = np.asarray(photographed(page, tmp_path, dark=dark)).astype(int)
        ground = pixels[2, 2]
        assert (ground.mean() < 60) if dark else (ground.mean() > 240)
        red = (pixels[..., 0] > 150) & (pixels[..., 1] < 90) & (pixels[..., 2] < 90)  # the second line of a chart
        assert red.sum() > 200


def test_a_narrow_screen_has_nothing_cut_off(tmp_path):
    html, _ = opened(_probed(_page("plan", tmp_path)), tmp_path, "--window-size=500,900")
    wide = re.search(r'data-wide="(\d+)"', html)
    assert wide is not None
    assert int(wide[1]) <= 500
