"""How `reduce = auto` is settled, remembered, and told of where it cannot be written down."""

import jax
import jax.numpy as jnp
import pytest
from tests.support.small_runs import small_recipe

from podium.errors import UserError
from podium.host.sealed import unseal, write_sealed
from podium.mesh import build_mesh, find_devices
from podium.recipe.torus import lay_out
from podium.train.reduction_choice import choose_reduction

pytestmark = pytest.mark.slow

PARAMS = {"kernel": jax.ShapeDtypeStruct((3, 4), jnp.float32)}


@pytest.fixture
def mesh():
    shape, devices = find_devices("2x2")
    return build_mesh(lay_out(shape, 16, 8), devices)


def test_a_choice_is_kept_for_the_same_chips_and_made_anew_on_others(mesh, tmp_path):
    # one process: there are no sockets to time
    assert choose_reduction(small_recipe(), mesh, PARAMS, run=tmp_path, note=print).reduce == "xla"
    written = unseal((tmp_path / "reduction.json").read_bytes())
    assert written.keys() == {"here", "reduce", "costs", "why"}
    write_sealed(tmp_path / "reduction.json", {**written, "reduce": "ring"})
    assert choose_reduction(small_recipe(), mesh, PARAMS, run=tmp_path, note=print).reduce == "ring"
    assert choose_reduction(small_recipe(bucket_mb=1.0), mesh, PARAMS, run=tmp_path, note=print).reduce == "xla"
    assert choose_reduction(small_recipe(reduce="torus"), mesh, PARAMS, run=tmp_path, note=print).reduce == "torus"


def test_a_choice_that_cannot_be_written_is_told_in_one_line(mesh, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"reduction\.json could not be written: Not a directory; make room or"):
        choose_reduction(small_recipe(), mesh, PARAMS, run=tmp_path / "file", note=print)


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[]", b'{"here": {}}', b'{"here": {}, "reduce": "ring", "sha256": "0"}']
)
def test_a_choice_that_cannot_be_read_is_made_anew(mesh, tmp_path, content):
    (tmp_path / "reduction.json").write_bytes(content)
    assert choose_reduction(small_recipe(), mesh, PARAMS, run=tmp_path, note=print).reduce == "xla"
    assert unseal((tmp_path / "reduction.json").read_bytes(), required=True)["reduce"] == "xla"
