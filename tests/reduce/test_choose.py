from dataclasses import dataclass

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from podium.reduce import TorusAxes, Xla, auto, choose, ring, torus

AXES = TorusAxes(("row",), ("col",))


@pytest.fixture
def mesh() -> Mesh:
    return jax.make_mesh((2, 2), ("row", "col"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:4])


@dataclass(frozen=True)
class SlowFrom(Xla):
    """XLA's, made slower by repeating it, from a size on."""

    size: int

    def all_reduce(self, flat):
        total = super().all_reduce(flat)
        for _ in range(60 if flat.size >= self.size else 0):
            total = super().all_reduce(flat + total)
        return total


def test_takes_the_faster_one_for_each_size(mesh: Mesh) -> None:
    slow_when_large, slow_always = SlowFrom(AXES, 50_000), SlowFrom(AXES, 0)
    fast = Xla(AXES)
    assert choose([slow_always, fast], [1000, 100_000], mesh) == {1000: fast, 100_000: fast}
    assert choose([slow_always, slow_when_large], [1000], mesh) == {1000: slow_when_large}


def test_auto_offers_every_algorithm_on_cpu(mesh: Mesh) -> None:
    chosen = auto(AXES, [5, 5, 7], mesh)
    assert set(chosen) == {5, 7}
    assert set(chosen.values()) <= {Xla(AXES), ring(AXES), torus(AXES)}


def test_auto_takes_the_compilers_own_on_accelerators_unmeasured() -> None:
    @dataclass(frozen=True)
    class Chip:
        id: int
        platform: str = "tpu"
        process_index: int = 0
        device_kind: str = "TPU v3"

    class Described:
        devices = np.array([Chip(k) for k in range(4)], object).reshape(2, 2)

    assert auto(AXES, [10, 20], Described()) == {10: Xla(AXES), 20: Xla(AXES)}  # type: ignore[arg-type]
