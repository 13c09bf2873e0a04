"""Which decoder decodes, and how it says so."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.jpegs import FILES

from podium.data import decode
from podium.data.decode import Status, native
from podium.errors import UserError


def test_the_native_library_is_there_where_it_can_be_built() -> None:
    if shutil.which("cmake") and shutil.which("c++") and Path("/usr/include/jpeglib.h").exists():
        assert not native.missing


def test_statuses_are_those_of_the_header() -> None:
    header = (Path(__file__).parents[3] / "native" / "decode" / "podium_native.h").read_text()
    for status in Status:
        assert f"PODIUM_{status.name} = {status.value}," in header
        if not native.missing:
            assert native.status_message(status) == decode.status_message(status)


def test_the_choice_of_decoder_is_said() -> None:
    assert decode._choose("", "no compiler")[0] == "pillow"
    assert "no compiler" in decode._choose("", "no compiler")[1]
    assert decode._choose("", "")[0] == "native"
    assert decode._choose("pillow", "") == ("pillow", "Pillow decodes, because PODIUM_DECODER=pillow")
    assert decode._choose("libjpeg", "") == ("libjpeg", "libjpeg-turbo decodes, because PODIUM_DECODER=libjpeg")
    for wanted in ("native", "libjpeg"):
        with pytest.raises(UserError, match="no compiler"):
            decode._choose(wanted, "no compiler")
    with pytest.raises(UserError, match="PODIUM_DECODER='opencv'"):
        decode._choose("opencv", "")


@pytest.mark.slow
def test_a_mistaken_choice_is_one_line_of_the_command_that_decodes(tmp_path: Path) -> None:
    (tmp_path / "in" / "cat").mkdir(parents=True)
    (tmp_path / "in" / "cat" / "1.jpg").write_bytes(FILES["444"])

    def podium(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "podium", *arguments]
        environment = {**os.environ, "PODIUM_DECODER": "nativ"}
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert podium("--help").returncode == 0
    done = podium("prepare", "in", "out", "--check", "decode")
    assert done.returncode == 2
    known = "use native, libjpeg or pillow, or leave it unset"
    assert done.stderr == f"podium: PODIUM_DECODER='nativ' is not known; {known}\n"
