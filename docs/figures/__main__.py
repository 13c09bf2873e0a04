"""Writes the figures of README and docs, or compares them: see the package."""

import argparse
import sys

from docs.figures import accuracy, cpu, input, mutants, plan, readme, runs, torus, trend
from docs.figures.sentences import ROOT, Sentence, fill

ROOMS = (readme, input, cpu, accuracy, plan, runs, torus, mutants)


def pages() -> dict[str, list[Sentence]]:
    """Every page that quotes results, with its sentences."""
    every: dict[str, list[Sentence]] = {}
    for room in ROOMS:
        for page, sentences in room.PAGES.items():
            every.setdefault(page, []).extend(sentences)
    return every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page says something else")
    check, faults = parser.parse_args().check, []
    for name, sentences in pages().items():
        page = ROOT / name
        before = after = page.read_text()
        for sentence in sentences:
            try:
                filled = fill(after, sentence)
            except LookupError as error:
                faults.append(f"{name}: {error}; quote the page in docs/figures as it is now")
                continue
            if filled != after:
                faults.append(f"{name} should say: {sentence.words.format(*sentence.values)}")
            after = filled
        if after != before and not check:
            page.write_text(after)
            print(f"{name}: figures written")
    drawn = trend.redraw(trend.PAGE.read_text())
    if drawn != (trend.PAGE.read_text(), trend.PICTURE.read_text()):
        faults.append(f"{trend.PAGE.name} should say: the tables and the picture of the results as they are now")
        if not check:
            trend.PAGE.write_text(drawn[0])
            trend.PICTURE.write_text(drawn[1])
    faults = faults if check else [fault for fault in faults if "should say" not in fault]
    sys.exit("\n".join([*faults, "make figures writes them"]) if faults else 0)


if __name__ == "__main__":
    main()
