"""What `podium bench …` does: one function for each thing that is measured."""

import json
import sys
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from podium.bench import accuracy as bench_accuracy
from podium.bench import accuracy_page, input_table, pod_page
from podium.bench import allreduce as bench_allreduce
from podium.bench import every as bench_every
from podium.bench import input as bench_input
from podium.bench import pod as bench_pod
from podium.bench import step as bench_step
from podium.bench import update as bench_update
from podium.cli.arguments.bench import (
    BenchAccuracy,
    BenchAll,
    BenchAllreduce,
    BenchInput,
    BenchPod,
    BenchStep,
    BenchUpdate,
)
from podium.cli.arguments.command import Command
from podium.data.prepare.locate import locate
from podium.errors import UserError
from podium.plan import show as plan_show
from podium.recipe.torus import parse_torus
from podium.report.terminal import Terminal


def step(command: BenchStep) -> dict[str, Any]:
    result = bench_step.run(command.cases, bench_step.Settings(command.rounds, command.cores, command.isa))
    table = Table("network", "Podium images/s", "PyTorch", "torch.compile", "ratio to the better", "share of peak")
    peak = result["peak_gflops"]
    for name, r in result["cases"].items():
        rates = (f"{r[who]['median']:.1f}" for who in ("podium", "pytorch", "torch_compile"))
        share = f"{r['gflops'] / peak:.0%}" if peak else "–"
        table.add_row(name, *rates, _spread(r["ratio"]), share)
    Console(stderr=command.json).print(table)
    return result


def update(command: BenchUpdate) -> dict[str, Any]:
    result = bench_update.run(command.torus, command.rounds)
    for optimizer, ratio in result["sharded_to_replicated"].items():
        line = f"{result['torus']}, {optimizer}: sharded at {_spread(ratio)} times the rate of replicated"
        print(line, file=_out(command))
    return result


def pod(command: BenchPod) -> dict[str, Any]:
    console = Console(stderr=command.json, highlight=False)
    with plan_show.progress(console, command.topology) as stage:
        result = bench_pod.run(command.topology, command.images, stage=stage)
    pod_page.show(result, console)
    if command.out:
        images = " ".join(map(str, command.images))
        pod_page.write(result, command.out, command=f"podium bench pod --topology {command.topology} --images {images}")
    return result


def input_rate(command: BenchInput) -> dict[str, Any]:
    console = Console(stderr=command.json, markup=False)
    result = bench_input.run(command.data, command.threads, command.rounds, memory_images=command.memory_images)
    input_table.show(result, console)
    return result


def allreduce(command: BenchAllreduce) -> list[dict[str, Any]]:
    def show(measured: bench_allreduce.Measured) -> None:
        times = ", ".join(f"{name} {seconds:.4f} s" for name, seconds in measured.seconds.items())
        bound = f", bound {measured.bound_seconds:.4f} s" if measured.bound_seconds else ""
        print(f"{measured.bytes:>11,} bytes: {times}{bound}", file=_out(command))

    torus = parse_torus(command.torus)
    if command.torus.count("x") == 1:
        torus = torus._replace(lanes=bench_allreduce.LANES)
    sizes = command.sizes or bench_allreduce.SIZES
    which = bench_allreduce.Which(command.only, command.dead)
    measured = bench_allreduce.bench_allreduce(
        torus, command.links, rate=command.rate, sizes_bytes=sizes, repeats=command.repeats, which=which, report=show
    )
    return [m.to_json() for m in measured]


def accuracy(command: BenchAccuracy) -> list[dict[str, Any]]:
    console = Console(stderr=command.json, highlight=False, markup=False, soft_wrap=True)
    if not command.rows and not command.page:
        for name in bench_accuracy.ROWS:
            console.print(name)
    written = []
    if command.rows:
        if command.data is None:
            raise UserError("podium bench accuracy needs CIFAR-10: give --data DIR (podium prepare makes one)")
        data = locate(command.data, say=console.print, progress=Terminal(quiet=command.json).preparing)
        written = bench_accuracy.run(
            command.rows, data, command.results, runs=command.runs, seeds=command.seeds, say=console.print
        )
    if command.page:
        accuracy_page.redraw(command.page, command.results)
    return written


def every(command: BenchAll) -> dict[str, Any]:
    console = Console(stderr=command.json, highlight=False, markup=False, soft_wrap=True)
    file = bench_every.run(command.parts, command.results, console.print)
    result: dict[str, Any] = json.loads(file.read_text())
    table = Table("benchmark", "ratio: median (least – most)")
    for part in result["parts"].values():
        for name, ratio in part.get("ratios", {}).items():
            table.add_row(name, _spread(ratio))
    console.print(table)
    console.print(f"written to {file}")
    return result


def _spread(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['least']:.2f}–{ratio['most']:.2f})"


def _out(command: Command) -> TextIO:
    return sys.stderr if command.json else sys.stdout
