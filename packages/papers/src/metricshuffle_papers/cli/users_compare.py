"""`metricshuffle users compare`: when privacy under the earth mover's distance pays off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from metricshuffle.cli.shared_options import Delimiter, Json, writable
from metricshuffle.errors import ConditionError, InputError
from metricshuffle_papers.cli import users_options as option
from metricshuffle_papers.cli.users_options import ITEMS

if TYPE_CHECKING:
    from metricshuffle.spaces import Users as People
    from metricshuffle_papers.compare.users import UserComparison

SHAPE = (8, 8, 0.05)
USERS = 10_000
LEVELS = 3
NEAR = 0.05  # of the diameter: the move that the second rate hides at epsilon, for real users


def compare(
    epsilon: option.Epsilon = 1.0,
    rate: option.Rate = None,
    delta: option.Delta = 1e-9,
    items: option.Items = ITEMS,
    runs: option.Runs = 40,
    seed: option.Seed = 0,
    users: option.Users = None,
    clusters: option.Clusters = None,
    places: option.Places = None,
    inner: option.Inner = None,
    csv: option.Csv = None,
    user_column: option.UserColumn = "user",
    column: option.Column = None,
    levels: option.Levels = None,
    box: option.Box = None,
    side: option.Side = None,
    coordinates: option.PlaceKind = "places",
    unit: option.Unit = None,
    delimiter: Delimiter = None,
    plot: option.Plot = None,
    as_json: Json = False,
) -> None:
    """Compare errors on the same users: moves protected by distance, or whole users at epsilon.

    Every method is simulated in both models. Items of invented users are drawn from Zipf's law over
    the places in random order. Real ones (--csv) are in nested squares, drawn around them without
    --box. Nothing is released.
    """
    _check(epsilon, delta, runs, seed, rate)
    writable(plot, *([csv] if csv is not None else []), option="--plot")
    invented: dict[str, Any] = {
        "users": users,
        "clusters": clusters,
        "places": places,
        "inner": inner,
    }
    real: dict[str, Any] = {
        "column": column,
        "levels": levels,
        "box": box,
        "side": side,
        "unit": unit,
    }
    foreign = [
        name for name, value in (real if csv is None else invented).items() if value is not None
    ]
    if foreign:
        fitting = (
            "real users: give --csv" if csv is None else "invented users: leave it or --csv out"
        )
        raise InputError(f"--{foreign[0]} is for {fitting}.")

    from metricshuffle.cli.console import note, show_progress
    from metricshuffle.cli.extras import require_extras
    from metricshuffle.planning.query_words import QueryWords
    from metricshuffle_papers.cli.users_real import real_users
    from metricshuffle_papers.cli.users_table import crowd
    from metricshuffle_papers.compare.users import compare_users

    if plot is not None:
        require_extras("report")
    if csv is not None and coordinates == "places":
        require_extras("geo")
    with show_progress("Comparing") as tell:
        if csv is None:
            people, near = _clusters(clusters, places, inner, items)
            held = None
            many = USERS if users is None else users
        else:
            tell(f"reading {csv.name}")
            if rate and unit is None and coordinates == "places":
                raise InputError(
                    "--rate is for each unit of distance, and places are in metres, which "
                    "were km in earlier versions: say --unit m or "
                    "--unit km."
                )
            asked = QueryWords(
                levels=LEVELS if levels is None else levels,
                box=box,
                side=side,
                unit=unit,
                items=items,
            )
            people, held = real_users(csv, user_column, column or [], asked, coordinates, delimiter)
            near = NEAR * people.diameter
            many = len(held)
        compared = [
            compare_users(
                people,
                many,
                epsilon=epsilon,
                rate=each,
                delta=delta,
                runs=runs,
                seed=seed,
                held=held,
                progress=tell,
                published=_published(each, delta, many, people),
            )
            for each in _rates(rate, epsilon, people, near)
        ]
        if plot is not None:
            from metricshuffle.files import write_text
            from metricshuffle_papers.pages.users_compare import page

            write_text(plot, page(compared, crowd(people), people.unit))
    _show(compared, people, many, as_json=as_json)
    if plot is not None:
        note(f"Wrote {plot}.")


def _rates(given: list[float] | None, epsilon: float, people: People, near: float) -> list[float]:
    """Given rates, or those with cost epsilon for a full replacement and for a move nearby."""
    rates = given or list(dict.fromkeys([epsilon / people.diameter, epsilon / near]))
    if max(rates) * people.diameter > 1000.0:
        raise InputError(
            f"--rate {max(rates):g} makes a full replacement cost epsilon "
            f"{max(rates) * people.diameter:g}; stay below 1000."
        )
    return rates


def _show(compared: list[UserComparison], people: People, many: int, *, as_json: bool) -> None:
    import json

    from metricshuffle.cli.console import say, screen
    from metricshuffle_papers.cli.users_table import crowd, heading, stored, table

    if as_json:
        print(
            json.dumps(
                {
                    "users": many,
                    "in": crowd(people),
                    "comparisons": [stored(comparison) for comparison in compared],
                }
            )
        )
        return
    console = screen()
    for comparison in compared:
        say(console, heading(comparison, people.unit))
        console.print(table(comparison, people.unit))
        say(console, *comparison.sentences(), "")


def _check(epsilon: float, delta: float, runs: int, seed: int, rates: list[float] | None) -> None:
    if not 0.0 < epsilon <= 1000.0:
        raise InputError(f"--epsilon must lie in (0, 1000], got {epsilon:g}.")
    if not 0.0 < delta < 1.0:
        raise InputError(
            "--delta must lie strictly between 0 and 1: the Gaussian and the shuffled "
            f"ways need one, got {delta:g}."
        )
    if runs < 2:
        raise InputError(
            f"--runs must be a whole number >= 2 (a standard error needs two), got {runs}."
        )
    if seed < 0:
        raise InputError(f"--seed must be a whole number >= 0, got {seed}.")
    if any(not each > 0.0 for each in rates or ()):
        raise InputError(f"--rate must be greater than 0, got {min(rates or ()):g}.")


def _clusters(
    clusters: int | None, places: int | None, inner: float | None, items: int
) -> tuple[People, float]:
    from metricshuffle.spaces import Clustered, users_of

    shape = tuple(
        default if given is None else given
        for given, default in zip((clusters, places, inner), SHAPE, strict=True)
    )
    metric = Clustered(int(shape[0]), int(shape[1]), shape[2])
    return users_of(metric, items), metric.inner


def _published(
    rate: float, delta: float, users: int, people: People
) -> Callable[[Literal["local", "central"]], dict[str, float | None]]:
    """Published item rates, which are for diameter 1."""
    from metricshuffle_papers.earth_mover.privacy_bounds import (
        equation_item_rate,
        published_item_rate,
    )

    across = people.diameter
    items = int(people.items or 1)

    def rates(model: Literal["local", "central"]) -> dict[str, float | None]:
        theorem = published_item_rate(rate * across, delta, users, items, model)
        try:
            equation: float | None = equation_item_rate(
                rate * across, delta, users, items, model
            ).claim
        except ConditionError:
            equation = None
        printed = {"Theorem 4.4": theorem, f"Eq. ({6 if model == 'local' else 7})": equation}
        return {name: None if one is None else one / across for name, one in printed.items()}

    return rates
