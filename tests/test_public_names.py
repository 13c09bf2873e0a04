import subprocess
import sys
from importlib import metadata

import pytest

import podium


def test_every_public_name_is_there_and_no_other():
    for name in podium.__all__:
        assert getattr(podium, name).__name__ == name
    assert set(dir(podium)) == {*podium.__all__, "__version__"}
    assert {"Recipe", "load_recipe", "train_recipe", "open_run", "build_step"} <= set(podium.__all__)
    with pytest.raises(AttributeError, match="podium has no public name 'nothing'"):
        podium.nothing  # noqa: B018


def test_a_star_brings_the_public_names():
    names: dict[str, object] = {}
    exec("from podium import *", names)
    assert set(names) - {"__builtins__"} == set(podium.__all__)


def test_the_version_is_that_of_the_installed_package():
    assert podium.__version__ == metadata.version("podium")


@pytest.mark.slow
def test_the_command_line_answers_without_loading_jax():
    # Worker processes import the package too: they must stay light.
    heavy = "{'jax', 'numpy', 'pyarrow', 'rich'}"
    code = f"import sys, podium, podium.cli.main; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_preparing_loads_no_jax():
    # It would take longer to load than a thousand images to prepare.
    code = "import sys, podium.cli.prepare; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
