"""The command line: arguments → one command → one line, or JSON. A user's mistake ends in one line and exit code 2;
`--debug` shows the traceback.
"""

import difflib
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, NoReturn

import tyro
from tyro.conf import subcommand

import podium
from podium.cli import waiting
from podium.cli.arguments.bench import Bench
from podium.cli.arguments.command import Command
from podium.cli.arguments.export import Export
from podium.cli.arguments.health import Doctor, Verify, VerifyResume
from podium.cli.arguments.plan import Plan
from podium.cli.arguments.prepare import Prepare
from podium.cli.arguments.recipes import Recipes
from podium.cli.arguments.report import Report
from podium.cli.arguments.results import Eval, Predict
from podium.cli.arguments.train import Launch, Train
from podium.errors import EXIT_MISTAKE, EXIT_STOPPED, Stopped, UserError
from podium.host import malloc
from podium.host.accelerators import accelerator_files
from podium.host.names import printable
from podium.recipe.keys import right_key

_NAMES = (
    "train", "recipes", "launch", "doctor", "eval", "predict", "report", "export", "verify", "verify-resume", "prepare",
    "plan", "bench",
)  # fmt: skip
COMMANDS: Any = (
    Annotated[Train, subcommand("train")]
    | Annotated[Recipes, subcommand("recipes")]
    | Annotated[Launch, subcommand("launch")]
    | Annotated[Doctor, subcommand("doctor")]
    | Annotated[Eval, subcommand("eval")]
    | Annotated[Predict, subcommand("predict")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Export, subcommand("export")]
    | Annotated[Verify, subcommand("verify")]
    | Annotated[VerifyResume, subcommand("verify-resume")]
    | Annotated[Prepare, subcommand("prepare")]
    | Annotated[Plan, subcommand("plan")]
    | Annotated[Bench, subcommand("bench", description="Measure this machine beside its peers.")]
)
_DESCRIPTION = """Train image classifiers at supercomputer scale.

podium COMMAND --help explains a command. podium --version prints the version."""


def main() -> None:
    given = sys.argv[1:]
    if given[-1:] == ["-"]:
        given = [*given[:-1], *waiting.rest()]
    if given == ["--version"]:
        return print(f"podium {podium.__version__}")
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger().handlers[0].setFormatter(_OneLine())
    try:
        command = parse(given)
        if command.computes and not accelerator_files():
            malloc.keep()  # now: importing pyarrow or JAX starts threads, which keep the heaps they were given
        result = command.carry_out()
    except UserError as error:
        if "--debug" in given:  # options check themselves, so there may be no command to ask
            raise
        print(printable(f"podium: {error}"), file=sys.stderr)
        _leave(EXIT_MISTAKE)
    except Stopped as stopped:
        if _reports():
            print(printable(f"podium: {stopped}"), file=sys.stderr)
        if command.json and _reports():
            print(json.dumps({"stopped": stopped.reason, "step": stopped.step, "run": stopped.run}))
        sys.exit(EXIT_STOPPED)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os._exit(141)
    except KeyboardInterrupt:
        sys.exit(130)
    if command.json and _reports() and not command.prints_json:
        print(json.dumps(result))
    sys.exit(command.exit_code(result))


class _OneLine(logging.Formatter):
    """A warning may name a file that somebody else has named."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(record.getMessage())


def parse(given: Sequence[str]) -> Command:
    """The command with its arguments. Answers `--help` and what tyro finds wrong by itself, and ends the process."""
    if given and not given[0].startswith("-") and given[0] not in _NAMES:
        meant = _meant(given[0], _NAMES)
        raise UserError(f"there is no command {given[0]!r}{meant}; commands are {', '.join(_NAMES)}")
    command, unknown = tyro.cli(
        COMMANDS,
        prog="podium",
        description=_DESCRIPTION,
        args=given,
        return_unknown_args=True,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    if unknown:
        raise _unknown(unknown, " ".join(given[: 2 if given[0] == "bench" else 1]), command)
    return command


def _unknown(arguments: list[str], name: str, command: Command) -> UserError:
    """What to say of arguments that a command does not have; a recipe's key among them was meant for --set."""
    first, equals, value = arguments[0].partition("=")
    help_is = f"podium {name} --help lists them"
    if not first.startswith("--"):
        return UserError(f"podium {name} was given {arguments[0]!r}, which is none of its arguments; {help_is}")
    options = [field.name.replace("_", "-") for field in fields(command)]
    meant = _meant(first.removeprefix("--"), options, "--")
    key = right_key(first.removeprefix("--").replace("-", "_"))
    if key and hasattr(command, "set") and not meant:
        value = value if equals else next(iter(arguments[1:]), "…")
        return UserError(f"podium {name} has no option {first}; to change the recipe, use --set {key}={value}")
    return UserError(f"podium {name} has no option {first}{meant}; {help_is}")


def _meant(given: str, choices: Sequence[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(given, choices, 1, cutoff=0.75)
    return f" (did you mean {prefix}{near[0]}?)" if near else ""


def _reports() -> bool:
    """Whether this process prints the result: of several, one does. A command that joined others has loaded how."""
    several = sys.modules.get("podium.cli.several")
    return several is None or several.is_first()


def _leave(code: int) -> NoReturn:
    """Ends this process; one of several leaves at once, as an orderly end would wait for the others."""
    if several := sys.modules.get("podium.cli.several"):
        several.leave(code)
    sys.exit(code)
