"""Classifies image files with a trained network: any number of them, in folders and patterns too. Reading, decoding and
computing happen at the same time; a file that cannot be used is reported, and the others are still answered.
"""

import glob
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from podium.data.input.file_loader import FileLoader
from podium.data.prepare.sources.find import is_image
from podium.errors import UserError
from podium.train.answers import answers
from podium.train.trained_model import Trained


@dataclass(frozen=True)
class Guess:
    name: str
    """The class's name."""
    probability: float


@dataclass(frozen=True)
class Classified:
    image: Path
    guesses: tuple[Guess, ...]
    """The likeliest first; empty if the image could not be used."""
    failed: str = ""
    """Why it could not be used."""


def find_images(given: Sequence[str | Path]) -> list[Path]:
    """The files that are meant: each file, the images of each folder and of those inside it, what a pattern matches."""
    found: list[Path] = []
    for item in map(str, given):
        path = Path(item)
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if is_image(file.name) and file.is_file())
            if not inside:
                raise UserError(f"{item} is a folder without images; give one that holds some, or image files")
            found += inside
        elif path.exists() or not any(character in item for character in "*?["):
            if not path.exists():
                raise UserError(
                    f"there is no file {item}; give image files, folders or patterns such as 'photos/*.jpg'"
                )
            found.append(path)
        else:
            matches = sorted(Path(match) for match in glob.iglob(item, recursive=True))
            found += [match for match in matches if match.is_file()]
            if not matches:
                raise UserError(f"the pattern {item} matches no file; ** stands for folders at any depth")
    return found


def classify(
    trained: Trained,
    files: Sequence[Path],
    *,
    top: int,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Iterator[Classified]:
    """Each file's likeliest classes, in the order of `files`."""
    names, top = trained.info.classes, min(top, len(trained.info.classes))
    with FileLoader(files, trained.recipe.data, trained.batch_for(len(files))) as loader:
        for index, batch in enumerate(answers(trained.step, trained.state, loader)):
            rows = {int(number): row for row, number in enumerate(batch.label) if number >= 0}
            first = index * loader.batch_global
            for number in range(first, min(first + loader.batch_global, len(files))):
                if number in rows:
                    yield Classified(files[number], _guesses(batch.probabilities[rows[number]], names, top))
                else:
                    yield Classified(files[number], (), loader.failed[number])
            progress("images", min(first + loader.batch_global, len(files)), len(files))


def _guesses(probabilities: np.ndarray, names: tuple[str, ...], top: int) -> tuple[Guess, ...]:
    best = np.argsort(-probabilities, kind="stable")[:top]
    return tuple(Guess(names[i], float(probabilities[i])) for i in best)
