"""Pods by name, and mistakes that lead to the nearest pod that exists."""

import re
import subprocess
import sys
import tomllib
from importlib import resources
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.errors import UserError
from podium.plan.machines import CHIPS, parse_pod, usual_sizes


def test_the_papers_pod():
    pod = parse_pod("v3:32x32")
    assert (pod.chips, pod.cores, pod.hosts, pod.grid) == (1024, 2048, 256, (32, 32, 2))
    assert pod.wraps == (True, True)


@pytest.mark.parametrize(
    ("text", "wraps"),
    [("v3:16x32", (False, True)), ("v3:128x32", (False, True)), ("v4:4x4x4", (True,) * 3), ("v5e:8x16", (False, True))],
)
def test_which_axes_are_rings(text, wraps):
    assert parse_pod(text).wraps == wraps


def test_gpus_come_in_nodes():
    pod = parse_pod("a100:96x8")
    assert (pod.chips, pod.cores, pod.hosts, pod.grid) == (768, 768, 96, (1, 96, 8))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("v9:4x4", "there is no chip 'v9'; use for example v"),
        ("v3:4x4x4", "is not v3:XxY; write for example v3:4x4"),
        ("v4:4x4", "is not v4:XxYxZ; write for example v4:4x4x4"),
        ("v3", "is not v3:XxY"),
        ("v3:0x4", "is not v3:XxY"),
        ("v3:3x3", "the nearest is v3:4x4"),
        ("v2:32x16", "the nearest is v2:16x16"),
        ("h100:4x9", "the nearest is h100:4x8"),
        ("a100:four", "is not a100:NODESxGPUS; write for example a100:4x8"),
    ],
)
def test_a_mistake_is_one_line_with_the_nearest_choice(text, says):
    with pytest.raises(UserError, match=re.escape(says)) as error:
        parse_pod(text)
    assert "\n" not in str(error.value)


@given(st.sampled_from(sorted(CHIPS)), st.lists(st.integers(1, 2000), min_size=3, max_size=3))
def test_what_a_message_offers_exists(name, lengths):
    text = f"{name}:{'x'.join(map(str, lengths[: len(CHIPS[name].largest)]))}"
    try:
        parse_pod(text)
    except UserError as error:
        offered = re.search(r"the nearest is (\S+)", str(error))
        assert offered
        parse_pod(offered[1])


@pytest.mark.parametrize("name", sorted(CHIPS))
def test_usual_sizes_exist_and_grow(name):
    pods = usual_sizes(CHIPS[name])
    assert [parse_pod(str(pod)) for pod in pods] == pods
    assert all(a.chips < b.chips for a, b in pairwise(pods))


def test_every_figure_of_a_machine_names_its_source():
    tables = tomllib.loads(resources.files("podium.plan").joinpath("machines.toml").read_text())
    for name, table in tables.items():
        sources = table.pop("source")
        assert set(sources) == set(table), name
        assert all(isinstance(source, str) and source for source in sources.values())


@pytest.mark.slow
@pytest.mark.parametrize("module", ["machines", "hlo", "operations", "peer"])
def test_what_is_pure_needs_no_jax(module):
    code = f"import sys, podium.plan.{module}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
