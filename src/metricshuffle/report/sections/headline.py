"""The page in three numbers: how far the answer may be off, and epsilon if whoever is trusted is honest and if not."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon, format_number
from metricshuffle.privacy.guarantee import Guarantee, likelihood_text
from metricshuffle.report.assessment_text import default_question_text, fallback_text
from metricshuffle.report.components import BigNumber, Promise
from metricshuffle.report.plan_view import ReleaseFacts, TaskFacts
from metricshuffle.report.report_subject import Collection

LARGE_EPSILON = 8.0
"""What one report may give away before it has to be said that this is much."""


@dataclass(frozen=True)
class Headline:
    numbers: tuple[BigNumber, ...]
    sentences: tuple[str, ...]
    promises: tuple[Promise, ...]
    notices: tuple[str, ...]
    """What spoils a promise or an answer."""


def headline(collection: Collection) -> Headline:
    facts, release = collection.facts, collection.release_facts
    notices = [facts.warning] if facts.warning else []
    notices += release.spoiled if release is not None else []
    return Headline(
        (_error(collection), _honest(facts), _colluding(facts)),
        tuple(_sentences(collection)),
        tuple(_promises(facts)),
        tuple(notices),
    )


def distance_and_delta_text(promise: Guarantee, unit: str, *, labels: bool) -> str:
    """What an epsilon belongs to: the distance and delta."""
    spaced = f" {unit}" if unit else ""
    moved = "between any two labels" if labels else f"at a distance of {format_distance(promise.distance)}{spaced}"
    less = ", in proportion for less" if promise.shape == "linear" else ""
    rounds = "" if promise.rounds == 1 else f", over all {promise.rounds} rounds"
    return f"{moved}{less}; delta {format_delta(promise.delta)}{rounds}"


def _error(collection: Collection) -> BigNumber:
    facts, release, expected = collection.facts, collection.release_facts, collection.expected_error
    if release is not None:
        return _interval(facts, release, expected)
    measure = collection.task.query.measure.split(",")[0]
    each = "" if facts.rounds == 1 else ", in each round"
    number, _, unit = expected.partition(" ")
    return BigNumber(measure, number, f"for {facts.users:,} people{each}; it is about the noise only", unit)


def _interval(facts: TaskFacts, release: ReleaseFacts, expected: str) -> BigNumber:
    wanted = f"expected error {expected}"
    if release.smoothed:
        return BigNumber("95 % interval of a share", "none", f"{release.smoothed}; {wanted}", words=True)
    typical, widest = release.half_widths
    if release.value:
        details = f"{release.interval_text}{facts.spaced_unit}; {wanted}"
        return BigNumber("95 % interval of the answer", f"± {release.written(widest)}", details, facts.unit)
    unit, row = ("%", "share") if release.percent else (facts.unit, "mean")
    details = f"the widest is ± {two_digits(widest)} {unit}".rstrip() + f"; {wanted}"
    return BigNumber(f"95 % interval of a typical {row}", f"± {two_digits(typical)}", details, unit)


def two_digits(half: float) -> str:
    """Half the width of an interval: more digits would say nothing."""
    return format_number(float(f"{half:.2g}"))


def _honest(facts: TaskFacts) -> BigNumber:
    who = "whoever colludes" if facts.trusted == "nobody" else f"if the {facts.trusted} is honest"
    return BigNumber(
        f"epsilon, {who}",
        format_epsilon(facts.guarantee.epsilon),
        distance_and_delta_text(facts.guarantee, facts.unit, labels=facts.labels),
    )


def _colluding(facts: TaskFacts) -> BigNumber:
    if facts.trusted == "nobody":
        return BigNumber(
            "epsilon, if the analyst is not honest", "the same", "nobody is trusted, so nobody can break the promise", words=True
        )
    label, left = f"epsilon, if the {facts.trusted} is not honest", fallback_text(facts)
    if facts.trusted == "curator":
        return BigNumber(label, left, "the curator sees what everybody holds", words=True, broken=True)
    details = distance_and_delta_text(facts.fallback, facts.unit, labels=facts.labels)
    if facts.warning:
        on_paper = f"on paper epsilon {format_epsilon(facts.fallback.epsilon)} {details}, but see the warning below"
        return BigNumber(label, left, on_paper, words=True, broken=True)
    return BigNumber(label, left, details, words=not math.isfinite(facts.fallback.epsilon), broken=True)


def _sentences(collection: Collection) -> list[str]:
    facts, release = collection.facts, collection.release_facts
    counted = "" if facts.trusted in ("nobody", "curator") else f", of whom {facts.honest:,} are counted on to be honest"
    if facts.honest == facts.users and counted:
        counted = ", all of whom are counted on to be honest"
    lines = [f"{facts.users:,} people are asked for {default_question_text(facts)} ({facts.domain}){counted}."]
    if release is not None:
        which = "" if facts.rounds == 1 else f", in round {release.round} of {facts.rounds}"
        lines.append(f"{release.reports:,} of them reported{which}.")
    if facts.rounds > 1:
        lines.append(f"Errors are those of one round, and every epsilon is for all {facts.rounds} rounds together.")
    lines.append(_odds(facts))
    if facts.trusted in ("shuffler", "aggregator") and not facts.warning and facts.fallback.epsilon > LARGE_EPSILON:
        lines.append(
            f"One report alone hides little: so much rests on the {facts.trusted}. --max-local-epsilon caps what one report gives away."
        )
    return lines


def _odds(facts: TaskFacts) -> str:
    return f"Of {facts.two}, whatever the analyst sees is {likelihood_text(facts.epsilon, facts.guarantee.delta)}."


def _promises(facts: TaskFacts) -> list[Promise]:
    if facts.trusted == "nobody":
        return [Promise("Whoever colludes", str(facts.guarantee))]
    return [
        Promise(f"If the {facts.trusted} is honest", str(facts.guarantee)),
        Promise("If it is not", str(facts.fallback), broken=True),
    ]
