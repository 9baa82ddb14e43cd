"""The commands, and the one place where what went wrong becomes a sentence and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from metricshuffle.cli.amplify import amplify
from metricshuffle.cli.analyst import analyst
from metricshuffle.cli.audit import audit
from metricshuffle.cli.budget import budget
from metricshuffle.cli.collect import collect
from metricshuffle.cli.collection import collection
from metricshuffle.cli.command import with_common_options
from metricshuffle.cli.demo import demo
from metricshuffle.cli.doctor import doctor
from metricshuffle.cli.estimate import estimate
from metricshuffle.cli.explain import explain
from metricshuffle.cli.join_page import join_page
from metricshuffle.cli.map import map_release
from metricshuffle.cli.plan import plan
from metricshuffle.cli.plugins import COMMANDS, add_installed_commands
from metricshuffle.cli.profile import profile
from metricshuffle.cli.randomize import randomize
from metricshuffle.cli.report import report
from metricshuffle.cli.run import run
from metricshuffle.cli.screen import complaint, plain_text
from metricshuffle.cli.serve import serve
from metricshuffle.cli.shuffle import shuffle
from metricshuffle.cli.simulate import simulate
from metricshuffle.cli.solve import solve
from metricshuffle.cli.submit import submit
from metricshuffle.cli.users import users
from metricshuffle.cli.verify import verify
from metricshuffle.cli.web import web
from metricshuffle.errors import MetricShuffleError
from metricshuffle.files import completed

WRONG_INPUT, BUG, INTERRUPTED = 2, 1, 130


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
        if plain_text():
            os.environ["_TYPER_FORCE_DISABLE_TERMINAL"] = "1"  # typer writes help in bold, also where it must not use colours
        completed.clear()
        try:
            code = super().main(args, "metricshuffle", complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
        except MetricShuffleError as wrong:
            complaint(str(wrong))
            code = WRONG_INPUT
        except typer.TyperException as wrong:
            told = wrong.format_message().replace("Value error, ", "").rstrip(".")
            complaint(f"{told}{' See' if told.endswith('?') else '; see'} metricshuffle {_command(args)}--help.")
            code = WRONG_INPUT
        except BrokenPipeError:
            # Whoever read our output has gone; Python would complain again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = BUG
        except OSError as wrong:
            complaint(f"cannot use {wrong.filename or 'a file'}: {wrong.strerror or wrong}.")
            code = WRONG_INPUT
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except Exception as wrong:
            code = _stopped_inside(wrong)
            if code == BUG:
                traceback.print_exc()
                complaint("this is a bug in metricshuffle and not your fault; please report it with the lines above.")
        if code == INTERRUPTED:
            done = ", ".join(dict.fromkeys(completed))
            complaint(f"interrupted; already written: {done}." if done else "interrupted; no file was written or changed.")
        sys.exit(code if isinstance(code, int) else 0)


def _stopped_inside(wrong: Exception) -> int:
    """The exit code if it was stopped where that becomes another error (a compiled loop's, an import's half done); else a bug's."""
    inner: BaseException | None = wrong
    while inner is not None and not isinstance(inner, KeyboardInterrupt | SystemExit):
        inner = inner.__cause__ or inner.__context__
    if isinstance(inner, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(inner, SystemExit) and isinstance(inner.code, int):
        return inner.code
    return BUG


def _command(args: Sequence[str] | None) -> str:
    """The command that was called, with a space after it; empty if there is none."""
    given, found = list(sys.argv[1:] if args is None else args), ""
    group: Any = app
    while given and group is not None and given[0] in {one.name for one in (*group.registered_commands, *group.registered_groups)}:
        found += f"{given[0]} "
        group = next((one.typer_instance for one in group.registered_groups if one.name == given[0]), None)
        del given[0]
    return found


app = typer.Typer(
    cls=Commands, rich_markup_mode="rich", pretty_exceptions_enable=False, no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        from metricshuffle import __version__

        print(f"metricshuffle {__version__}")
        raise typer.Exit


ABOUT = """Sums, means, maps and counts of what people hold, with metric differential privacy in the shuffle model.

Every command takes --json: then stdout holds one JSON document and nothing else; --quiet keeps notes and progress off stderr. \
Wrong input gets one sentence on stderr and exit code 2, and nothing is written. \
Output files appear whole or not at all, and replace what was there."""


@app.callback(invoke_without_command=True, help=ABOUT)
def metricshuffle(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


for name, command in (
    ("plan", plan),
    ("explain", explain),
    ("verify", verify),
    ("randomize", randomize),
    ("shuffle", shuffle),
    ("estimate", estimate),
    ("run", run),
    ("map", map_release),
    ("budget", budget),
    ("simulate", simulate),
    ("report", report),
    ("audit", audit),
    ("profile", profile),
    ("amplify", amplify),
    ("solve", solve),
    ("demo", demo),
    ("doctor", doctor),
    ("serve", serve),
    ("web", web),
    ("submit", submit),
    ("collect", collect),
    ("join-page", join_page),
):
    app.command(name)(command)
app.add_typer(users, name="users")
app.add_typer(collection, name="collection")
app.add_typer(analyst, name="analyst")
add_installed_commands(app, entry_points(group=COMMANDS))
for group in (app, *(registered.typer_instance for registered in app.registered_groups)):
    for registered in group.registered_commands if group is not None else ():
        assert registered.callback is not None  # noqa: S101 - it was given above
        registered.callback = with_common_options(registered.callback)
