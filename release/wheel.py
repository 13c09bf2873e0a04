"""Builds the wheel and the source archive into dist/: one wheel for every Python, with libjpeg-turbo inside. A wheel
that lacks one of its libraries is refused; installing from source may do without them, a release may not.

    python -m release.wheel            # make wheel; needs the extra `release`, a compiler and libjpeg-turbo's header
"""

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSIDE = (
    "podium/libpodium_native.so",
    "podium/libpodium_convolve.so",
    "podium/libpodium_links.so",
    "podium/plan/machines.toml",
    "podium/recipe/shipped/demo.toml",
    "podium/py.typed",
)
JPEG = "podium.libs/libjpeg"  # put there by auditwheel
C_LIBRARY = (2, 28)  # the oldest that a user may have: jaxlib's wheels want 2.27


def lacks(wheel: Path, wanted: Iterable[str] = (*INSIDE, JPEG)) -> list[str]:
    """What a wheel should hold and does not."""
    names = zipfile.ZipFile(wheel).namelist()
    return [name for name in wanted if not any(held.startswith(name) for held in names)]


def check(wheel: Path) -> None:
    """Refuses a wheel that lacks a file, or that asks for a newer C library than users have."""
    _refuse(wheel, lacks(wheel))
    versions = [(int(major), int(minor)) for major, minor in re.findall(r"manylinux_(\d+)_(\d+)", wheel.name)]
    if not versions or min(versions) > C_LIBRARY:
        sys.exit(
            f"{wheel.name} is refused, because its tag should be manylinux_{C_LIBRARY[0]}_{C_LIBRARY[1]} or older; "
            f"`auditwheel -v show` names the symbols"
        )


def _refuse(wheel: Path, lacking: list[str]) -> None:
    if lacking:
        sys.exit(f"{wheel.name} is refused, because it lacks {', '.join(lacking)}; the log of the build says why")


def build(out: Path) -> Path:
    """The wheel in `out`, checked; beside it the source archive, from which the wheel was built."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "build", "--outdir", folder, str(ROOT)], check=True)
        (built,), (source,) = Path(folder).glob("*.whl"), Path(folder).glob("*.tar.gz")
        _refuse(built, lacks(built, INSIDE))  # auditwheel has nothing to say of a wheel without libraries
        repair = ["-m", "auditwheel", "repair", "--wheel-dir", f"{folder}/repaired", str(built)]
        subprocess.run([sys.executable, *repair], check=True)
        (repaired,) = Path(folder, "repaired").glob("*.whl")
        check(repaired)
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        shutil.move(source, out)
        return Path(shutil.move(repaired, out))


if __name__ == "__main__":
    print(build(ROOT / "dist"))
