"""How good a network's answers are, and where it errs: accuracy by class, the confusion matrix, calibration, and the
mistakes that it was surest of. Plain NumPy over all answers of an evaluation.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from podium.train.answers import Answers

_BINS = 15  # of confidence, for the calibration: the usual number


@dataclass(frozen=True)
class Mistake:
    """An image that was taken for a different class."""

    image: int
    label: int
    answer: int
    probability: float
    """How sure the network is of the answer."""


class Confusion(NamedTuple):
    """A class, and one that images of it are taken for."""

    label: int
    answer: int
    images: int


@dataclass(frozen=True)
class Bin:
    """Answers of about the same confidence."""

    images: int
    confidence: float
    accuracy: float


@dataclass
class Judge:
    """Counts answers batch by batch. `allowed` are the numbers of the classes that may be answered, if not all."""

    classes: int
    kept_mistakes: int
    confusion: np.ndarray = field(init=False)
    """int [label, answer]"""
    mistakes: list[Mistake] = field(default_factory=list)
    """The surest first."""

    def __post_init__(self) -> None:
        self.confusion = np.zeros((self.classes, self.classes), np.int64)
        self.images = self.top5 = 0
        self.loss = 0.0
        self._bins = np.zeros((_BINS, 3))

    def add(self, answers: Answers, labels: np.ndarray, numbers: np.ndarray) -> None:
        """`labels` are class numbers, `numbers` those of the images; both only of the rows that are no padding."""
        probabilities = answers.probabilities[answers.label >= 0].astype(np.float64)
        answer = probabilities.argmax(1)
        of_label = probabilities[np.arange(len(labels)), labels]
        np.add.at(self.confusion, (labels, answer), 1)
        rank = (probabilities >= of_label[:, None]).sum(1)  # a tie counts against it
        self.images += len(labels)
        self.top5 += int((rank <= 5).sum())
        self.loss -= float(np.log(np.maximum(of_label, np.finfo(np.float32).tiny)).sum())
        confidence, right = probabilities.max(1), answer == labels
        where = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
        np.add.at(self._bins, where, np.stack([np.ones(len(labels)), confidence, right], 1))
        wrong = np.flatnonzero(~right)
        found = [Mistake(int(numbers[i]), int(labels[i]), int(answer[i]), float(confidence[i])) for i in wrong]
        self.mistakes = sorted([*self.mistakes, *found], key=lambda m: -m.probability)[: self.kept_mistakes]

    @property
    def top1(self) -> float:
        return float(self.confusion.trace() / max(1, self.images))

    @property
    def class_images(self) -> np.ndarray:
        return self.confusion.sum(1)

    def class_accuracy(self) -> list[float | None]:
        """None for a class without images."""
        pairs = zip(self.confusion.diagonal(), self.class_images, strict=True)
        return [float(right / images) if images else None for right, images in pairs]

    def confused(self, most: int) -> list[Confusion]:
        """The most frequent mistakes."""
        wrong = self.confusion - np.diag(self.confusion.diagonal())
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        pairs = (divmod(int(at), self.classes) for at in order)
        return [Confusion(label, answer, int(wrong[label, answer])) for label, answer in pairs if wrong[label, answer]]

    def calibration(self) -> list[Bin]:
        """Confidence and accuracy of the bins that have images, ascending."""
        filled = self._bins[self._bins[:, 0] > 0]
        return [Bin(int(n), float(confidence / n), float(right / n)) for n, confidence, right in filled]

    def calibration_error(self) -> float:
        """The expected calibration error: the mean gap of confidence and accuracy, weighed by images."""
        return sum(b.images * abs(b.confidence - b.accuracy) for b in self.calibration()) / max(1, self.images)
