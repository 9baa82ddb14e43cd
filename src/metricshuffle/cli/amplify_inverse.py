"""`metricshuffle amplify --target-epsilon`: find a parameter, or users, that reach it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.cli.randomizer_options import PRIVACY_PARAMETERS, RandomizerOptions
from metricshuffle.cli.shared_options import choice
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.amplification.inverse_search import InverseAnswer

SEARCH_TARGETS = ("local-epsilon", "rate", "users")


def search(
    randomizer_options: RandomizerOptions,
    find: str | None,
    target: float | None,
    delta: float | None,
    users: int | None,
    honest: str | None,
    rounds: int,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    """Search, print the answer, and write the page if requested."""
    if target is None or delta is None:
        raise InputError("to find something, give both --target-epsilon and --delta.")
    if not target > 0.0:
        raise InputError(f"--target-epsilon must be greater than 0, got {target:g}.")
    sought = _sought(randomizer_options, find, users)
    randomizer_options.check(sought=sought)
    if sought == "users" and honest is not None:
        raise InputError(
            "--find users counts honest people; leave --honest out, and add people you "
            "cannot count on to the result."
        )

    from metricshuffle.cli.console import note, say, screen, show_progress

    with show_progress("Searching"):
        result, completed_options = _search(
            randomizer_options, sought, target, delta, users, honest, rounds
        )
        count = users if sought != "users" else int(result.upper)
        if plot is not None:
            from metricshuffle.files import write_text
            from metricshuffle.report.amplify_page import page

            write_text(
                plot,
                page(completed_options, count or 1, honest, rounds, delta, None, result.answer),
            )
    if as_json:
        _print_json(result, sought)
        return
    if plot is not None:
        note(f"Wrote {plot}.")
    say(screen(), *filter(None, (result.explain(), completed_options.remark)))


def _sought(randomizer_options: RandomizerOptions, find: str | None, users: int | None) -> str:
    """Return what to find: the named option, or the one that was left out; raises if unclear."""
    strengths = PRIVACY_PARAMETERS.get(randomizer_options.name, ())
    missing = [option for option in strengths if randomizer_options.values[option] is None]
    if find is None:
        if users is not None and not missing:
            removable = " or ".join(f"--{option}" for option in (*strengths, "users"))
            raise InputError(f"--target-epsilon has nothing to find; leave out {removable}.")
        find = "users" if users is None else missing[0]
    choice("find", find, SEARCH_TARGETS)
    if find == "users":
        if users is not None:
            raise InputError("--users is the option to find; leave it out.")
        return find
    if find not in strengths:
        why = ", because a matrix has no parameter" if randomizer_options.name == "channel" else ""
        findable = " or ".join(strengths) or f"only users{why}"
        raise InputError(
            f"--find {find} does not fit --randomizer {randomizer_options.name}, for which "
            f"one can find {findable}."
        )
    if randomizer_options.values[find] is not None:
        raise InputError(f"--{find} is the option to find; leave it out.")
    if users is None:
        raise InputError(f"--users is missing: how many people report, to find --{find}.")
    return find


def _search(
    randomizer_options: RandomizerOptions,
    sought: str,
    target: float,
    delta: float,
    users: int | None,
    honest: str | None,
    rounds: int,
) -> tuple[InverseAnswer, RandomizerOptions]:
    """Return the answer, and the randomizer with the value that was found."""
    from metricshuffle.amplification.inverse_search import fewest, largest_strength

    if users is None:
        answer = fewest(
            lambda count, relative: randomizer_options.amplification(
                int(count), None, rounds, relative
            ),
            target,
            delta,
            randomizer_options.distance,
        )
        return answer, randomizer_options
    strongest = largest_strength(
        lambda value, relative: randomizer_options.with_option(sought, value).amplification(
            users, honest, rounds, relative
        ),
        target,
        delta,
        randomizer_options.distance,
        sought.replace("-", " "),
        users=users,
    )
    return strongest, randomizer_options.with_option(sought, strongest.lower)


def _print_json(result: InverseAnswer, sought: str) -> None:
    """Print the certified value, a value that is known to fail (or null), and the evidence."""
    import json
    import math

    band = result.answer.epsilon(result.delta, result.distance)
    witness = (
        None
        if result.refuted is None
        else result.refuted.delta(result.epsilon, result.distance).attained
    )
    print(
        json.dumps(
            {
                "find": sought,
                "lower": result.lower,
                "upper": result.upper if math.isfinite(result.upper) else None,
                "certified": result.upper if sought == "users" else result.lower,
                "target_epsilon": result.epsilon,
                "epsilon": band.upper,
                "delta": result.delta,
                "bound": band.bound,
                "refuted_by": None if witness is None else witness.document(),
            }
        )
    )
