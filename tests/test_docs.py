"""The pages hold together: links lead somewhere, every page can be found, and lines fit a screen."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("native/**/*.md"), *ROOT.glob("results/*.md")]
)


def _names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def _links(page: Path) -> set[Path]:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


@pytest.mark.parametrize("page", PAGES, ids=_names(PAGES))
def test_every_link_leads_to_a_file(page):
    assert [str(target) for target in _links(page) if not target.exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=_names(PAGES))
def test_lines_fit_a_screen(page):
    """But for tables, which do not wrap, and text that a program prints as one line."""
    long = [line for line in page.read_text().splitlines() if len(line) > 100]
    assert [line for line in long if not line.startswith(("|", "    ", "<!--"))] == []


def test_every_page_is_reached_from_the_index():
    reached, new = set(), {ROOT / "docs" / "index.md"}
    while new:
        reached |= new
        linked = {target for page in new for target in _links(page)}
        inside = {page for target in linked if target.is_dir() for page in target.glob("*.md")}
        new = {target for target in linked | inside if target.suffix == ".md"} - reached
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert _names(sorted(pages - reached)) == []


def test_every_decision_has_a_number_of_its_own():
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    numbers = [int(page.name[:3]) for page in decisions]
    assert numbers == list(range(1, len(decisions) + 1))
    assert [page.name for page in decisions if not page.read_text().startswith(f"# {page.name[:3]}: ")] == []
