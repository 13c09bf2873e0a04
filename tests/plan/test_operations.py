"""The groups of operations, on lines that libtpu 0.0.42.1 wrote for the peer's step (tests/plan/compiled)."""

import re
from pathlib import Path

import pytest

from podium.plan import operations
from podium.plan.operations import read_operations

_TEXT = (Path(__file__).parent / "compiled" / "v3_4x4_flax.txt").read_text()


def test_every_operation_is_in_the_group_that_it_belongs_to():
    assert read_operations(_TEXT).groups == {
        operations.FORWARD: 826_210,
        operations.DATA_GRADIENT: 465_709,  # with the sums of batch norm's gradient in the same fusion
        operations.WEIGHT_GRADIENT: 65_808 + 23_068,  # a 3×3 and the classifier
        operations.ELEMENT_WISE: 291_240,
        operations.POOLING: 225_011,
        operations.UPDATE: 108_004,
        operations.COPIES: 587_048,
    }


def test_the_dearest_come_first_with_what_they_do_and_move():
    first, second, *_ = read_operations(_TEXT).dearest
    assert (first.cycles, first.group, first.shape) == (826_210, operations.FORWARD, "bf16[16,112,112,64]")
    assert first.of == "fusion: jvp(ResNet)/Conv_0/conv_general_dilated"
    assert (second.name, second.group) == ("copy.864", operations.COPIES)


def test_what_has_no_price_is_listed_with_its_bytes():
    (pool,) = read_operations(_TEXT).unpriced
    wide, narrow = 16 * 112 * 112 * 64 * 2, 16 * 56 * 56 * 64 * 2
    assert (pool.group, pool.cycles, pool.bytes) == (operations.POOLING, 0, 2 * wide + narrow + 2)
    called = _TEXT.replace(
        "ENTRY %main.1 (p: f32[]) -> f32[] {",
        'ENTRY %main.1 (p: f32[]) -> f32[] {\n  %k = f32[1024]{0} custom-call(), custom_call_target="tpu_custom_call"\n'
        '  %l = f32[1024]{0} custom-call(), custom_call_target="tpu_custom_call"',
    )
    custom = read_operations(called).unpriced[-1]
    assert (custom.of, custom.count, custom.bytes) == ("custom-call tpu_custom_call", 2, 8192)


def test_a_kernels_gradient_is_known_by_its_labels_or_by_its_shape():
    """Images last, the examples are where features usually stand: then the shape, which is a weight's, decides."""
    swapped = _TEXT.replace("dim_labels=f01b_i01o->01bf", "dim_labels=b01f_i01o->01bf")
    assert swapped != _TEXT
    assert read_operations(swapped).groups == read_operations(_TEXT).groups
    without_weights = re.sub(r"\n.*\[3,3,128,128\].* parameter\(.*", "", swapped)
    assert read_operations(without_weights).groups[operations.WEIGHT_GRADIENT] == 23_068


def test_text_without_an_entry_is_an_error():
    with pytest.raises(ValueError):
        read_operations("HloModule nothing")
