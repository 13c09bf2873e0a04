"""AdamW, LAMB, Muon, clipping and optimizers of one's own: against NumPy, and the same sharded, flat and replicated."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests.step.test_programs import BATCH, batches, small_recipe, tiny_network

from podium import optim
from podium.errors import UserError
from podium.mesh import build_mesh
from podium.optim.muon import orthogonal
from podium.recipe.optimization import AdamW, Lamb, Lars, Muon, Optimizer, Sgd
from podium.recipe.torus import Shape, lay_out
from podium.step.programs import build_step

RULES: dict[str, Optimizer] = {
    "sgd": Sgd("sgd", 0.1, clip_norm=0.5),
    "lars": Lars("lars", 0.1, trust=0.1, clip_norm=0.5),
    "adamw": AdamW("adamw", 0.1, beta2=0.99, weight_decay=0.1),
    "adamw-clipped": AdamW("adamw", 0.1, epsilon=0.1, clip_norm=0.5),
    "lamb": Lamb("lamb", 0.1, weight_decay=0.1),
    "lamb-clipped": Lamb("lamb", 0.1, epsilon=0.1, clip_norm=0.5),
    "muon": Muon("muon", 0.1, other_rate=0.5, weight_decay=0.01),
    "muon-free": Muon("muon", 0.1, unit_weights=False, clip_norm=0.5),
}


def newton_schulz(g, iterations):
    """In NumPy by singular values: the iteration is a polynomial of each."""
    u, s, v = np.linalg.svd(g, full_matrices=False)
    s = s / (np.sqrt((g**2).sum()) + 1e-7)
    for _ in range(iterations):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ np.diag(s) @ v


def norm(a):
    return np.sqrt((a**2).sum())


def in_numpy(o, w, slots, g, *, rate, step):
    """New weight and slots of one tensor, from its clipped gradient."""
    decay = o.weight_decay if w.ndim > 1 else 0.0
    if isinstance(o, AdamW | Lamb):
        m = o.beta1 * slots["mean"] + (1 - o.beta1) * g
        v = o.beta2 * slots["square"] + (1 - o.beta2) * g**2
        r = m / (1 - o.beta1 ** (step + 1)) / (np.sqrt(v / (1 - o.beta2 ** (step + 1))) + o.epsilon) + decay * w
        scaled = isinstance(o, Lamb) and w.ndim > 1 and norm(w) > 0
        return w - rate * (norm(w) / norm(r) if scaled else 1.0) * r, {"mean": m, "square": v}
    if isinstance(o, Muon) and w.ndim == 4:
        m = o.momentum * slots["momentum"] + g
        flat = np.moveaxis(g + o.momentum * m, -1, 0)
        direction = np.moveaxis(newton_schulz(flat.reshape(len(flat), -1), o.iterations).reshape(flat.shape), 0, -1)
        if o.unit_weights:
            w = w * np.sqrt(w.shape[-1]) / norm(w)
        return w - rate * (direction + decay * w), {"momentum": m}
    if isinstance(o, Lars):
        trust = o.trust * norm(w) / (norm(g) + decay * norm(w)) if w.ndim > 1 else 1.0
        m = o.momentum * slots["momentum"] + g + decay * w
        return w - rate * trust * m, {"momentum": m}
    momentum, rate = (o.other_momentum, o.other_rate * rate) if isinstance(o, Muon) else (o.momentum, rate)
    g = g + decay * w
    m = momentum * slots["momentum"] + g
    return w - rate * (g + momentum * m), {"momentum": m}


@pytest.mark.parametrize("name", RULES)
def test_a_trajectory_agrees_with_numpy(name):
    rng, o = np.random.default_rng(0), RULES[name]
    theirs = {"conv": rng.standard_normal((3, 3, 4, 6)), "linear": rng.standard_normal((4, 5)), "bias": np.ones(5)}
    rule, ours = optim.build_rule(o), {k: jnp.asarray(v, jnp.float32) for k, v in theirs.items()}
    slots, norms = optim.zero_slots(rule, ours), optim.norms(ours)
    their_slots = {k: {name: np.zeros_like(v) for name in rule.slots} for k, v in theirs.items()}
    for step in range(4):
        gradients = {k: rng.standard_normal(v.shape) for k, v in theirs.items()}
        length = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        shorter = {k: g * min(1, o.clip_norm / length) if o.clip_norm else g for k, g in gradients.items()}
        rate = 0.02 * (step + 1)
        new = {k: in_numpy(o, theirs[k], their_slots[k], shorter[k], rate=rate, step=step) for k in theirs}
        theirs, their_slots = {k: v[0] for k, v in new.items()}, {k: v[1] for k, v in new.items()}
        given = {k: jnp.asarray(v, jnp.float32) for k, v in gradients.items()}
        updated = optim.update(
            rule, ours, given, slots=slots, rate=jnp.float32(rate), step=jnp.int32(step), weight_norms=norms
        )
        ours, slots = updated.weights, updated.slots
        norms = optim.norms(ours)
        assert float(updated.metrics["gradient_norm"]) == pytest.approx(length, rel=1e-5)  # before clipping
    for k, weight in theirs.items():
        np.testing.assert_allclose(ours[k], weight, rtol=1e-3, atol=2e-5)
        for slot, value in their_slots[k].items():
            np.testing.assert_allclose(slots[slot][k], value, rtol=1e-3, atol=1e-5)


def test_what_is_orthogonal_has_singular_values_near_one():
    matrix = np.random.default_rng(0).standard_normal((8, 30)).astype(np.float32)
    for given in (matrix, matrix.T):
        values = np.linalg.svd(np.asarray(orthogonal(jnp.asarray(given), 5)), compute_uv=False)
        assert values.min() > 0.6
        assert values.max() < 1.3


def trained(optimizer, weight_update, rows, cols, own=None):
    settings = dict(vars(optimizer))
    r = small_recipe(optimizer=settings, weight_update=weight_update, bucket_mb=0.0003)
    mesh = build_mesh(lay_out(Shape(rows, cols), BATCH, r.model.norm_span), jax.devices()[: rows * cols])
    step = build_step(r, mesh, tiny_network(r), optimizer=own)
    state, losses = step.init(), []
    for batch in batches(step):
        state, metrics = step.train(state, batch)
        losses.append(np.asarray(metrics["loss"]))
    assert step.train._cache_size() == 1, "a second call must not recompile"
    return np.concatenate(losses), jax.device_get(step.portable(state))


@pytest.mark.parametrize(
    "optimizer",
    [AdamW("adamw", 0.01, clip_norm=0.1, epsilon=0.01), Lamb("lamb", 0.02, clip_norm=0.1, epsilon=0.01)],
    ids=["adamw", "lamb"],
)
def test_sharded_and_flat_updates_are_those_of_one_chip(optimizer):
    losses, state = trained(optimizer, "replicated", 1, 1)
    for way in ("sharded", "flat"):
        others, other = trained(optimizer, way, 2, 2)
        np.testing.assert_allclose(others, losses, rtol=2e-5)
        for a, b in zip(jax.tree.leaves(other), jax.tree.leaves(state), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


def test_muon_is_replicated_and_the_same_on_four_chips():
    muon = Muon("muon", 0.02)
    losses, _ = trained(muon, "replicated", 1, 1)
    np.testing.assert_allclose(trained(muon, "auto", 2, 2)[0], losses, rtol=2e-5)
    with pytest.raises(UserError, match="muon"):
        small_recipe(optimizer=vars(muon), weight_update="sharded")


def test_an_optimizer_of_ones_own_is_any_optax_transformation():
    adam = AdamW("adamw", 0.01, weight_decay=0.0, epsilon=0.01)
    losses, state = trained(adam, "replicated", 1, 2)
    theirs, their_state = trained(adam, "auto", 1, 2, lambda rate: optax.adam(rate, eps=0.01))
    np.testing.assert_allclose(theirs, losses, rtol=2e-5)
    for a, b in zip(jax.tree.leaves(their_state.params), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)
    with pytest.raises(UserError, match="whole"):
        trained(adam, "sharded", 1, 2, optax.sgd(0.1))
