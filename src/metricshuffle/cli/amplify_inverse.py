"""`metricshuffle amplify --target-epsilon`: the largest local epsilon or rate, or the fewest people, that certainly keep it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from metricshuffle.cli.amplify_names import STRENGTHS, Given
from metricshuffle.cli.options import choice
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.amplification.inverse import Inverse

FINDS = ("local-epsilon", "rate", "users")


def found(
    given: Given,
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
    """Answer, on paper if asked for."""
    if target is None or delta is None:
        raise InputError("to find something, give both --target-epsilon and --delta: what is to be kept.")
    if not target > 0.0:
        raise InputError(f"--target-epsilon must be greater than 0, got {target:g}.")
    sought = _sought(given, find, users)
    given.check(found=sought)
    if sought == "users" and honest is not None:
        raise InputError("--find users counts honest people; leave --honest out, and add those you cannot count on to the answer.")

    from metricshuffle.cli.screen import note, say, screen, working

    with working("Searching"):
        result, known = _result(given, sought, target, delta, users, honest, rounds)
        count = users if sought != "users" else int(result.upper)
        if plot is not None:
            from metricshuffle.files import write_text
            from metricshuffle.pages.amplify import page

            write_text(plot, page(known, count or 1, honest, rounds, delta, None, result.answer))
    if as_json:
        _print_json(result, sought)
        return
    if plot is not None:
        note(f"Wrote {plot}.")
    say(screen(), *filter(None, (result.explain(), known.remark)))


def _sought(given: Given, find: str | None, users: int | None) -> str:
    """What is to be found: what was named, or what was left out; a sentence if that is not one thing."""
    strengths = STRENGTHS.get(given.name, ())
    missing = [option for option in strengths if given.values[option] is None]
    if find is None:
        if users is not None and not missing:
            known = " or ".join(f"--{option}" for option in (*strengths, "users"))
            raise InputError(f"nothing is left to be found for --target-epsilon; leave out {known}.")
        find = "users" if users is None else missing[0]
    choice("find", find, FINDS)
    if find == "users":
        if users is not None:
            raise InputError("--users is what is to be found; leave it out.")
        return find
    if find not in strengths:
        takes = " or ".join(strengths) or "nothing but users, because a matrix has no parameter"
        raise InputError(f"--find {find} does not fit --randomizer {given.name}, for which one can find {takes}.")
    if given.values[find] is not None:
        raise InputError(f"--{find} is what is to be found; leave it out.")
    if users is None:
        raise InputError(f"--users is missing: how many people report, to find --{find}.")
    return find


def _result(
    given: Given, sought: str, target: float, delta: float, users: int | None, honest: str | None, rounds: int
) -> tuple[Inverse, Given]:
    """The answer, and the randomizer with what was found."""
    from metricshuffle.amplification.inverse import fewest, largest_strength

    if users is None:
        answer = fewest(lambda count, relative: given.amplification(int(count), None, rounds, relative), target, delta, given.distance)
        return answer, given
    strongest = largest_strength(
        lambda value, relative: given.having(sought, value).amplification(users, honest, rounds, relative),
        target, delta, given.distance, sought.replace("-", " "), users=users,
    )  # fmt: skip
    return strongest, given.having(sought, strongest.lower)


def _print_json(result: Inverse, sought: str) -> None:
    """What was found and certified, where it is known to fail (null if nowhere), and by which data set."""
    import json
    import math

    band = result.answer.epsilon(result.delta, result.distance)
    witness = None if result.refuted is None else result.refuted.delta(result.epsilon, result.distance).attained
    print(json.dumps({
        "find": sought, "lower": result.lower, "upper": result.upper if math.isfinite(result.upper) else None,
        "certified": result.upper if sought == "users" else result.lower,
        "target_epsilon": result.epsilon, "epsilon": band.upper, "delta": result.delta, "bound": band.bound,
        "refuted_by": None if witness is None else witness.document(),
    }))  # fmt: skip
