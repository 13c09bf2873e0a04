"""The records of a run: what TensorBoard will read, and a full disk, which is told at once and hangs nothing."""

import json
import struct

import numpy as np
import pytest
from tensorboardX import SummaryWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tests.support.full_disk import full_disk

from podium.errors import UserError
from podium.host.crc32c import masked_crc32c
from podium.report.events import Evaluated, Hosts, Progress, Summary
from podium.report.files import JsonLines, TensorBoard

PROGRESS = Progress(
    step=7,
    epoch=0.5,
    metrics={"loss": 2.25, "top1": 0.125, "learning_rate": 0.1, "gradient_norm": 3.5},
    images_per_second=1e4,
    input_bound=0.0,
    eta_seconds=9.0,
)
EVALUATED = Evaluated(step=8, epoch=0.6, images=22, top1=0.5, top5=1.0, loss=1.5, seconds=0.1)


def told(directory):
    """(step, tag, value) of each scalar that the event files of a directory hold, and (step, status) of each start."""
    scalars, starts = [], []
    for file in sorted(directory.iterdir()):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (count,) = struct.unpack_from("<Q", data, at)
            parts = data[at : at + 8], data[at + 12 : at + 12 + count]
            crcs = struct.unpack_from("<I", data, at + 8) + struct.unpack_from("<I", data, at + 12 + count)
            assert crcs == tuple(masked_crc32c(np.frombuffer(part, np.uint8)) for part in parts)
            event = Event.FromString(parts[1])
            assert event.file_version == "brain.Event:2" or at
            scalars += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
            starts += [(event.step, event.session_log.status)] * event.HasField("session_log")
            at += 16 + count
    return scalars, starts


def test_tensorboard_reads_what_tensorboardx_would_have_written(tmp_path):
    ours = TensorBoard(tmp_path, first_step=6)
    ours.progress(PROGRESS)
    ours.evaluated(EVALUATED)
    ours.close()
    with SummaryWriter(str(tmp_path / "theirs"), purge_step=7) as theirs:
        rates = {"images_per_second": 1e4, "input_bound": 0.0}
        for name, value in {**PROGRESS.metrics, **rates}.items():
            theirs.add_scalar(f"train/{name}", value, 7)
        for name in ("loss", "top1", "top5"):
            theirs.add_scalar(f"evaluation/{name}", getattr(EVALUATED, name), 8)
    scalars, starts = told(tmp_path / "tensorboard")
    assert len(scalars) == 9
    assert starts == [(7, SessionLog.START)]
    assert (scalars, starts) == told(tmp_path / "theirs")


@pytest.mark.parametrize("kind", [JsonLines, TensorBoard])
def test_a_full_disk_is_one_line_and_closing_adds_none(kind, tmp_path):
    records = kind(tmp_path)
    records.progress(PROGRESS)
    (file,) = (found for found in tmp_path.rglob("*") if found.is_file())
    written = file.read_bytes()
    with full_disk(len(written) + 10):  # enough to cut a record off
        with pytest.raises(UserError, match=r"could not be written: File too large; make room") as full:
            records.progress(PROGRESS)
        records.close()
    assert str(file) in str(full.value)
    assert file.read_bytes().startswith(written)


@pytest.mark.parametrize("kind", [JsonLines, TensorBoard])
def test_a_run_goes_on_only_where_its_records_can_be_written(kind, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"event": "train", "step": 1}) + "\n")
    with full_disk(), pytest.raises(UserError, match="could not be written: File too large"):
        kind(tmp_path, first_step=1)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"event": "train", "step": 1}\n'


def lines_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "crc32"} for line in lines]


def test_metrics_stand_at_the_top_of_a_line_whatever_they_are_called(tmp_path):
    lines = JsonLines(tmp_path)
    lines.progress(PROGRESS)
    lines.evaluated(EVALUATED)
    lines.close()
    assert lines_of(tmp_path) == [
        {
            "event": "train", "step": 7, "epoch": 0.5, "loss": 2.25, "top1": 0.125, "learning_rate": 0.1,
            "gradient_norm": 3.5, "images_per_second": 1e4, "input_bound": 0.0, "eta_seconds": 9.0,
        },
        {
            "event": "evaluation", "step": 8, "epoch": 0.6, "images": 22, "top1": 0.5, "top5": 1.0, "loss": 1.5,
            "seconds": 0.1,
        },
    ]  # fmt: skip


@pytest.mark.parametrize(("evaluates_first", "left"), [(False, ["train 4", "evaluation 4"]), (True, ["train 4"])])
def test_a_run_that_resumes_removes_what_it_will_do_again_and_no_more(tmp_path, evaluates_first, left):
    kept = [{"event": event, "step": step} for step in (4, 5) for event in ("train", "evaluation")]
    text = "".join(json.dumps(line) + "\n" for line in kept)
    (tmp_path / "metrics.jsonl").write_text(text + '{"event": "tr')
    JsonLines(tmp_path, first_step=4, evaluates_first=evaluates_first).close()
    assert [f"{line['event']} {line['step']}" for line in lines_of(tmp_path)] == left


def test_hosts_and_the_summary_are_recorded(tmp_path):
    hosts = Hosts(
        step=3, processes=2, step_seconds=0.5, input_wait_seconds=0.1, input_wait_seconds_most=0.2,
        input_wait_most_process=1, memory_bytes_most=9, memory_free_share_least=0.5, warning="",
    )  # fmt: skip
    summary = Summary(
        accuracy=0.5, top5=1.0, images_per_second=9.0, train_seconds=8.0, compile_seconds=7.0, input_bound=0.1,
        steps=3, weights_hash="w", run="r",
    )  # fmt: skip
    for records in (JsonLines(tmp_path), TensorBoard(tmp_path)):
        records.hosts(hosts)
        records.finished(summary)
        records.close()
    assert [line["event"] for line in lines_of(tmp_path)] == ["hosts", "summary"]
    assert lines_of(tmp_path)[1]["accuracy"] == 0.5
    scalars, _ = told(tmp_path / "tensorboard")
    assert [tag for _, tag, _ in scalars] == [
        f"hosts/{name}"
        for name in ("step_seconds", "input_wait_seconds", "input_wait_seconds_most", "memory_bytes_most")
    ]
