"""`metricshuffle amplify --group`: groups with different parameters, and the shuffler's dummies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.randomizer_options import MIN_VALUES, RandomizerOptions, options_for
from metricshuffle.cli.shared_options import number, whole, whole_option
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.amplification.amplify import AmplifiedBand
    from metricshuffle.amplification.groups import Groups

Group = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="COUNT:NAME=VALUE,..",
        help=(
            "Number of honest people and options of their randomizer, like "
            "200:local-epsilon=4; one --group for each group, instead of --users. Options "
            "given outside apply to all."
        ),
    ),
]
Dummies = Annotated[
    int | None,
    whole_option(
        "--dummies",
        "M",
        "Number of uniformly random reports that the shuffler is trusted to add.",
    ),
]
SHARED_OPTIONS = ("matrix", "pair", "distance", "distances")  # the same for all groups
WHOLE_NUMBER_OPTIONS = tuple(MIN_VALUES)


def refuse(others: dict[str, object]) -> None:
    """Raise for options that cannot be combined with groups."""
    for option, value in others.items():
        if value is not None:
            raise InputError(
                f"{option} cannot be combined with --group or --dummies; leave it out, and count "
                "only honest people in each group."
            )


def _value(option: str, text: str, where: str) -> float:
    try:
        return whole(text) if option in WHOLE_NUMBER_OPTIONS else number(text)
    except ValueError as error:
        raise InputError(f"{where}: {option} {error}.") from None


def _read(text: str, shared: RandomizerOptions) -> tuple[int, RandomizerOptions]:
    """Parse a group: its size, and the shared options with its own values."""
    where = f"--group {text}"
    count_text, _, assignments = text.partition(":")
    values = dict(shared.values)
    try:
        count = whole(count_text)
    except ValueError as error:
        raise InputError(f"{where}: the count before the colon {error}.") from None
    needed, allowed = options_for(shared.name)
    own_options: set[str] = set()
    for part in filter(None, assignments.split(",")):
        option, equals, value = part.partition("=")
        option = option.strip().removeprefix("--")
        if not equals or option not in (*needed, *allowed) or option in SHARED_OPTIONS:
            allowed_names = ", ".join(
                name for name in (*needed, *allowed) if name not in SHARED_OPTIONS
            )
            raise InputError(
                f"{where}: {part.strip()!r} is not NAME=VALUE with one of {allowed_names}, "
                f"the options of --randomizer {shared.name}."
            )
        if option in own_options or shared.values[option] is not None:
            raise InputError(
                f"{where}: {option} is given twice; give it for all groups, or once in "
                "each --group."
            )
        own_options.add(option)
        values[option] = _value(option, value.strip(), where)
    member = replace(shared, values=values)
    member.check()
    return count, member


def read_groups(
    shared: RandomizerOptions, users: int | None, texts: list[str], dummies: int | None
) -> Groups:
    """Return the typed groups, or all users as one group; `shared` are the common options."""
    from metricshuffle.amplification.amplify import GenericLDP
    from metricshuffle.amplification.groups import Groups

    if users is not None and texts:
        raise InputError(
            "--users and --group both say how many people there are; leave --users out."
        )
    if shared.name == "metric" or shared.values["pair"] is not None:
        raise InputError(
            "--group and --dummies cannot be combined with --randomizer metric or with --pair; "
            "leave them out."
        )
    if users is None and not texts:
        raise InputError(
            "--dummies needs people to hide: give --users, or --group once for each group."
        )
    read = [_read(text, shared) for text in texts or [str(users)]]
    people = [
        (
            GenericLDP(member.values["local-epsilon"], member.values["local-delta"] or 0.0)
            if shared.name == "generic"
            else member.randomizer(),
            count,
        )
        for count, member in read
    ]
    return Groups(people, [("uniform", dummies)] if dummies else [])


def print_groups(
    groups: Groups,
    rounds: int,
    delta: float | None,
    epsilon: float | None,
    distance: float | None,
    *,
    as_json: bool,
) -> None:
    """Print a sentence or two per group, or one JSON document with a list of them."""
    from metricshuffle.amplification.amplify import amplify
    from metricshuffle.cli.console import say, screen, show_progress

    with show_progress("Accounting"):
        answer = amplify(groups, rounds=rounds)
        sentences = (
            []
            if as_json
            else [group_answer.explain(delta, distance, epsilon=epsilon) for group_answer in answer]
        )
        bands = (
            answer.epsilon(delta, distance)
            if delta is not None
            else answer.delta(epsilon or 0.0, distance)
        )
    if as_json:
        import json

        people = [count for _, count in groups.given]
        members = [(place, band) for place, band in enumerate(bands) if band is not None]
        listed = [
            {"group": place + 1, "people": people[place], **as_numbers(band, delta, epsilon)}
            for place, band in members
        ]
        print(json.dumps({"groups": listed}))
    else:
        say(screen(), *sentences, *filter(None, (answer.remark,)))


def as_numbers(
    band: AmplifiedBand, delta: float | None, epsilon: float | None
) -> dict[str, object]:
    """Return both bounds as pairs of epsilon and delta, with their evidence.

    Infinite values and a lower bound of 0 become null.
    """
    import math

    def finite(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else value

    ends = {
        name: {
            "epsilon": finite(value if delta is not None else epsilon),
            "delta": finite(delta if delta is not None else value),
        }
        for name, value in (("upper", band.upper), ("lower", band.lower))
    }
    attained = None if band.attained is None else band.attained.document()
    return {**ends, "bound": band.bound, "evaluator": band.evaluator, "attained": attained}
