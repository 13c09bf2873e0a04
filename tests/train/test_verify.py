"""A changed byte anywhere in a run is named by `verify`, or changes nothing that anybody reads."""

import jax
import jax.numpy as jnp
import pytest
from tests.support.flips import Flip, flipped, harmless, unnoticed
from tests.support.small_runs import small_recipe

from podium.data.dataset.shards import ImageSet
from podium.report.events import Evaluated, Progress, Started
from podium.report.files import JsonLines, TensorBoard
from podium.report.starts import Starts, read_starts
from podium.step.state import State
from podium.train import run_directory
from podium.train.checkpoint import Checkpoints
from podium.train.verify import changes

EVALUATED = Evaluated(step=2, epoch=0.6, images=22, top1=0.5, top5=1.0, loss=1.5, seconds=0.1)
PROGRESS = Progress(
    step=2, epoch=0.5, metrics={"loss": 2.25}, images_per_second=1e4, input_bound=0.0, eta_seconds=9.0
)  # fmt: skip
STARTED = Started(
    run="run", recipe="small", torus="1x1", platform="simulated", steps=2, first_step=0, train_images=96,
    validation_images=22, classes=3, batch_global=16, norm_span=8, parameters=72, cache="pixels", decoder="ours",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(small_data, tmp_path_factory):
    """All that a run writes, without the training."""
    run, recipe = tmp_path_factory.mktemp("runs") / "run", small_recipe().for_data(3, 96, 22)
    with run_directory.claimed(run, recipe, ImageSet.open(small_data, "train"), from_step=None, say=print):
        for records in (JsonLines(run), TensorBoard(run)):
            records.progress(PROGRESS)
            records.evaluated(EVALUATED)
            records.close()
        Starts(run).started(STARTED)
        weights = {"kernel": jnp.arange(64.0), "bias": jnp.ones(8)}
        state = State(step=jnp.asarray(2), params=weights, slots={}, stats={"mean": jnp.zeros(8)}, weight_norms=None)
        with Checkpoints(run) as checkpoints:
            for step in (1, 2):
                checkpoints.save(jax.device_put(state), step, recipe=recipe, data_hash="data")
            checkpoints.wait()
            checkpoints.note_accuracy(2, 0.5)
        run_directory.finish(run, {"accuracy": 0.5, "weights_hash": "w"})
    return run


def test_every_changed_byte_is_named_or_harmless(run):
    assert changes(run) == []
    silent = unnoticed(run, 300, seed=3, changes=changes)
    assert [flip for flip in silent if not harmless(flip)] == []


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("run.json", "run.json is damaged"),
        ("summary.json", "how the run ended is lost, no weight is"),
        ("metrics.jsonl", r"metrics.jsonl is damaged (line 1)"),
        ("starts.jsonl", r"starts.jsonl is damaged (line 1)"),
        ("checkpoints/best.json", "which checkpoint is the best is lost, no weight is"),
        ("checkpoints/2/_CHECKPOINT_METADATA", "checkpoints/2 is damaged (_CHECKPOINT_METADATA"),
        ("checkpoints/1/hashes.json", "checkpoints/1 is damaged (hashes.json"),
    ],
)
def test_what_is_damaged_and_what_that_costs_is_said(run, file, named):
    with flipped(Flip(run / file, 8, 2)):
        (line,) = changes(run)
    assert named in line


def test_a_file_that_is_gone_is_named(run):
    (run / "checkpoints" / "2" / "_CHECKPOINT_METADATA").rename(run / "aside")
    try:
        assert "_CHECKPOINT_METADATA is missing" in changes(run)[0]
    finally:
        (run / "aside").rename(run / "checkpoints" / "2" / "_CHECKPOINT_METADATA")


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\n", b'{"event": "train"}\n', b"[]\n", b'{"event": "tr\x00in", "step": 1}']
)
def test_records_that_cannot_be_read_are_left_out_and_stop_nobody(tmp_path, content):
    lines = JsonLines(tmp_path)
    lines.progress(PROGRESS)
    lines.close()
    good = (tmp_path / "metrics.jsonl").read_bytes()
    (tmp_path / "metrics.jsonl").write_bytes(good + content)
    JsonLines(tmp_path, first_step=5).close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == good


def test_a_start_that_a_kill_has_cut_off_costs_no_other(tmp_path):
    starts = Starts(tmp_path)
    starts.started(STARTED)
    with (tmp_path / "starts.jsonl").open("a") as file:
        file.write('{"time": 17')
    starts.started(STARTED)
    assert [start["recipe"] for start in read_starts(tmp_path)] == ["small", "small"]
