"""Joins the processes of a run, through JAX's own distributed runtime: `join` is called once per process, before any
device is touched. On Slurm, Open MPI and TPU VMs JAX finds the coordinator and the ranks by itself;
anywhere else they are given. Which process may print or write is decided by those who do, with `is_first`.
"""

import os
import re
import socket
import sys
from dataclasses import dataclass

import jax

from podium.errors import UserError
from podium.host.accelerators import accelerator_files
from podium.processes.coordinator_loss import name_lost_coordinator

# In training train/watchdog.py finds a lost process within about ten seconds. JAX's own limit is long, so that hosts
# that were suspended together for some minutes are not taken for dead.
_HEARTBEAT_SECONDS = 300


@dataclass(frozen=True)
class Cluster:
    """Where this process stands among the others. All None: as the cluster's environment says, or alone."""

    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None


def join(cluster: Cluster) -> None:
    """Returns when all processes have come."""
    given = {name: value for name, value in vars(cluster).items() if value is not None}
    if given and len(given) < 3:
        raise UserError(
            f"only --{' and --'.join(given)} given; a process needs --coordinator HOST:PORT, --processes N and "
            f"--process K together, or none of them on Slurm, Open MPI, Kubernetes and TPU VMs"
        )
    if given:
        _check(cluster)
    cluster = cluster if given else _of_open_mpi_5() or cluster
    address = cluster.coordinator
    jax.config.update("jax_enable_preemption_service", False)  # it takes SIGTERM, which train/stop.py answers
    # JAX would listen on all interfaces; a run that stays on this machine need not.
    bind = address if address and address.startswith(("127.", "localhost:")) else None
    try:
        jax.distributed.initialize(
            address,
            cluster.processes,
            cluster.process,
            local_device_ids=_local_devices(),
            cluster_detection_method="deactivate" if address else None,
            coordinator_bind_address=bind,
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
            initialization_timeout=_patience_seconds(cluster.processes),
        )
    except ValueError as error:
        if given or "should be defined" not in str(error):
            raise
        return  # no cluster: this process is the run
    except RuntimeError as error:
        if not given and "must be called before" in str(error):
            return  # JAX has started already, in a program of its own: what it has then is what there is
        raise UserError(
            f"the processes of this run did not find each other ({str(error).splitlines()[0]}); check that all were "
            f"started and reach the coordinator{f' {address}' if address else ''}"
        ) from None
    if runtime().num_processes > 1:
        _part_stdout()
        if runtime().process_id > 0:
            name_lost_coordinator(str(runtime().coordinator_address), runtime().process_id)


def _patience_seconds(processes: int | None) -> int:
    """How long the first wait for the last: JAX's five minutes, and more where the scheduler starts thousands."""
    started = processes or int(os.environ.get("SLURM_NTASKS") or os.environ.get("OMPI_COMM_WORLD_SIZE") or 1)
    return 300 + started // 4


def is_first() -> bool:
    """Whether this process reports for the run. Asked before the devices start as well as after."""
    return runtime().process_id == 0


def process_count() -> int:
    return runtime().num_processes


def runtime() -> jax._src.distributed.State:
    """JAX's own record of who has joined. In public it has the numbers only once its devices have started."""
    return jax._src.distributed.global_state


def _check(cluster: Cluster) -> None:
    host, colon, port = (cluster.coordinator or "").rpartition(":")
    if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
        raise UserError(
            f"--coordinator {cluster.coordinator!r} is not HOST:PORT; write for example --coordinator node1:4000"
        )
    assert cluster.processes is not None
    assert cluster.process is not None
    if not 0 <= cluster.process < cluster.processes:
        raise UserError(f"--process {cluster.process} must be from 0 to {cluster.processes - 1} (--processes)")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
    except OSError as error:
        raise UserError(
            f"--coordinator {cluster.coordinator}: {host} is not found from {socket.gethostname()} ({error.strerror}); "
            f"give a name or address that every host knows"
        ) from None


def _of_open_mpi_5() -> Cluster | None:
    """Open MPI 5 no longer sets what JAX 0.10 looks for, and inside a Slurm job JAX would take mpirun's daemons for the
    ranks. As JAX does with Open MPI 4, this takes mpirun's host for rank 0's; JAX_COORDINATOR_ADDRESS overrides it."""
    started_by = re.fullmatch(r"prterun-(.+)-(\d+)@\d+", os.environ.get("PMIX_NAMESPACE", ""))
    if not started_by or "OMPI_COMM_WORLD_RANK" not in os.environ:
        return None
    ranks, here = (int(os.environ[f"OMPI_COMM_WORLD_{what}SIZE"]) for what in ("", "LOCAL_"))
    host = "127.0.0.1" if here == ranks else started_by[1]
    port = 61440 + int(started_by[2]) % 4096  # as JAX does, by the job: two jobs of a host rarely meet
    address = os.environ.get("JAX_COORDINATOR_ADDRESS", f"{host}:{port}")
    return Cluster(address, ranks, int(os.environ["OMPI_COMM_WORLD_RANK"]))


def _local_devices() -> list[int] | None:
    """Which GPUs are this process's. JAX would give each process of Slurm or Open MPI the one of its local rank (None
    leaves it to that); here the only process of a host, and one that is shown a single GPU, get all that are visible,
    which is what [] means to JAX."""
    found = os.environ.get
    if len([name for name in found("CUDA_VISIBLE_DEVICES", "").split(",") if name]) == 1:
        return []
    if local_ranks := found("OMPI_COMM_WORLD_LOCAL_SIZE"):
        return [] if local_ranks == "1" else [int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])]
    one_per_node = found("SLURM_STEP_NUM_TASKS", "") == found("SLURM_STEP_NUM_NODES")
    return [] if one_per_node else None


def _part_stdout() -> None:
    """Libraries print to file descriptor 1: Python's stdout gets a descriptor of its own. On a CPU it is gloo, with
    every connection, and nobody hears it; on accelerators it is what NCCL_DEBUG asked for, and goes to stderr."""
    sys.stdout.flush()
    ours = os.fdopen(os.dup(1), "w", buffering=1, encoding=sys.stdout.encoding)
    if accelerator_files() and os.environ.get("JAX_PLATFORMS") != "cpu":
        os.dup2(2, 1)
    else:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
    sys.stdout = ours
