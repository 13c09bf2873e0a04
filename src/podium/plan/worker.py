"""Asks a process of its own to compile, and says what a compiled program depends on. A compiler reads its settings from
the environment at start, prints what it likes, and can be ended while it compiles; `libtpu_worker` and `cuda_worker`
run there.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

Stage = Callable[[str], None]


def ask(module: str, request: dict[str, Any], environment: dict[str, str], *, stage: Stage) -> dict[str, Any]:
    """Sends the request as JSON on stdin, reads lines of JSON, and returns the last word: a result, or why there is
    none."""
    answer: dict[str, Any] = {}
    stage("starting JAX")  # which takes seconds
    with tempfile.TemporaryFile("w+") as errors:
        worker = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            worker.stdin.write(json.dumps(request))
            worker.stdin.close()
            for line in worker.stdout:
                message = json.loads(line) if line.startswith("{") else {}
                if "stage" in message:
                    stage(message["stage"])
                else:
                    answer |= message
            worker.wait()
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()
        if not answer:
            errors.seek(0)
            last_words = errors.read().strip().splitlines()[-1:]
            answer = {"failed": last_words[0] if last_words else f"exit code {worker.returncode}"}
    return answer


def hash_of(patterns: tuple[str, ...]) -> str:
    """Hashes all sources of Podium that match."""
    root = Path(str(resources.files("podium")))
    files = sorted(file for pattern in patterns for file in root.glob(pattern))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
