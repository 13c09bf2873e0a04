"""What the native sums promise beyond the contract table: strangers, lost peers, what overlaps."""

import contextlib
import os
import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, PartitionSpec

from podium.reduce import Sockets, TorusAxes, links
from podium.reduce.colours import torus_routes

AXES = TorusAxes(("row",), ("col",))


@pytest.fixture
def mesh():
    yield Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("row", "col"), axis_types=(AxisType.Auto,) * 2)
    links.leave()


def test_a_stranger_is_hung_up_on(mesh: Mesh) -> None:
    links.join(mesh, AXES.all)
    with socket.create_connection(("127.0.0.1", links.port()), timeout=10) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: podium\r\n\r\n" + bytes(64))
        with contextlib.suppress(ConnectionResetError):  # it had more to say than was read
            assert stranger.recv(100) == b""


def test_sums_that_are_started_together_are_each_their_own(mesh: Mesh) -> None:
    links.join(mesh, AXES.all)
    reduction = Sockets(AXES, choice=lambda rows, cols, size_bytes: torus_routes)
    sizes = [5, 10_001, 300, 5]
    blocks = [np.random.default_rng(k).integers(-99, 99, (4, size)).astype(np.float32) for k, size in enumerate(sizes)]

    def run(*flats):
        return reduction.all_reduce_each([flat[0] for flat in flats])

    spec = PartitionSpec(AXES.all)
    summed = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=PartitionSpec()))
    for _ in range(3):
        for block, total in zip(blocks, jax.block_until_ready(summed(*blocks)), strict=True):
            np.testing.assert_array_equal(total, block.sum(0))


def test_all_sums_start_before_the_first_is_waited_for(mesh: Mesh) -> None:
    links.join(mesh, AXES.all)
    reduction = Sockets(AXES)
    spec = PartitionSpec(AXES.all)
    run = jax.shard_map(
        lambda a, b: reduction.all_reduce_each([a[0], b[0]]), mesh=mesh, in_specs=spec, out_specs=PartitionSpec()
    )
    text = str(jax.make_jaxpr(run)(np.ones((4, 8), np.float32), np.ones((4, 16), np.float32)))
    calls = [line for line in text.splitlines() if "podium_links" in line]
    kinds = ["start" if "links_start" in line else "done" for line in calls]
    assert kinds == ["start", "start", "done", "done"] or text.rindex("links_start") < text.index("links_done")


PEER = """
import sys
import jax, numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec as P
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from podium.reduce import Sockets, TorusAxes, links
axes = TorusAxes(("row",), ("col",))
mesh = Mesh(np.array(jax.devices()).reshape(1, 2), ("row", "col"), axis_types=(AxisType.Auto,) * 2)
links.join(mesh, axes.all)
run = jax.jit(jax.shard_map(lambda x: Sockets(axes).all_reduce(x), mesh=mesh, in_specs=P(), out_specs=P()))
print(np.asarray(run(np.ones(100, np.float32)))[:2], flush=True)
sys.stdin.readline()
try:
    print(np.asarray(run(np.ones(100, np.float32))), flush=True)
except jax.errors.JaxRuntimeError as error:
    print(error, flush=True)
sys.stdout.flush()
import os; os._exit(0)
"""


@pytest.mark.slow
def test_a_sum_ends_with_an_error_that_names_a_lost_peer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        coordinator = f"127.0.0.1:{server.getsockname()[1]}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    peers = [
        subprocess.Popen(
            [sys.executable, "-c", PEER, coordinator, str(k)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environment,
        )
        for k in range(2)
    ]  # fmt: skip
    try:
        said = [_line_with("[", peer) for peer in peers]
        assert said == ["[2. 2.]\n"] * 2
        peers[1].send_signal(signal.SIGKILL)
        peers[1].wait()
        assert peers[0].stdin is not None
        peers[0].stdin.write("\n")
        peers[0].stdin.flush()
        assert "device 1" in _line_with("podium:", peers[0])
    finally:
        for peer in peers:
            peer.kill()
            peer.communicate()


def _line_with(mark: str, peer: "subprocess.Popen[str]") -> str:
    """The first line that has the mark; gloo says other things."""
    assert peer.stdout is not None
    return next(line for line in peer.stdout if mark in line and "Gloo" not in line)
