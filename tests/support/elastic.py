"""Stories of a job that loses hosts and gets them back, in real training, for tests/cluster and results/processes: what
happened, and how long it took from each loss to the next step."""

import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support import namespaces
from tests.support import slurm as one_machine
from tests.support.processes import RECIPE, ended, metrics, podium
from tests.support.slurm import until

BATCH = 24  # what four hosts divide, and three
# A rate so small that rounding does not grow: whether two runs saw the same images then shows in every loss.
_CHANGES = (
    "torus=2x2", "reduce=xla", "max_lost_steps=8", "optimizer.learning_rate=0.01", "epochs=5000",
    "evaluate_every_epochs=5000",
)  # fmt: skip
ENVIRONMENT = {"XLA_FLAGS": "", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
SCRIPT = Path(__file__).parents[2] / "cluster" / "slurm.sbatch"


@dataclass(frozen=True)
class Told:
    starts: list[tuple[str, int]]
    """The torus of each start, and its first step."""
    losses: list[float]
    """Of every step."""
    loss_to_step_seconds: float
    """From the loss of a host to the end of the first step without it."""
    said: str

    def __str__(self) -> str:
        return json.dumps(
            {name: value for name, value in asdict(self).items() if name in ("starts", "loss_to_step_seconds")}
        )


def arguments(folder: Path, data: Path) -> list[str]:
    recipe = folder / "elastic.toml"
    recipe.write_text(RECIPE.replace("batch_global = 16", f"batch_global = {BATCH}").replace("span = 16", "span = 24"))
    return ["--recipe", str(recipe), "--data", str(data), *(part for c in _CHANGES for part in ("--set", c))]


def undisturbed_losses(folder: Path, data: Path, steps: int) -> list[float]:
    """Of one process with four simulated chips, which nothing happens to."""
    run = folder / "undisturbed"
    process = podium("train", *arguments(folder, data), "--run", str(run), folder=None, **ENVIRONMENT)
    until(lambda: reached(run) >= steps, lambda: process.poll() is None)
    process.send_signal(signal.SIGTERM)
    ended(process)
    return _losses(run)[:steps]


def _losses(run: Path) -> list[float]:
    found = metrics(run)
    assert [line["step"] for line in found] == list(range(1, len(found) + 1))
    return [line["loss"] for line in found]


def reached(run: Path) -> int:
    try:
        return max((line["step"] for line in metrics(run)), default=0)
    except (FileNotFoundError, ValueError):
        return 0


def starts(run: Path) -> list[tuple[str, int]]:
    try:
        lines = [json.loads(line) for line in (run / "starts.jsonl").read_text().splitlines()]
    except (FileNotFoundError, ValueError):
        return []
    return [(line["torus"], line["first_step"]) for line in lines]


def _trains(run: Path, start: int, alive: Callable[[], bool], steps: int = 1) -> float:
    """Waits until the start of that number has made so many steps; the time then."""
    until(lambda: len(starts(run)) > start and reached(run) >= starts(run)[start][1] + steps, alive)
    return time.time()


def on_namespaces(folder: Path, data: Path) -> Told:
    """Three of four hosts, whose programs are then compiled; four; the link of one is cut; four."""
    run = folder / "namespaces"
    with namespaces.joined(4) as hosts:
        hosts.cut(hosts.names[3])
        job = podium(
            "launch", "--hosts", ",".join(hosts.names), "--shell", "ip netns exec", "--min-processes", "3",
            "--restarts", "3", "--", "train", *arguments(folder, data), "--run", str(run), folder=None, **ENVIRONMENT,
        )  # fmt: skip

        def alive() -> bool:
            return job.poll() is None

        try:
            _trains(run, 0, alive)
            hosts.mend(hosts.names[3])
            _trains(run, 1, alive, steps=10)
            hosts.cut(hosts.names[1])
            lost = time.time()
            seconds = _trains(run, 2, alive) - lost
            hosts.mend(hosts.names[1])
            _trains(run, 3, alive)
            job.send_signal(signal.SIGTERM)
        finally:
            if alive() and sys.exc_info()[0]:
                job.kill()
            said = ended(job).err
        assert job.returncode == 75, said
        return Told(starts(run), _losses(run), round(seconds, 1), said)


def on_slurm(slurm: one_machine.Slurm, folder: Path, data: Path) -> Told:
    """Four nodes; one loses its power and is taken down: three; it is back, and the job starts anew on four."""
    run, node = folder / "slurm", one_machine.NODES[3]
    environment = {**ENVIRONMENT, "JAX_PLATFORMS": "cpu", "MIN_NODES": "3", "PODIUM": _podium()}
    job = slurm.submit(SCRIPT, "train", *arguments(folder, data), "--run", str(run), **environment)

    def alive() -> bool:
        return not job.ended()

    _trains(run, 0, alive, steps=10)
    slurm.power_off(node)
    lost = time.time()
    seconds = _trains(run, 1, alive) - lost
    slurm.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power")
    _trains(run, 1, alive, steps=10)
    slurm.power_on(node)
    job.requeued(times=1)
    _trains(run, 2, alive)
    slurm.run("scancel", job.number)
    return Told(starts(run), _losses(run), round(seconds, 1), job.log)


def _podium() -> str:
    return str(Path(sys.executable).with_name("podium"))
