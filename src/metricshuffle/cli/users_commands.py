"""`metricshuffle users`: people who hold many items each."""

from __future__ import annotations

import typer

from metricshuffle.cli.users_calibrate_command import calibrate

ABOUT = """People who hold many items each, private under the earth mover's distance.

Moving a share of somebody's items by some distance on average is a move of share times distance. \
The rate is epsilon per unit of it: small changes of a life are hidden well, a full replacement less."""

users = typer.Typer(rich_markup_mode="rich", no_args_is_help=False)


@users.callback(invoke_without_command=True, help=ABOUT)
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


users.command("calibrate")(calibrate)
