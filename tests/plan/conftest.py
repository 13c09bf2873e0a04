"""Tests that need the real TPU compiler run where the `plan` extra is installed, and are named where it is not."""

from podium.plan.libtpu import libtpu_version

collect_ignore = [] if libtpu_version() else ["test_libtpu.py"]


def pytest_terminal_summary(terminalreporter):
    if collect_ignore:
        terminalreporter.write_line(
            "left out: tests/plan/test_libtpu.py, which compiles for a real pod; pip install -e '.[plan]' brings libtpu"
        )
