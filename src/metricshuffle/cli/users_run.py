"""`metricshuffle users run`: from a table with a row for each item to a release about the users."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.estimate import ReleaseFile, publish
from metricshuffle.cli.options import Clamp, Delimiter, Honest, Json, choice, number, whole, writable
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.planning.user_plan import UserPlan

WHERE, PROMISE = "Where items lie (public: never take it from the data)", "What is promised"

SQUARES = (
    "Cells are (column, row) from the south-west corner. Distances are those of nested squares: two cells are as far apart as the diagonal "
    "of the smallest nested square that holds both, which is far for neighbours on two sides of a line between large squares."
)

UserColumn = Annotated[str, typer.Option("--user-column", metavar="NAME", help="The column that names whose item it is.")]
ItemColumns = Annotated[
    list[str],
    typer.Option("--column", metavar="NAME", help="The column of the items; with --levels twice: latitude and longitude, or x and y."),
]
Levels = Annotated[
    int | None,
    typer.Option(
        "--levels", parser=whole, metavar="L", rich_help_panel=WHERE,
        help="Places: cut the box into nested squares, 2^L cells along its longer side; "
        "the distance of two cells is the diagonal of the smallest nested square that holds both.",
    ),
]  # fmt: skip
Box = Annotated[
    tuple[float, float, float, float] | None,
    typer.Option("--box", metavar="SOUTH WEST NORTH EAST", rich_help_panel=WHERE, help="The box of --levels, in degrees."),
]
Side = Annotated[
    float | None,
    typer.Option("--side", parser=number, metavar="S", rich_help_panel=WHERE, help="For points: x and y lie in 0..S."),
]
PlaceKind = Annotated[
    str,
    typer.Option(
        "--coordinates",
        metavar="places|points",
        rich_help_panel=WHERE,
        help="Whether --levels is about degrees (--box) or x and y (--side).",
    ),
]
Unit = Annotated[
    str | None,
    typer.Option(
        "--unit", metavar="WORD", rich_help_panel=WHERE, help="What distances are measured in; km or m for places, km if left out."
    ),
]


def run(
    values: Annotated[Path, typer.Argument(metavar="FILE", help="A .csv, .csv.gz or .parquet file with a row for each item.")],
    user_column: UserColumn,
    column: ItemColumns,
    epsilon: Annotated[
        float, typer.Option("--epsilon", parser=number, metavar="E", rich_help_panel=PROMISE, help="TOTAL epsilon at the distance.")
    ],
    distance: Annotated[
        float,
        typer.Option(
            "--distance", parser=number, metavar="D", rich_help_panel=PROMISE,
            help="How far one user's items may move and stay hidden, in earth mover's distance: share moved times mean distance.",
        ),
    ],
    delta: Annotated[
        float, typer.Option("--delta", parser=number, metavar="X", rich_help_panel=PROMISE, help="Failure probability; 0 for certainty.")
    ] = 0.0,
    flat: Annotated[
        bool,
        typer.Option("--flat", rich_help_panel=PROMISE, help="The same epsilon for every move up to the distance, not in proportion."),
    ] = False,
    trusted: Annotated[
        str, typer.Option("--trusted", metavar="nobody|shuffler|curator", rich_help_panel=PROMISE, help="Whom the promise may rely on.")
    ] = "shuffler",
    honest: Honest = None,
    query: Annotated[
        str, typer.Option("--query", metavar="histogram|mean", help="Shares of all points, or the mean; each user counts once.")
    ] = "histogram",
    items: Annotated[
        int | None,
        typer.Option(
            "--items", parser=whole, metavar="M", help="Everybody holds exactly M, which is public; left out: any number, which is hidden."
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option("--samples", parser=whole, metavar="S", help="Any number of items: let each draw S, so that items can be shuffled."),
    ] = None,
    low: Annotated[str | None, typer.Option("--low", metavar="NUMBER", rich_help_panel=WHERE, help="Least whole number.")] = None,
    high: Annotated[str | None, typer.Option("--high", metavar="NUMBER", rich_help_panel=WHERE, help="Largest whole number.")] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", metavar="A,B,C", rich_help_panel=WHERE, help="Words, 1 apart unless --distances says more.")
    ] = None,
    distances: Annotated[
        Path | None,
        typer.Option("--distances", metavar="FILE", rich_help_panel=WHERE, help="CSV without a header: distances of the labels."),
    ] = None,
    levels: Levels = None,
    box: Box = None,
    side: Side = None,
    coordinates: PlaceKind = "places",
    unit: Unit = None,
    clamp: Clamp = False,
    delimiter: Delimiter = ",",
    output: ReleaseFile = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """From a file of everybody's items to a release with both guarantees, on one machine."""
    choice("query", query, ("histogram", "mean"))
    choice("trusted", trusted, ("nobody", "shuffler", "curator"))
    if items is not None and items < 1:
        raise InputError(f"--items must be a whole number >= 1, got {items}; a user without items cannot stand in a file.")
    if items is not None and samples is not None:
        raise InputError("--samples is for users with any number of items; leave it or --items out.")
    if query == "mean" and labels is not None:
        raise InputError("labels have no mean; ask for a histogram: --query histogram.")
    writable(output, values)

    from metricshuffle.cli.screen import note, say, screen, working
    from metricshuffle.cli.users_data import ItemOptions, held_by_users, open_users
    from metricshuffle.planning.user_plan import plan_users
    from metricshuffle.privacy.target import Target
    from metricshuffle.queries.user_items import UserHistogram, UserLinearQuery
    from metricshuffle.spaces import users_of

    options = ItemOptions(low, high, labels, distances, levels, box, side, unit or "", coordinates)
    options.check()
    options.check_columns(column)
    target = Target(epsilon, delta, distance, "flat" if flat else "linear")
    people = users_of(options.space(), items)
    asked = UserHistogram(people) if query == "histogram" else UserLinearQuery.average(people)
    table = open_users(values, user_column, column, delimiter)
    with working("Running") as tell:
        tell("reading")
        held = held_by_users(table, people.items_in, coordinates, clamp=clamp)
        if items is not None:
            held.check_each(items, values)
        tell("planning")
        made = plan_users(asked, target, len(held.names), honest, trusted="nobody" if trusted == "nobody" else
                          "curator" if trusted == "curator" else "shuffler", samples=samples)  # fmt: skip
        tell("randomizing")
        release = made.run(held.items)
    publish(release, output, as_json)
    for remark in _remarks(made):
        note(remark) if as_json else say(screen(), remark)
    if levels is not None and not as_json:
        say(screen(), SQUARES)


def _remarks(plan: UserPlan) -> list[str]:
    """What was allowed or given and did not matter: the shuffler where nobody is trusted, and samples that nobody drew."""
    found: list[str] = []
    if plan.trusted == "shuffler" and plan.choice.model == "local":
        for name, reason in plan.not_offered:
            typed = re.sub(r"`(\w+)`", r"--\1", reason).replace("a target of shape 'flat'", "--flat").rstrip(".")
            found.append(f"{'' if found else 'Nobody has to be trusted for this: '}{name} is not offered: {typed}.")
    if plan.samples is not None and plan.choice.randomizer is None:
        found.append(
            f"--samples {plan.samples} was not used: {plan.choice.name}, which was chosen, takes a user's items together and draws none."
        )
    return found
