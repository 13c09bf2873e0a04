import subprocess
import sys

import podium


def test_every_public_name_is_there_and_no_other():
    for name in podium.__all__:
        assert getattr(podium, name).__name__ in (name, "load")
    assert set(podium.__all__) == set(podium._HOME)


def test_the_command_line_answers_without_loading_jax():
    # Worker processes import the package too: they must stay light.
    code = "import sys, podium, podium.cli; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
