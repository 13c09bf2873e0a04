"""Step time from made-up programs whose answer is known, and the count of a real network against published figures."""

from dataclasses import replace

import pytest

from podium.plan.count import Work, _of_one_core, _trace, count
from podium.plan.estimate import Constants, Origin, estimate, evaluations
from podium.plan.gradient_sum import in_words, is_two_colour_2d
from podium.plan.hlo import Collective, Program
from podium.plan.libtpu import Compiled
from podium.plan.machines import CHIPS, parse_pod
from podium.plan.plan import make_plan
from podium.recipe.reading import load_recipe
from podium.step.work import Product
from podium.train.loop import evaluation_steps

_RECIPE = load_recipe("resnet50-32k")
_POD = parse_pod("v3:32x32")
_CONSTANTS = Constants(cycle_factor=1.0, hop_seconds=0.0)
_TWO_COLOUR = Collective(
    "all-reduce", 100_000_000, 2048, "RotatedPincerEmitter", "StrategyND", 2, 2, ((64, 32),) * 2, ((0, 1), (1, 0))
)


def _compiled(*collectives: Collective, cycles: int = 28_200_000, update: int = 940_000) -> Compiled:
    program = Program(cycles, update, 0, collectives)
    return Compiled(program, 1e12, 1e9, 2**30, 60.0, 5.0, {"libtpu": "test"}, "key")


def _parts(facts: Compiled, constants: Constants = _CONSTANTS) -> dict[str, float]:
    return {part.name: part.seconds for part in estimate(_RECIPE, _POD, facts, constants=constants).parts}


def test_cycles_become_seconds_at_the_chips_clock():
    parts = _parts(_compiled(_TWO_COLOUR))
    assert parts["compute"] == pytest.approx(29e-3)
    assert parts["weight update"] == pytest.approx(1e-3)
    assert parts["gradient summation"] == pytest.approx(2 * 2047 / 2048 * 1e8 / (4 * 70e9))
    assert parts["batch-norm exchange"] == 0


def test_the_step_is_the_sum_of_its_parts_and_gives_the_throughput():
    e = estimate(_RECIPE, _POD, _compiled(_TWO_COLOUR), constants=_CONSTANTS)
    assert e.step_seconds == pytest.approx(sum(part.seconds for part in e.parts))
    assert e.images_per_second == pytest.approx(32768 / e.step_seconds)
    assert e.train_seconds == pytest.approx(91 * 1_281_167 / e.images_per_second + e.evaluation_seconds)
    assert e.images_per_second_evaluated < e.images_per_second
    assert e.limit == "compute"


def test_what_a_collective_overlaps_with_hides_it():
    hidden = replace(_TWO_COLOUR, overlapped_cycles=94_000)
    difference = _parts(_compiled(_TWO_COLOUR))["gradient summation"] - _parts(_compiled(hidden))["gradient summation"]
    assert difference == pytest.approx(1e-4)
    assert _parts(_compiled(replace(_TWO_COLOUR, overlapped_cycles=10**9)))["gradient summation"] == 0


def test_every_exchange_costs_its_hops():
    norm = Collective("all-reduce", 0, 8, "SinglePhaseRingSumEmitter")
    parts = _parts(_compiled(*[norm] * 100), replace(_CONSTANTS, hop_seconds=1e-6))
    assert parts["batch-norm exchange"] == pytest.approx(100 * 7e-6)


def test_a_sharded_updates_phases_are_priced_axis_by_axis():
    """Scattered over rings of 64 cores and then of 32, and gathered back: the same bytes as a one-colour sum."""
    rows, cols = 10_000_000, 1_000_000  # of what a core has after each scatter
    phases = [
        Collective("reduce-scatter", rows, 64, "RotatedPincerEmitter"),
        Collective("reduce-scatter", cols, 32, "RotatedPincerEmitter"),
        Collective("all-gather", 32 * cols, 32, "RotatedPincerEmitter"),
        Collective("all-gather", 64 * rows, 64, "RotatedPincerEmitter"),
    ]
    parts = _parts(_compiled(*phases))
    wire = 2 * (63 * rows + 31 * cols) / (2 * 70e9)
    assert parts["gradient summation"] == pytest.approx(wire)
    assert parts["batch-norm exchange"] == 0


