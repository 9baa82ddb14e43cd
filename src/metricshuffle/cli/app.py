"""The commands, and the one place where what went wrong becomes a sentence and an exit code."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from metricshuffle.cli.amplify import amplify
from metricshuffle.cli.audit import audit
from metricshuffle.cli.estimate import estimate
from metricshuffle.cli.options import Json
from metricshuffle.cli.plan import plan
from metricshuffle.cli.profile import profile
from metricshuffle.cli.randomize import randomize
from metricshuffle.cli.reproduce import reproduce
from metricshuffle.cli.run import run
from metricshuffle.cli.shuffle import shuffle
from metricshuffle.cli.simulate import simulate
from metricshuffle.cli.solve import solve
from metricshuffle.cli.users import users
from metricshuffle.cli.verify import verify
from metricshuffle.errors import MetricShuffleError

WRONG_INPUT, BUG, INTERRUPTED = 2, 1, 130
# The class that a declaration was refused by leads its sentence in Python; whoever types a command never named it.
DECLARED_AS = re.compile(r"^[A-Z][A-Za-z]*: (?=[a-z])")


class Commands(TyperGroup):
    """Runs a command; wrong input ends as one sentence on stderr and exit code 2, an interruption as 130."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            code = super().main(args, "metricshuffle", complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
        except MetricShuffleError as wrong:
            _tell(DECLARED_AS.sub("", str(wrong)))
            code = WRONG_INPUT
        except typer.TyperException as wrong:
            told = wrong.format_message().replace("Value error, ", "").rstrip(".")
            _tell(f"{told}{' See' if told.endswith('?') else '; see'} metricshuffle {_command(args)}--help.")
            code = WRONG_INPUT
        except BrokenPipeError:
            # Whoever read our output has gone; Python would complain again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = BUG
        except OSError as wrong:
            _tell(f"cannot use {wrong.filename or 'a file'}: {wrong.strerror or wrong}.")
            code = WRONG_INPUT
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except Exception as wrong:
            code = _stopped_inside(wrong)
            if code == BUG:
                traceback.print_exc()
                _tell("this is a bug in metricshuffle and not your fault; please report it with the lines above.")
        if code == INTERRUPTED:
            _tell("interrupted; no file was written or changed.")
        sys.exit(code if isinstance(code, int) else 0)


def _stopped_inside(wrong: Exception) -> int:
    """The exit code if a compiled loop was stopped, which tells that as a SystemError; else that of a bug."""
    if isinstance(wrong, SystemError) and isinstance(wrong.__cause__, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(wrong, SystemError) and isinstance(wrong.__cause__, SystemExit) and isinstance(wrong.__cause__.code, int):
        return wrong.__cause__.code
    return BUG


def _tell(message: str) -> None:
    print(f"metricshuffle: {' '.join(message.split())}", file=sys.stderr)


def _command(args: Sequence[str] | None) -> str:
    """The command that was called, with a space after it; empty if there is none."""
    given, found = list(sys.argv[1:] if args is None else args), ""
    group: Any = app
    while given and group is not None and given[0] in {one.name for one in (*group.registered_commands, *group.registered_groups)}:
        found += f"{given[0]} "
        group = next((one.typer_instance for one in group.registered_groups if one.name == given[0]), None)
        del given[0]
    return found


app = typer.Typer(cls=Commands, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False, no_args_is_help=False)


def _version(asked: bool) -> None:
    if asked:
        from metricshuffle import __version__

        print(f"metricshuffle {__version__}")
        raise typer.Exit


ABOUT = """Sums, means, maps and counts of what people hold, with metric differential privacy in the shuffle model.

Every command takes --json: then stdout holds one JSON document and nothing else. \
Wrong input gets one sentence on stderr and exit code 2, and nothing is written. \
Output files appear whole or not at all, and replace what was there."""


@app.callback(invoke_without_command=True, help=ABOUT)
def metricshuffle(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def demo(
    output: Annotated[Path, typer.Option("--output", metavar="FOLDER", help="Where report.html goes; made if missing.")] = Path(
        "demo-output"
    ),
    as_json: Json = False,
) -> None:
    """Plan three collections on built-in data, play all roles, and write report.html (offline)."""
    import json

    from rich.console import Console

    from metricshuffle.cli.demo import demo as play

    page = play(output, console=Console(stderr=as_json))
    if as_json:
        print(json.dumps({"report": str(page)}))


for name, command in (
    ("plan", plan),
    ("verify", verify),
    ("randomize", randomize),
    ("shuffle", shuffle),
    ("estimate", estimate),
    ("run", run),
    ("simulate", simulate),
    ("audit", audit),
    ("profile", profile),
    ("amplify", amplify),
    ("solve", solve),
    ("demo", demo),
    ("reproduce", reproduce),
):
    app.command(name)(command)
app.add_typer(users, name="users")
