"""Tries the wheel where nothing else is: in the smallest system of a distribution, from its own mirror, with its own
Python and no compiler, no header and nothing of this checkout. `pip install`, the whole demo, then the tests that
release.try_wheel names. Prints JSON, among it the seconds from `pip install` to a trained model. Needs root and
debootstrap; each system takes some 100 MB from its mirror, and what pip fetches comes from PyPI, with an empty cache.

    python -m release.empty_root [--system debian-12]… [--out FILE]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from podium.host.machine import describe_machine
from release.try_wheel import AT_WORK, PYTEST, TESTS
from release.wheel import ROOT, check

_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_UBUNTU = "http://archive.ubuntu.com/ubuntu"
_UBUNTU_KEYS = f"{_UBUNTU}/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
_COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "make", "cmake", "ninja")


@dataclass(frozen=True)
class System:
    suite: str
    mirror: str
    components: str = "main"
    keys: str = ""
    """A package with the keys that sign it, where this machine does not trust it already."""


SYSTEMS = {
    "debian-12": System("bookworm", "http://deb.debian.org/debian"),
    "ubuntu-24.04": System("noble", _UBUNTU, "main,universe", _UBUNTU_KEYS),
    "debian-13": System("trixie", "http://deb.debian.org/debian"),
}


class Root:
    """A system in a folder, in which commands run with their own processes and mounts, and the host's network."""

    def __init__(self, folder: Path, system: System) -> None:
        self.path = folder / "root"
        command = ["debootstrap", "--variant=minbase", "--include=python3-venv", f"--components={system.components}"]
        if system.keys:
            package, _ = urllib.request.urlretrieve(system.keys, folder / "keys.deb")
            subprocess.run(["dpkg", "--extract", package, str(folder / "keys")], check=True)
            command.append(f"--keyring={folder}/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg")
        subprocess.run([*command, system.suite, str(self.path), system.mirror], check=True, stdout=subprocess.DEVNULL)
        for file in ("/etc/resolv.conf", _CERTIFICATES):
            Path(f"{self.path}{file}").parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, f"{self.path}{file}")

    def run(self, *command: str) -> str:
        """What it prints, once it has succeeded."""
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={self.path}/proc"]
        environment = {"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "PIP_CERT": _CERTIFICATES}
        ran = subprocess.run(
            [*alone, "chroot", str(self.path), *command],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if ran.returncode:
            sys.exit(f"{ran.stdout[-4000:]}\n{' '.join(command)} ended with exit code {ran.returncode}")
        return ran.stdout


def compilers(root: Path) -> list[str]:
    """What a wheel must do without: what is in a root that compiles, and the header of libjpeg."""
    found = [path for name in _COMPILERS for path in root.glob(f"usr/bin/{name}")]
    return [str(path.relative_to(root)) for path in [*found, *root.glob("usr/include/jpeglib.h")]]


def try_in(root: Root, wheel: Path) -> dict[str, str | float]:
    assert not compilers(root.path), compilers(root.path)
    shutil.copy(wheel, root.path)
    python = "/podium/bin/python"
    root.run("python3", "-m", "venv", "/podium")
    began = time.monotonic()
    root.run(python, "-m", "pip", "install", "--quiet", "--no-cache-dir", f"/{wheel.name}")
    installed = time.monotonic()
    summary = root.run("/podium/bin/podium", "train", "--run", "/root/run", "--json").splitlines()[-1]
    trained = time.monotonic()
    root.run(python, "-c", AT_WORK)
    root.run(python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *PYTEST)
    for name in ("tests", "docs"):
        shutil.copytree(ROOT / name, root.path / "tried" / name)
    shutil.copy(ROOT / "pyproject.toml", root.path / "tried")
    tests = root.run("/bin/sh", "-c", f"cd /tried && {python} -m pytest -p no:cacheprovider {' '.join(TESTS)}")
    libraries = json.loads(root.run(python, "-m", "pip", "list", "--format=json"))
    return {
        "python": root.run(python, "-c", "import platform; print(platform.python_version())").strip(),
        "c_library": root.run(python, "-c", "import platform; print(*platform.libc_ver())").strip(),
        "jax": next(library["version"] for library in libraries if library["name"] == "jax"),
        "install_seconds": round(installed - began, 1),
        "train_seconds": round(trained - installed, 1),
        "together_seconds": round(trained - began, 1),
        "accuracy": round(json.loads(summary)["accuracy"], 4),
        "tests": tests.splitlines()[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="only these")
    parser.add_argument("--out", type=Path, help="where the JSON goes, beside the terminal")
    given = parser.parse_args()
    (wheel,) = (ROOT / "dist").glob("podium-*.whl")
    check(wheel)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    found: dict[str, object] = {
        "command": " ".join(["python -m release.empty_root", *sys.argv[1:]]),
        "commit": commit.stdout.strip(),
        "machine": {name: value for name, value in describe_machine().items() if name != "host"},
        "wheel": f"{wheel.name}, {wheel.stat().st_size / 1e6:.2f} MB",
    }
    for name in given.system or SYSTEMS:
        with tempfile.TemporaryDirectory(prefix="podium-root-") as folder:
            found[name] = try_in(Root(Path(folder), SYSTEMS[name]), wheel)
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    text = json.dumps(found, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    os.umask(0o022)
    main()
