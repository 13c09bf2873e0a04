"""A sentence with holes, found in a page however its lines are wrapped, and filled with what results say."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
NUMBER = r"[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
HOLE = re.compile(r"\{[^}]*\}")


@dataclass(frozen=True)
class Sentence:
    """Words of a page, with a hole in the notation of `str.format` for each value."""

    words: str
    values: tuple[float | str, ...]

    def pattern(self) -> re.Pattern[str]:
        parts = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in HOLE.split(self.words)]
        holes = ["(" + (r"[\w.-]+" if isinstance(value, str) else NUMBER) + ")" for value in self.values]
        return re.compile("".join(part + hole for part, hole in zip(parts, [*holes, ""], strict=True)))

    def texts(self) -> list[str]:
        return [hole.format(value) for hole, value in zip(HOLE.findall(self.words), self.values, strict=True)]


def says(words: str, *values: float | str) -> Sentence:
    return Sentence(words, values)


def find(page: str, sentence: Sentence) -> re.Match[str]:
    """Where the page says it, which must be one place."""
    places = list(sentence.pattern().finditer(page))
    if len(places) != 1:
        raise LookupError(f"{len(places)} places say {sentence.words!r}, where one should")
    return places[0]


def fill(page: str, sentence: Sentence) -> str:
    """The page with the sentence's values in its holes."""
    place = find(page, sentence)
    for hole, text in reversed(list(enumerate(sentence.texts(), start=1))):
        page = page[: place.start(hole)] + text + page[place.end(hole) :]
    return page


def newest(folder: str, name: str = "") -> Any:
    """The newest results/FOLDER/DATE-NAME.json, or DATE.json."""
    dated = re.compile(rf"\d{{4}}-\d\d-\d\d{f'-{re.escape(name)}' if name else ''}\.json")
    files = sorted(file for file in (RESULTS / folder).iterdir() if dated.fullmatch(file.name))
    if not files:
        raise LookupError(f"results/{folder} has no DATE{f'-{name}' if name else ''}.json")
    return json.loads(files[-1].read_text())


def read(file: str) -> Any:
    """One result, whatever came after it."""
    return json.loads((RESULTS / file).read_text())


def spread(figure: dict[str, float]) -> tuple[float, float, float]:
    """Median, least and most, as they are written: 3.01 (2.86–3.71)."""
    return figure["median"], figure["least"], figure["most"]


def power(value: float) -> str:
    """1.0e-7, as pages write it."""
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}e{int(exponent)}"
