"""The peer's step: the network that everybody means, and a step that learns, on simulated chips."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podium.mesh import build_mesh
from podium.plan.peer import Peer
from podium.plan.peer_step import build_peer
from podium.recipe.torus import Shape, lay_out


def _mesh(peer: Peer, rows: int, cols: int):
    torus = lay_out(Shape(rows, cols), peer.batch_global, peer.norm_span or 1)
    return build_mesh(torus, jax.devices()[: rows * cols])


@pytest.mark.parametrize(("stem", "image"), [("conv7", (224, 224, 3)), ("space_to_depth", (112, 112, 12))])
def test_it_is_a_resnet50(stem, image):
    peer = Peer(16, 8, stem=stem)
    state, batch = build_peer(peer, _mesh(peer, 1, 2)).arguments
    weights = sum(leaf.size for leaf in jax.tree.leaves(state["params"]))
    more = (4 * 4 * 12 - 7 * 7 * 3) * 64 if stem == "space_to_depth" else 0
    assert weights == 25_557_032 + more
    assert batch["image"].shape == (16, *image)


@pytest.mark.parametrize("layout", ["HWCN", "HWNC"])
def test_images_may_come_in_the_layout_that_a_pod_wants(layout):
    peer = Peer(16, 8, image_layout=layout, stem="space_to_depth")
    batch = build_peer(peer, _mesh(peer, 1, 2)).arguments[1]
    sizes = {"N": 16, "H": 112, "W": 112, "C": 12}
    assert batch["image"].shape == tuple(sizes[axis] for axis in layout)
    assert batch["image"].sharding.shard_shape(batch["image"].shape)[layout.index("N")] == 8


def test_a_small_one_takes_the_same_step_in_every_layout():
    """A step on two chips whose norm spans both: loss and new weights do not depend on how images are delivered."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((4, 32, 32, 3)).astype(jnp.bfloat16)
    label = np.array([1, 2, 3, 4], np.int32)
    found = []
    for layout in ("NHWC", "HWCN"):
        peer = Peer(4, 4, "sgd", image_layout=layout, blocks=(1,), image_size=32)
        step = build_peer(peer, _mesh(peer, 1, 2))
        state = jax.tree.map(
            lambda leaf: jax.device_put(jnp.full(leaf.shape, 0.01, leaf.dtype), leaf.sharding), step.arguments[0]
        )
        delivered = images.transpose(["NHWC".index(axis) for axis in layout])
        batch = {"image": delivered, "label": label}
        batch = jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), batch, step.arguments[1])
        new, metrics = step.train(state, batch)
        found.append((float(metrics["loss"]), np.asarray(new["params"]["Dense_0"]["kernel"])))
        assert int(new["step"]) == 1
    assert found[0][0] == pytest.approx(np.log(1000), rel=0.05)
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-2)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-3)
