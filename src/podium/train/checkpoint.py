"""Checkpoints of a run, written by Orbax in the background: the whole state, and as JSON the recipe, the data's
content hash and the versions that made it. Nothing in them is code, and reading one runs none.
"""

from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from podium.errors import UserError
from podium.recipe import Recipe, to_dict
from podium.train.step import State

_KEPT = 3
_VERSIONS = ("podium", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


class Checkpoints:
    """The checkpoints of one run directory. Use it in a `with`, so that the last write ends before the program does."""

    def __init__(self, run: Path) -> None:
        options = ocp.CheckpointManagerOptions(max_to_keep=_KEPT, enable_async_checkpointing=True)
        try:
            self._manager = ocp.CheckpointManager((run / "checkpoints").absolute(), options=options)
        except OSError as error:
            raise UserError(f"checkpoints cannot be written to {run}: {error.strerror}; choose another --run") from None
        self._run = run

    def save(self, state: State, step: int, recipe: Recipe, data_hash: str) -> None:
        """Copies the state off the devices and returns; the write goes on while training does."""
        about = {
            "recipe": to_dict(recipe),
            "data_hash": data_hash,
            "versions": versions(),
        }
        arguments = ocp.args.Composite(state=ocp.args.StandardSave(state), about=ocp.args.JsonSave(about))
        self._manager.save(step, args=arguments)

    def latest(self) -> int | None:
        return self._manager.latest_step()

    def restore(self, step: int, like: State) -> State:
        """The state saved at `step`, laid out on devices as `like` (arrays or shapes with shardings)."""
        restored = self._manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(like)))
        return restored["state"]

    def about(self, step: int) -> dict[str, Any]:
        return self._manager.restore(step, args=ocp.args.Composite(about=ocp.args.JsonRestore()))["about"]

    def wait(self) -> None:
        """Until the last save is whole on disk."""
        self._manager.wait_until_finished()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        self._manager.close()


def versions() -> dict[str, str]:
    """Of everything that a result depends on."""
    return {name: metadata.version(name) for name in _VERSIONS}


def shaped(state: State, sharding: jax.sharding.Sharding) -> State:
    """The shapes of a state, to restore into."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), state)
