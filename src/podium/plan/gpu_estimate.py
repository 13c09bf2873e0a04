"""What a compiled step takes on a GPU cluster: XLA's own estimates of its fusions, cuDNN's convolutions at a share of
their roofline, a launch for every kernel, and NCCL's collectives by latency and bandwidth, less the work that is
scheduled under them. One set of constants for every card and cluster; `gpu_published` fits one of them.
"""

import math
from dataclasses import dataclass

from podium.plan.cuda import GpuCompiled
from podium.plan.estimate import Origin, Part
from podium.plan.gpu_hlo import GpuCollective, Load
from podium.plan.gradient_sum import GradientSum
from podium.plan.machines import Pod


@dataclass(frozen=True)
class GpuConstants:
    """What the estimate cannot know."""

    fusion_factor: float = 0.725  # real time of a fusion for each µs that XLA estimates (fitted)
    convolution_share: float = 0.5  # of its roofline that a cuDNN convolution reaches (assumed)
    launch_us: float = 2.0  # between two kernels of a CUDA graph (assumed)
    eager_launch_us: float = 10.0  # of a kernel that the host launches, before CUDA graphs (assumed)
    latency_us: float = 10.0  # of a collective inside a host, and of every doubling of hosts beyond (assumed)
    bandwidth_share: float = 0.8  # of a link's or a node's bandwidth that NCCL reaches (assumed)


CONSTANTS = GpuConstants()


def collective_us(collective: GpuCollective, pod: Pod, constants: GpuConstants) -> float:
    """NCCL: summed inside the hosts, between them, and gathered back. A scatter or a gather is half of a sum."""
    hosts, gpus = collective.hosts, max(1, collective.gpus // collective.hosts)
    whole = collective.bytes * (collective.gpus if collective.kind == "reduce-scatter" else 1)
    inside = 2 * (gpus - 1) / gpus * whole / pod.chip.link_bandwidth
    outside = 2 * (hosts - 1) / hosts * whole / (pod.chip.node_bandwidth * gpus / pod.shape[1])
    wire = (inside + outside) / constants.bandwidth_share * (1.0 if collective.kind == "all-reduce" else 0.5)
    return constants.latency_us * (1 + math.log2(hosts)) + 1e6 * wire


def load_us(load: Load, constants: GpuConstants, *, eager: bool = False) -> float:
    """Work, launches included."""
    launch = constants.eager_launch_us if eager else constants.launch_us
    return (
        load.fusion_us * constants.fusion_factor
        + load.convolution_us / constants.convolution_share
        + load.kernels * launch
    )


def is_gradient_sum(collective: GpuCollective, pod: Pod) -> bool:
    """Over all GPUs; the others are the batch-norm tiles'."""
    return collective.gpus == pod.chips and pod.chips > 1


def parts(
    pod: Pod, facts: GpuCompiled, constants: GpuConstants = CONSTANTS, *, eager: bool = False
) -> tuple[Part, ...]:
    """The step's parts that nothing hides; `eager`: without CUDA graphs."""
    program = facts.program
    before = Load(
        program.whole.fusion_us - program.update.fusion_us,
        program.whole.convolution_us - program.update.convolution_us,
        program.whole.kernels - program.update.kernels,
    )
    without_launches = load_us(Load(before.fusion_us, before.convolution_us), constants)
    update = load_us(Load(program.update.fusion_us, program.update.convolution_us), constants)
    launches = load_us(Load(kernels=program.whole.kernels), constants, eager=eager)
    sums = [c for c in program.collectives if is_gradient_sum(c, pod)]
    norms = [c for c in program.collectives if not is_gradient_sum(c, pod)]

    def exposed(collectives: list[GpuCollective]) -> float:
        return sum(
            max(0.0, collective_us(c, pod, constants) - load_us(c.under, constants, eager=eager)) for c in collectives
        )

    words = _sums_in_words(sums, pod, constants)

    def part(name: str, us: float, how: str) -> Part:
        return Part(name, us / 1e6, Origin.MODELLED, how)

    fusions, convolutions = before.fusion_us / 1e3, before.convolution_us / 1e3
    return (
        part(
            "compute",
            without_launches,
            f"{fusions:.1f} ms of fusions by XLA's estimate, {program.convolutions} convolutions of "
            f"{convolutions:.1f} ms at the peaks",
        ),
        part("launches", launches, f"{program.whole.kernels:,} kernels"),
        part("gradient summation", exposed(sums), words),
        part("batch-norm exchange", exposed(norms), f"{len(norms)} compiled collectives"),
        part("weight update", update, f"{program.update.kernels} kernels after the last convolution"),
    )


def hidden_share(sums: list[GpuCollective], pod: Pod, constants: GpuConstants = CONSTANTS) -> float:
    """The share of the sums' bytes that travels while other work runs: by the compiled schedule, and the estimated
    times of a sum and of what lies under it."""
    covered = [min(1.0, load_us(c.under, constants) / collective_us(c, pod, constants)) for c in sums]
    return sum(share * c.bytes for share, c in zip(covered, sums, strict=True)) / sum(c.bytes for c in sums)


def gradient_sum(pod: Pod, facts: GpuCompiled, seconds: float) -> GradientSum:
    """How the compiled program sums gradients, for a person."""
    sums = [c for c in facts.program.collectives if is_gradient_sum(c, pod)]
    if not sums:
        return GradientSum("one GPU: there is nothing to sum", False, 0, 0, 0, 0.0, Origin.COMPILED)
    return GradientSum(
        words=f"NCCL: {_sums_in_words(sums, pod, CONSTANTS)}",
        two_colour_2d=False,
        collectives=len(sums),
        bytes=sum(c.bytes for c in sums),
        largest_bytes=max(c.bytes for c in sums),
        seconds=seconds,
        origin=Origin.COMPILED,
    )


def _sums_in_words(sums: list[GpuCollective], pod: Pod, constants: GpuConstants) -> str:
    if not sums:
        return "nothing to sum"
    total = sum(c.bytes for c in sums)
    kind = "synchronous" if all(c.synchronous for c in sums) else "asynchronous"
    under = hidden_share(sums, pod, constants)
    count = f"1 {kind} sum" if len(sums) == 1 else f"{len(sums)} {kind} sums"
    return f"{count} of {total / 1e6:.0f} MB together, {under:.0%} of the bytes under other work"