def test_a_chip_with_faster_memory_needs_fewer_of_the_estimated_cycles():
    """v4: 1200 GB/s for two tensor cores at 1050 MHz; v3: 900 GB/s for two at 940 MHz."""
    pod = parse_pod("v4:8x16x16")
    compute = estimate(_RECIPE, pod, _compiled(cycles=10_500_000, update=0), constants=_CONSTANTS).parts[0]
    assert compute.seconds == pytest.approx(10e-3 * (450 / 940) / (600 / 1050) / _CONSTANTS.common_memory_gain)


def test_hosts_that_cannot_keep_up_set_the_pace():
    e = estimate(_RECIPE, _POD, _compiled(_TWO_COLOUR), cpu_images_per_second=10.0, constants=_CONSTANTS)
    assert e.limit == "input"
    assert e.images_per_second == pytest.approx(256 * 96 * 10.0)


@pytest.mark.parametrize("name", ["resnet50-32k", "resnet50-64k", "resnet50-256", "cifar10-sgd"])
def test_as_many_evaluations_are_planned_as_are_run(name):
    recipe = load_recipe(name)
    assert evaluations(recipe) == len(evaluation_steps(recipe))


def test_the_two_colour_algorithm_is_recognised_and_said():
    assert is_two_colour_2d(_TWO_COLOUR)
    assert "the paper's two-colour 2-D algorithm" in in_words(_TWO_COLOUR)
    one = replace(_TWO_COLOUR, colours=1, rings=((64, 128),), axes_of_colours=((0, 1),))
    assert not is_two_colour_2d(one)
    assert "not the two-colour 2-D algorithm" in in_words(one)
    three_axes = replace(_TWO_COLOUR, phases=3, axes_of_colours=((0, 1, 2), (1, 2, 0), (2, 0, 1)))
    assert not is_two_colour_2d(three_axes)


@pytest.fixture(scope="module")
def resnet50() -> Work:
    return count(_RECIPE, 4)


def test_the_count_of_resnet50_is_the_known_one(resnet50):
    """25.56 M parameters; about 4.1 G multiply-adds an image forward, and twice that backward."""
    assert resnet50.parameters == 25_557_032
    assert resnet50.flops / 4 == pytest.approx(3 * 2 * 4.09e9, rel=0.02)
    assert len(resnet50.products) == 3 * 54 - 1  # 53 convolutions and the classifier; the images need no gradient
    assert resnet50.activation_bytes / 4 == pytest.approx(2 * 11.1e6, rel=0.01)  # 11.1 M activations, bfloat16
    assert resnet50.norms == 53


def test_filters_that_are_not_trained_have_no_gradient_and_no_norm():
    """resnet7: fixed filters, then 48, 160 and 160 channels in pairs of convolutions, and the classifier."""
    work = count(load_recipe("cifar10-sgd", ["model.classes=10"]), 1)
    assert work.norms == 6
    assert len(work.products) == 8 + 7 + 7  # forward; by weights; by inputs, down to the filters' bias
    sides = [(31, 24), (31, 48), (15, 48), (15, 160), (7, 160), (7, 160), (3, 160)]
    # bfloat16, but for the ten logits
    assert work.activation_bytes == 2 * sum(side**2 * channels for side, channels in sides) + 4 * 10


def test_a_roofline_is_never_faster_than_either_peak():
    work = Work((Product(1e9, 1.0), Product(1.0, 1e9)), 1, 1, 1)
    chip = CHIPS["a100"]
    assert work.roofline_seconds(chip) == pytest.approx(1e9 / chip.bf16_flops + 1e9 / chip.memory_bandwidth)


def test_a_plan_without_a_compiler_marks_everything_as_modelled(resnet50):
    recipe = replace(_RECIPE, batch_global=4 * 8 * 8, model=replace(_RECIPE.model, norm_span=16))
    plan = make_plan(recipe, parse_pod("a100:8x8"), compile_step=False)
    table = plan.to_json()
    assert table["origins"]["memory_bytes_per_core"] == Origin.MODELLED
    assert {part["origin"] for part in table["parts"]} == {Origin.MODELLED}
    assert table["compiled"] is None
    assert table["fits"]
    needed = {"images_per_second", "step_seconds", "train_minutes", "memory_bytes_per_core", "memory_limit_bytes"}
    assert needed | {"allreduce", "fits"} <= set(table)


def test_the_count_is_linear_in_the_batch(resnet50):
    """Three images, extrapolated, against a trace of three."""
    traced = _trace(_of_one_core(_RECIPE, 3))
    counted = count(_RECIPE, 3)
    assert counted.flops == pytest.approx(traced.flops)
    assert counted.memory_bytes == traced.memory_bytes
