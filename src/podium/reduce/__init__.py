"""Gradient summation over a torus: XLA's own, a ring, and the paper's two-colour 2-D algorithm, behind one contract;
packing of gradient trees into flat buckets or rows; and the measurement that chooses among them."""

from podium.reduce.buckets import Buckets, plan_buckets
from podium.reduce.choose import REDUCTIONS, fastest
from podium.reduce.collectives import Reduction, TorusAxes, Xla, own_number, own_shard, shard_size
from podium.reduce.routed import around, exchange, ring, swing, torus, woven
from podium.reduce.rows import Rows
from podium.reduce.sockets import Sockets, sockets
from podium.reduce.woven import Woven

__all__ = [
    "REDUCTIONS",
    "Buckets",
    "Reduction",
    "Rows",
    "Sockets",
    "TorusAxes",
    "Woven",
    "Xla",
    "around",
    "exchange",
    "fastest",
    "own_number",
    "own_shard",
    "plan_buckets",
    "ring",
    "shard_size",
    "sockets",
    "swing",
    "torus",
    "woven",
]
