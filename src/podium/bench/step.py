"""How fast is a training step on this machine, beside PyTorch's? The same network, batch and cores, all warmed up,
taking turns in one run. Podium's side is the very step that `train` runs, on one chip; PyTorch's is channels last, on
oneDNN, as it is (eager) and by torch.compile, each in a process of its own: how memory is kept is a process's setting,
and PyTorch's users have another. How much of the machine's peak a step reaches follows from the products that the
network's layers ask for, however few of them Winograd leaves to do.
"""

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

import jax

from podium.bench import timing
from podium.bench.peak import measure_peak
from podium.bench.step_case import CASES, Case, random_batch
from podium.errors import UserError
from podium.host.malloc import keep
from podium.mesh import build_mesh, find_devices
from podium.models import native
from podium.recipe.reading import from_dict
from podium.recipe.torus import lay_out
from podium.step.programs import build_step

_ISAS = ("avx512", "avx2")


@dataclass(frozen=True)
class Settings:
    rounds: int
    cores: int | None = None
    """How many to use; all that there are if not given."""
    isa: str | None = None
    """Which instructions all may use at most."""


def run(case_names: tuple[str, ...], settings: Settings) -> dict[str, Any]:
    """Images per second of each, and Podium's share of the better PyTorch."""
    timing.check_rounds(settings.rounds)
    for name in case_names:
        if name not in CASES:
            raise UserError(f"there is no step benchmark {name!r}; choose from {', '.join(CASES)}")
    if not find_spec("torch"):
        raise UserError("PyTorch is not installed; make install EXTRAS=bench brings it")
    _limit(settings)
    keep()  # as `train` does
    results = {name: _compare(CASES[name], settings.rounds) for name in case_names}
    return {
        "cases": results,
        "peak_gflops": measure_peak(),
        "instructions": None if native.missing else native.instruction_set(),
        "machine": timing.machine("jax", "jaxlib", "flax", "torch"),
    }


def _limit(settings: Settings) -> None:
    """Fewer cores or older instructions, for this process and those that it starts."""
    if settings.cores is not None:
        there = sorted(os.sched_getaffinity(0))
        if not 1 <= settings.cores <= len(there):
            raise UserError(f"--cores {settings.cores}: this machine has {len(there)}; give 1 to {len(there)}")
        os.sched_setaffinity(0, there[: settings.cores])
    if settings.isa is None:
        return
    if settings.isa not in _ISAS:
        raise UserError(f"--isa {settings.isa} is not one of {', '.join(_ISAS)}")
    if native.missing or not native.use_instruction_set(settings.isa):
        raise UserError(f"--isa {settings.isa}: {native.missing or 'this processor does not have it'}")
    if settings.isa == "avx2":  # of XLA, oneDNN and PyTorch's own loops; read when each of them starts
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ |= {
            "XLA_FLAGS": f"{flags} --xla_cpu_max_isa=AVX2".strip(),
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "ATEN_CPU_CAPABILITY": "avx2",
        }


def _compare(case: Case, rounds: int) -> dict[str, Any]:
    run, flops = _podium(case)
    with _pytorch(case, compiled=False) as eager, _pytorch(case, compiled=True) as compiled:
        rates = timing.alternate({"podium": run, "pytorch": eager, "torch_compile": compiled}, rounds)
    better = max(("pytorch", "torch_compile"), key=lambda peer: timing.spread(rates[peer])["median"])
    of_podium = timing.spread(rates["podium"])
    return {
        **{name: timing.spread(rate) for name, rate in rates.items()},
        "better_peer": better,
        "ratio": timing.ratios(rates, "podium", better),
        "ratio_to_pytorch": timing.ratios(rates, "podium", "pytorch"),
        "ratio_to_torch_compile": timing.ratios(rates, "podium", "torch_compile"),
        "gflops": of_podium["median"] * flops / 1e9,
        "batch": case.batch,
        "rounds": rounds,
    }


def _podium(case: Case) -> tuple[Callable[[], int], float]:
    """Runs some steps; and how many floating-point operations an image takes, counted without Winograd."""
    recipe = from_dict(
        {
            "epochs": 100,
            "batch_global": case.batch,
            "label_smoothing": 0.1,
            "data": {"image_size": case.image_size},
            "model": {"name": case.model, "stem": case.stem, "classes": case.classes, "norm_span": case.batch},
            "optimizer": {"name": "sgd", "learning_rate": 0.01},
            "schedule": {"decay": "cosine", "warmup_epochs": 0},
        }
    )
    shape, devices = find_devices("1x1")
    mesh = build_mesh(lay_out(shape, case.batch, case.batch), devices)
    step = build_step(recipe, mesh)
    image, label = random_batch(case)
    batch = jax.device_put({"image": image[None], "label": label[None]}, step.train_batches)
    state = step.init()
    with native.left_to_xla():
        plain = build_step(recipe, mesh).train.lower(state, batch)
    flops = float(plain.cost_analysis()["flops"]) / case.batch

    def run() -> int:
        nonlocal state
        for _ in range(case.steps):
            state, metrics = step.train(state, batch)
        jax.block_until_ready(metrics)
        return case.batch * case.steps

    return run, flops


@contextlib.contextmanager
def _pytorch(case: Case, *, compiled: bool) -> Iterator[Callable[[], int]]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve_pytorch, args=(case, compiled, theirs), daemon=True)
    process.start()
    theirs.close()

    def run() -> int:
        ours.send(None)
        return int(ours.recv())

    with ours:
        yield run
    process.join()


def _serve_pytorch(case: Case, compiled: bool, connection: Connection) -> None:
    from podium.bench import torch_step  # PyTorch comes with the bench extra, and is loaded in this process alone

    run = torch_step.build(case, compiled=compiled)
    with contextlib.suppress(EOFError):  # the benchmark has ended
        while True:
            connection.recv()
            connection.send(run())
