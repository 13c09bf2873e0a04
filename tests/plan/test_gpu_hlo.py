"""The reader of modules compiled for GPUs, on lines that jax-cuda12-pjrt 0.10.2 wrote for Podium's own step."""

from pathlib import Path

import pytest

from podium.plan.gpu_hlo import (
    GpuCollective,
    Launches,
    Load,
    Peaks,
    prices_of,
    program_from_json,
    program_to_json,
    read_gpu_program,
)

TEXT = (Path(__file__).parent / "compiled" / "h100_1x8.txt").read_text()
PEAKS = Peaks(flops=1e15, bandwidth=1e12)
# By hand: 2 · positions of the images out · kernel.
FORWARD = 2 * 256 * 112 * 112 * 64 * 7 * 7 * 3
TO_INPUT = 2 * 256 * 7 * 7 * 512 * 3 * 3 * 512
TO_KERNEL = 2 * 256 * 14 * 14 * 1024 * 256
TRANSPOSED = 2 * 2 * 512 * 3 * 3 * 512  # bytes that the fusion without a price reads and writes


@pytest.fixture
def program():
    return read_gpu_program(TEXT, PEAKS, gpus_per_host=8)


def test_kernels_are_what_is_launched_and_no_bitcast_nor_collective(program):
    assert program.whole.kernels == 6
    assert (program.update.kernels, program.update.fusion_us) == (1, 0.20425)
    assert program.convolutions == 3
    assert program.channels_last


def test_long_runs_of_kernels_are_graphs_and_convolutions_are_in_none(program):
    assert program.launches == Launches(graphs=0, in_graphs=0, alone=6)
    line = next(line for line in TEXT.splitlines() if " fusion(" in line and "= bf16" in line)
    many = "".join(line.replace(" = bf16", f".{k} = bf16", 1) + "\n" for k in range(1, 6))
    found = read_gpu_program(TEXT.replace(line + "\n", line + "\n" + many), PEAKS, gpus_per_host=8)
    assert found.launches == Launches(graphs=1, in_graphs=6, alone=5)


def test_fusions_have_the_compilers_price_or_that_of_their_bytes(program):
    assert program.whole.fusion_us == pytest.approx(1.5 + 0.20425 + 1e6 * TRANSPOSED / 1e12)


def test_a_convolution_takes_its_flops_or_its_bytes_whichever_is_more(program):
    assert program.convolution_flops == FORWARD + TO_INPUT + TO_KERNEL
    moved = 2 * (256 * 224 * 224 * 3 + 64 * 7 * 7 * 3 + 256 * 112 * 112 * 64)
    moved_by_kernel = 2 * (256 * 14 * 14 * 256 + 256 * 14 * 14 * 1024 + 1024 * 256)
    by_bytes = [1e6 * size / 1e12 for size in (moved, moved_by_kernel)]
    assert program.whole.convolution_us == pytest.approx(sum(by_bytes) + 1e6 * TO_INPUT / 1e15)


def test_what_is_scheduled_between_start_and_end_lies_under_a_collective(program):
    of_norm, of_gradients = program.collectives
    assert of_norm == GpuCollective("all-gather", 2 * 129 * 4, gpus=2, hosts=1, synchronous=True)
    assert (of_gradients.bytes, of_gradients.gpus, of_gradients.synchronous) == (2508674 * 4, 8, False)
    assert of_gradients.under.kernels == 2
    assert of_gradients.under.convolution_us == pytest.approx(1e6 * TO_INPUT / 1e15)


@pytest.mark.parametrize(
    ("groups", "size", "hosts"),
    [
        ("{{0,1,2,3,4,5,6,7}}", 8, 2),
        ("{{0,1},{2,3},{4,5},{6,7}}", 2, 1),
        ("{{0,4},{1,5},{2,6},{3,7}}", 2, 2),
        ("[2,4]<=[8]", 4, 1),
        ("[4,2]<=[2,4]T(1,0)", 2, 2),
        ("[1,8]<=[8]", 8, 2),
    ],
)
def test_a_group_is_found_to_cross_hosts_by_the_numbers_in_it(groups, size, hosts):
    text = TEXT.replace("{{0,1,2,3,4,5,6,7}}", groups)
    found = read_gpu_program(text, PEAKS, gpus_per_host=4).collectives[1]
    assert (found.gpus, found.hosts) == (size, hosts)


def test_prices_stand_in_where_the_compiler_gives_none():
    bare = TEXT.replace('"name":"sol"', '"name":"none"')
    priced = read_gpu_program(bare, PEAKS, gpus_per_host=8, prices=prices_of(TEXT))
    assert priced.whole.fusion_us == read_gpu_program(TEXT, PEAKS, gpus_per_host=8).whole.fusion_us


def test_a_program_survives_json(program):
    assert program_from_json(program_to_json(program)) == program
    assert Load(1.0, 2.0, 3) + Load(1.0, 1.0, 1) == Load(2.0, 3.0, 4)
