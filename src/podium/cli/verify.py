"""What `podium verify` does."""

import sys
from typing import Any

from podium.cli.arguments.health import Verify
from podium.data.dataset import verify as dataset
from podium.data.dataset.manifest import MANIFEST
from podium.errors import UserError
from podium.host.names import printable
from podium.train import verify as run


def verify(command: Verify) -> dict[str, Any]:
    path = command.path
    kind = next((kind for kind, file in (("run", "run.json"), ("data", MANIFEST)) if (path / file).is_file()), None)
    if kind is None:
        raise UserError(f"{path} is neither a prepared directory nor a run: it has no {MANIFEST} and no run.json")
    changes = run.changes(path) if kind == "run" else dataset.changes(path)
    out = sys.stderr if command.json else sys.stdout
    for line in changes or [f"{path}: all is as it was written"]:
        print(printable(line), file=out)
    return {"path": str(path), "kind": kind, "changes": changes}
