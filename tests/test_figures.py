"""README and docs say what results/ say."""

import re
import sys
from pathlib import Path

import pytest
from docs.figures import readme, trend
from docs.figures.__main__ import main, pages
from docs.figures.sentences import fill, find, newest, says
from docs.figures.stated import OF_OTHERS, PASSAGES

ROOT = Path(__file__).parents[1]
QUOTED = pages()
TABLED = sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md"))
MEASURED = re.compile(r"\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+|\d+ ?(?:%|×(?!\d)|images/s|s\b|ms\b|minutes|[Mk]\b|[MG]B\b)")
DRAWN = re.compile(r"<!-- table .*?<!-- end -->", re.DOTALL)  # podium bench accuracy --page


@pytest.mark.parametrize("page", QUOTED)
def test_a_page_says_what_the_results_say(page):
    text = (ROOT / page).read_text()
    for sentence in QUOTED[page]:
        assert fill(text, sentence) == text, "make figures"


@pytest.mark.parametrize("page", [page for page in ("README.md", *TABLED) if page not in OF_OTHERS])
def test_every_measured_figure_has_a_result_or_a_reason(page):
    """All of README, and the tables of docs."""
    whole = text = (ROOT / page).read_text()
    for sentence in QUOTED.get(page, []):
        text = _blank(text, *find(whole, sentence).span())
    for passages in PASSAGES:
        for passage in passages.get(page, []):
            where = whole.index(passage)
            text = _blank(text, where, where + len(passage))
    text = _without_code(text)
    lines = [line for line in text.splitlines() if page == "README.md" or line.startswith("|")]
    assert [line for line in lines if MEASURED.search(line)] == []


def _blank(text, start, end):
    return text[:start] + "_" * (end - start) + text[end:]


def _without_code(text):
    for place in [*re.finditer(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", text, re.DOTALL), *DRAWN.finditer(text)]:
        text = _blank(text, *place.span())
    return text


def test_the_page_of_ratios_is_drawn_from_every_dated_result():
    page = trend.PAGE.read_text()
    assert trend.redraw(page) == (page, trend.PICTURE.read_text()), "make figures"
    for name in ("2026-11-15-step", "2026-11-18-step", "2026-11-18-imagenet-others", "2026-11-18-pod-v3"):
        assert f"| [{name}](" in page


def test_a_hole_is_filled_across_lines_and_with_another_width():
    page = "It trains to 98.7 % in\n1,034 s on two\ncores. Not 1 s."
    sentence = says("trains to {:.1f} % in {:,.0f} s on two cores", 99.43, 33.7)
    assert fill(page, sentence) == "It trains to 99.4 % in\n34 s on two\ncores. Not 1 s."


@pytest.mark.parametrize("page", ["nothing of the kind", "in 3 s, and in 4 s"])
def test_a_sentence_must_stand_in_one_place(page):
    with pytest.raises(LookupError, match=r"[02] places say 'in \{\} s'"):
        find(page, says("in {} s", 3))


def test_the_newest_result_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("docs.figures.sentences.RESULTS", tmp_path)
    (tmp_path / "step").mkdir()
    for name, value in (("2026-11-15-step", 1), ("2026-11-18-step", 2), ("2026-11-19-avx2", 3), ("2026-11-17", 4)):
        (tmp_path / "step" / f"{name}.json").write_text(str(value))
    assert (newest("step", "step"), newest("step")) == (2, 4)
    with pytest.raises(LookupError, match=r"results/step has no DATE-pod\.json"):
        newest("step", "pod")


def test_the_command_agrees_and_names_what_does_not(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["figures", "--check"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    monkeypatch.setitem(readme.PAGES, "README.md", [says("recipe `cifar10-sgd`, {} px", 64)])
    with pytest.raises(SystemExit, match=r"README\.md should say: recipe `cifar10-sgd`, 64 px"):
        main()
