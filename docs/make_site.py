"""Builds the documentation site from these pages, without a network: `python docs/make_site.py OUT` (`make docs`). The
pages stay as they are in the repository; they are laid out again beside the files that they link to, and two are
generated from the code: every command's help, and the reference of the public names. The navigation is that of
`index.md`. A broken link, a page outside the navigation or any other warning is an error.
"""

import contextlib
import functools
import inspect
import io
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx

import podium
from podium.cli.main import parse

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")
SETTINGS = {
    "project": "Podium",
    "html_title": f"Podium {podium.__version__}",
    "release": podium.__version__,
    "extensions": ["myst_parser", "sphinx.ext.autodoc"],
    "html_theme": "furo",
    "myst_heading_anchors": 4,
    "default_role": "code",
    "autodoc_typehints": "none",
    "autodoc_member_order": "bysource",
    "highlight_language": "none",
    "suppress_warnings": ["misc.highlighting_failure"],
    "html_show_sphinx": False,
    "html_copy_source": False,
}


def commands() -> list[str]:
    """The words of every command, as the command line itself lists them."""

    def listed(*words: str) -> list[str]:
        found = re.search(r"\{(.*?)\}", re.sub(r"\s", "", help_of(*words)))
        assert found is not None
        return found[1].split(",")

    return [*listed(), *(f"bench {name}" for name in listed("bench"))]


def help_of(*words: str) -> str:
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    os.environ["COLUMNS"] = "84"  # what a page is wide
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        parse([*words, "--help"])
    shown.seek(0)
    return shown.read()


def commands_page() -> str:
    parts = [f"## podium {name}\n\n```\n{help_of(*name.split()).rstrip()}\n```\n" for name in commands()]
    return "# Every command\n\nWhat `podium COMMAND --help` prints.\n\n" + "\n".join(parts)


def names_page() -> str:
    """Every public name with its docstring. Classes show what `__init__` takes, which a network's metaclass hides."""
    lines = ["Public names", "============", ""]
    for name in podium.__all__:
        found = getattr(podium, name)
        if isinstance(found, type):
            own = [p.replace(annotation=p.empty) for p in inspect.signature(found.__init__).parameters.values()][1:]
            shown = re.sub(r"<function (\w+) at \w+>", r"\1", str(inspect.Signature(own)))
            lines += [f".. autoclass:: podium.{name}{shown}", "   :members:", ""]
        else:
            lines += [f".. autofunction:: podium.{name}", ""]
    return "\n".join(lines)


def results_page(folder: Path) -> str:
    """The results of one folder, with the command that made each and the commit that it was made at."""
    rows = []
    for file in sorted(folder.glob("*.json")):
        result = json.loads(file.read_text())
        result = result if isinstance(result, dict) else {}
        machine = result.get("machine")
        commit = result.get("commit") or (machine.get("commit") if isinstance(machine, dict) else None)
        rows.append(f"| {file.name} | `{result.get('command') or '–'}` | {commit or '–'} |")
    table = "\n".join(["| file | command | commit |", "|---|---|---|", *rows])
    return f"# Results: {folder.name}\n\nThe files are in `results/{folder.name}` of the repository.\n\n{table}\n"


def navigation() -> list[tuple[str, list[str]]]:
    """The headings of index.md with the pages that are linked under each, in order."""
    parts = re.split(r"^\*\*(.*)\*\*$", (ROOT / "docs" / "index.md").read_text(), flags=re.MULTILINE)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [(title, [target for _, target, _ in LINK.findall(text)]) for title, text in pairs]


def lay_out(source: Path) -> None:
    """The pages and all that they link to, as in the repository."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("results/*.md"), *ROOT.glob("native/**/*.md")]
    for page in pages:
        copied = source / page.relative_to(ROOT)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(LINK.sub(functools.partial(_to_a_file, page), page.read_text()))
        for _, target, _ in LINK.findall(copied.read_text()):
            file = (page.parent / target).resolve()
            if file.is_file() and file.suffix != ".md":
                place = source / file.relative_to(ROOT)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, place)
    for folder in sorted(path for path in (ROOT / "results").iterdir() if path.is_dir()):
        (source / "results" / folder.name).mkdir(parents=True, exist_ok=True)
        (source / "results" / folder.name / "README.md").write_text(results_page(folder))
    docs = source / "docs"
    (docs / "all-commands.md").write_text(commands_page())
    (docs / "names.rst").write_text(names_page())
    trees = [_tree(title, targets) for title, targets in navigation()]
    trees += [_tree("Reference", ["all-commands.md", "names.rst"])]
    inside = sorted(str(p.relative_to(source)) for p in source.glob("docs/decisions/0*.md"))
    others = ["docs/index.md", "CHANGELOG.md", "SECURITY.md", *inside]
    others += [
        str(p.relative_to(source)) for p in [*sorted(source.glob("results/**/*.md")), *source.glob("native/**/*.md")]
    ]
    trees += [_tree("More", [f"../{page}" for page in others])]
    index = (source / "README.md").read_text()
    (source / "index.md").write_text(index + "\n\n" + "\n".join(trees))
    (source / "README.md").unlink()
    for page in source.glob("**/*.md"):  # the README is the site's first page
        page.write_text(re.sub(r"\]\(((?:\.\./)+)README\.md", r"](\1index.md", page.read_text()))


def _to_a_file(page: Path, link: re.Match[str]) -> str:
    """A link to a folder leads to its README, or to the list of results."""
    target = page.parent / link[2]
    if "://" in link[2] or not target.is_dir():
        return link[0]
    return f"{link[1]}{link[2].rstrip('/')}/README.md{link[3]}"


def _tree(title: str, targets: list[str]) -> str:
    pages = [os.path.normpath(f"docs/{target}") for target in targets]
    pages = [f"{page}/README.md" if (ROOT / page).is_dir() else page for page in pages]
    lines = "\n".join(dict.fromkeys(page for page in pages if page != "README.md"))
    return f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n"


def build(out: Path) -> int:
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        lay_out(source)
        site = Sphinx(
            str(source), None, str(out), f"{folder}/doctrees", "html", confoverrides=SETTINGS, warningiserror=True
        )
        site.build()
        return site.statuscode


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1])))
