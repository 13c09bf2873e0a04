"""The choice within one process; tests/processes measures between real ones."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from podium.reduce import TorusAxes, Xla, choose, fastest

AXES = TorusAxes(("row",), ("col",))


@pytest.fixture
def mesh() -> Mesh:
    return jax.make_mesh((2, 2), ("row", "col"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:4])


@dataclass(frozen=True)
class Slow(Xla):
    """XLA's, made slower by repeating it, below and from a size on."""

    below: int = 0
    times: int = 60

    def all_reduce(self, flat):
        total = super().all_reduce(flat)
        for _ in range(self.times if flat.size < self.below else 0):
            total = super().all_reduce(flat + total)
        return total


def test_takes_the_one_with_the_least_time_over_all_sizes(mesh: Mesh, monkeypatch) -> None:
    monkeypatch.setattr(choose, "over_sockets", lambda mesh: True)
    reductions = {
        "slow": lambda axes: Slow(axes, below=10**9),
        "slow when small": lambda axes: Slow(axes, below=5000),
        "fast": Xla,
    }
    for name, make in reductions.items():
        monkeypatch.setitem(choose.REDUCTIONS, name, make)
    assert fastest(AXES, [1000, 100_000], mesh, names=["slow", "fast"]).name == "fast"
    assert fastest(AXES, [1000], mesh, names=["slow when small", "fast"]).name == "fast"
    assert fastest(AXES, [100_000], mesh, names=["slow", "slow when small"]).name == "slow when small"


def test_takes_the_compilers_own_within_a_process(mesh: Mesh) -> None:
    assert fastest(AXES, [1000], mesh).name == "xla"


def test_takes_the_compilers_own_on_accelerators() -> None:
    @dataclass(frozen=True)
    class Chip:
        process_index: int
        platform: str = "tpu"

    class Described:
        devices = np.array([Chip(k) for k in range(4)], object).reshape(2, 2)

    assert fastest(AXES, [10, 20], Described()).name == "xla"  # type: ignore[arg-type]
