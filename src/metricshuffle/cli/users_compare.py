"""`metricshuffle users compare`: when privacy under the earth mover's distance is worth it, and when not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from metricshuffle.cli.options import Delimiter, Json, number, whole, writable
from metricshuffle.cli.users_run import Box, Levels, PlaceKind, Side, Unit
from metricshuffle.errors import ConditionError, InputError

if TYPE_CHECKING:
    from metricshuffle.cli.users_data import ItemOptions
    from metricshuffle.spaces import Users as People

INVENTED, REAL = "Invented users: clusters of places", "Real users: a file with a row for each item"
SHAPE = (8, 8, 0.05)
USERS, ITEMS, LEVELS = 10_000, 100, 3
NEAR = 0.05  # of the diameter: the move that the second rate hides at epsilon, for real users


def compare(
    epsilon: Annotated[float, typer.Option("--epsilon", parser=number, metavar="E", help="Of ordinary user-level privacy.")] = 1.0,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            "--rate", "--alpha", parser=number, metavar="A",
            help="Epsilon per unit of earth mover's distance; may be repeated. Left out: the rate at which a full replacement costs "
            "--epsilon, and the one at which a move within a cluster (real users: of 5 % of the diameter) does.",
        ),
    ] = None,
    delta: Annotated[float, typer.Option("--delta", parser=number, metavar="X", help="Failure probability.")] = 1e-9,
    items: Annotated[
        int, typer.Option("--items", parser=whole, metavar="M", help="Items of each user; real users draw so many for item-wise ways.")
    ] = ITEMS,
    runs: Annotated[int, typer.Option("--runs", parser=whole, metavar="N", help="How many releases to simulate.")] = 40,
    seed: Annotated[int, typer.Option("--seed", parser=whole, metavar="S", help="Of the random numbers.")] = 0,
    users: Annotated[
        int | None, typer.Option("--users", parser=whole, metavar="N", rich_help_panel=INVENTED, help="How many users: 10,000.")
    ] = None,
    clusters: Annotated[
        int | None, typer.Option("--clusters", parser=whole, metavar="S", rich_help_panel=INVENTED, help="How many clusters: 8.")
    ] = None,
    places: Annotated[
        int | None, typer.Option("--places", parser=whole, metavar="T", rich_help_panel=INVENTED, help="Points in each cluster: 8.")
    ] = None,
    inner: Annotated[
        float | None,
        typer.Option("--inner", parser=number, metavar="R", rich_help_panel=INVENTED, help="Distance within a cluster: 0.05 (1 between)."),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", rich_help_panel=REAL, help="A .csv, .csv.gz or .parquet file.")
    ] = None,
    user_column: Annotated[
        str, typer.Option("--user-column", metavar="NAME", rich_help_panel=REAL, help="The column that names whose item it is.")
    ] = "user",
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME", rich_help_panel=REAL, help="Twice: latitude and longitude, or x and y."),
    ] = None,
    levels: Levels = None,
    box: Box = None,
    side: Side = None,
    coordinates: PlaceKind = "places",
    unit: Unit = None,
    delimiter: Delimiter = ",",
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw all errors as one HTML file.")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Errors of every way on the same users, in both models: moves hidden by their distance beside whole users hidden at epsilon.

    Items of invented users are drawn from Zipf's law over the places in random order. Real ones (--csv) are in nested squares, drawn
    around them without --box. Nothing is released.
    """
    if not 0.0 < epsilon <= 1000.0:
        raise InputError(f"--epsilon must lie in (0, 1000], got {epsilon:g}.")
    if not 0.0 < delta < 1.0:
        raise InputError(f"--delta must lie strictly between 0 and 1: the Gaussian and the shuffled ways need one, got {delta:g}.")
    if runs < 2:
        raise InputError(f"--runs must be a whole number >= 2 (a standard error needs two), got {runs}.")
    if seed < 0:
        raise InputError(f"--seed must be a whole number >= 0, got {seed}.")
    if any(not one > 0.0 for one in rate or ()):
        raise InputError(f"--rate must be greater than 0, got {min(rate or ()):g}.")
    writable(plot, *([csv] if csv is not None else []), option="--plot")
    invented: dict[str, Any] = {"users": users, "clusters": clusters, "places": places, "inner": inner}
    real: dict[str, Any] = {"column": column, "levels": levels, "box": box, "side": side, "unit": unit}
    foreign = [name for name, value in (real if csv is None else invented).items() if value is not None]
    if foreign:
        raise InputError(f"--{foreign[0]} is for {'real users: give --csv' if csv is None else 'invented users: leave it or --csv out'}.")

    import json

    from metricshuffle.cli.screen import note, say, screen, working
    from metricshuffle.cli.users_data import ItemOptions
    from metricshuffle.cli.users_table import crowd, heading, stored, table
    from metricshuffle.planning.compare.users import compare_users

    if plot is not None:
        from metricshuffle.pages.rendering import require_report_extra

        require_report_extra()
    with working("Comparing") as tell:
        if csv is None:
            people, near = _clusters(clusters, places, inner, items)
            held, many = None, USERS if users is None else users
        else:
            tell(f"reading {csv.name}")
            options = ItemOptions(levels=LEVELS if levels is None else levels, box=box, side=side, coordinates=coordinates, unit=unit or "")
            people, held = _real(csv, user_column, column or [], options, delimiter, items)
            near, many = NEAR * people.diameter, len(held)
        rates = rate or list(dict.fromkeys([epsilon / people.diameter, epsilon / near]))
        if max(rates) * people.diameter > 1000.0:
            raise InputError(
                f"--rate {max(rates):g} makes a full replacement cost epsilon {max(rates) * people.diameter:g}; stay below 1000."
            )
        found = [
            compare_users(
                people, many, epsilon=epsilon, rate=one, delta=delta, runs=runs, seed=seed, held=held, progress=tell,
                published=_published(one, delta, many, people),
            )
            for one in rates
        ]  # fmt: skip
        if plot is not None:
            from metricshuffle.pages.users_compare import page
            from metricshuffle.files import write_text

            write_text(plot, page(found, crowd(people), people.unit))
    if as_json:
        print(json.dumps({"users": many, "in": crowd(people), "comparisons": [stored(one) for one in found]}))
        return
    console = screen()
    for one in found:
        say(console, heading(one, people.unit))
        console.print(table(one, people.unit))
        say(console, *one.sentences(), "")
    if plot is not None:
        note(f"Wrote {plot}.")


