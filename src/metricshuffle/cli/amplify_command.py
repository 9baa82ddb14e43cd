"""`metricshuffle amplify`: upper and lower bounds on the privacy of shuffled reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli import amplify_groups as several
from metricshuffle.cli.randomizer_options import NAMES, OPTIONS, RandomizerOptions, check_name
from metricshuffle.cli.shared_options import (
    Honest,
    Json,
    Rounds,
    number_option,
    whole_option,
    writable,
)
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.amplification.amplify import AmplifiedBand
    from metricshuffle.cli.randomizer_options import Rounded

Randomizer = Annotated[
    str,
    typer.Option(
        "--randomizer",
        metavar="NAME",
        help=(
            f"Local randomizer: {', '.join(NAMES)}, or file:PATH of `solve --save`. Options "
            "below name in brackets the randomizers they belong to."
        ),
    ),
]
Delta = Annotated[float | None, number_option("--delta", "X", "Compute epsilon at this delta.")]
Epsilon = Annotated[
    float | None, number_option("--epsilon", "E", "Compute delta at this total epsilon instead.")
]
Users = Annotated[
    int | None,
    whole_option(
        "--users",
        "N",
        ("Number of people who report; leave it out to find this number, or with --group."),
    ),
]
TargetEpsilon = Annotated[
    float | None,
    number_option(
        "--target-epsilon",
        "E",
        (
            "Find the largest local epsilon or rate, or the fewest honest people, that "
            "meets this total epsilon at --delta."
        ),
    ),
]
Find = Annotated[
    str | None,
    typer.Option(
        "--find",
        metavar="local-epsilon|rate|users",
        help="What to find for --target-epsilon; if left out, the option that is missing.",
    ),
]
LocalEpsilon = Annotated[
    float | None,
    number_option(
        "--local-epsilon",
        "E",
        (
            "Epsilon of one report (generic, krr, witch-hat, hadamard, subset, hash, rappor, "
            "duchi, harmony, privset); a claim to check (channel)."
        ),
    ),
]
LocalDelta = Annotated[
    float | None,
    number_option(
        "--local-delta", "X", "Delta of one report at --local-epsilon; 0 if left out (generic)."
    ),
]
Span = Annotated[
    int | None, whole_option("--span", "K", "Values are the whole numbers from 0 to K (gaussian).")
]
Sigma = Annotated[
    float | None,
    number_option("--sigma", "S", "Standard deviation of the noise, in steps of 1 (gaussian)."),
]
Margin = Annotated[
    int | None,
    whole_option(
        "--margin",
        "M",
        (
            "Reports are clamped to at most M beyond the values; 4 times --sigma, rounded "
            "up, if left out (gaussian)."
        ),
    ),
]
Options = Annotated[
    int | None,
    whole_option(
        "--options",
        "K",
        "Number of possible values (krr, hadamard, subset, hash, rappor) or labels (privset).",
    ),
]
Rate = Annotated[
    float | None,
    number_option(
        "--rate",
        "R",
        (
            "Epsilon of one report per unit of distance (laplace, witch-hat, exponential, pem, "
            "gkrr; metric, where it is 1 if left out)."
        ),
    ),
]
Distance = Annotated[
    float | None,
    number_option(
        "--distance",
        "D",
        (
            "Distance between the two inputs (metric); largest distance to protect, any two "
            "inputs if left out (others)."
        ),
    ),
]
Reach = Annotated[
    float | None,
    number_option(
        "--reach",
        "A",
        ("Distance of the first input from the value that is farthest from it, in units (metric)."),
    ),
]
ReachOther = Annotated[
    float | None,
    number_option(
        "--reach-other",
        "B",
        (
            "Distance of the second input from the value that is farthest from it; --reach "
            "if left out (metric)."
        ),
    ),
]
Distances = Annotated[
    Path | None,
    typer.Option(
        "--distances",
        metavar="FILE",
        help=(
            "CSV file without a header: a row and a column for each point, with the distances "
            "between them (exponential, pem; instead of --low and --high)."
        ),
    ),
]
Low = Annotated[
    float | None,
    number_option("--low", "L", "Smallest possible value (laplace) or point (exponential, pem)."),
]
High = Annotated[
    float | None,
    number_option("--high", "H", "Largest possible value (laplace) or point (exponential, pem)."),
]
HalfWidth = Annotated[
    float | None, number_option("--half-width", "B", "Values lie between -B and B (witch-hat).")
]
Steps = Annotated[
    int | None,
    whole_option(
        "--steps",
        "S",
        (
            "Number of steps in the grid to which values are rounded: 64 (laplace) or 32 "
            "each side of 0 (witch-hat) if left out; from point to point between --low and "
            "--high, 64 if left out (exponential, pem)."
        ),
    ),
]
Size = Annotated[
    int | None,
    whole_option(
        "--size",
        "S",
        "Number of values in a reported set; near the optimum if left out (subset, privset).",
    ),
]
Buckets = Annotated[
    int | None,
    whole_option(
        "--buckets", "L", "Number of hash values, a prime; near the optimum if left out (hash)."
    ),
]
Clusters = Annotated[
    int | None, whole_option("--clusters", "C", "Number of clusters, at distance 1 (gkrr).")
]
Leaves = Annotated[
    int | None, whole_option("--leaves", "S", "Number of points in each cluster (gkrr).")
]
Inner = Annotated[
    float | None,
    number_option("--inner", "D", "Distance of two points in one cluster, below 1 (gkrr)."),
]
Dimensions = Annotated[
    int | None,
    whole_option("--dimensions", "D", "Number of values in [-1, 1] of a person (duchi, harmony)."),
]
Keys = Annotated[int | None, whole_option("--keys", "K", "Number of possible keys (privkv).")]
Items = Annotated[
    int | None,
    whole_option(
        "--items",
        "M",
        (
            "Number of labels that a person has (privset); largest number of keys that a "
            "person has, all of them if left out (privkv)."
        ),
    ),
]
KeyEpsilon = Annotated[
    float | None,
    number_option("--key-epsilon", "E", "Epsilon of whether a person has a key (privkv)."),
]
ValueEpsilon = Annotated[
    float | None, number_option("--value-epsilon", "E", "Epsilon of the sign of a value (privkv).")
]
Matrix = Annotated[
    Path | None,
    typer.Option(
        "--matrix",
        metavar="FILE",
        help=(
            "CSV file without a header: for each input, a row with the probabilities of its "
            "reports (channel)."
        ),
    ),
]
Pair = Annotated[
    tuple[int, int] | None,
    typer.Option(
        "--pair",
        metavar="I J",
        help=(
            "Compare only these two rows of the matrix, numbered from 0; any two if left "
            "out (channel)."
        ),
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        help=(
            "Write the upper and lower bounds and the trade-off curve to this file as one "
            "HTML page."
        ),
    ),
]


def amplify(
    randomizer: Randomizer,
    users: Users = None,
    group: several.Group = None,
    dummies: several.Dummies = None,
    delta: Delta = None,
    epsilon: Epsilon = None,
    target_epsilon: TargetEpsilon = None,
    find: Find = None,
    local_epsilon: LocalEpsilon = None,
    local_delta: LocalDelta = None,
    options: Options = None,
    rate: Rate = None,
    distance: Distance = None,
    reach: Reach = None,
    reach_other: ReachOther = None,
    low: Low = None,
    high: High = None,
    half_width: HalfWidth = None,
    span: Span = None,
    sigma: Sigma = None,
    margin: Margin = None,
    steps: Steps = None,
    size: Size = None,
    buckets: Buckets = None,
    distances: Distances = None,
    clusters: Clusters = None,
    leaves: Leaves = None,
    inner: Inner = None,
    dimensions: Dimensions = None,
    keys: Keys = None,
    items: Items = None,
    key_epsilon: KeyEpsilon = None,
    value_epsilon: ValueEpsilon = None,
    matrix: Matrix = None,
    pair: Pair = None,
    honest: Honest = None,
    rounds: Rounds = 1,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Compute a certified epsilon (or delta) of shuffled reports, and a lower bound on it."""
    typed = dict(locals())
    check_name(randomizer)
    randomizer_options = RandomizerOptions(
        randomizer, {option: typed[option.replace("-", "_")] for option in OPTIONS}
    )
    check_numbers(users, delta, epsilon, rounds)
    writable(plot, option="--plot")
    if plot is not None:
        from metricshuffle.cli.extras import require_extras

        require_extras("report")
    if group or dummies is not None:
        several.refuse(
            {"--target-epsilon": target_epsilon, "--find": find, "--honest": honest, "--plot": plot}
        )
        check_either(delta, epsilon)
        crowd = several.read_groups(randomizer_options, users, group or [], dummies)
        several.print_groups(
            crowd, rounds, delta, epsilon, randomizer_options.distance, as_json=as_json
        )
        return
    if target_epsilon is not None or find is not None:
        from metricshuffle.cli.amplify_inverse import search

        if epsilon is not None:
            raise InputError(
                "--target-epsilon is the requested total epsilon; leave --epsilon out."
            )
        search(
            randomizer_options,
            find,
            target_epsilon,
            delta,
            users,
            honest,
            rounds,
            plot,
            as_json=as_json,
        )
        return
    check_either(delta, epsilon)
    _answer(randomizer_options, users, honest, rounds, delta, epsilon, plot, as_json=as_json)


