"""`metricshuffle profile`: the privacy profile of given noise."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated

import typer

from metricshuffle.cli.shared_options import (
    Honest,
    Json,
    Rounds,
    Users,
    choice,
    number_option,
    whole_option,
)
from metricshuffle.errors import InputError


def profile(
    noise: Annotated[
        str,
        typer.Option(
            "--noise",
            metavar="geometric|polya",
            help=(
                "Law of the noise: every person adds a geometric draw, or a share of Polya noise."
            ),
        ),
    ],
    rate: Annotated[
        float,
        number_option(
            "--rate", "R", "Epsilon per step of one geometric draw; a larger rate means less noise."
        ),
    ],
    users: Users,
    distance: Annotated[
        int,
        whole_option(
            "--distance", "D", "Total change of the values that is protected, in whole steps."
        ),
    ],
    honest: Honest = None,
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape",
            metavar="B",
            help=(
                "Polya noise: total shape over all users, of which each adds B/users; a number "
                "or a fraction like 1/3; 1 if left out."
            ),
        ),
    ] = None,
    delta: Annotated[
        float | None,
        number_option("--delta", "X", "Compute epsilon at this delta; 0 gives the pure epsilon."),
    ] = None,
    epsilon: Annotated[
        float | None,
        number_option("--epsilon", "E", "Compute delta at this total epsilon instead."),
    ] = None,
    trust: Annotated[
        str,
        typer.Option(
            "--trust",
            metavar="honest|colluding",
            help=(
                "Whether the shuffler is honest or colludes with the analyst; then only one "
                "person's noise counts."
            ),
        ),
    ] = "honest",
    rounds: Rounds = 1,
    as_json: Json = False,
) -> None:
    """Compute epsilon of shuffled noise for a delta, or delta for an epsilon.

    Epsilon is the total at --distance. Only the noise is accounted for, without any encoding.
    """
    choice("noise", noise, ("geometric", "polya"))
    choice("trust", trust, ("honest", "colluding"))
    if (delta is None) == (epsilon is None):
        raise InputError(
            "give either --delta (to get epsilon) or --epsilon (to get delta), and not both."
        )
    if noise == "geometric" and shape is not None:
        raise InputError(
            "--shape belongs to --noise polya; geometric noise has shape 1 a user, so "
            "leave --shape out."
        )
    if not rate > 0:
        raise InputError(
            f"--rate must be greater than 0, got {rate:g}; it is the epsilon per step of one draw."
        )
    if epsilon is not None and not epsilon > 0:
        raise InputError(f"--epsilon must be greater than 0, got {epsilon:g}.")
    if delta is not None and not 0 <= delta < 1:
        raise InputError(f"--delta must lie in [0, 1), got {delta:g}.")
    if distance < 1:
        raise InputError(
            f"--distance must be a whole number of steps >= 1, got {distance}; at distance "
            "0 there is nothing to hide."
        )
    total = _shape(shape) if noise == "polya" else None

    import json
    import math

    from metricshuffle.accounting.composition.composed_profile import compose_rounds
    from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
    from metricshuffle.cli.console import say, screen, show_progress
    from metricshuffle.noise.polya import Polya
    from metricshuffle.numerics.rounding import format_delta, format_epsilon
    from metricshuffle.privacy.target import checked_users, honest_count

    users = checked_users(users)
    counted = honest_count(honest, users)
    each = Fraction(1) if total is None else total / users
    with show_progress("Accounting"):
        curve = compose_rounds(
            AdditiveNoise(Polya(each * (counted if trust == "honest" else 1), rate)), rounds
        )
        if epsilon is None:
            assert delta is not None  # noqa: S101 - one of the two is given
            answer = {"epsilon": curve.epsilon(delta, distance), "delta": delta}
        else:
            answer = {"epsilon": epsilon, "delta": curve.delta(epsilon, distance)}
    bound = "pure" if delta == 0 else ("composed" if rounds > 1 else "exact")
    if as_json:
        finite = {name: value if math.isfinite(value) else None for name, value in answer.items()}
        print(json.dumps({**finite, "distance": distance, "bound": bound}))
        return
    hides = "the shuffler is honest" if trust == "honest" else "the shuffler colludes"
    over = "" if rounds == 1 else f" over {rounds} rounds"
    say(
        screen(),
        f"A total move of {distance:,} steps is hidden at epsilon "
        f"{format_epsilon(answer['epsilon'])}, "
        f"delta {format_delta(answer['delta'])}{over} ({bound} bound), if {hides}.",
    )


def _shape(text: str | None) -> Fraction:
    if text is None:
        return Fraction(1)
    # The text and its exponent must be short: Fraction("1e999999999") would run for hours.
    if len(text) <= 60 and re.fullmatch(
        r"\s*[+-]?\d+(/\d+|(\.\d*)?([eE][+-]?\d{1,3})?)\s*|\s*[+-]?\.\d+\s*", text
    ):
        try:
            value = Fraction(text)
        except ZeroDivisionError:
            value = Fraction(0)
        if value > 0:
            return value
    raise InputError(
        f"--shape must be a number or a fraction > 0, like 2, 0.5 or 1/3, got {text!r}."
    )
