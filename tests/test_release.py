"""What a release must not do: go out without its libraries, or under two versions."""

import re
import tomllib
import zipfile
from pathlib import Path

import pytest
from release.try_wheel import requirements
from release.wheel import INSIDE, check, lacks

ROOT = Path(__file__).parents[1]
NAME = "podium-0.1.0-py3-none-manylinux_2_24_x86_64.whl"
WHOLE = (*INSIDE, "podium.libs/libjpeg-1.so.62")


def wheel(path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def test_a_whole_wheel_passes(tmp_path):
    check(wheel(tmp_path / NAME, WHOLE))


@pytest.mark.parametrize("absent", WHOLE)
def test_a_wheel_without_one_of_its_files_is_refused(tmp_path, absent):
    built = wheel(tmp_path / NAME, [name for name in WHOLE if name != absent])
    assert [absent.startswith(name) for name in lacks(built)] == [True]
    with pytest.raises(SystemExit, match="is refused, because it lacks"):
        check(built)


@pytest.mark.parametrize("tag", ["manylinux_2_35_x86_64", "linux_x86_64"])
def test_a_wheel_for_newer_machines_only_is_refused(tmp_path, tag):
    built = wheel(tmp_path / f"podium-0.1.0-py3-none-{tag}.whl", WHOLE)
    with pytest.raises(SystemExit, match="manylinux_2_28 or older"):
        check(built)


def test_a_wheel_may_name_an_older_c_library_beside_a_newer_one(tmp_path):
    check(wheel(tmp_path / "podium-0.1.0-py3-none-manylinux_2_24_x86_64.manylinux_2_35_x86_64.whl", WHOLE))


def test_the_oldest_dependencies_are_asked_for_by_name(tmp_path):
    """Else uv would take the oldest Podium, and the newest of all that it needs."""
    lines = ["Name: podium", "Requires-Dist: jax<0.11,>=0.10.2", "Requires-Dist: wandb<1,>=0.20; extra == 'wandb'"]
    built = tmp_path / NAME
    with zipfile.ZipFile(built, "w") as archive:
        archive.writestr("podium-0.1.0.dist-info/METADATA", "\n".join(lines))
    assert requirements(built) == ["jax<0.11,>=0.10.2"]


def test_the_version_is_written_once_and_cited_alike():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == version  # type: ignore[index]
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()
