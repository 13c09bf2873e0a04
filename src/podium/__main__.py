"""The program `podium`, or `python -m podium`: what must stand before the first thread starts, then the command line.

Threads that exist keep the heaps that they were given, and importing pyarrow starts one, JAX a dozen: memory can be
kept for all of them only here (`launch.heap`; a training step of recipe `cifar10` is a sixth faster for it).
"""

import sys

from podium.launch import heap

_COMPUTING = (["train"], ["eval"], ["bench", "step"], ["bench", "update"])


def main() -> None:
    given = sys.argv[1:]
    if any(given[: len(command)] == command for command in _COMPUTING) and not heap.accelerator_files():
        heap.keep()

    from podium.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
