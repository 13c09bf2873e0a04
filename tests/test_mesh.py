import random
from dataclasses import dataclass

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.described import described_gpus, needs_cuda_compiler

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

    platform = "tpu"

    def __init__(self, x, y, core):
        self.coords, self.core_on_chip, self.process_index = (x, y, 0), core, 0


class Core:
    """A simulated chip of one of several processes."""

    platform = "cpu"

    def __init__(self, process_index):
        self.process_index = process_index


@dataclass(frozen=True)
class Gpu:
    """A GPU as a live runtime lists it: hosts are slices, told apart by their boot ids."""

    id: int
    process_index: int
    slice_index: int
    platform: str = "gpu"


def test_devices_with_coordinates_are_walked_row_by_row_with_their_cores_as_lanes():
    chips = [Chip(x, y, core) for core in (1, 0) for x in (2, 1, 0) for y in (1, 0)]
    walked = [(c.coords[1], c.coords[0], c.core_on_chip) for c in in_wire_order(chips)]
    assert walked == list(np.ndindex(2, 3, 2))
    assert natural_shape(chips) == (2, 3, 2)


@pytest.mark.parametrize(
    ("hosts", "each", "shape"), [(1, 8, (2, 4, 1)), (4, 8, (2, 2, 8)), (2, 1, (1, 2, 1)), (16, 4, (4, 4, 4))]
)
def test_hosts_stand_in_a_square_with_their_devices_as_lanes(hosts, each, shape):
    assert natural_shape([Core(host) for host in range(hosts) for _ in range(each)]) == shape


@pytest.mark.parametrize(
    ("text", "shape", "row"),
    [("1x1x8", (1, 1, 8), 8), ("2x1x8", (1, 2, 8), 8), ("1x3x4", (1, 3, 4), 4), ("2x2x4", (1, 2, 8), 8)],
)
@needs_cuda_compiler
def test_described_gpus_stand_host_by_host_with_a_hosts_gpus_as_lanes(text, shape, row):
    gpus = described_gpus(text)
    assert natural_shape(gpus) == shape
    shuffled = random.Random(0).sample(gpus, len(gpus))
    assert in_wire_order(shuffled) == sorted(gpus, key=lambda gpu: (gpu.process_index, gpu.id))
    tile = lay_out(natural_shape(gpus), 2 * len(gpus), 2 * row).tile
    assert tile == (1, 1, row)
    places = batch_sharding(build_mesh(lay_out(natural_shape(gpus), 2 * len(gpus), 2 * row), in_wire_order(gpus)))
    by_start = sorted(places.devices_indices_map((2 * len(gpus),)).items(), key=lambda item: item[1][0].start)
    hosts = [host_of(device, text) for device, _ in by_start]
    assert all(len(set(hosts[first : first + row])) == 1 for first in range(0, len(hosts), row))


def host_of(gpu, text):
    """By the described shape: partitions where there are several, else processes."""
    return gpu.coords[0] if not text.startswith("1x") else gpu.coords[1]


def test_gpus_of_one_process_each_stand_host_by_host_whatever_order_ranks_were_given_out_in():
    # Slurm's cyclic distribution: ranks 0, 2, 4, 6 on the first host, 1, 3, 5, 7 on the second.
    gpus = [Gpu(id=rank, process_index=rank, slice_index=rank % 2) for rank in range(8)]
    assert natural_shape(gpus) == (1, 2, 4)
    assert [gpu.process_index for gpu in in_wire_order(gpus)] == [0, 2, 4, 6, 1, 3, 5, 7]


def test_gpus_of_one_process_each_on_one_host_are_its_lanes():
    gpus = [Gpu(id=rank, process_index=rank, slice_index=0) for rank in range(8)]
    assert natural_shape(gpus) == (1, 1, 8)


def test_hosts_with_unequal_numbers_of_gpus_have_no_lanes():
    assert natural_shape([Gpu(id=k, process_index=int(k > 4), slice_index=int(k > 4)) for k in range(6)]) == (1, 6, 1)


def test_a_torus_larger_than_the_devices_is_one_clear_line():
    with pytest.raises(UserError, match=r"torus=9x9 needs 81 devices and 16 are there"):
        find_devices("9x9")
