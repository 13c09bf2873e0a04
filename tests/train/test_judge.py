"""The figures of an evaluation, against the same counted image by image."""

import math

import numpy as np
import pytest

from podium.train.answers import Answers
from podium.train.judge import Judge

CLASSES, IMAGES = 7, 90


@pytest.fixture
def judged():
    """A judge that got 90 answers in batches of 16 with padding, and what it was told."""
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(IMAGES, CLASSES)) * 2
    probabilities = (np.exp(scores) / np.exp(scores).sum(1, keepdims=True)).astype(np.float32)
    labels = rng.integers(0, CLASSES - 1, IMAGES)  # the last class has no image
    judge = Judge(CLASSES, kept_mistakes=5)
    for first in range(0, IMAGES, 16):
        numbers = np.arange(first, min(first + 16, IMAGES))
        padded = np.full(16, -1)
        padded[: len(numbers)] = labels[numbers]
        batch = np.vstack([probabilities[numbers], rng.random((16 - len(numbers), CLASSES))])
        judge.add(Answers(padded, batch), labels[numbers], numbers)
    return judge, probabilities.astype(float), labels


def test_counts_are_those_of_each_image(judged):
    judge, probabilities, labels = judged
    confusion, right, top5, loss = np.zeros((CLASSES, CLASSES), int), 0, 0, 0.0
    for p, label in zip(probabilities, labels, strict=True):
        ranking = sorted(range(CLASSES), key=lambda c: -p[c])
        confusion[label, ranking[0]] += 1
        right += ranking[0] == label
        top5 += label in ranking[:5]
        loss -= math.log(p[label])
    assert judge.images == IMAGES
    np.testing.assert_array_equal(judge.confusion, confusion)
    assert judge.top1 == pytest.approx(right / IMAGES)
    assert judge.top5 == top5
    assert judge.loss == pytest.approx(loss, rel=1e-6)
    accuracies = judge.class_accuracy()
    assert accuracies[-1] is None
    assert accuracies[0] == pytest.approx(confusion[0, 0] / confusion[0].sum())


def test_calibration_is_the_gap_of_confidence_and_accuracy(judged):
    judge, probabilities, labels = judged
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    error = 0.0
    for k in range(15):
        of_bin = (confidence >= k / 15) & (confidence < (k + 1) / 15)
        if of_bin.any():
            error += of_bin.mean() * abs(confidence[of_bin].mean() - right[of_bin].mean())
    assert judge.calibration_error() == pytest.approx(error)
    assert sum(b.images for b in judge.calibration()) == IMAGES


def test_the_surest_mistakes_and_the_most_frequent_are_named(judged):
    judge, probabilities, labels = judged
    wrong = [i for i in range(IMAGES) if probabilities[i].argmax() != labels[i]]
    surest = sorted(wrong, key=lambda i: -probabilities[i].max())[:5]
    assert [m.image for m in judge.mistakes] == surest
    assert [(m.label, m.answer) for m in judge.mistakes] == [(labels[i], probabilities[i].argmax()) for i in surest]
    label, answer, count = next(iter(judge.confused(3)))
    assert label != answer
    assert count == judge.confusion[label, answer] == (judge.confusion - np.diag(judge.confusion.diagonal())).max()
