"""CONTRIBUTING.md: how many mistakes the tests notice."""

from docs.figures.sentences import read, says

SCORE = read("mutants/mutants.json")

PAGES = {"CONTRIBUTING.md": [says("tests notice {} of the {} mistakes", SCORE["killed"], SCORE["mutants"])]}
