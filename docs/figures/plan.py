"""docs/plan.md and docs/pods.md: what was modelled and compiled for pods."""

import json
from collections.abc import Iterator

from docs.figures.sentences import RESULTS, Sentence, newest, says

CHECK, ON_GPUS, LINKS = newest("plan", "check"), newest("plan", "check-gpus"), newest("plan", "links")
V3 = newest("plan", "pod-v3")
PROGRAMS = ("Podium", "flax, optax.lars", "flax, SGD")


def compiled() -> dict[tuple[str, str, int], float]:
    """Million cycles of one core by pod, program and images a core; of two results the newer one."""
    return {
        (row.get("topology") or result["topology"], row["program"], row["images_per_core"]): row["cycles"] / 1e6
        for result in (json.loads(file.read_text()) for file in sorted(RESULTS.glob("plan/*-pod-*.json")))
        for row in result["rows"]
    }


def links() -> Iterator[Sentence]:
    for row in LINKS["rows"]:
        torus = row["torus"].replace("x", "×")
        axes = {(True, True): "none", (False, False): "both", (False, True): "the long one"}[tuple(row["wraps"])]
        times = [1000 * row[name]["seconds"] for name in ("ring", "2-D", "two-colour")]
        yield says(f"| {torus} | {axes} | {{:.2f}} ms | {{:.2f}} ms | {{:.2f}} ms |", *times)


def published() -> Iterator[Sentence]:
    for point in CHECK["points"]:
        beyond = [
            *(["space-to-depth"] if point["stem"] == "space_to_depth" else []),
            *(["bf16 sums"] if point["gradient_sum"] == "bf16" else []),
            *(["sharded update"] if point["sharded_update"] else []),
        ]
        yield says(
            f"| {point['source']} | {point['topology']} | {point['batch_global']:,} | {', '.join(beyond) or '–'} | "
            f"{{:,.0f}} k | {{:,.0f}} k | {{:+.1f}}% | {'fitted on' if point['fitted'] else 'tested'} |",
            *(point["images_per_second"] / 1000, point["predicted"] / 1000, 100 * point["error"]),
        )


def published_on_gpus() -> Iterator[Sentence]:
    for point in ON_GPUS["points"]:
        rates = [point[key] / 1000 for key in ("images_per_second", "predicted")]
        digits = " | ".join("{:,.0f} k" if rate >= 100 else "{:.1f} k" for rate in rates)
        yield says(
            f"| {point['source']} | {point['topology']} | {point['batch_global']:,} | {digits} | {{:+.1f}}% | "
            f"{{:.0f}} % | {'fitted on' if point['fitted'] else 'tested'} |",
            *(*rates, 100 * point["error"], 100 * point["sums_hidden"]),
        )
    errors = [100 * ON_GPUS[half][error] for half in ("all", "tested") for error in ("median_error", "worst_error")]
    yield says("the median error is {:.1f}%, the worst {:.1f}%; over those for testing {:.1f}% and {:.1f}%", *errors)


def beside_flax() -> Iterator[Sentence]:
    million = compiled()
    for images in sorted({row["images_per_core"] for row in V3["rows"]}):
        ours, lars, sgd = (million["v3:4x4", program, images] for program in PROGRAMS)
        words = f"| {images} | {{:.2f}} | {{:.2f}} | {{:.2f}} | {{:.1f}} % |"
        yield says(words, ours, sgd, lars, 100 * ours / lars)


def other_chips() -> Iterator[Sentence]:
    """The column of 0.1.0 is no hole: it was compiled before results were kept."""
    cycles = compiled()
    for pod, before in (("v5e:8x8", "16.67"), ("v5p:4x4x4", "11.12"), ("v4:4x4x4", "–"), ("v6e:8x8", "–")):
        figures = [cycles.get((pod, program, 16)) for program in PROGRAMS]
        columns = " | ".join("{:.2f}" if figure else "–" for figure in figures)
        yield says(f"| {pod} | {before} | {columns} |", *filter(None, figures))


PAGES = {
    "docs/plan.md": [
        *links(),
        *published(),
        *published_on_gpus(),
        says(
            "Median error {:.1f}%, worst {:.1f}%; on the tested half alone {:.1f}% and {:.1f}%",
            *(100 * CHECK[half][error] for half in ("all", "tested") for error in ("median_error", "worst_error")),
        ),
        says(
            "by the same constants: {:,.0f} k images/s, beside {:,.0f} k of the peer",
            *(CHECK["papers_pod"][f"{who}_images_per_second"] / 1000 for who in ("podium", "peer")),
        ),
    ],
    "docs/pods.md": [
        *beside_flax(),
        *other_chips(),
        says(
            "that is {:.2f} M images/s, {:.0f} % more than the plain peer with LARS ({:.2f} M)",
            *(CHECK["papers_pod"]["podium_images_per_second"] / 1e6, 100 * CHECK["papers_pod"]["gain"]),
            CHECK["papers_pod"]["peer_images_per_second"] / 1e6,
        ),
    ],
}
