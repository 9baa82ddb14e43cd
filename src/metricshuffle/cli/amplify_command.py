"""`metricshuffle amplify`: what shuffled reports of a local randomizer hide, from above and from below."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.cli import amplify_groups as several
from metricshuffle.cli import amplify_options as option
from metricshuffle.cli.randomizer_options import RandomizerOptions, check_name
from metricshuffle.cli.shared_options import Honest, Json, Rounds, writable
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.amplification.amplify import AmplifiedBand
    from metricshuffle.cli.randomizer_options import Rounded


def amplify(
    randomizer: option.Randomizer,
    users: option.Users = None,
    group: several.Group = None,
    dummies: several.Dummies = None,
    delta: option.Delta = None,
    epsilon: option.Epsilon = None,
    target_epsilon: option.TargetEpsilon = None,
    find: option.Find = None,
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
    check_name(randomizer)
    randomizer_options = RandomizerOptions(randomizer, {
        "local-epsilon": local_epsilon, "local-delta": local_delta, "span": span, "sigma": sigma, "margin": margin,
        "options": options, "rate": rate, "distance": distance, "reach": reach, "reach-other": reach_other,
        "low": low, "high": high, "half-width": half_width, "steps": steps, "size": size, "buckets": buckets,
        "matrix": matrix, "pair": pair,
    })  # fmt: skip
    check_numbers(users, delta, epsilon, rounds)
    writable(plot, option="--plot")
    if plot is not None:
        from metricshuffle.cli.extras import require_extras

        require_extras("report")
    if group or dummies is not None:
        several.refuse({"--target-epsilon": target_epsilon, "--find": find, "--honest": honest, "--plot": plot})
        check_either(delta, epsilon)
        crowd = several.read_groups(randomizer_options, users, group or [], dummies)
        several.print_groups(crowd, rounds, delta, epsilon, randomizer_options.distance, as_json=as_json)
        return
    if target_epsilon is not None or find is not None:
        from metricshuffle.cli.amplify_inverse import search

        if epsilon is not None:
            raise InputError("--target-epsilon is the total epsilon that is wanted; leave --epsilon out.")
        search(randomizer_options, find, target_epsilon, delta, users, honest, rounds, plot, as_json=as_json)
        return
    check_either(delta, epsilon)
    if users is None:
        raise InputError(
            "--users is missing: how many people report; or give --group for each group of them, or --target-epsilon, to find how many "
            "are needed."
        )
    randomizer_options.check()
    _answer(randomizer_options, users, honest, rounds, delta, epsilon, plot, as_json=as_json)


def _answer(
    randomizer_options: RandomizerOptions,
    users: int,
    honest: str | None,
    rounds: int,
    delta: float | None,
    epsilon: float | None,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    """Both ends, in words or as JSON, and on a page if one is asked for."""
    from metricshuffle.cli.console import note, say, screen, show_progress

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

            write_text(plot, page(randomizer_options, users, honest, rounds, delta, epsilon, answer))
    if as_json:
        _print_json(band, delta, epsilon, randomizer_options.rounded)
        return
    if plot is not None:
        note(f"Wrote {plot}.")
    say(screen(), *filter(None, (words, randomizer_options.remark)))


def check_numbers(users: int | None, delta: float | None, epsilon: float | None, rounds: int) -> None:
    """Refuse numbers that cannot be, whatever is asked."""
    if delta is not None and not 0.0 < delta < 1.0:
        raise InputError(f"--delta must lie in (0, 1), got {delta:g}; shuffling changes nothing at delta 0.")
    if epsilon is not None and not epsilon > 0.0:
        raise InputError(f"--epsilon must be greater than 0, got {epsilon:g}.")
    if users is not None and users < 1:
        raise InputError(f"--users must be a whole number >= 1, got {users}.")
    if rounds < 1:
        raise InputError(f"--rounds must be a whole number >= 1, got {rounds}.")


def check_either(delta: float | None, epsilon: float | None) -> None:
    if (delta is None) == (epsilon is None):
        raise InputError("give either --delta (to get epsilon) or --epsilon (to get delta), and not both.")


def _print_json(band: AmplifiedBand, delta: float | None, epsilon: float | None, rounded: Rounded | None) -> None:
    """Both ends (`as_numbers`). A matrix that was rounded is told."""
    import json

    changed = {} if rounded is None else {"rounded": True, "largest_relative_change": rounded.relative_change}
    print(json.dumps({**several.as_numbers(band, delta, epsilon), **changed}))
