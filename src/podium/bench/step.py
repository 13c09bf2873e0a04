"""How fast is a training step on this machine, beside PyTorch's? The same network, batch and cores, both warmed up,
taking turns in one run. Podium's side is the very step that `train` runs, on one chip; PyTorch's is eager, channels
last, oneDNN, in a process of its own: how memory is kept is a process's setting, and PyTorch's users have another.
"""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

import jax

from podium.bench import timing
from podium.bench.step_case import CASES, Case, random_batch
from podium.errors import UserError
from podium.host.malloc import keep
from podium.mesh import build_mesh, find_devices
from podium.recipe.reading import from_dict
from podium.recipe.torus import lay_out
from podium.step.programs import build_step


def run(case_names: tuple[str, ...], rounds: int) -> dict[str, Any]:
    """Images per second of both, and Podium's share of PyTorch's."""
    timing.check_rounds(rounds)
    for name in case_names:
        if name not in CASES:
            raise UserError(f"there is no step benchmark {name!r}; choose from {', '.join(CASES)}")
    if not find_spec("torch"):
        raise UserError("PyTorch is not installed; make install EXTRAS=bench brings it")
    keep()  # as `train` does
    results: dict[str, Any] = {}
    for name in case_names:
        case = CASES[name]
        with _pytorch(case) as pytorch:
            rates = timing.alternate({"podium": _podium(case), "pytorch": pytorch}, rounds)
        results[name] = {
            "podium": timing.spread(rates["podium"]),
            "pytorch": timing.spread(rates["pytorch"]),
            "ratio": timing.ratios(rates, "podium", "pytorch"),
            "batch": case.batch,
            "rounds": rounds,
        }
    return {"cases": results, "machine": timing.machine("jax", "jaxlib", "flax", "torch")}


def _podium(case: Case) -> Any:
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
    step = build_step(recipe, build_mesh(lay_out(shape, case.batch, case.batch), devices))
    image, label = random_batch(case)
    batch = jax.device_put({"image": image[None], "label": label[None]}, step.train_batches)
    state = step.init()

    def run() -> int:
        nonlocal state
        for _ in range(case.steps):
            state, metrics = step.train(state, batch)
        jax.block_until_ready(metrics)
        return case.batch * case.steps

    return run


@contextlib.contextmanager
def _pytorch(case: Case) -> Iterator[Callable[[], int]]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve_pytorch, args=(case, theirs), daemon=True)
    process.start()
    theirs.close()

    def run() -> int:
        ours.send(None)
        return int(ours.recv())

    with ours:
        yield run
    process.join()


def _serve_pytorch(case: Case, connection: Connection) -> None:
    from podium.bench import torch_step  # PyTorch comes with the bench extra, and is loaded in this process alone

    run = torch_step.build(case)
    with contextlib.suppress(EOFError):  # the benchmark has ended
        while True:
            connection.recv()
            connection.send(run())
