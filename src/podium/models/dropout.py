"""Dropout and stochastic depth whose draws belong to the examples: each comes from a key that the training step derives
from the seed, the step and the example's place in the global batch. So chips, hosts, parts of a batch and restarts
cannot change what is dropped, and nothing of it has to be saved.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from podium.errors import UserError


@dataclass(eq=False)
class Draws:
    """What the layers of one forward pass draw from. Layers are told apart by the order in which they are called."""

    keys: jax.Array
    """[batch]: one key of each example."""
    calls: int = 0

    def kept(self, shape: tuple[int, ...], rate: float) -> jax.Array:
        """bool [batch, *shape]: whether each value of an example is kept."""
        layer, self.calls = self.calls, self.calls + 1

        def of_example(key: jax.Array) -> jax.Array:
            return jax.random.bernoulli(jax.random.fold_in(key, layer), 1 - rate, shape)

        return jax.vmap(of_example)(self.keys)


class Dropout(nnx.Module):
    """Zeroes a share `rate` of the values in training, and scales the others so that the mean stays. Dimensions in
    `together` are dropped together; with all but the batch's that is stochastic depth."""

    def __init__(self, rate: float, *, together: tuple[int, ...] = ()) -> None:
        self.rate, self.together = rate, together
        self.deterministic = False  # what nnx.Module.train() and .eval() switch
        self.draws: Draws | None = None

    def __call__(self, x: jax.Array, *, deterministic: bool | None = None, rngs: Any = None) -> jax.Array:
        """`rngs` is what Flax's own layer takes, and is not used."""
        if self.rate == 0 or (self.deterministic if deterministic is None else deterministic):
            return x
        if self.draws is None:
            raise UserError("dropout draws for the examples of a training step; outside of one call .eval() first")
        dropped_together = {dim % x.ndim for dim in self.together}
        if 0 in dropped_together:
            raise UserError(f"dropout over broadcast_dims={self.together} ties examples together; leave the first out")
        shape = tuple(1 if dim in dropped_together else x.shape[dim] for dim in range(1, x.ndim))
        kept = self.draws.kept(shape, self.rate)
        return jnp.where(kept, x / (1 - self.rate), jnp.zeros((), x.dtype)).astype(x.dtype)


def whole_examples(rate: float) -> Dropout:
    """Stochastic depth: a layer's [batch, height, width, channels] is dropped for a whole example or kept."""
    return Dropout(rate, together=(1, 2, 3))


def random_layers(network: nnx.Module) -> list[Dropout]:
    return [part for _, part in nnx.iter_modules(network) if isinstance(part, Dropout)]


def with_own_draws(network: nnx.Module) -> nnx.Module:
    """The network with each of Flax's dropout layers replaced by one whose draws belong to the examples."""
    while found := [(path, part) for path, part in nnx.iter_modules(network) if isinstance(part, nnx.Dropout)]:
        for (*path, last), part in found:
            holder: Any = network
            for name in path:
                holder = holder[name] if _is_container(holder) else getattr(holder, str(name))
            ours = Dropout(part.rate, together=tuple(part.broadcast_dims))
            if _is_container(holder):
                holder[last] = ours
            else:
                setattr(holder, str(last), ours)
    return network


def _is_container(holder: Any) -> bool:
    return isinstance(holder, nnx.List | nnx.Dict | list | dict)
