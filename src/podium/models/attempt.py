"""One attempt at a step: about which means its batch norms take their sums, and which means they find.

Sums about a value far from the mean cancel. Each layer may mend that by itself, in a second pass under a condition. The
programs that a TPU's compiler makes of so many conditions are slower, so there the whole step is repeated instead,
about the means that it has just found (`step.training`, docs/decisions/004).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

# A mean is near where its squared distance is at most so many variances: fp32 sums then keep the variance to some 1e-5.
NEAR = 16.0


@dataclass(eq=False)
class Attempt:
    """What one norm is told, and what it finds while the step is traced."""

    about: jax.Array
    """[channels]: the means that are expected."""
    excess: jax.Array | None = None
    """[channels]: how much too far each was from what was found, squared; not above 0 for one that was near. None: the
    norm has not asked, and mends its sums itself."""

    def record(self, mean: jax.Array, variance: jax.Array) -> None:
        # Written so that what is not a number is not far: no attempt would bring it nearer.
        self.excess = jnp.square(mean - self.about) - NEAR * variance
        self.about = mean
