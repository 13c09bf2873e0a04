"""Opens pages in headless Chromium: what the page became, what it wrote to its console, and a picture of it."""

import shutil
import subprocess
from pathlib import Path

from PIL import Image

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--enable-logging=stderr",
    "--virtual-time-budget=3000",
)  # fmt: skip


def _run(page: Path, work: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    assert PROGRAM is not None
    profile = work / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    command = [PROGRAM, *_FLAGS, f"--user-data-dir={profile}", *flags, page.absolute().as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def opened(page: Path, work: Path, *flags: str) -> tuple[str, list[str]]:
    """The page's HTML after its scripts have run, and the lines of its console."""
    ended = _run(page, work, "--dump-dom", *flags)
    return ended.stdout, [line for line in ended.stderr.splitlines() if ":CONSOLE" in line]


def photographed(page: Path, work: Path, *, dark: bool = False, width: int = 1200, height: int = 1000) -> Image.Image:
    out = work / "page.png"
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    _run(page, work, f"--screenshot={out}", f"--window-size={width},{height}", scheme)
    return Image.open(out).convert("RGB")
