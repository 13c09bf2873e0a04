"""`train_recipe`: a whole training run, from whatever holds the images to the summary. Opens what lasts as long as the
run does, in this order: the images, the setup (`setup`), what may end the run early (`stop`, `watchdog`) and its
records; then lets the loop (`loop`) do the work.
"""

import contextlib
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from podium.data.prepare.locate import locate
from podium.errors import Stopped
from podium.host.files import reporting
from podium.processes import agree
from podium.processes.join import is_first
from podium.recipe.schema import Recipe
from podium.report import events
from podium.report.files import JsonLines, TensorBoard
from podium.report.starts import Starts
from podium.train import run_directory, stored_run
from podium.train.loop import TrainingLoop, evaluation_steps
from podium.train.setup import AlreadyFinished, Own, Setup, set_up
from podium.train.stop import Stopper
from podium.train.watchdog import Watchdog


@dataclass(frozen=True)
class Limits:
    """Between which points a run goes, where not from its last checkpoint to its last step.

    >>> from podium import Limits
    >>> limits = Limits(max_minutes=50)  # for train_recipe(recipe, data, run, limits=limits)
    >>> limits.stall_minutes
    10.0
    """

    max_minutes: float | None = None
    """From the call of `train_recipe` on: the run saves and ends within so many minutes."""
    stall_minutes: float = 10.0
    """A run in which nothing has moved for so long ends its process."""
    from_step: int | None = None
    """The checkpoint that the run goes back to, if not the last one; it may then take a different course."""


_USUAL_LIMITS = Limits()


def train_recipe(
    recipe: Recipe,
    data: str | Path | None = None,
    run: str | Path | None = None,
    *,
    weights: str | Path | None = None,
    own: Own | None = None,
    listener: events.Listener | None = None,
    limits: Limits = _USUAL_LIMITS,
) -> events.Summary:
    """Trains `recipe` on `data`, keeping everything of the run in the directory `run`.

    `data` is a prepared directory, or any source that `podium prepare` takes, which is then prepared into the user's
    cache directory first; None stands for the demo's images. `run` is by default runs/RECIPE-TIME; it may be in an
    object store, s3://… or gs://….

    `weights` is what training starts from: a safetensors file with torchvision's names, a folder with one
    (model.safetensors), or the directory of another run. The classifier is new where the classes differ.

    A `run` that was stopped resumes from its last checkpoint, or from that of `limits.from_step`. `own` brings a
    network or an optimizer of your own. A signal or `limits.max_minutes` ends the run early with a checkpoint and the
    exception `Stopped`.

    >>> from podium import load_recipe, train_recipe
    >>> recipe = load_recipe("demo", ["epochs=2", "torus=1x2", "data.image_size=16"])
    >>> summary = train_recipe(recipe, data="prepared", run="runs/mine")
    >>> summary.steps, 0 <= summary.accuracy <= 1
    (3, True)
    """
    deadline = None if limits.max_minutes is None else time.monotonic() + 60 * limits.max_minutes
    listener = listener or events.Listener()
    prepared = agree.once_per_host(lambda: str(locate(data, say=listener.note, progress=listener.preparing)))
    named = Path(agree.on_first(lambda: str(run or new_run_name(recipe))))
    with stored_run.kept(named, listener.note) as run:
        opened = set_up(
            recipe, prepared, run, weights=weights, from_step=limits.from_step, own=own or Own(), note=listener.note
        )
        try:
            return _train(opened, run, listener, deadline=deadline, limits=limits)
        except AlreadyFinished as finished:
            listener.note(f"{named} is finished already; --set epochs=… extends it, --from-step goes back")
            summary = events.Summary(**finished.summary)
            listener.finished(summary)
            return summary
        except Stopped as stopped:
            raise Stopped(stopped.reason, stopped.step, stored_run.url_of(named) or str(run)) from None


def new_run_name(recipe: Recipe) -> str:
    return f"runs/{recipe.name}-{time.strftime('%Y%m%d-%H%M%S')}"


def _train(
    opened: contextlib.AbstractContextManager[Setup],
    run: Path,
    listener: events.Listener,
    *,
    deadline: float | None,
    limits: Limits,
) -> events.Summary:
    with (
        Watchdog(run, limits.stall_minutes) as watchdog,
        opened as setup,
        Stopper(deadline) as stopper,
        setup.checkpoints,
        contextlib.closing(_with_records(listener, setup)) as everyone,
    ):
        summary = TrainingLoop(setup, stopper=stopper, watchdog=watchdog, listener=everyone).run()
        agree.on_first(reporting(run / "summary.json")(lambda: run_directory.finish(run, asdict(summary))))
        everyone.finished(summary)
    return summary


def _with_records(listener: events.Listener, setup: Setup) -> events.Listener:
    """The caller's listener and the files of the run directory. Process 0 reports for all processes."""
    if not is_first():
        return events.Listener()
    run, first_step = setup.run, setup.first_step
    lines = JsonLines(run, first_step, evaluates_first=first_step in evaluation_steps(setup.recipe))
    return events.Broadcast(listener, lines, TensorBoard(run, first_step), Starts(run))
