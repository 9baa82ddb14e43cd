"""Key numbers: accuracy, epsilon with an honest and a dishonest trusted party, and damage."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.numerics.rounding import (
    format_delta,
    format_distance,
    format_epsilon,
    format_number,
)
from metricshuffle.privacy.guarantee import Guarantee, likelihood_text
from metricshuffle.report.assessment_text import default_question_text, fallback_text
from metricshuffle.report.components import BigNumber, GuaranteeLine
from metricshuffle.report.plan_view import ReleaseFacts, TaskFacts
from metricshuffle.report.report_subject import ReportSubject

LARGE_EPSILON = 8.0
"""Epsilon of one report above which the page says that a report hides little."""


@dataclass(frozen=True)
class Headline:
    numbers: tuple[BigNumber, ...]
    sentences: tuple[str, ...]
    promises: tuple[GuaranteeLine, ...]
    notices: tuple[str, ...]
    """What weakens a guarantee or the answer."""


def headline(subject: ReportSubject) -> Headline:
    facts = subject.facts
    release = subject.release_facts
    warned = (facts.warning,) if facts.warning else ()
    notices = warned if release is None else release.spoiled
    return Headline(
        (_error(subject), _honest(facts), _colluding(facts), _lying(subject)),
        tuple(_sentences(subject)),
        tuple(_promises(facts)),
        notices,
    )


def distance_and_delta_text(promise: Guarantee, unit: str, *, labels: bool) -> str:
    """The distance and delta that an epsilon belongs to."""
    spaced = f" {unit}" if unit else ""
    moved = (
        "between any two labels"
        if labels
        else f"at a distance of {format_distance(promise.distance)}{spaced}"
    )
    less = ", in proportion for less" if promise.shape == "linear" else ""
    rounds = "" if promise.rounds == 1 else f", over all {promise.rounds} rounds"
    return f"{moved}{less}; delta {format_delta(promise.delta)}{rounds}"


def _error(subject: ReportSubject) -> BigNumber:
    facts = subject.facts
    release = subject.release_facts
    expected = subject.expected_error
    if release is not None:
        return _interval(facts, release, expected)
    measure = subject.task.query.measure.split(",")[0]
    each = "" if facts.rounds == 1 else ", in each round"
    number, _, unit = expected.partition(" ")
    return BigNumber(
        measure, number, f"for {facts.users:,} people{each}; it is about the noise only", unit
    )


def _interval(facts: TaskFacts, release: ReleaseFacts, expected: str) -> BigNumber:
    wanted = f"expected error {expected}"
    if release.smoothed:
        return BigNumber(
            "95 % interval of a share", "none", f"{release.smoothed}; {wanted}", words=True
        )
    typical, widest = release.half_widths
    if release.value:
        details = f"{release.interval_text}{facts.spaced_unit}; {wanted}"
        return BigNumber(
            "95 % interval of the answer", f"± {release.written(widest)}", details, facts.unit
        )
    unit = "%" if release.percent else facts.unit
    details = f"the widest is ± {two_digits(widest)} {unit}".rstrip() + f"; {wanted}"
    return BigNumber(
        f"95 % interval of a typical {facts.row_name}", f"± {two_digits(typical)}", details, unit
    )


def two_digits(half: float) -> str:
    """Format half the width of an interval; more digits would say nothing."""
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
            "epsilon, if the analyst is not honest",
            "the same",
            "nobody is trusted, so nobody can break the promise",
            words=True,
        )
    label = f"epsilon, if the {facts.trusted} is not honest"
    left = fallback_text(facts)
    if facts.trusted == "curator":
        return BigNumber(
            label, left, "the curator sees what everybody holds", words=True, broken=True
        )
    details = distance_and_delta_text(facts.fallback, facts.unit, labels=facts.labels)
    if not facts.hides_alone and math.isfinite(facts.fallback.epsilon):
        on_paper = (
            f"on paper epsilon {format_epsilon(facts.fallback.epsilon)} {details}, but see the "
            "warning below"
        )
        return BigNumber(label, left, on_paper, words=True, broken=True)
    if not facts.hides_alone:
        return BigNumber(label, left, "see the warning below", words=True, broken=True)
    return BigNumber(
        label, left, details, words=not math.isfinite(facts.fallback.epsilon), broken=True
    )


def _lying(subject: ReportSubject) -> BigNumber:
    """How far a liar can move the answer."""
    facts = subject.facts
    release = subject.release_facts
    damage, text = (
        (facts.damage, facts.damage_text)
        if release is None
        else (release.damage, release.damage_text)
    )
    label = "how far one participant who lies can move the answer"
    if damage.one is None:
        return BigNumber(
            label, text, "what people send is not checked for truth", words=True, broken=True
        )
    if not damage.certified:
        return BigNumber(
            label, text, "an estimate, not certified; several who lie: as many times", words=True
        )
    number, _, unit = text.partition(" ")
    return BigNumber(label, number, "at most; several who lie: as many times that", unit)


def _sentences(subject: ReportSubject) -> list[str]:
    facts = subject.facts
    release = subject.release_facts
    counted = (
        ""
        if not facts.counts_on_honest
        else f", of whom {facts.honest:,} are counted on to be honest"
    )
    if facts.honest == facts.users and counted:
        counted = ", all of whom are counted on to be honest"
    lines = [
        f"{facts.users:,} people are asked for {default_question_text(facts)} "
        f"({facts.domain}){counted}."
    ]
    if release is not None:
        which = "" if facts.rounds == 1 else f", in round {release.round} of {facts.rounds}"
        lines.append(f"{release.reports:,} of them reported{which}.")
    if facts.rounds > 1:
        lines.append(
            f"Errors are those of one round, and every epsilon is for all {facts.rounds} "
            "rounds together."
        )
    lines.append(_odds(facts))
    if (
        facts.trusted in ("shuffler", "aggregator")
        and facts.hides_alone
        and facts.fallback.epsilon > LARGE_EPSILON
    ):
        lines.append(
            f"One report alone hides little, so privacy depends on the {facts.trusted}. "
            "--max-local-epsilon caps what one report gives away."
        )
    return lines


def _odds(facts: TaskFacts) -> str:
    return (
        f"Of {facts.two}, whatever the analyst sees is "
        f"{likelihood_text(facts.epsilon, facts.guarantee.delta)}."
    )


def _promises(facts: TaskFacts) -> list[GuaranteeLine]:
    if facts.trusted == "nobody":
        return [GuaranteeLine("Whoever colludes", str(facts.guarantee))]
    return [
        GuaranteeLine(f"If the {facts.trusted} is honest", str(facts.guarantee)),
        GuaranteeLine("If it is not", str(facts.fallback), broken=True),
    ]
