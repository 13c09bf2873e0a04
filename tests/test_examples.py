"""The examples in the docstrings of public names, run as they stand, in a folder that holds what they expect: prepared
images, photos and, for `open_run`, the run that the example of `train_recipe` has trained."""

import doctest

import pytest

import podium

WITH_EXAMPLES = {
    "DistributedBatchNorm", "ImageSet", "Limits", "Loader", "NumpyLoader", "Own", "Recipe", "build_norm", "build_step",
    "lars", "load_recipe", "open_run", "prepare", "recipe_mesh", "train_recipe",
}  # fmt: skip


def run_example(name):
    public = getattr(podium, name)
    example = doctest.DocTestParser().get_doctest(public.__doc__, {}, name, None, 0)
    assert example.examples, f"{name} has no example"
    shown: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=shown.append)
    assert not shown, "".join(shown)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", sorted(WITH_EXAMPLES - {"open_run", "train_recipe"}))
def test_an_example_shows_what_happens(name):
    run_example(name)


@pytest.mark.usefixtures("here")
def test_the_examples_of_a_run_follow_each_other():
    run_example("train_recipe")
    run_example("open_run")


def test_every_name_for_python_has_an_example():
    assert WITH_EXAMPLES | {"ResNet", "Torus", "UserError"} == set(podium.__all__)
