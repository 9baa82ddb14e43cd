"""`metricshuffle amplify`: what shuffled reports of a local randomizer hide, from above and from below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricshuffle.cli import amplify_groups as several
from metricshuffle.cli import amplify_options as option
from metricshuffle.cli.amplify_names import NAMES, Given
from metricshuffle.cli.options import Honest, Json, Rounds, choice, writable
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.amplification.amplify import AmplifiedBand
    from metricshuffle.cli.amplify_names import Rounded


def amplify(
    randomizer: option.Randomizer,
    users: option.Users = None,
    group: several.Group = None,
    dummies: several.Dummies = None,
    delta: option.Delta = None,
    epsilon: option.Epsilon = None,
    local_epsilon: option.LocalEpsilon = None,
    local_delta: option.LocalDelta = None,
    options: option.Options = None,
    rate: option.Rate = None,
    distance: option.Distance = None,
    reach: option.Reach = None,
    reach_other: option.ReachOther = None,
    low: option.Low = None,
    high: option.High = None,
    half_width: option.HalfWidth = None,
    span: option.Span = None,
    sigma: option.Sigma = None,
    margin: option.Margin = None,
    steps: option.Steps = None,
    size: option.Size = None,
    buckets: option.Buckets = None,
    matrix: option.Matrix = None,
    pair: option.Pair = None,
    honest: Honest = None,
    rounds: Rounds = 1,
    plot: option.Plot = None,
    as_json: Json = False,
) -> None:
    """What shuffled reports of a local randomizer hide: a certified epsilon (or delta), and a lower bound beside it."""
    choice("randomizer", randomizer, NAMES)
    _check_question(delta, epsilon, users, rounds, counted=bool(group or dummies))
    writable(plot, option="--plot")
    given = Given(randomizer, {
        "local-epsilon": local_epsilon, "local-delta": local_delta, "span": span, "sigma": sigma, "margin": margin,
        "options": options, "rate": rate, "distance": distance, "reach": reach, "reach-other": reach_other,
        "low": low, "high": high, "half-width": half_width, "steps": steps, "size": size, "buckets": buckets,
        "matrix": matrix, "pair": pair,
    })  # fmt: skip
    if users is None or group or dummies:
        crowd = several.counted(given, users, group or [], dummies)
        if honest is not None or plot is not None:
            raise InputError("--honest and --plot do not go with --group or --dummies; count only honest people in each group.")
        several.answer_groups(crowd, rounds, delta, epsilon, given.distance, as_json=as_json)
        return
    given.check()

    from metricshuffle.cli.screen import note, say, screen, working
    from metricshuffle.numerics.rounding import promised

    with working("Accounting"):
        answer = given.amplification(users, honest, rounds)
        band = answer.epsilon(delta, given.distance) if delta is not None else answer.delta(epsilon or 0.0, given.distance)
        if plot is not None:
            from metricshuffle.files import write_text
            from metricshuffle.pages.amplify import page

            text = page(given, users, honest, rounds, delta, epsilon)
            write_text(plot, text)
    if as_json:
        _print_json(band, delta, epsilon, given.rounded)
        return
    if plot is not None:
        note(f"Wrote {plot}.")
    if delta is not None:
        say(screen(), *filter(None, (answer.explain(delta, given.distance), given.remark)))
        return
    nothing = "" if band.amplified else " Shuffling buys nothing here: one report alone hides as much."
    say(
        screen(),
        f"{answer.users:,} shuffled reports are indistinguishable at epsilon {promised(epsilon or 0.0)} up to delta {promised(band.upper)} "
        f"({band.bound} bound), and no bound can be below delta {band.lower:.4g}.{nothing}",
        *filter(None, (given.remark,)),
    )


def _check_question(delta: float | None, epsilon: float | None, users: int | None, rounds: int, *, counted: bool) -> None:
    """Refuse what cannot be answered; `counted`: people are counted in groups."""
    if (delta is None) == (epsilon is None):
        raise InputError("give either --delta (to get epsilon) or --epsilon (to get delta), and not both.")
    if delta is not None and not 0.0 < delta < 1.0:
        raise InputError(f"--delta must lie in (0, 1), got {delta:g}; shuffling changes nothing at delta 0.")
    if epsilon is not None and not epsilon > 0.0:
        raise InputError(f"--epsilon must be greater than 0, got {epsilon:g}.")
    if users is None and not counted:
        raise InputError("--users is missing: how many people report; or give --group for each group of them.")
    if users is not None and users < 1:
        raise InputError(f"--users must be a whole number >= 1, got {users}.")
    if rounds < 1:
        raise InputError(f"--rounds must be a whole number >= 1, got {rounds}.")


def _print_json(band: AmplifiedBand, delta: float | None, epsilon: float | None, rounded: Rounded | None) -> None:
    """Both ends; a matrix that was rounded is told."""
    import json

    changed = {} if rounded is None else {"rounded": True, "largest_relative_change": rounded.relative_change}
    print(json.dumps({**several.as_numbers(band, delta, epsilon), **changed}))
