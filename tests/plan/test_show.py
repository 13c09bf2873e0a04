"""What `podium plan` shows: every figure whole, however narrow the console."""

import io

import pytest
from rich.console import Console

from podium.plan import published
from podium.plan import show as report


@pytest.mark.parametrize("width", [60, 80, 200])  # a pipe has 80
def test_the_check_shows_every_figure_whole(width):
    results = tuple(
        published.Checked(p, published.is_fitted(p), p.images_per_second * 0.73, "x") for p in published.POINTS
    )
    text = io.StringIO()
    report.show_check(published.Check(results, (), published.Beside(1.12e6, 1e6)), Console(file=text, width=width))
    assert "…" not in text.getvalue()
    for point in published.POINTS:
        row = next(line for line in text.getvalue().splitlines() if line.split()[:1] == [point.name])
        published_rate = f"{point.images_per_second / 1e3:,.0f} k"
        for figure in (point.topology, f"{point.batch_global:,}", published_rate, "-27.0%"):
            assert figure in row
    if width == 80:
        assert max(map(len, text.getvalue().splitlines())) <= width


@pytest.mark.parametrize("width", [50, 80])
def test_a_sweep_shows_every_figure_whole(width):
    row = {
        "topology": "v4:12x12x24", "chips": 3456, "batch_global": 55296, "images_per_second": 8803210.0,
        "efficiency": 1.0, "communication_share": 0.123, "train_minutes": 754.3, "memory_bytes_per_core": 2**40,
        "fits": False, "compute_origin": "compiled", "limit": "compute",
    }  # fmt: skip
    text = io.StringIO()
    report.show_sweep([row], Console(file=text, width=width))
    shown = text.getvalue().splitlines()[1]
    for figure in ("v4:12x12x24", "3,456", "55,296", "8,803,210", "100%", "12.3%", "too much", "compiled"):
        assert figure in shown
