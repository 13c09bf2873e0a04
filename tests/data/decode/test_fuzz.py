"""The short version of `make fuzz`: some hundred mutated JPEGs and seek indexes through a sanitizer build of the
decoder, with libjpeg for reference.
Where there is no g++ with libjpeg-turbo's headers there is nothing to test, and Pillow decodes.
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

NATIVE = Path(__file__).parents[3] / "native"
MUTANTS = 600
FLAGS = ["-std=c++17", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def can_build() -> bool:
    if shutil.which("g++") is None:
        return False
    source = "#include <cstdio>\n#include <jpeglib.h>\n"
    probe = ["g++", "-fsyntax-only", "-x", "c++", "-"]
    return subprocess.run(probe, input=source, text=True, capture_output=True).returncode == 0


def compiled(source: Path, to: str) -> None:
    subprocess.run(["g++", *FLAGS, f"-I{NATIVE / 'decode'}", "-c", str(source), "-o", to], check=True)


if can_build():

    @pytest.fixture(scope="module")
    def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Path:
        directory = tmp_path_factory.mktemp("fuzz")
        sources = [*(NATIVE / "decode").glob("*.cpp"), *(NATIVE / "fuzz").glob("*.cpp")]
        objects = [str(directory / f"{source.stem}.o") for source in sources]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compiled, sources, objects))
        program = directory / "fuzz"
        subprocess.run(["g++", *FLAGS, *objects, "-ljpeg", "-pthread", "-o", str(program)], check=True)
        return program

    @pytest.fixture(scope="module")
    def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
        directory = tmp_path_factory.mktemp("seeds")
        subprocess.run([sys.executable, NATIVE / "fuzz" / "fuzz_seeds.py", directory], check=True)
        return sorted(map(str, directory.iterdir()))

    def test_mutants_break_no_promise(fuzz: Path, seeds: list[str]) -> None:
        done = subprocess.run([fuzz, "0", str(MUTANTS), "11", *seeds], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert f"{MUTANTS} mutants of {len(seeds)} files" in done.stdout
        # The mutants must get past the header as well as fail there, or nothing was tested.
        for reason in ("ok", "corrupt", "cut off", "not a JPEG", "more pixels"):
            assert reason in done.stdout

    def test_a_mutant_is_named_by_its_number(fuzz: Path, seeds: list[str]) -> None:
        again = [
            subprocess.run([fuzz, "40", "20", "11", *seeds], capture_output=True, text=True, check=True)
            for _ in range(2)
        ]
        counts = [run.stdout.split("time\n")[1] for run in again]
        assert counts[0] == counts[1]
