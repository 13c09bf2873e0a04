"""Commands that may be one process of several: how they start JAX, join the others and leave them."""

import os
import sys

from podium.cli.arguments.command import OneOfSeveral
from podium.cli.start_jax import start_jax
from podium.processes import agree
from podium.processes.join import Cluster, is_first, process_count
from podium.processes.join import join as join_cluster

__all__ = ["is_first", "join", "leave"]


def join(command: OneOfSeveral) -> None:
    """Returns when all processes of the run have come."""
    start_jax()
    join_cluster(Cluster(command.coordinator, command.processes, command.process))


def leave(code: int) -> None:
    """Ends this process at once if there are others; returns where it is alone."""
    if process_count() > 1:
        sys.stderr.flush()
        agree.leave()
        os._exit(code)
