import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium import topology
from podium.errors import UserError


@given(
    rows=st.integers(1, 6), cols=st.integers(1, 6), per_chip=st.integers(1, 12), data=st.data()
)  # fmt: skip
def test_every_valid_span_is_laid_out_and_holds_its_examples(rows, cols, per_chip, data):
    batch = rows * cols * per_chip
    span = data.draw(st.sampled_from(topology.valid_spans(rows, cols, batch)))
    torus = topology.lay_out(rows, cols, batch, span)
    assert rows % torus.tile_rows == 0
    assert cols % torus.tile_cols == 0
    if span <= per_chip:
        assert torus.tile_chips == 1
        assert per_chip % span == 0
    else:
        assert torus.tile_chips * per_chip == span


@given(rows=st.integers(1, 5), cols=st.integers(1, 5), batch=st.integers(1, 60), span=st.integers(1, 60))
def test_every_other_span_is_refused_with_the_choices(rows, cols, batch, span):
    if batch % (rows * cols) == 0 and span in topology.valid_spans(rows, cols, batch):
        return
    with pytest.raises(UserError, match=r"not divisible|spans that do"):
        topology.lay_out(rows, cols, batch, span)


def test_a_tile_is_a_block_of_neighbours_and_contiguous_in_the_batch():
    torus = topology.lay_out(4, 4, 64, 16)
    assert (torus.tile_rows, torus.tile_cols) == (2, 2)
    mesh = torus.mesh(jax.devices())
    where = {device: divmod(i, 4) for i, device in enumerate(jax.devices())}
    places = topology.batch_sharding(mesh).devices_indices_map((64,))
    order = sorted(places, key=lambda device: places[device][0].start)
    for tile in np.arange(16).reshape(4, 4):
        rows, cols = zip(*(where[order[i]] for i in tile), strict=True)
        assert max(rows) - min(rows) == 1
        assert max(cols) - min(cols) == 1


@pytest.mark.parametrize(("chips", "shape"), [(1, (1, 1)), (8, (2, 4)), (12, (3, 4)), (16, (4, 4)), (13, (1, 13))])
def test_most_square(chips, shape):
    assert topology.most_square(chips) == shape


def test_devices_with_coordinates_are_walked_row_by_row():
    class Chip:
        def __init__(self, x, y, core):
            self.coords, self.core_on_chip = (x, y, 0), core

        def __repr__(self):
            return f"{self.coords} {self.core_on_chip}"

    chips = [Chip(x, y, core) for core in (1, 0) for x in (1, 0) for y in (1, 0)]
    walked = [(c.coords[1], c.coords[0], c.core_on_chip) for c in topology.in_wire_order(chips)]
    assert walked == sorted(walked)


def test_a_torus_larger_than_the_devices_is_one_clear_line():
    with pytest.raises(UserError, match=r"torus=9x9 needs 81 devices and 16 are there"):
        topology.find_devices("9x9")
