"""A job that goes on with the hosts that are left, in real training: a link is cut between network namespaces, and a
node of a real Slurm loses its power. Batches are the same on four hosts and on three, so the losses are those of a run
that nothing happened to."""

import numpy as np
import pytest
from tests.support import elastic, namespaces
from tests.support import slurm as one_machine

pytestmark = pytest.mark.cluster


def assert_same_batches(losses, told):
    """Rounding of sums in another order changes a loss far less than other images would."""
    steps = min(len(losses), len(told.losses))
    assert steps > told.starts[2][1]
    apart = np.abs(np.array(losses[:steps]) - told.losses[:steps])
    assert apart.max() < 1e-3
    assert np.median(np.abs(np.diff(losses))) > 10 * apart.max()


@pytest.fixture(scope="module")
def losses(tmp_path_factory, small_data):
    return elastic.undisturbed_losses(tmp_path_factory.mktemp("undisturbed"), small_data, steps=400)


@pytest.mark.skipif(bool(namespaces.missing()), reason=namespaces.missing())
def test_a_cut_link_costs_a_host_and_a_mended_one_brings_it_back(losses, tmp_path, small_data):
    told = elastic.on_namespaces(tmp_path, small_data)
    assert [torus for torus, _ in told.starts] == ["1x3", "2x2", "1x3", "2x2"]
    assert "podium: 10.213.97.2 no longer answers; restarting (1 of 3)" in told.said
    assert "training on 3 of 4 hosts; missing: 10.213.97.2" in told.said
    assert "10.213.97.2 is back; continuing" in told.said
    assert_same_batches(losses, told)


@pytest.mark.skipif(bool(one_machine.missing()), reason=one_machine.missing())
def test_a_node_that_goes_down_leaves_three_and_its_return_makes_four(losses, tmp_path_factory, small_data):
    folder = tmp_path_factory.mktemp("slurm")
    with one_machine.started(folder) as slurm:
        told = elastic.on_slurm(slurm, folder, small_data)
    assert [torus for torus, _ in told.starts] == ["2x2", "1x3", "2x2"]
    assert f"training on 3 of 4 hosts; missing: {one_machine.NODES[3]}" in told.said
    assert "nodes are back" in told.said
    assert_same_batches(losses, told)
