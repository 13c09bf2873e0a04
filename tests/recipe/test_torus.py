"""Rows are rows and columns are columns: tori that are not square, and tiles that lie across them."""

import itertools

import pytest

from podium.errors import UserError
from podium.recipe.torus import Shape, Torus, lay_out, most_square, parse_torus, valid_spans


@pytest.mark.parametrize(
    ("shape", "chips", "tile"),
    [
        # A tile of 4 in 2 × 8: as square as it can be. Of 8 it must lie along the row, of 8 in 8 × 2 down the column.
        (Shape(2, 8), 4, (2, 2, 1)),
        (Shape(2, 8), 8, (2, 4, 1)),
        (Shape(8, 2), 8, (4, 2, 1)),
        (Shape(1, 8), 4, (1, 4, 1)),
        (Shape(8, 1), 4, (4, 1, 1)),
        (Shape(3, 4), 3, (3, 1, 1)),
        (Shape(4, 3), 3, (1, 3, 1)),
        (Shape(6, 4), 12, (3, 4, 1)),
        (Shape(4, 6), 12, (4, 3, 1)),
    ],
)
def test_a_tile_lies_in_the_torus_as_the_torus_lies(shape, chips, tile):
    torus = lay_out(shape, shape.chips * 2, chips * 2)
    assert torus.tile == tile
    assert torus.shape == shape


@pytest.mark.parametrize("shape", [Shape(2, 8), Shape(3, 4), Shape(6, 2), Shape(2, 3, 2)])
def test_tiles_are_the_shortest_that_there_are(shape):
    """Against every block that divides the torus, tried one by one."""
    for r, c, n in itertools.product(*(range(1, length + 1) for length in shape)):
        if any(whole % part for whole, part in zip(shape, (r, c, n), strict=True)):
            continue
        found = lay_out(shape, shape.chips, r * c * n).tile
        assert found.chips == r * c * n
        assert found.lanes >= n
        if found.lanes == n:
            assert found.rows + found.cols <= r + c
        assert not any(whole % part for whole, part in zip(shape, found, strict=True))


def test_a_span_within_a_chip_needs_no_tile():
    assert lay_out(Shape(2, 4), 64, 4) == Torus(Shape(2, 4))
    assert lay_out(Shape(2, 4), 64, 8) == Torus(Shape(2, 4))
    assert lay_out(Shape(2, 4), 64, 16).tile.chips == 2


def test_spans_are_the_divisors_of_a_chips_share_and_the_tiles_multiples():
    assert valid_spans(Shape(2, 3), 24) == [1, 2, 4, 8, 12, 24]
    assert valid_spans(Shape(1, 1), 6) == [1, 2, 3, 6]
    assert valid_spans(Shape(1, 3), 3) == [1, 3]


@pytest.mark.parametrize(
    ("batch", "advice"), [(10, "use 8 or 16"), (17, "use 16 or 24"), (3, "use 8$"), (8 * 5 + 7, "use 40 or 48")]
)
def test_a_batch_that_does_not_divide_is_told_its_neighbours(batch, advice):
    with pytest.raises(UserError, match=rf"batch_global={batch} is not divisible by 8 chips \(2x4\); {advice}"):
        lay_out(Shape(2, 4), batch, 1)


def test_the_refusal_of_a_span_lists_those_that_fit():
    with pytest.raises(
        UserError, match=r"norm_span=3 fits neither into nor onto 4 images per chip .*: 1, 2, 4, 8, 16$"
    ):
        lay_out(Shape(2, 2), 16, 3)


def test_shapes_are_written_rows_first():
    assert str(Shape(2, 4)) == "2x4"
    assert str(Shape(2, 4, 3)) == "2x4x3"
    assert str(Torus(Shape(4, 2))) == "4x2"
    assert Shape(2, 4, 3).chips == Torus(Shape(2, 4, 3)).chips == 24
    parsed = parse_torus("2x4x3")
    assert (parsed.rows, parsed.cols, parsed.lanes) == (2, 4, 3)


def test_a_square_is_wider_than_high():
    assert [most_square(n) for n in (2, 6, 12, 30)] == [(1, 2), (2, 3), (3, 4), (5, 6)]
