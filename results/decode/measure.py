"""What decoding a random resized crop costs: libjpeg, our decoder, our decoder with the seek index, and its stages.

    python results/decode/measure.py --data imagenet-sample.tar > results/decode/measured.json

One thread, in its CPU time; the ways take turns, an image at a time, on the same crops. Every second file of the
archive is left for tuning: figures are of the others.
"""

import argparse
import json
import platform
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native" / "decode"
FLAGS = ["-std=c++17", "-O3", "-DNDEBUG"]  # as CMake's Release has them


def extracted(data: Path, folder: Path) -> list[str]:
    with tarfile.open(data) as archive:
        members = [member for member in archive if member.isfile() and member.name.lower().endswith((".jpeg", ".jpg"))]
        paths = []
        for number, member in enumerate(members[1::2]):
            file = archive.extractfile(member)
            assert file is not None
            paths.append(str(folder / f"{number}.jpg"))
            Path(paths[-1]).write_bytes(file.read())
    return paths


def spread(values: list[float]) -> dict[str, float]:
    return {"median": round(median(values), 3), "least": round(min(values), 3), "most": round(max(values), 3)}


def summary(measured: dict[str, Any]) -> dict[str, Any]:
    rounds = measured["rounds"]

    def each(name: str) -> list[float]:
        return [one[name] for one in rounds]

    def apart(later: str, earlier: str) -> list[float]:
        return [one[later] - one[earlier] for one in rounds]

    stages = {
        "header, tables, seal": each("open"),
        "idct": apart("idct", "huffman"),
        "upsampling, colour": apart("colour", "idct"),
        "resize": each("resize"),
    }
    # The rest. Not what the run without a transform took: it repeats codes that the branch predictor has just seen.
    huffman = [whole - sum(parts) for whole, *parts in zip(each("with_index"), *stages.values(), strict=True)]
    stages["huffman"] = huffman
    paths = ("libjpeg", "without_index", "with_index")
    return {
        "ms": {path: spread(each(path)) for path in paths},
        "times libjpeg": {path: spread([one["libjpeg"] / one[path] for one in rounds]) for path in paths[1:]},
        "stages with_index, ms": {stage: spread(values) for stage, values in stages.items()},
        "index share": round(measured["index_bytes"] / measured["bytes"], 4),
        "files": measured["files"],
        "build_index ms": measured["build_ms"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout
    processor = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "measure"
        sources = [*map(str, NATIVE.glob("*.cpp")), str(HERE / "measure.cpp")]
        build = ["g++", *FLAGS, f"-I{NATIVE}", *sources, "-ljpeg", "-pthread", "-o", str(program)]
        subprocess.run(build, check=True)
        files = extracted(arguments.data, Path(folder))
        done = subprocess.run([program, str(arguments.rounds), *files], check=True, capture_output=True, text=True)
    about = {
        "command": f"python results/decode/measure.py --data {arguments.data.name} --rounds {arguments.rounds}",
        "commit": commit.strip(),
        "machine": f"{processor[0].partition(': ')[2]}, {platform.machine()}" if processor else platform.machine(),
        "rounds": arguments.rounds,
    }
    json.dump({**about, **summary(json.loads(done.stdout))}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