def _answer(
    randomizer_options: RandomizerOptions,
    users: int | None,
    honest: str | None,
    rounds: int,
    delta: float | None,
    epsilon: float | None,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    """Print the band as text or JSON, and write the page if requested."""
    from metricshuffle.cli.console import note, say, screen, show_progress

    if users is None:
        raise InputError(
            "--users is missing: how many people report; or give --group for each group, or "
            "--target-epsilon to find how many are needed."
        )
    randomizer_options.check()
    with show_progress("Accounting"):
        answer = randomizer_options.amplification(users, honest, rounds)
        band = (
            answer.epsilon(delta, randomizer_options.distance)
            if delta is not None
            else answer.delta(epsilon or 0.0, randomizer_options.distance)
        )
        words = answer.explain(delta, randomizer_options.distance, epsilon=epsilon)
        if plot is not None:
            from metricshuffle.files import write_text
            from metricshuffle.report.amplify_page import page

            write_text(
                plot, page(randomizer_options, users, honest, rounds, delta, epsilon, answer)
            )
    if as_json:
        _print_json(band, delta, epsilon, randomizer_options.rounded)
        return
    if plot is not None:
        note(f"Wrote {plot}.")
    say(screen(), *filter(None, (words, randomizer_options.remark)))


def check_numbers(
    users: int | None, delta: float | None, epsilon: float | None, rounds: int
) -> None:
    """Raise for numbers outside their ranges."""
    if delta is not None and not 0.0 < delta < 1.0:
        raise InputError(
            f"--delta must lie in (0, 1), got {delta:g}; shuffling changes nothing at delta 0."
        )
    if epsilon is not None and not epsilon > 0.0:
        raise InputError(f"--epsilon must be greater than 0, got {epsilon:g}.")
    if users is not None and users < 1:
        raise InputError(f"--users must be a whole number >= 1, got {users}.")
    if rounds < 1:
        raise InputError(f"--rounds must be a whole number >= 1, got {rounds}.")


def check_either(delta: float | None, epsilon: float | None) -> None:
    if (delta is None) == (epsilon is None):
        raise InputError(
            "give either --delta (to get epsilon) or --epsilon (to get delta), and not both."
        )


def _print_json(
    band: AmplifiedBand, delta: float | None, epsilon: float | None, rounded: Rounded | None
) -> None:
    """Print both bounds (`as_numbers`), and whether a matrix was rounded."""
    import json

    changed = (
        {}
        if rounded is None
        else {"rounded": True, "largest_relative_change": rounded.relative_change}
    )
    print(json.dumps({**several.as_numbers(band, delta, epsilon), **changed}))
