"""Sums over oblong, open, three-dimensional and holed tori in the simulation of `podium.plan.flow`, beside the bound:
102 MB, links of 70 GB/s, 1 µs a hop. Prints a line of JSON for each.

    python results/torus/simulated.py > results/torus/DATE-simulated.jsonl
"""

import json
import math

from podium.plan.collective_time import torus_seconds as closed_form
from podium.plan.flow import bound_seconds, torus_seconds, woven_seconds
from podium.plan.machines import Link
from podium.reduce.woven import Woven

MESSAGE, LINK, PIECES = 102e6, Link(70e9, 1e-6), 32
OBLONG = [(2, 8), (4, 8), (8, 16), (16, 32)]
OPEN = [((128, 32), (False, True))]
CUBES = [(4, 4, 4), (8, 8, 8), (16, 16, 16)]
HOLES = [((4, 4), (5,)), ((8, 8), (9,)), ((16, 16), (17,)), ((32, 32), (33,)),
         ((32, 32), (33, 700)), ((32, 32), (33, 34, 65, 66, 700, 701, 732, 733))]  # fmt: skip


def tell(**found: object) -> None:
    print(json.dumps(found), flush=True)


def shares(shape: tuple[int, int], wraps: tuple[bool, bool] = (True, True)) -> None:
    seconds = torus_seconds(shape, MESSAGE, link=LINK, wraps=wraps, pieces=PIECES).seconds
    bound = bound_seconds(shape, MESSAGE, link=LINK, wraps=wraps)
    tell(
        shape=shape,
        wraps=wraps,
        schedule=f"two colours in unequal shares, {PIECES} pieces",
        seconds=seconds,
        bound=bound,
    )


if __name__ == "__main__":
    for shape in CUBES:
        seconds = torus_seconds(shape, MESSAGE, link=LINK, pieces=1).seconds
        tell(
            shape=shape,
            schedule="three colours",
            seconds=seconds,
            closed_form=closed_form(shape, MESSAGE, LINK, colours=3),
        )
    for oblong in OBLONG:
        shares(oblong)
    for oblong in OBLONG[:2]:
        tell(shape=oblong, schedule="woven", seconds=woven_seconds(Woven(oblong), MESSAGE, link=LINK).seconds,
             bound=bound_seconds(oblong, MESSAGE, link=LINK))  # fmt: skip
    for shape, wraps in OPEN:
        shares(shape, wraps)
    for square, dead in HOLES:
        whole = closed_form(square, MESSAGE, LINK, colours=2)
        row_seconds = MESSAGE / 4 / (math.prod(square) - len(dead)) / LINK.bandwidth
        lag = 1 + math.ceil(LINK.hop_seconds / row_seconds)
        seconds = woven_seconds(Woven(square, dead, lag=lag), MESSAGE, link=LINK).seconds
        tell(shape=square, dead=dead, lag=lag, schedule="woven", seconds=seconds, whole=whole)
