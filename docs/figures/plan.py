"""docs/plan.md and docs/pods.md: what was modelled and compiled for pods."""

from collections.abc import Iterator

from docs.figures.sentences import Sentence, newest, says

CHECK, ON_GPUS, LINKS = newest("plan", "check"), newest("plan", "check-gpus"), newest("plan", "links")
PROGRAMS = ("Podium", "flax, optax.lars", "flax, SGD")
# 0.1.0 was compiled before results were kept: its column is no hole.
OF_0_1_0 = {("v3", 16): "27.75", ("v5e", 16): "16.67", ("v5p", 16): "11.12"}


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
        rates = [point[key] / 1000 for key in ("images_per_second", "predicted")]
        digits = " | ".join("{:,.0f} k" if rate >= 100 else "{:.1f} k" for rate in rates)
        yield says(
            f"| {point['source']} | {point['topology']} | {point['batch_global']:,} | {', '.join(beyond) or '–'} | "
            f"{digits} | {{:+.1f}}% | {'fitted on' if point['fitted'] else 'tested'} |",
            *(*rates, 100 * point["error"]),
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
    for chip in ("v3", "v5e", "v5p", "v4", "v6e"):
        result = newest("plan", f"pod-{chip}")
        million = {(row["program"], row["images_per_core"]): row["whole_cycles"] / 1e6 for row in result["rows"]}
        earlier = {row["images_per_core"] for row in result["rows"] if row.get("earlier")}
        for images in sorted({images for _, images in million}):
            ours, lars, sgd = (million.get((program, images)) for program in PROGRAMS)
            cells = " | ".join("{:.2f}" if figure else "–" for figure in (ours, lars, sgd))
            if images in earlier:
                cells = cells.replace("}", "}\\*", 1)
            share = "{:.1f} %" if lars else "–"
            yield says(
                f"| {result['topology']} | {images} | {cells} | {share} | {OF_0_1_0.get((chip, images), '–')} |",
                *filter(None, (ours, lars, sgd, ours and lars and 100 * ours / lars)),
            )


def of_v5e() -> Sentence:
    cycles = {row["program"]: row["whole_cycles"] for row in newest("plan", "pod-v5e")["rows"]}
    words = "On v5e, Flax with SGD, which has no norms of layers to find, takes {:.1f} % fewer cycles"
    return says(words, 100 * (1 - cycles["flax, SGD"] / cycles["Podium"]))


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
        of_v5e(),
        says(
            "The paper's pod, v3:32x32 at 16 images a core, takes {:.2f} M cycles. By the planner's constants that is "
            "{:.2f} M images/s, {:.0f} % more than the plain peer with LARS ({:.2f} M)",
            newest("plan", "pod-paper")["rows"][0]["whole_cycles"] / 1e6,
            *(CHECK["papers_pod"]["podium_images_per_second"] / 1e6, 100 * CHECK["papers_pod"]["gain"]),
            CHECK["papers_pod"]["peer_images_per_second"] / 1e6,
        ),
    ],
}
