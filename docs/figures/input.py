"""docs/input.md: rates and ratios beside every peer, in all four measurements."""

from collections.abc import Iterator

from docs.figures.sentences import Sentence, newest, read, says, spread

OTHERS, SAMPLE = newest("input", "imagenet-others"), newest("input", "imagenet-sample")
SECOND = newest("input", "avx2-sample")["ratios"]["2"]
OF_0_1 = read("input/2026-11-16-imagenet-sample-1.json")["ratios"]["2"]["tfdata"]
OURS = {
    "podium": "Podium, bytes cached",
    "podium_whole": "Podium, without seek indexes",
    "podium_pixels": "Podium, pixels cached",
}
PEERS = {
    "tfdata": "tf.data as people use it",
    "tfdata_same": "tf.data, same quality",
    "dali": "DALI, CPU, antialiased",
    "opencv": "OpenCV, thread pool",
    "grain": "Grain with OpenCV",
    "pillow": "Pillow, thread pool",
    "spdl": "SPDL",
}
TIMES = "{:.2f} ({:.2f}–{:.2f})"
RATE = "{:,.0f} ({:,.0f}–{:,.0f})"


def of_each() -> Iterator[Sentence]:
    rates, ratios = OTHERS["spread"]["2"], OTHERS["ratios"]["2"]
    for name, label in OURS.items():
        yield says(f"| {label} | {RATE} | | | |", *spread(rates[name]))
    for name, label in PEERS.items():
        beside = [figure for ours in OURS for figure in spread(ratios[name][ours])]
        yield says(f"| {label} | {RATE} | {TIMES} × | {TIMES} × | {TIMES} × |", *spread(rates[name]), *beside)


def of_all_four() -> Iterator[Sentence]:
    for label, result in (("others", OTHERS), ("sample", SAMPLE)):
        for threads in ("2", "1"):
            ratios = result["ratios"][threads]
            yield says(
                f"| {label}, {threads} | {{:.2f}} | {{:.2f}} | {{:.2f}} | {{:.1f}} | {{:.0f}} % |",
                *(ratios["tfdata"]["podium"]["median"], ratios["tfdata_same"]["podium"]["median"]),
                *(ratios["tfdata"]["podium_whole"]["median"], ratios["tfdata"]["podium_pixels"]["median"]),
                100 * result["feed"][threads]["share"]["median"],
            )


PAGES = {
    "docs/input.md": [
        *of_each(),
        *of_all_four(),
        says(
            f"{TIMES} × tf.data as people use it, {TIMES} × at the same quality, {TIMES} × without indexes, "
            "{:.1f} ({:.1f}–{:.1f}) × from pixels.",
            *(*spread(SECOND["tfdata"]["podium"]), *spread(SECOND["tfdata_same"]["podium"])),
            *(*spread(SECOND["tfdata"]["podium_whole"]), *spread(SECOND["tfdata"]["podium_pixels"])),
        ),
        says("The indexes take {:.1f} % of the files' bytes.", 100 * OTHERS["data"]["index_share"]),
        says(
            f"was at {TIMES} × tf.data from bytes and {{:.2f}} from pixels",
            *(*spread(OF_0_1["podium"]), OF_0_1["podium_pixels"]["median"]),
        ),
    ]
}
