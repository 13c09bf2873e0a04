"""Closed forms of what a collective costs on a torus or a GPU cluster, by a link's seconds per hop and bytes/s one way.
Every form is 2 × (reduce-scatter), since the all-gather goes back the same way. `simulate` plays the same schedules
link by link, and the tests hold the two together; `estimate` prices what the compiler chose with `compiled_seconds`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from podium.plan.hlo import Collective
from podium.plan.machines import Link, Pod

OPEN_AXIS_FACTOR = 2.0  # an axis without wrap-around links sends every ring's last hop back over the whole line


@dataclass(frozen=True)
class Ring:
    """What one colour does in one phase: rings of so many cores, along an axis that is closed or open."""

    length: int
    is_open: bool = False


def ring_seconds(nodes: int, message_bytes: float, link: Link) -> float:
    """One ring through all nodes, one direction."""
    return 2 * (nodes - 1) * (link.hop_seconds + message_bytes / nodes / link.bandwidth)


def torus_seconds(shape: tuple[int, ...], message_bytes: float, link: Link, *, colours: int = 1) -> float:
    """Axis by axis in both directions. A colour takes an equal share of the message, and each starts with a different
    axis: with as many colours as axes, all links are at work. Exact where all axes are equally long."""
    nodes = math.prod(shape)
    latency = 2 * sum(length - 1 for length in shape) * link.hop_seconds
    return latency + 2 * (nodes - 1) / nodes * message_bytes / (2 * colours * link.bandwidth)


def phases_seconds(
    colours: Sequence[Sequence[Ring]], message_bytes: float, link: Link, *, directions: int = 2, halfway: bool = False
) -> float:
    """Like `torus_seconds` for rings of unequal length, some without wrap-around: `colours[c][p]` are colour c's rings
    in phase p, and a phase ends when its slowest colour does. Both directions carry half of the data all around a
    ring, as Podium's do, or all of it `halfway`, where they meet: the same bytes in half the hops."""
    left = [message_bytes / len(colours)] * len(colours)
    seconds = 0.0
    for phase in range(len(colours[0])):
        of_colours = []
        for colour, rings in enumerate(colours):
            length, is_open = rings[phase].length, rings[phase].is_open
            factor = OPEN_AXIS_FACTOR if is_open and length > 2 else 1.0
            wire = factor * left[colour] * (length - 1) / length / directions / link.bandwidth
            hops = length // 2 if halfway else length - 1
            of_colours.append(2 * (hops * link.hop_seconds + wire))
            left[colour] /= length
        seconds += max(of_colours)
    return seconds


def cluster_seconds(pod: Pod, message_bytes: float, hop_seconds: float) -> float:
    """GPUs: summed inside the node over NVLink, then each GPU's share between nodes, then gathered inside."""
    nodes, gpus = pod.shape
    inside = 2 * (gpus - 1) / gpus * message_bytes / pod.chip.link_bandwidth
    outside = 2 * (nodes - 1) / nodes * message_bytes / pod.chip.node_bandwidth
    hops = 2 * (gpus - 1) + 2 * math.ceil(math.log2(max(nodes, 2)))
    return inside + outside + hops * hop_seconds


def all_reduce_seconds(pod: Pod, message_bytes: float, hop_seconds: float) -> float:
    """A sum over the whole pod by the paper's algorithm, where no compiler was asked."""
    if pod.chip.is_gpu:
        return cluster_seconds(pod, message_bytes, hop_seconds)
    axes = range(len(pod.shape))
    along = [Ring(pod.shape[k] * (pod.chip.cores if k == 0 else 1), not pod.wraps[k]) for k in axes]
    colours = [[along[(first + k) % len(axes)] for k in axes] for first in axes]
    return phases_seconds(colours, message_bytes, pod.chip.link(hop_seconds))


def compiled_seconds(collective: Collective, pod: Pod, hop_seconds: float) -> float:
    """What the compiler's choice costs by the closed forms; a reduce-scatter or an all-gather is half an all-reduce."""
    link = pod.chip.link(hop_seconds)
    if collective.kind == "collective-permute":
        return hop_seconds + collective.bytes / link.bandwidth
    share = 1.0 if collective.kind == "all-reduce" else 0.5
    if collective.emitter == "SinglePhaseRingSumEmitter":
        # Small messages go around once, each core adding what comes by; nothing is scattered and gathered again.
        return share * (collective.cores - 1) * (hop_seconds + collective.whole_bytes / (2 * link.bandwidth))
    # Assumed from its name: the two directions of a pincer meet halfway.
    one_way = collective.strategy.startswith("UniDirection")
    halfway = "Pincer" in collective.emitter and not one_way
    lengths = collective.rings or _along_axes(collective, pod) or ((collective.cores,),)
    inside_tile = len(collective.axes_of_colours) != len(lengths)  # neighbours, whose ring closes without wrap-around
    colours = [[Ring(ring, not inside_tile and not _wraps(ring, pod)) for ring in phases] for phases in lengths]
    directions = 1 if one_way else 2
    return share * phases_seconds(colours, collective.whole_bytes, link, directions=directions, halfway=halfway)


def _along_axes(collective: Collective, pod: Pod) -> tuple[tuple[int, ...], ...]:
    """The rings of a collective of which the compiler tells only the axes: the whole pod's."""
    if collective.cores != pod.cores or max(map(len, collective.axes_of_colours), default=0) != len(pod.shape):
        return ()
    return tuple(tuple(pod.shape[axis] for axis in axes) for axes in collective.axes_of_colours)


def _wraps(ring: int, pod: Pod) -> bool:
    """Whether rings of so many cores lie along an axis with wrap-around. The compiler tells their length, not their
    axis; where two axes would fit, the closed one counts."""
    axes = zip(pod.shape, pod.wraps, strict=True)
    return any(wraps for length, wraps in axes if ring in (length, length * pod.chip.cores))
