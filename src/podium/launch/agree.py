"""What the processes of a run tell each other outside of training: small JSON values, gathered in the order of ranks.
With one process everything here is what that process says.
"""

import hashlib
import json
import socket
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from podium.errors import UserError


def gather(value: Any) -> list[Any]:
    """`value` of every process. All must call this, in the same order."""
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = multihost_utils.process_allgather(np.array([text.size], np.int32)).reshape(-1)
    texts = multihost_utils.process_allgather(np.pad(text, (0, lengths.max() - text.size)))
    return [json.loads(bytes(text[:length])) for text, length in zip(texts, lengths, strict=True)]


def on_first(act: Callable[[], Any]) -> Any:
    """Process 0 acts; all return what it returned (a JSON value), or fail as it failed."""
    return _together(act, acting=jax.process_index() == 0)[0]


def once_per_host(act: Callable[[], Any]) -> Any:
    """Every process acts (and returns its own JSON value), but what process 0 leaves on disk is there when the others
    begin, and what the first of a host leaves there for the rest of that host. If one fails, all do."""
    hosts, process = gather(socket.gethostname()), jax.process_index()
    turn = 0 if process == 0 else 1 if hosts.index(hosts[process]) == process else 2
    return [_together(act, acting=turn == now)[process] for now in range(3)][turn]


def _together(act: Callable[[], Any], acting: bool) -> list[Any]:
    said: dict[str, Any] = {}
    if acting:
        try:
            said = {"value": act()}
        except UserError as error:
            said = {"error": str(error), "host": socket.gethostname()}
    of_all = gather(said)
    for process, theirs in enumerate(of_all):
        if "error" in theirs:
            raise UserError(theirs["error"] + (f" (process {process} on {theirs['host']})" if process else ""))
    return [theirs.get("value") for theirs in of_all]


def check_same(facts: dict[str, Any]) -> None:
    """Fails on all processes, naming the first that differs and in what, unless all have the same facts."""
    of_all = gather({"host": socket.gethostname(), **{name: _digest(fact) for name, fact in facts.items()}})
    for process, theirs in enumerate(of_all):
        for name in facts:
            if theirs[name] != of_all[0][name]:
                raise UserError(
                    f"process {process} on {theirs['host']} has another {name} than process 0 on "
                    f"{of_all[0]['host']}; start all processes with the same {name}"
                )


def processes_on_this_host() -> int:
    hosts = gather(socket.gethostname())
    return hosts.count(hosts[jax.process_index()])


def _digest(fact: Any) -> str:
    return hashlib.sha256(json.dumps(fact, sort_keys=True).encode()).hexdigest()
