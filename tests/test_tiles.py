"""Tiles on tori that are not square: the devices of a tile are the block that its shape says, and neighbours in the
batch."""

import jax
import numpy as np
import pytest

from podium.mesh import TILE_AXES, X_AXES, Y_AXES, batch_sharding, build_mesh
from podium.recipe.torus import Shape, Torus

TORI = [
    Torus(Shape(2, 8), Shape(1, 4)),
    Torus(Shape(8, 2), Shape(4, 1)),
    Torus(Shape(2, 8), Shape(2, 2)),
    Torus(Shape(4, 2, 2), Shape(2, 1, 2)),
    Torus(Shape(2, 4, 2), Shape(1, 2, 1)),
]


@pytest.mark.parametrize("torus", TORI, ids=lambda torus: f"{torus}-{torus.tile}")
def test_a_run_of_the_batch_is_a_block_of_the_torus(torus):
    devices = jax.devices()[: torus.chips]
    place = dict(zip(devices, np.ndindex(*torus.shape), strict=True))  # devices are listed row by row, lanes together
    runs = batch_sharding(build_mesh(torus, devices)).devices_indices_map((torus.chips,))
    in_batch = sorted(runs, key=lambda device: runs[device][0].start)
    for first in range(0, torus.chips, torus.tile.chips):
        block = np.array([place[device] for device in in_batch[first : first + torus.tile.chips]])
        assert tuple(np.ptp(block, axis=0) + 1) == torus.tile
        assert (block.min(axis=0) % torus.tile == 0).all()
        assert len({tuple(at) for at in block}) == torus.tile.chips


@pytest.mark.parametrize("torus", TORI, ids=lambda torus: f"{torus}-{torus.tile}")
def test_axes_are_as_long_as_their_names_say(torus):
    mesh = build_mesh(torus, jax.devices()[: torus.chips])
    length = dict(mesh.shape)
    assert tuple(length[axis] for axis in TILE_AXES) == torus.tile
    assert np.prod([length[axis] for axis in Y_AXES]) == torus.shape.rows
    assert np.prod([length[axis] for axis in X_AXES]) == torus.shape.cols
