"""Numbers with a unit in README, and in tables of docs, that no result of ours stands behind: passages of a page, each
group with what they are. All others are holes of a sentence (tests/test_figures.py).
"""

PUBLISHED = {
    "README.md": ["76.3 % in 2.2 minutes", "Apache-2.0"],
    "docs/hangs.md": ["after 10 or 30 minutes", "(here 300 s)", "JAX waits 5 minutes"],
}
DESIGNED = {
    "README.md": ["Python 3.11", "(0.1.0:"],
    "docs/cluster.md": [
        "more than 2 s apart; red beyond 60 s",
        "1.5 times slower",
        "Slurm 22.05",
        "Open MPI 4.1 and 5.0",
    ],
    "docs/gpus.md": ["sums joined below 1 MB"],
    "docs/hangs.md": [
        "names it after 1 to 3 s",
        "who is silent then has 4 s instead of 10 s",
        "named by process 0 after 10 to 12 s; `podium launch --hosts` says after 6 s",
        "name it after 10 s",
        "5 minutes and a quarter of a second",
        "| up to 819 | 1 s | 10 s | up to 0.8 MB/s | modelled |",
        "| 16,384 | 8 s | 16 s | 2.3 MB/s | modelled: 2.5 times",
    ],
    "docs/input.md": ["| 560 KB, decoded |", "| 115 KB, the JPEG"],
    "docs/security.md": ["tries 10,000 mutants"],
}
ASSUMED = {"docs/plan.md": ["(10 µs, and 10 µs for every doubling of hosts)", "(80 %)"]}
# Compiled once and thrown away, or before results were kept: the pages say so.
NOT_KEPT = {
    "docs/pods.md": [
        "| Podium to lars | 0.1.0 |",
        "| 9.18; 0.77 of them run",
        "| 1.27 → 1.31; 0.21 of them run",
        "| 27.75 → 27.27, with fused batch norm 24.70 → 24.27, but packed 21.92 → 22.12 |",
    ]
}

# Whole tables of what others have published.
OF_OTHERS = ("docs/recipes.md",)

PASSAGES = (PUBLISHED, DESIGNED, ASSUMED, NOT_KEPT)
