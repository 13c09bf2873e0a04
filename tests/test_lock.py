"""requirements.lock has every dependency of the package and of its extra dev, in a version that is allowed, with
hashes. `make lock` writes it anew."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def locked():
    """Name → its versions, each with how many files it may come in."""
    entries = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text().strip())
    found: dict[str, dict[str, int]] = {}
    for entry in entries:
        name, version = entry.split()[0].split("==")
        found.setdefault(canonicalize_name(name), {})[version] = entry.count("--hash=sha256:")
    return found


def wanted():
    """What pyproject.toml asks for, with the extras that stand in for others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    left, seen = [*project["dependencies"], *project["optional-dependencies"]["dev"]], []
    while left:
        requirement = Requirement(left.pop())
        if requirement.name == "podium":
            left += [line for extra in requirement.extras for line in project["optional-dependencies"][extra]]
        else:
            seen.append(requirement)
    return seen


def test_every_dependency_is_locked_in_a_version_that_is_allowed():
    versions = locked()
    for requirement in wanted():
        for version in versions[canonicalize_name(requirement.name)]:
            assert requirement.specifier.contains(version), f"{requirement} is locked at {version}; run make lock"


def test_nothing_is_locked_without_a_hash_or_from_a_place_of_its_own():
    assert all(files for versions in locked().values() for files in versions.values())
    assert "://" not in (ROOT / "requirements.lock").read_text()
