"""The program `podium`, or `python -m podium`: what must stand before the first thread starts, then the command line.

Threads that exist keep the heaps that they were given, and importing pyarrow starts one, JAX a dozen: memory can be
kept for all of them only here (`host.malloc`; a training step of recipe `cifar10` is a sixth faster for it).
"""

import sys

from podium.host.accelerators import accelerator_files
from podium.host.malloc import keep

_COMPUTING = (["train"], ["eval"], ["bench", "step"], ["bench", "update"])


def main() -> None:
    given = sys.argv[1:]
    if any(given[: len(command)] == command for command in _COMPUTING) and not accelerator_files():
        keep()

    from podium.cli.commands import main as command_line

    command_line()


if __name__ == "__main__":
    main()
