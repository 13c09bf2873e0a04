"""Rules against NumPy and numbers worked by hand; schedules at their corners."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from podium import lars, optim
from podium.recipe.optimization import Lars, Sgd
from podium.recipe.reading import from_dict, load_recipe, to_dict

RULES: dict[str, Sgd | Lars] = {
    "sgd": Sgd("sgd", 0.1, momentum=0.9, nesterov=False, weight_decay=0.01),
    "nesterov": Sgd("sgd", 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "lars-tf": Lars("lars", 0.1, variant="tf", momentum=0.9, weight_decay=0.01, trust=0.1),
    "lars-scaled": Lars("lars", 0.1, variant="scaled_momentum", momentum=0.9, weight_decay=0.01, trust=0.1),
}


def in_numpy(settings, w, m, g, rate, adapted):
    decay = settings.weight_decay if adapted else 0.0
    if isinstance(settings, Sgd):
        g = g + decay * w
        m = settings.momentum * m + g
        return w - rate * (g + settings.momentum * m if settings.nesterov else m), m
    w_norm, g_norm = np.sqrt((w**2).sum()), np.sqrt((g**2).sum())
    trust = settings.trust * w_norm / (g_norm + decay * w_norm) if adapted and w_norm > 0 and g_norm > 0 else 1.0
    g = g + decay * w
    if settings.variant == "tf":
        m = settings.momentum * m + g
        return w - rate * trust * m, m
    m = settings.momentum * m + rate * trust * g
    return w - m, m


@pytest.mark.parametrize("name", RULES)
def test_a_trajectory_agrees_with_numpy(name):
    rng = np.random.default_rng(0)
    params = {"kernel": rng.standard_normal((4, 5)), "bias": rng.standard_normal(5), "zero": np.zeros((3, 3))}
    momenta = {key: np.zeros_like(value) for key, value in params.items()}
    rule, ours = optim.build_rule(RULES[name]), {k: jnp.asarray(v, jnp.float32) for k, v in params.items()}
    slots = optim.zero_slots(rule, ours)
    norms: jax.Array | None = optim.norms(ours)
    for step in range(5):
        gradients = {key: rng.standard_normal(value.shape) for key, value in params.items()}
        rate = 0.1 * (step + 1)  # a changing rate tells the LARS variants apart
        theirs = {
            k: in_numpy(RULES[name], params[k], momenta[k], gradients[k], rate, params[k].ndim > 1) for k in params
        }
        params, momenta = ({k: v[i] for k, v in theirs.items()} for i in (0, 1))
        given = {k: jnp.asarray(v, jnp.float32) for k, v in gradients.items()}
        new = optim.update(rule, ours, given, slots=slots, rate=jnp.float32(rate), weight_norms=norms, step=0)
        ours, slots, norms = new.weights, new.slots, new.weight_norms
    for key in params:
        np.testing.assert_allclose(ours[key], params[key], rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(slots["momentum"][key], momenta[key], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        # w = (3, 4), ‖w‖ = 5; g = (0, 1), ‖g‖ = 1; trust = 0.1·5/(1 + 0.01·5) = 0.476190; rate 0.1, twice the same g.
        # Step 1, both variants: g + 0.01·w = (0.03, 1.04); w − 0.1·0.476190·(0.03, 1.04) = (2.998571, 3.950476).
        # Step 2, tf: ‖w‖ = 4.959567, trust = 0.1·4.959567/(1.04959567) = 0.472522; g' = (0.029986, 1.039505);
        #   m = 0.9·(0.03, 1.04) + g' = (0.056986, 1.975505); w − 0.0472522·m = (2.995879, 3.857129).
        ("lars-tf", (2.995879, 3.857129)),
        # Step 2, scaled: m = 0.9·0.0476190·(0.03, 1.04) + 0.0472522·g' = (0.002703, 0.093690);
        #   w − m = (2.995869, 3.856786).
        ("lars-scaled", (2.995869, 3.856786)),
    ],
)
def test_two_lars_steps_worked_by_hand(name, weights):
    rule = optim.build_rule(RULES[name])
    w, g = [jnp.array([[3.0, 4.0]])], [jnp.array([[0.0, 1.0]])]
    slots = optim.zero_slots(rule, w)
    norms: jax.Array | None = optim.norms(w)
    for _ in range(2):
        new = optim.update(rule, w, g, slots=slots, rate=jnp.float32(0.1), weight_norms=norms, step=0)
        w, slots, norms = new.weights, new.slots, new.weight_norms
    np.testing.assert_allclose(w[0][0], weights, atol=2e-6)
    # Of the second step: the trust ratio worked out above, and the weights that it ends with.
    told = {"gradient_norm": 1.0, "weight_norm": np.linalg.norm(weights)}
    told |= {"trust_ratio_min": 0.472522, "trust_ratio_max": 0.472522}
    assert {key: float(value) for key, value in new.metrics.items()} == pytest.approx(told, rel=1e-5)
    assert norms is not None
    np.testing.assert_allclose(norms, np.linalg.norm(weights), rtol=1e-6)


def test_batch_norm_and_biases_are_neither_decayed_nor_scaled():
    for settings in RULES.values():
        rule, w = optim.build_rule(settings), [jnp.full(3, 2.0)]
        new = optim.update(
            rule, w, [jnp.zeros(3)],
            slots=optim.zero_slots(rule, w), rate=jnp.float32(1.0), weight_norms=optim.norms(w), step=0,
        )  # fmt: skip
        np.testing.assert_array_equal(new.weights[0], 2.0)


def test_trust_ratios_are_told_of_kernels_alone():
    rule = optim.build_rule(RULES["lars-tf"])
    w = [jnp.full((2, 2), 2.0), jnp.full((1, 4), 4.0), jnp.full(4, 1e3)]
    g = [jnp.full((2, 2), 1.0), jnp.full((1, 4), 1.0), jnp.full(4, 1.0)]
    new = optim.update(
        rule, w, g, slots=optim.zero_slots(rule, w), rate=jnp.float32(0.1), weight_norms=optim.norms(w), step=0
    )
    # trust = 0.1·‖w‖/(‖g‖ + 0.01·‖w‖): 0.4/2.04 and 0.8/2.08; the bias would have 200/22.
    assert float(new.metrics["trust_ratio_min"]) == pytest.approx(0.4 / 2.04, rel=1e-5)
    assert float(new.metrics["trust_ratio_max"]) == pytest.approx(0.8 / 2.08, rel=1e-5)


def schedule(**section):
    r = load_recipe("demo", ["epochs=10", "batch_global=64", "optimizer.learning_rate=0.8"])
    table = to_dict(r)
    table["schedule"] = section
    r = from_dict(table).for_data(10, 640, 64)  # 10 steps an epoch, 100 in all
    return optim.build_schedule(r)


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ({"decay": "polynomial", "warmup_epochs": 2, "power": 2}, {0: 0, 10: 0.4, 20: 0.8, 60: 0.8 * 0.25, 100: 0}),
        ({"decay": "cosine", "warmup_epochs": 2}, {0: 0, 20: 0.8, 60: 0.4, 100: 0}),
        ({"decay": "cosine", "warmup_epochs": 0}, {0: 0.8, 50: 0.4, 100: 0}),
        ({"decay": "steps", "warmup_epochs": 1, "at_epochs": [3, 6], "factor": 0.1},
         {5: 0.4, 10: 0.8, 29: 0.8, 31: 0.08, 59: 0.08, 61: 0.008}),
    ],
)  # fmt: skip
def test_schedules_at_their_corners(section, values):
    rate = schedule(**section)
    for step, value in values.items():
        assert float(rate(step)) == pytest.approx(value, abs=1e-6), step


@pytest.mark.parametrize("name", ["lars-tf", "lars-scaled"])
def test_lars_for_optax_takes_the_steps_of_training(name):
    settings = RULES[name]
    assert isinstance(settings, Lars)
    rng = np.random.default_rng(1)
    weights = {
        "kernel": jnp.asarray(rng.standard_normal((4, 5)), jnp.float32),
        "bias": jnp.ones(5),
        "0": jnp.zeros((2, 2)),
    }
    rule = optim.build_rule(settings)
    ours, slots = weights, optim.zero_slots(rule, weights)
    norms: jax.Array | None = optim.norms(weights)
    rates = optax.linear_schedule(0.1, 0.5, 4)
    optimizer = optax.chain(
        optax.identity(),
        lars(rates, momentum=0.9, weight_decay=settings.weight_decay, trust=settings.trust, variant=settings.variant),
    )
    state, update = optimizer.init(weights), jax.jit(optimizer.update)
    for step in range(5):
        gradients = jax.tree.map(lambda w: jnp.asarray(rng.standard_normal(w.shape), jnp.float32), weights)
        new = optim.update(rule, ours, gradients, slots=slots, rate=rates(step), step=step, weight_norms=norms)
        ours, slots, norms = new.weights, new.slots, new.weight_norms
        updates, state = update(gradients, state, weights)
        weights = optax.apply_updates(weights, updates)
    for key in weights:
        np.testing.assert_allclose(weights[key], ours[key], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(state[1].momentum[key], slots["momentum"][key], rtol=1e-6, atol=1e-7)


def test_lars_for_optax_asks_for_the_weights():
    optimizer = lars(0.1)
    with pytest.raises(ValueError, match="needs the weights"):
        optimizer.update(jnp.ones((2, 2)), optimizer.init(jnp.ones((2, 2))))


def test_the_caller_says_which_weights_are_adapted():
    optimizer = lars(1.0, trust=0.5, weight_decay=0.0, adapted=lambda weight: False)
    kernel = jnp.ones((2, 2))
    updates, _ = optimizer.update(3 * kernel, optimizer.init(kernel), kernel)
    np.testing.assert_array_equal(updates, -3 * kernel)
