"""What XLA's real GPU compiler makes of the demo's step on two described hosts of eight H100s."""

import re

import jax
import pytest
from tests.support.described import described_gpus, needs_cuda_compiler

from podium.mesh import build_mesh, in_wire_order, natural_shape
from podium.plan.gpu_hlo import Peaks, read_gpu_program
from podium.recipe.reading import load_recipe
from podium.recipe.torus import lay_out
from podium.step.compiler_options import compiler_options
from podium.step.programs import batch_shapes, build_step

pytestmark = [needs_cuda_compiler, pytest.mark.slow, pytest.mark.optimized]
H100 = Peaks(989e12, 3350e9)


def compiled(card, sets=()):
    """Eight images a GPU, whose batch norm spans the eight GPUs of a host."""
    gpus = described_gpus("2x1x8", card)
    changes = ["torus=auto", "batch_global=128", "model.norm_span=64", "model.classes=10", *sets]
    recipe = load_recipe("demo", changes)
    torus = lay_out(natural_shape(gpus), recipe.batch_global, recipe.model.norm_span)
    step = build_step(recipe, build_mesh(torus, in_wire_order(gpus)))
    return step.train.lower(jax.eval_shape(step.init), batch_shapes(recipe, step, steps=1)).compile()


@pytest.fixture(scope="module")
def on_h100s():
    return compiled("h100")


@pytest.fixture(scope="module")
def program(on_h100s):
    return read_gpu_program(on_h100s.as_text(), H100, gpus_per_host=8)


def test_convolutions_are_cudnns_with_channels_last(program, on_h100s):
    forward = 10  # of resnet8: the stem, three blocks of two, and a shortcut where a block changes its shape
    assert program.convolutions >= 2 * forward
    assert program.channels_last
    assert " convolution(" not in on_h100s.as_text()


def test_gradients_are_summed_over_all_gpus_while_others_compute(program):
    sums = [c for c in program.collectives if c.gpus == 16]
    assert sums
    assert all(c.hosts == 2 for c in sums)
    assert not any(c.synchronous for c in sums)


def test_no_collective_of_a_batch_norm_tile_crosses_a_host(program):
    of_tiles = [c for c in program.collectives if c.gpus == 8]
    assert len(of_tiles) >= 2 * 8  # each norm's, forward and backward
    assert {c.hosts for c in of_tiles} == {1}
    assert {c.gpus for c in program.collectives} == {8, 16}


def test_the_state_is_donated_and_nothing_waits_for_the_host(on_h100s):
    memory = on_h100s.memory_analysis()
    weights_and_momenta = 2 * 4 * 78_000  # resnet8 has some 78 thousand weights; flat buffers only add to them
    assert memory.alias_size_in_bytes >= weights_and_momenta
    entry = on_h100s.as_text().split("\nENTRY ")[1]
    assert not re.search(r" conditional\(| while\(", entry)


def test_no_gradient_is_scattered_where_bits_must_repeat(program):
    exact = compiled("h100", ["deterministic=true"]).as_text()
    assert "select-and-scatter" not in exact
    assert "xla_gpu_deterministic_ops" in str(options_of("deterministic=true"))
    assert "xla_gpu_deterministic_ops" not in str(options_of("deterministic=false"))


def options_of(change):
    gpus = described_gpus("1x1x8")
    return compiler_options(load_recipe("demo", [change]), build_mesh(lay_out(natural_shape(gpus), 64, 8), gpus))


def test_an_a100_sums_asynchronously_too_buffer_by_buffer_and_the_first_layers_last():
    text = compiled("a100", ["bucket_mb=0.1"]).as_text()
    program = read_gpu_program(text, H100, gpus_per_host=8)
    sums = [c for c in program.collectives if c.gpus == 16]
    assert len(sums) >= 3  # XLA joins none of them, although they are small
    assert not any(c.synchronous for c in sums)
    assert sums[-1].bytes < max(c.bytes for c in sums)
    assert sum(c.under.convolution_us > 0 for c in sums) >= len(sums) // 2
