"""How much of the sums between hosts hides behind the backward pass: the step of recipe `cifar10-sgd` on hosts of a
torus of limited links, with sums that start as their buckets fill, with sums that wait for the whole backward pass, and
with none. Needs root, as `podium bench allreduce --links torus` does. Prints JSON.

    python results/allreduce/overlap.py 4x4 25mbit
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

from podium.bench import timing
from podium.bench.links import torus_links
from podium.mesh import recipe_mesh
from podium.recipe.reading import load_recipe
from podium.recipe.torus import parse_torus
from podium.reduce import REDUCTIONS, Sockets, links
from podium.reduce.choose import measured_costs
from podium.reduce.declare_replicated import declare_replicated
from podium.step.programs import batch_shapes, build_step
from podium.step.sums import TORUS_AXES

ROUNDS, IMAGES = 5, 32  # images of each host
SETS = [f"model.norm_span={IMAGES}", "weight_update=replicated", "bucket_mb=1", "reduce=sockets"]


class AtTheEnd(Sockets):
    """Every sum waits for all buckets."""

    def all_reduce_each(self, flats: Sequence[jax.Array]) -> list[jax.Array]:
        late = 0.0 * sum(flat[-1] for flat in flats)  # nothing, but known only at the end
        return super().all_reduce_each([flat.at[0].add(late) for flat in flats])


class NoSum(Sockets):
    """Every host goes its own way."""

    def all_reduce_each(self, flats: Sequence[jax.Array]) -> list[jax.Array]:
        return [declare_replicated(flat, self.axes.all) for flat in flats]


WAYS = {"while the backward pass goes on": Sockets, "after it": AtTheEnd, "no sums": NoSum}


def on_one_host(torus: str, coordinator: str, host: int) -> None:
    shape = parse_torus(torus)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, shape.chips, host)
    recipe = load_recipe("cifar10-sgd", [f"torus={torus}", f"batch_global={IMAGES * shape.chips}", *SETS])
    mesh = recipe_mesh(recipe)
    links.join(mesh, TORUS_AXES.all)
    links.use(measured_costs(TORUS_AXES, mesh))
    runs = []
    for make in WAYS.values():
        REDUCTIONS["sockets"] = make
        step = build_step(recipe, mesh)
        filled = {name: _filled(like) for name, like in batch_shapes(recipe, step, 1).items()}
        runs.append(_stepping(step.train, step.init(), filled))
    seconds = []
    for _ in range(ROUNDS + 1):
        for run in runs:
            multihost_utils.sync_global_devices("start together")
            begun = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - begun)
    slowest = multihost_utils.process_allgather(np.array(seconds)).max(0).reshape(ROUNDS + 1, -1)[1:]
    if host == 0:
        print("RESULT " + json.dumps(slowest.T.tolist()), flush=True)
    jax.distributed.shutdown()


def _filled(like: jax.ShapeDtypeStruct) -> jax.Array:
    rng = np.random.default_rng(jax.process_index())
    most = 256 if like.dtype == np.uint8 else 2

    def part(index: tuple[slice, ...]) -> np.ndarray:
        shape = [len(range(*cut.indices(length))) for cut, length in zip(index, like.shape, strict=True)]
        return rng.integers(0, most, shape).astype(like.dtype)

    return jax.make_array_from_callback(like.shape, like.sharding, part)


def _stepping(train: Callable[..., tuple[object, object]], state: object, batch: object) -> Callable[[], None]:
    kept = [state]

    def run() -> None:
        kept[0], metrics = train(kept[0], batch)
        jax.block_until_ready((kept[0], metrics))

    return run


def on_all(torus: str, rate: str) -> dict[str, object]:
    source = Path(__file__).resolve()
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
    with torus_links(parse_torus(torus), rate) as hosts, ExitStack() as stack:
        said = stack.enter_context(tempfile.TemporaryFile("w+"))
        workers = []
        for number, host in enumerate(hosts):
            command = [sys.executable, str(source), torus, f"{hosts[0].address}:29400", str(number)]
            out = said if number == 0 else subprocess.DEVNULL
            workers.append(subprocess.Popen([*host.command_prefix, *command], stdout=out, env=environment))
            stack.callback(workers[-1].kill)
        if any(worker.wait() for worker in workers):
            raise SystemExit("a worker has failed")
        said.seek(0)
        line = next(line for line in said if line.startswith("RESULT "))
    found = dict(zip(WAYS, json.loads(line.removeprefix("RESULT ")), strict=True))
    overlapped, late, alone = (float(np.median(found[way])) for way in WAYS)
    return {
        "machine": timing.machine("jax", "jaxlib"),
        "command": f"python results/allreduce/overlap.py {torus} {rate}",
        "recipe": ["cifar10-sgd", f"batch_global={IMAGES * parse_torus(torus).chips}", *SETS],
        "step_seconds": {way: timing.spread(seconds) for way, seconds in found.items()},
        "sum_seconds": late - alone,
        "hidden": (late - overlapped) / (late - alone),
    }


if __name__ == "__main__":
    if len(sys.argv) == 4:
        on_one_host(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        print(json.dumps(on_all(*sys.argv[1:]), indent=1))
