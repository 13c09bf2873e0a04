import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.errors import UserError
from podium.mesh import batch_sharding, build_mesh, find_devices, in_wire_order, natural_shape
from podium.recipe.torus import Shape, lay_out, most_square, parse_torus, valid_spans

shapes = st.builds(Shape, st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 2, 4]))


@given(shape=shapes, per_chip=st.integers(1, 12), data=st.data())
def test_every_valid_span_is_laid_out_and_holds_its_examples(shape, per_chip, data):
    batch = shape.chips * per_chip
    span = data.draw(st.sampled_from(valid_spans(shape, batch)))
    tile = lay_out(shape, batch, span).tile
    assert all(whole % part == 0 for whole, part in zip(shape, tile, strict=True))
    if span <= per_chip:
        assert tile.chips == 1
        assert per_chip % span == 0
    else:
        assert tile.chips * per_chip == span


@given(shape=shapes, batch=st.integers(1, 60), span=st.integers(1, 60))
def test_every_other_span_is_refused_with_the_choices(shape, batch, span):
    if batch % shape.chips == 0 and span in valid_spans(shape, batch):
        return
    with pytest.raises(UserError, match=r"not divisible|spans that do"):
        lay_out(shape, batch, span)


def groups_in_batch_order(torus, batch, tile_chips):
    """Places (row, col, lane) of the devices, tile by tile as the batch runs through them."""
    shape = torus.shape
    devices = jax.devices()[: shape.chips]
    where = dict(zip(devices, np.ndindex(*shape), strict=True))
    places = batch_sharding(build_mesh(torus, devices)).devices_indices_map((batch,))
    order = sorted(places, key=lambda device: places[device][0].start)
    return np.array([where[device] for device in order]).reshape(-1, tile_chips, 3)


def test_a_tile_is_a_block_of_neighbours_and_contiguous_in_the_batch():
    torus = lay_out(Shape(4, 4), 64, 16)
    assert torus.tile == (2, 2, 1)
    for tile in groups_in_batch_order(torus, 64, 4):
        np.testing.assert_array_equal(np.ptp(tile, axis=0), [1, 1, 0])


def test_a_tile_takes_the_lanes_of_a_place_before_its_neighbours():
    two_lanes, a_row = (lay_out(Shape(2, 2, 4), 32, span) for span in (4, 16))
    assert two_lanes.tile == (1, 1, 2)
    assert a_row.tile == (1, 2, 4)
    for tile in groups_in_batch_order(two_lanes, 32, 2):
        np.testing.assert_array_equal(np.ptp(tile, axis=0), [0, 0, 1])


@pytest.mark.parametrize(("text", "shape"), [("2x4", (2, 4, 1)), ("1X3x2", (1, 3, 2))])
def test_a_torus_is_read_from_text_and_written_back(text, shape):
    assert parse_torus(text) == shape
    assert parse_torus(str(Shape(*shape))) == shape


@pytest.mark.parametrize("text", ["4", "2x0", "2x-1", "axb", "1x2x3x4", ""])
def test_what_is_no_torus_is_refused_with_an_example(text):
    with pytest.raises(UserError, match=r"is not ROWSxCOLS.*torus=2x4"):
        parse_torus(text)


@pytest.mark.parametrize(("chips", "shape"), [(1, (1, 1)), (8, (2, 4)), (12, (3, 4)), (16, (4, 4)), (13, (1, 13))])
def test_most_square(chips, shape):
    assert most_square(chips) == shape


class Chip:
    """A device as a TPU runtime lists it."""

    def __init__(self, x, y, core):
        self.coords, self.core_on_chip, self.process_index = (x, y, 0), core, 0


class Gpu:
    def __init__(self, process_index):
        self.process_index = process_index


def test_devices_with_coordinates_are_walked_row_by_row_with_their_cores_as_lanes():
    chips = [Chip(x, y, core) for core in (1, 0) for x in (2, 1, 0) for y in (1, 0)]
    walked = [(c.coords[1], c.coords[0], c.core_on_chip) for c in in_wire_order(chips)]
    assert walked == list(np.ndindex(2, 3, 2))
    assert natural_shape(chips) == (2, 3, 2)


@pytest.mark.parametrize(
    ("hosts", "each", "shape"), [(1, 8, (2, 4, 1)), (4, 8, (2, 2, 8)), (2, 1, (1, 2, 1)), (16, 4, (4, 4, 4))]
)
def test_hosts_stand_in_a_square_with_their_devices_as_lanes(hosts, each, shape):
    assert natural_shape([Gpu(host) for host in range(hosts) for _ in range(each)]) == shape


def test_a_torus_larger_than_the_devices_is_one_clear_line():
    with pytest.raises(UserError, match=r"torus=9x9 needs 81 devices and 16 are there"):
        find_devices("9x9")
