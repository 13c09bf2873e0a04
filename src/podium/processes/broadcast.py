"""Arrays that process 0 has read from a file server, for all: they travel between the devices, whose network is made
for that, and the server is asked once, however many processes there are.
"""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from podium.processes import agree
from podium.processes.join import is_first, process_count

Name = tuple[str, ...]
Shapes = dict[Name, tuple[tuple[int, ...], str]]
_PIECE = 16 << 20  # words of four bytes that travel at once: each device holds as many twice


def shapes_of(arrays: Mapping[Name, np.ndarray]) -> Shapes:
    return {name: (tuple(array.shape), str(array.dtype)) for name, array in arrays.items()}


def read_by_first(read: Callable[[], Mapping[Name, np.ndarray]], expected: Shapes) -> dict[Name, np.ndarray]:
    """What `read` returns at process 0, bit for bit, at all. All must call this, in the same order. Shapes that are
    not those `expected` are told, each."""
    if process_count() == 1:
        return dict(read())
    held: dict[Name, np.ndarray] = {}

    def act() -> list[tuple[Name, tuple[tuple[int, ...], str]]] | None:
        held.update({name: np.asarray(array) for name, array in read().items()})
        return None if shapes_of(held) == expected else list(shapes_of(held).items())

    told = agree.on_first(act)
    shapes = expected if told is None else {tuple(name): (tuple(shape), kind) for name, (shape, kind) in told}
    sizes = {name: int(np.prod(shape)) * jnp.dtype(kind).itemsize for name, (shape, kind) in shapes.items()}
    content = b"".join(held[name].tobytes() for name in shapes) if is_first() else bytes(sum(sizes.values()))
    sent, found, at = _sent(content), {}, 0
    for name, (shape, kind) in shapes.items():
        found[name] = sent[at : at + sizes[name]].view(jnp.dtype(kind)).reshape(shape)
        at += sizes[name]
    return found


def _sent(content: bytes) -> np.ndarray:
    """Process 0's content, as bytes. The sum in which it travels is of whole numbers, so -0.0 stays what it is."""
    words = np.frombuffer(content + bytes(-len(content) % 4), np.uint32)
    pieces = [
        np.asarray(multihost_utils.broadcast_one_to_all(words[at : at + _PIECE], is_source=is_first()))
        for at in range(0, len(words), _PIECE)
    ]
    return np.concatenate([np.zeros(0, np.uint32), *pieces]).view(np.uint8)
