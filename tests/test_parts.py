"""Parts used alone: the examples of their page run as they stand, and importing one loads nothing that it does not
need."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "parts.md").read_text()
EXAMPLES = dict(re.findall(r"^## ([\w ]+)\n.*?^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))

OURS = {
    "jax", "flax", "optax", "orbax", "numpy", "PIL", "pyarrow", "fsspec", "tyro", "rich", "tensorboardX", "psutil",
    "safetensors", "imagecodecs", "onnx", "torch", "tensorflow", "libtpu",
}  # fmt: skip
FLAX = {"jax", "numpy", "flax", "optax", "rich", "orbax", "fsspec", "psutil", "tensorstore"}  # what `import flax` loads
INPUT = {"numpy", "pyarrow", "PIL", "psutil", "fsspec"}
MAY_LOAD = {
    "from podium import DistributedBatchNorm": (FLAX, {"models", "mesh", "recipe", "processes"}),
    "from podium import Loader": (INPUT | {"jax"}, {"data", "mesh", "recipe", "processes"}),
    "from podium import NumpyLoader": (INPUT, {"data", "recipe"}),
    "from podium.data.decode import decode_batch": ({"numpy", "PIL"}, {"data"}),
    "from podium.reduce import torus": ({"jax", "numpy"}, {"reduce", "mesh", "recipe", "processes"}),
    "from podium import lars": ({"jax", "numpy", "optax"}, {"optim", "recipe"}),
    "from podium.plan.machines import parse_pod": (set(), {"plan", "recipe"}),
    "from podium.plan.plan import make_plan": (
        FLAX,
        {"plan", "step", "models", "optim", "reduce", "mesh", "recipe", "processes"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("statement", MAY_LOAD)
def test_a_part_loads_only_what_it_needs(statement):
    code = f"import sys, json; {statement}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    others = {name.split(".")[0] for name in loaded}
    rooms = {name.split(".")[1] for name in loaded if name.startswith("podium.")}
    packages, may_rooms = MAY_LOAD[statement]
    assert others & OURS <= packages
    assert rooms <= may_rooms | {"host", "errors"}


@pytest.mark.slow
def test_no_part_of_data_but_decoding_loads_with_the_decoder():
    code = "import sys, podium.data.decode; sys.exit(any(n.startswith('podium.data.input') for n in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("part", sorted(EXAMPLES))
@pytest.mark.usefixtures("here")
def test_an_example_runs_as_it_stands(part):
    exec(compile(EXAMPLES[part], part, "exec"), {})


def test_every_part_has_a_short_example():
    assert len(EXAMPLES) == len(MAY_LOAD)
    for example in EXAMPLES.values():
        lines = [line for line in example.splitlines() if line and not line.startswith(("import", "from"))]
        assert len(lines) <= 10
