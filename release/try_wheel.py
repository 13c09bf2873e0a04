"""Installs the wheel of dist/ into an empty environment of each Python that is found, and uses it there with an empty
PATH: no compiler, no header, nothing of this checkout. The native libraries must be the ones at work, the demo must
learn, and the tests of decoder and convolutions must pass.

    python -m release.try_wheel [--python PYTHON]… [--lowest]

With --lowest every direct dependency is the oldest that pyproject.toml allows.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from email.parser import Parser
from pathlib import Path

from release.wheel import ROOT, check

VERSIONS = ("3.11", "3.12", "3.13")
TESTS = ("tests/data/decode/test_pixels.py", "tests/models/test_convolution.py", "tests/optim", "tests/recipe")
PYTEST = ("pytest>=9,<10", "pytest-randomly>=5", "hypothesis>=6.150")
AT_WORK = """
from podium.data import decode
from podium.models import native
assert decode.backend() == "native", decode.backend_reason()
assert not native.missing, native.missing
"""


def pythons() -> list[str]:
    """The Pythons of this machine that Podium is for, one of each version."""
    managed = [*Path.home().glob(".pyenv/versions/3.*/bin/python3.*"), *Path.home().glob(".local/bin/python3.*")]
    known = {path.name: str(path) for path in managed if path.name.removeprefix("python") in VERSIONS}
    names = (f"python{version}" for version in VERSIONS)
    return [found for name in names if (found := known.get(name) or shutil.which(name))]


def requirements(wheel: Path) -> list[str]:
    """What the wheel itself asks for, without extras. uv takes the oldest only of what it is asked for by name."""
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    asked = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])
    return [str(line) for line in asked if "extra ==" not in line]


def try_wheel(wheel: Path, python: str, *, lowest: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        subprocess.run([python, "-m", "venv", f"{folder}/venv"], check=True)
        inside = f"{folder}/venv/bin/python"
        resolution = ["--resolution", "lowest-direct" if lowest else "highest", "--index-strategy", "unsafe-best-match"]
        install = [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "install",
            "--quiet",
            "--python",
            inside,
            "--only-binary",
            ":all:",
        ]
        asked = [*install, *resolution, str(wheel), *requirements(wheel)]
        subprocess.run(asked, check=True)
        empty = {"PATH": "", "HOME": folder, "XDG_CACHE_HOME": f"{folder}/cache", "LANG": "C.UTF-8"}

        def run(*arguments: str) -> None:
            subprocess.run([inside, *arguments], check=True, cwd=folder, env=empty)

        run("-c", AT_WORK)
        run("-m", "podium", "train", "--set", "epochs=2", "--run", f"{folder}/run", "--json")
        print(f"{python}: installed and trained in {time.monotonic() - began:.0f} s", flush=True)
        subprocess.run([*asked, *PYTEST], check=True)
        for name in ("tests", "docs"):  # a test of recipes reads their page
            shutil.copytree(ROOT / name, f"{folder}/{name}")
        shutil.copy(ROOT / "pyproject.toml", folder)
        run("-m", "pytest", "-p", "no:cacheprovider", *TESTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", action="append", help="only these, instead of every one that is found")
    parser.add_argument("--lowest", action="store_true", help="with the oldest direct dependencies")
    options = parser.parse_args()
    (wheel,) = (ROOT / "dist").glob("podium-*.whl")
    check(wheel)
    for python in options.python or pythons():
        try_wheel(wheel.resolve(), os.path.abspath(python), lowest=options.lowest)


if __name__ == "__main__":
    main()
