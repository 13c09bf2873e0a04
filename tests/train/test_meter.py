"""Rates, shares and times to go, of a run that a test plays with a clock of its own."""

import math

import numpy as np
import pytest
from tests.support.clock import Clock
from tests.support.small_runs import Heard, small_recipe

from podium.report import events
from podium.train.checkpoint import NotFinite
from podium.train.meter import DISPATCHES_AHEAD, Meter, Totals

STEPS, BATCH = 24, 16


def metrics(*loss, **others):
    return {name: np.array(values, np.float32) for name, values in {"loss": loss, **others}.items()}


class Played:
    """A run of the small recipe whose dispatches take as long as the test says."""

    def __init__(self, first_step=0, **changes):
        self.clock, self.heard = Clock(), Heard()
        self.recipe = small_recipe(**changes).for_data(3, 96, 22)
        self.meter = Meter(self.recipe, self.heard, first_step, clock=self.clock)
        self.clock.advance(77.0)  # compiling
        self.meter.start()
        self.step = first_step

    def dispatch(self, train_seconds, wait_seconds=0.0, given=None):
        self.meter.next_batch(_Batches(self.clock, wait_seconds))
        self.clock.advance(train_seconds)
        steps = self.recipe.steps_per_dispatch
        self.step += steps
        self.meter.sent(self.step, given or metrics(*[1.0] * steps, top1=[0.5] * steps, learning_rate=[0.1] * steps))

    def evaluate(self, seconds):
        self.meter.drain()
        self.clock.advance(seconds)
        self.meter.resume()

    @property
    def reports(self):
        return self.heard.of(events.Progress)


class _Batches:
    def __init__(self, clock, wait_seconds):
        self.clock, self.wait_seconds = clock, wait_seconds

    def ready(self):
        return not self.wait_seconds

    def __next__(self):
        self.clock.advance(self.wait_seconds)
        return {}


def test_images_per_second_are_of_training_alone_and_the_whole_time_has_evaluations_too():
    run = Played()
    for _ in range(4):
        run.dispatch(0.5)
    run.evaluate(100.0)
    for _ in range(4):
        run.dispatch(0.5)
    run.meter.drain()
    assert run.meter.totals() == Totals(images_per_second=BATCH / 0.5, seconds=104.0, input_bound=0.0)


def test_a_report_after_an_evaluation_has_the_rate_of_its_own_steps():
    run = Played(log_every_steps=4)
    for _ in range(4):
        run.dispatch(0.5)
    run.evaluate(100.0)
    for _ in range(4):
        run.dispatch(0.25)
    run.meter.drain()
    assert [p.step for p in run.reports] == [4, 8]
    assert [p.images_per_second for p in run.reports] == pytest.approx([BATCH / 0.5, BATCH / 0.25])


@pytest.mark.parametrize("first_step", [0, 12])
def test_the_time_to_go_is_reckoned_from_the_steps_that_this_start_has_made(first_step):
    run = Played(first_step)
    for _ in range(4):
        run.dispatch(2.0)
    run.meter.drain()
    last = run.reports[-1]
    assert last.step == first_step + 4
    assert last.eta_seconds == pytest.approx(2.0 * (STEPS - first_step - 4))


def test_the_time_to_go_has_evaluations_in_it():
    run = Played()
    for _ in range(4):
        run.dispatch(2.0)
    run.evaluate(8.0)  # as long as the four steps
    run.dispatch(2.0)
    run.meter.drain()
    assert run.reports[-1].eta_seconds == pytest.approx((STEPS - 5) * (5 * 2.0 + 8.0) / 5)


def test_waiting_for_input_is_a_share_of_training_and_of_each_report():
    run = Played(log_every_steps=2)
    for wait in (0.75, 0.25):
        for _ in range(2):
            run.dispatch(1.0 - wait, wait)
        run.evaluate(9.0)
    assert [p.input_bound for p in run.reports] == pytest.approx([0.75, 0.25])
    assert run.meter.totals().input_bound == pytest.approx(0.5)


def test_metrics_are_read_when_two_later_dispatches_have_been_sent():
    run = Played()
    for sent in range(1, 6):
        run.dispatch(1.0)
        assert len(run.reports) == max(0, sent - DISPATCHES_AHEAD)


def test_whatever_a_step_returns_is_averaged_by_its_name_and_the_learning_rate_is_the_last():
    run = Played(log_every_steps=4, steps_per_dispatch=2)
    run.dispatch(1.0, given=metrics(4.0, 3.0, top1=[0.0, 0.5], learning_rate=[0.1, 0.2], gradient_norm=[8.0, 2.0]))
    run.dispatch(1.0, given=metrics(2.0, 1.0, top1=[0.5, 1.0], learning_rate=[0.3, 0.4], gradient_norm=[1.0, 1.0]))
    run.meter.drain()
    (report,) = run.reports
    assert report.metrics == pytest.approx({"loss": 2.5, "top1": 0.5, "learning_rate": 0.4, "gradient_norm": 3.0})
    assert report.epoch == pytest.approx(4 / 6)
    assert report.images_per_second == pytest.approx(4 * BATCH / 2.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_named_with_its_step(bad):
    run = Played(steps_per_dispatch=3)
    run.dispatch(1.0)
    run.dispatch(1.0, given=metrics(1.0, bad, 1.0))
    with pytest.raises(NotFinite, match=rf"^the loss is {bad} at step 5$"):
        run.meter.drain()


def test_a_dispatch_takes_the_mean_of_those_read_and_before_the_first_what_it_has_taken_so_far():
    run = Played(steps_per_dispatch=2)
    run.clock.advance(3.0)
    assert run.meter.dispatch_seconds() == pytest.approx(3.0)
    for _ in range(4):  # two of them are read
        run.dispatch(1.0)
    assert run.meter.dispatch_seconds() == pytest.approx((3.0 + 4.0) / 2)


def test_the_last_step_is_reported_though_its_window_is_not_full():
    run = Played(first_step=20, log_every_steps=3)
    for _ in range(4):
        run.dispatch(1.0)
    run.meter.drain()
    assert [p.step for p in run.reports] == [23, 24]
    assert run.reports[-1].eta_seconds == 0.0
