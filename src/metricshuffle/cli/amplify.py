"""`metricshuffle amplify`: what shuffled reports of a local randomizer hide, from above and from below."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.amplify_names import NAMES, Given
from metricshuffle.cli.options import Honest, Json, Rounds, Users, choice, number, whole, writable
from metricshuffle.errors import InputError


def amplify(
    randomizer: Annotated[
        str, typer.Option("--randomizer", metavar="NAME", help=f"One of {', '.join(NAMES)}; each takes the options named in brackets.")
    ],
    users: Users,
    delta: Annotated[float | None, typer.Option("--delta", parser=number, metavar="X", help="Give epsilon at this delta.")] = None,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", parser=number, metavar="E", help="Give delta at this total epsilon instead.")
    ] = None,
    local_epsilon: Annotated[
        float | None,
        typer.Option(
            "--local-epsilon",
            parser=number,
            metavar="E",
            help="Epsilon of one report (generic, krr, witch-hat, hadamard, subset, hash); a claim to check (channel).",
        ),
    ] = None,
    options: Annotated[
        int | None, typer.Option("--options", parser=whole, metavar="K", help="How many values there are (krr, hadamard, subset, hash).")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", parser=number, metavar="R", help="Epsilon per unit of distance (metric: 1 if left out; laplace, witch-hat)."
        ),
    ] = None,
    distance: Annotated[
        float | None,
        typer.Option(
            "--distance", parser=number, metavar="D", help="How far apart the two inputs are (metric); others: any two if left out."
        ),
    ] = None,
    reach: Annotated[
        float | None,
        typer.Option("--reach", parser=number, metavar="A", help="How far the first input is from the farthest value (metric)."),
    ] = None,
    reach_other: Annotated[
        float | None,
        typer.Option("--reach-other", parser=number, metavar="B", help="The same for the second input; like the first if left out."),
    ] = None,
    low: Annotated[float | None, typer.Option("--low", parser=number, metavar="L", help="Smallest value (laplace).")] = None,
    high: Annotated[float | None, typer.Option("--high", parser=number, metavar="H", help="Largest value (laplace).")] = None,
    half_width: Annotated[
        float | None, typer.Option("--half-width", parser=number, metavar="B", help="Values lie in -B..B (witch-hat).")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", parser=whole, metavar="S", help="Steps of the grid of reports (laplace: 64; witch-hat: 32).")
    ] = None,
    size: Annotated[int | None, typer.Option("--size", parser=whole, metavar="S", help="Members of a reported set (subset).")] = None,
    buckets: Annotated[int | None, typer.Option("--buckets", parser=whole, metavar="L", help="Hash values, a prime number (hash).")] = None,
    matrix: Annotated[
        Path | None, typer.Option("--matrix", metavar="FILE", help="CSV without a header, a row of probabilities per input (channel).")
    ] = None,
    pair: Annotated[
        tuple[int, int] | None,
        typer.Option("--pair", metavar="I J", help="Only these two rows, counting from 0 (channel); any two if left out."),
    ] = None,
    honest: Honest = None,
    rounds: Rounds = 1,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Write the band against users and against distance as one HTML file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What shuffled reports of a local randomizer hide: a certified epsilon (or delta), and a lower bound beside it."""
    choice("randomizer", randomizer, NAMES)
    if (delta is None) == (epsilon is None):
        raise InputError("give either --delta (to get epsilon) or --epsilon (to get delta), and not both.")
    if delta is not None and not 0.0 < delta < 1.0:
        raise InputError(f"--delta must lie in (0, 1), got {delta:g}; shuffling changes nothing at delta 0.")
    if epsilon is not None and not epsilon > 0.0:
        raise InputError(f"--epsilon must be greater than 0, got {epsilon:g}.")
    if users < 1:
        raise InputError(f"--users must be a whole number >= 1, got {users}.")
    if rounds < 1:
        raise InputError(f"--rounds must be a whole number >= 1, got {rounds}.")
    writable(plot, option="--plot")
    given = Given(randomizer, {
        "local-epsilon": local_epsilon, "options": options, "rate": rate, "distance": distance, "reach": reach, "reach-other": reach_other,
        "low": low, "high": high, "half-width": half_width, "steps": steps, "size": size, "buckets": buckets,
        "matrix": matrix, "pair": pair,
    })  # fmt: skip
    given.check()

    import json
    import math

    from metricshuffle.cli.screen import note, say, screen, working
    from metricshuffle.numerics.rounding import promised

    with working("Accounting"):
        answer = given.amplification(users, honest, rounds)
        band = answer.epsilon(delta, given.distance) if delta is not None else answer.delta(epsilon or 0.0, given.distance)
        if plot is not None:
            from metricshuffle.pages.amplify import page
            from metricshuffle.files import write_text

            text = page(given, users, honest, rounds, delta, epsilon)
            write_text(plot, text)
    if as_json:
        ends = {
            name: {"epsilon": value if delta is not None else epsilon, "delta": delta if delta is not None else value}
            for name, value in (("upper", band.upper), ("lower", band.lower))
        }
        finite = {
            name: {key: None if value is None or not math.isfinite(value) else value for key, value in end.items()}
            for name, end in ends.items()
        }
        print(json.dumps({**finite, "bound": band.bound, "evaluator": band.evaluator}))
        return
    if plot is not None:
        note(f"Wrote {plot}.")
    if delta is not None:
        say(screen(), answer.explain(delta, given.distance))
        return
    nothing = "" if band.amplified else " Shuffling buys nothing here: one report alone hides as much."
    say(
        screen(),
        f"{answer.users:,} shuffled reports are indistinguishable at epsilon {promised(epsilon or 0.0)} up to delta {promised(band.upper)} "
        f"({band.bound} bound), and no bound can be below delta {band.lower:.4g}.{nothing}",
    )