def _clusters(clusters: int | None, places: int | None, inner: float | None, items: int) -> tuple[People, float]:
    from metricshuffle.spaces import Clustered, users_of

    shape = tuple(default if given is None else given for given, default in zip((clusters, places, inner), SHAPE, strict=True))
    metric = Clustered(int(shape[0]), int(shape[1]), shape[2])
    return users_of(metric, items), metric.inner


def _real(
    csv: Path, user_column: str, column: list[str], options: ItemOptions, delimiter: str, items: int
) -> tuple[People, list[Any]]:  # fmt: skip
    """Users in squares; without --box or --side these are drawn around the data, which is fine for a simulation."""
    from dataclasses import replace

    from metricshuffle.cli.users_data import box_around, held_by_users, open_users, side_around
    from metricshuffle.spaces import users_of

    options.check()
    options.check_columns(column)
    source = open_users(csv, user_column, column, delimiter)
    if options.coordinates == "places" and options.box is None:
        options = replace(options, box=box_around(source))
    if options.coordinates == "points" and options.side is None:
        options = replace(options, side=side_around(source))
    people = users_of(options.space(), items)
    return people, held_by_users(source, people.items_in, options.coordinates).items


def _published(rate: float, delta: float, users: int, people: People) -> Callable[[Literal["local", "central"]], dict[str, float | None]]:
    """The printed item rates, which are for diameter 1."""
    from metricshuffle.papers.earth_mover.privacy_bounds import equation_item_rate, published_item_rate

    across, items = people.diameter, int(people.items or 1)

    def rates(model: Literal["local", "central"]) -> dict[str, float | None]:
        theorem = published_item_rate(rate * across, delta, users, items, model)
        try:
            equation: float | None = equation_item_rate(rate * across, delta, users, items, model).claim
        except ConditionError:
            equation = None
        printed = {"Theorem 4.4": theorem, f"Eq. ({6 if model == 'local' else 7})": equation}
        return {name: None if one is None else one / across for name, one in printed.items()}

    return rates
