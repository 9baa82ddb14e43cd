"""Commands of other distributions: installed, missing, or failing to load."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import typer
from tests.cli.conftest import Terminal
from tests.tables import check_all
from typer.testing import CliRunner

from metricshuffle.cli.command_group import Commands
from metricshuffle.cli.plugins import COMMANDS, OF_PAPERS, add_installed_commands


def app_with(*points: EntryPoint) -> typer.Typer:
    """A command line with a command and a group of its own, and what these entry points add."""
    app = typer.Typer(cls=Commands)
    users = typer.Typer()
    app.command("plan")(lambda: print("our own plan"))
    users.command("calibrate")(lambda: print("calibrated"))
    app.add_typer(users, name="users")
    add_installed_commands(app, points)
    return app


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, COMMANDS)


@check_all("more", [[], ["--help"], ["list", "--quick", "--runs", "3"]])
@check_all("words", [["reproduce"], ["users", "compare"]])
def test_a_command_that_is_not_installed_says_how_to_get_it(
    words: list[str], more: list[str]
) -> None:
    result = CliRunner().invoke(app_with(), [*words, *more])
    assert result.exit_code == 2
    assert result.stdout == ""
    remedy = "is part of metricshuffle-papers; install it with: pip install metricshuffle-papers."
    assert result.stderr == f"metricshuffle: metricshuffle {' '.join(words)} {remedy}\n"


def test_what_is_not_installed_is_in_no_help() -> None:
    assert "reproduce" not in CliRunner().invoke(app_with(), ["--help"]).stdout
    assert "compare" not in CliRunner().invoke(app_with(), ["users", "--help"]).stdout


def test_what_is_installed_appears(terminal: Terminal) -> None:
    assert {found.name for found in entry_points(group=COMMANDS)} == set(OF_PAPERS)
    assert "reproduce" in terminal("--help").stdout
    assert "compare" in terminal("users", "--help").stdout
    assert terminal("reproduce", "--help").exit_code == 0


def test_an_entry_point_is_a_command() -> None:
    app = app_with(point("cwd", "os:getcwd"), point("users.cwd", "os:getcwd"))
    assert CliRunner().invoke(app, ["cwd"]).exit_code == 0
    assert CliRunner().invoke(app, ["users", "cwd"]).exit_code == 0


def test_a_command_of_our_own_is_never_replaced() -> None:
    assert (
        CliRunner().invoke(app_with(point("plan", "os:abort")), ["plan"]).stdout == "our own plan\n"
    )


def test_one_that_cannot_be_loaded_says_so_and_leaves_the_others() -> None:
    app = app_with(point("reproduce", "there_is_no_such_module:run"))
    assert CliRunner().invoke(app, ["plan"]).stdout == "our own plan\n"
    result = CliRunner().invoke(app, ["reproduce", "all"])
    assert result.exit_code == 2
    assert "cannot be loaded from there_is_no_such_module:run: ModuleNotFoundError" in result.stderr
