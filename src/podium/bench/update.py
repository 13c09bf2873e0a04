"""Is a step faster when each chip updates its share of the weights? The demo's step on simulated chips, replicated and
sharded, with SGD and with LARS, in turns. This is where the rule of `weight_update = auto` comes from.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from podium.bench import timing
from podium.mesh import build_mesh, find_devices
from podium.recipe.reading import from_dict, load_recipe, to_dict
from podium.recipe.torus import Shape, lay_out
from podium.step.programs import build_step

_PER_CHIP = 4


def run(torus: str, rounds: int) -> dict[str, Any]:
    """Images per second of each, and sharded as a multiple of replicated."""
    timing.check_rounds(rounds)
    shape, devices = find_devices(torus)
    ways = {
        f"{optimizer} {update}": _step(shape, devices, optimizer, update=update)
        for optimizer in ("sgd", "lars")
        for update in ("replicated", "sharded")
    }
    rates = timing.alternate(ways, rounds)
    return {
        "torus": str(shape),
        "images_per_second": {name: timing.spread(values) for name, values in rates.items()},
        "sharded_to_replicated": {
            optimizer: timing.ratios(rates, f"{optimizer} sharded", f"{optimizer} replicated")
            for optimizer in ("sgd", "lars")
        },
        "rounds": rounds,
        "machine": timing.machine("jax", "jaxlib", "flax"),
    }


def _step(shape: Shape, devices: Any, optimizer: str, *, update: str) -> Callable[[], int]:
    batch_global = _PER_CHIP * shape.chips
    table = to_dict(load_recipe("demo")) | {
        "torus": str(shape),
        "batch_global": batch_global,
        "weight_update": update,
        "optimizer": {"name": optimizer, "learning_rate": 0.01},
    }
    table["model"] |= {"norm_span": batch_global, "classes": 10}
    recipe = from_dict(table)
    step = build_step(recipe, build_mesh(lay_out(shape, batch_global, batch_global), devices))
    rng, size = np.random.default_rng(0), recipe.data.image_size
    images = (recipe.steps_per_dispatch, batch_global)
    batch = jax.device_put(
        {
            "image": rng.integers(0, 256, (*images, size, size, 3), dtype=np.uint8),
            "label": rng.integers(0, 10, images, dtype=np.int32),
        },
        step.train_batches,
    )
    state = step.init()

    def run() -> int:
        nonlocal state
        state, metrics = step.train(state, batch)
        jax.block_until_ready((state, metrics))
        return images[0] * images[1]

    return run
