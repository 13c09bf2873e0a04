"""What is odd about a data set is said before hours are spent on it."""

from types import SimpleNamespace

import numpy as np
from tests.support.small_runs import small_recipe

from podium.train.data_warnings import data_warnings


def images(*counts):
    """A set with so many images of each class."""

    class Images(SimpleNamespace):
        def __len__(self):
            return len(self.labels)

    labels = np.repeat(np.arange(len(counts)), counts)
    return Images(classes=tuple("abcdef"[: len(counts)]), labels=labels)


def told(train, validation):
    return list(data_warnings(small_recipe(), images(*train), images(*validation)))


def test_usual_data_is_not_mentioned():
    assert told((50, 40, 60), (5, 5, 5)) == []


def test_one_class():
    assert told((50,), (5,)) == [
        "there is only one class, a, so every answer is right; a class is a sub-folder of images"
    ]


def test_fewer_images_than_a_batch():
    (line,) = told((5, 6), (1, 1))
    assert line.startswith("11 training images are fewer than batch_global=16")
    assert line.endswith("use --set batch_global=8 --set model.norm_span=8")


def test_strong_imbalance():
    (line,) = told((500, 40), (5, 5))
    assert line.startswith("the classes are uneven: a has 500 training images, b 40;")


def test_classes_without_validation_images():
    (line,) = told((50, 40, 60), (5, 0, 0))
    assert line == "2 classes have no validation images (b, c), so no accuracy"
