"""The table of mutants fits the code: what changes a line that stands there changes the table too."""

from tests.mutants.judge import ROOT
from tests.mutants.table import read


def test_every_mistake_has_its_place_in_the_code():
    assert len(read(ROOT)) > 200
