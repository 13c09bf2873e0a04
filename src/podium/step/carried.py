"""What a step carries besides weights: batch norm's statistics, and whatever a network of the caller's keeps. Numbers
with a fraction become their mean over the chips, so that every chip keeps the same. All else (counters) must be the
same on every chip already, and is taken as it is.
"""

from typing import Any

import jax
import jax.numpy as jnp

from podium.errors import UserError


def is_mean(leaf: Any) -> bool:
    """Whether the chips' values of this leaf are averaged."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def split(carried: Any) -> tuple[Any, Any]:
    """What is averaged and what is taken as it is: two trees that have None where the other has a leaf."""
    means = jax.tree.map(lambda leaf: leaf if is_mean(leaf) else None, carried)
    others = jax.tree.map(lambda leaf: None if is_mean(leaf) else leaf, carried)
    for path, leaf in jax.tree_util.tree_leaves_with_path(others):
        if jax.typeof(leaf).mat.varying:
            name = jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value")
            raise UserError(
                f"the network's state {name} is of {leaf.dtype} and depends on a chip's own images; make it of "
                "float32, which is averaged over the chips"
            )
    return means, others


def join(means: Any, others: Any) -> Any:
    """What `split` undoes."""
    return jax.tree.map(lambda a, b: b if a is None else a, means, others, is_leaf=lambda leaf: leaf is None)
