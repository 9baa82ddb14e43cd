"""All commands, and the conversion of exceptions into messages and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from metricshuffle.cli.amplify_command import amplify
from metricshuffle.cli.analyst_commands import analyst
from metricshuffle.cli.audit_command import audit
from metricshuffle.cli.budget_command import budget
from metricshuffle.cli.collect_command import collect
from metricshuffle.cli.collection_commands import collection
from metricshuffle.cli.common_options import add_common_options
from metricshuffle.cli.conform_commands import conform
from metricshuffle.cli.console import is_plain_text, print_error
from metricshuffle.cli.demo import demo
from metricshuffle.cli.doctor_command import doctor
from metricshuffle.cli.estimate_command import estimate
from metricshuffle.cli.examples import examples_text
from metricshuffle.cli.explain_command import explain
from metricshuffle.cli.issuer_commands import issuer
from metricshuffle.cli.join_page_command import join_page
from metricshuffle.cli.map_command import map_release
from metricshuffle.cli.migrate_command import migrate
from metricshuffle.cli.mix_command import mix
from metricshuffle.cli.new_command import new
from metricshuffle.cli.plan_command import plan
from metricshuffle.cli.plugins import COMMANDS, add_installed_commands
from metricshuffle.cli.profile_command import profile
from metricshuffle.cli.randomize_command import randomize
from metricshuffle.cli.report_command import report
from metricshuffle.cli.run_command import run
from metricshuffle.cli.serve_command import serve
from metricshuffle.cli.shuffle_command import shuffle
from metricshuffle.cli.simulate_command import simulate
from metricshuffle.cli.solve_command import solve
from metricshuffle.cli.submit_command import submit
from metricshuffle.cli.users_commands import users
from metricshuffle.cli.verify_command import verify
from metricshuffle.cli.web_command import web
from metricshuffle.errors import MetricShuffleError
from metricshuffle.files import completed

WRONG_INPUT_CODE = 2
BUG_CODE = 1
INTERRUPTED_CODE = 130


class Commands(TyperGroup):
    """Runs a command; wrong input exits with a sentence and code 2, an interrupt with code 130."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        if is_plain_text():
            os.environ["_TYPER_FORCE_DISABLE_TERMINAL"] = (
                "1"  # typer's help would be bold even without colours
            )
        completed.clear()
        try:
            code = super().main(
                args, "metricshuffle", complete_var, False, windows_expand_args, **extra
            )
            sys.stdout.flush()
        except MetricShuffleError as error:
            print_error(str(error))
            code = WRONG_INPUT_CODE
        except refusal_of_the_parser() as error:
            message = error.format_message().replace("Value error, ", "").rstrip(".")
            print_error(
                f"{message}{' See' if message.endswith('?') else '; see'} metricshuffle "
                f"{_command(args)}--help."
            )
            code = WRONG_INPUT_CODE
        except BrokenPipeError:
            # The reader of stdout has ended; without this, Python would fail again when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = BUG_CODE
        except OSError as error:
            print_error(f"cannot use {error.filename or 'a file'}: {error.strerror or error}.")
            code = WRONG_INPUT_CODE
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED_CODE
        except Exception as error:
            code = _exit_code_of(error)
            if code == BUG_CODE:
                traceback.print_exc()
                print_error(
                    "this is a bug in metricshuffle and not your fault; please report it "
                    "with the lines above."
                )
        if code == INTERRUPTED_CODE:
            done = ", ".join(dict.fromkeys(completed))
            print_error(
                f"interrupted; already written: {done}."
                if done
                else "interrupted; no file was written or changed."
            )
        sys.exit(code if isinstance(code, int) else 0)


def refusal_of_the_parser() -> type[typer.TyperException]:
    """Return the class of the parser's exceptions: typer's from version 0.28 on, click's before."""
    if hasattr(typer, "TyperException"):
        return typer.TyperException
    from click import ClickException

    return ClickException  # type: ignore[return-value]


def _exit_code_of(error: Exception) -> int:
    """Exit code of an unexpected exception.

    If the exception (of compiled code, or of an unfinished import) hides an interrupt or an exit,
    the code is that of the hidden one, otherwise that of a bug.
    """
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, KeyboardInterrupt | SystemExit):
        inner = inner.__cause__ or inner.__context__
    if isinstance(inner, KeyboardInterrupt):
        return INTERRUPTED_CODE
    if isinstance(inner, SystemExit) and isinstance(inner.code, int):
        return inner.code
    return BUG_CODE


def _command(args: Sequence[str] | None) -> str:
    """Name of the called command, followed by a space; empty if there is none."""
    words = list(sys.argv[1:] if args is None else args)
    command_path = ""
    group: Any = app
    while (
        words
        and group is not None
        and words[0]
        in {entry.name for entry in (*group.registered_commands, *group.registered_groups)}
    ):
        command_path += f"{words[0]} "
        group = next(
            (entry.typer_instance for entry in group.registered_groups if entry.name == words[0]),
            None,
        )
        del words[0]
    return command_path


app = typer.Typer(
    cls=Commands,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(is_requested: bool) -> None:
    if is_requested:
        from metricshuffle import __version__

        print(f"metricshuffle {__version__}")
        raise typer.Exit


ABOUT = """Estimate sums, means, histograms and maps of people's values, with metric differential privacy in the shuffle model.

With --json, every command prints one JSON document to stdout and nothing else; --quiet omits notes and progress on stderr. \
Invalid input is answered by one sentence on stderr and exit code 2, and nothing is written. \
Output files are written completely or not at all, and replace existing ones."""  # noqa: E501


@app.callback(invoke_without_command=True, help=ABOUT)
def metricshuffle(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


for name, command in (
    ("new", new),
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
    ("migrate", migrate),
    ("mix", mix),
    ("web", web),
    ("submit", submit),
    ("collect", collect),
    ("join-page", join_page),
):
    app.command(name)(command)
app.add_typer(users, name="users")
app.add_typer(collection, name="collection")
app.add_typer(analyst, name="analyst")
app.add_typer(issuer, name="issuer")
app.add_typer(conform, name="conform")
add_installed_commands(app, entry_points(group=COMMANDS))
for prefix, group in (
    ("", app),
    *((f"{registered.name} ", registered.typer_instance) for registered in app.registered_groups),
):
    for registered in group.registered_commands if group is not None else ():
        assert registered.callback is not None  # noqa: S101 - it was given above
        registered.callback = add_common_options(registered.callback)
        registered.epilog = examples_text(f"{prefix}{registered.name}") or None
