"""What the report says in words: one collection with its outcome, and the paragraphs for an assessment."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.pages.what_if import Consequence
from metricshuffle.planning import Plan, Release
from metricshuffle.planning.explain import name_of, unit_of
from metricshuffle.planning.release import measured
from metricshuffle.privacy.guarantee import plain, promised, rounded_up

Answer = float | tuple[float, float]


@dataclass(frozen=True)
class Study:
    """One collection of the demo: what was asked, the plan, what came out, and (people being invented) the truth."""

    title: str
    asked: str
    """What each person is asked for, as it continues "people are asked for ..."."""
    plan: Plan
    release: Release
    truth: Answer

    @property
    def error(self) -> float:
        """|estimate - truth|, Euclidean on a plane."""
        return math.dist(np.atleast_1d(self.release.value), np.atleast_1d(self.truth))


def interval_text(study: Study) -> str:
    """ "x to y", for each axis."""
    found, digits = study.release.interval_95, study.release.decimals
    pairs = found if isinstance(found[0], tuple) else (found,)
    return " and ".join(f"{measured(low, digits)} to {measured(high, digits)}" for low, high in pairs)


def consequence_text(row: Consequence, index: int) -> str:
    """The epsilon of one protocol in a row; where the mixing of shares gives out, what the noise alone would do."""
    epsilon, noise = row.epsilons[index], row.noise_alone[index]
    if math.isfinite(epsilon) or not math.isfinite(noise):
        return promised(epsilon)
    return f"no promise (noise alone: {promised(noise)})"


def assessment(study: Study) -> list[str]:
    """Paragraphs a privacy officer can paste: what is collected, what is promised, assuming what, what is not, how accurate."""
    plan, one = study.plan, study.plan.choice
    unit, target = unit_of(plan), plan.target
    near, across = f"{plain(target.distance)}{unit}", f"{plain(plan.query.diameter)}{unit}"
    by = one.trusted
    sent = f"{one.messages_per_user:,} messages of equal length, {one.bits_per_user:,} bits in all"
    lines = [
        f"Collection. {plan.users:,} people are asked for {study.asked} ({plan.query.domain}). Before anything leaves a person's device, "
        f"random noise from the operating system's cryptographic generator is added to the answer, and the report is sent as {sent} "
        f"(protocol {name_of(one)}, {one.encoding} encoding). "
        + (f"A {by} mixes the messages of all people and forgets who sent which; the analyst sees the mixture only, and publishes the "
           if by != "nobody" else "The analyst sees the reports, and publishes the ")
        + f"{plan.query.kind} with a 95 % interval.",
        f"Promise. {one.guarantee} In other words: of two answers {near} apart, nobody who sees what the analyst sees can shift the odds "
        f"by more "
        f"than a factor of {plain(rounded_up(math.exp(target.epsilon), 4))}, except with probability at most "
        f"{rounded_up(one.guarantee.delta, 3):.3g}"
        + ("; for answers closer together the factor is smaller still." if target.shape == "linear" else "."),
    ]  # fmt: skip
    if by != "nobody":
        lines.append(
            f"Assumptions. The {by} does not share what it sees, and at least {plan.honest:,} of the {plan.users:,} reports come from "
            f"people who "
            f"follow the protocol; batches of fewer than {plan.minimum:,} reports are refused. If the {by} does collude with the analyst, "
            f"this is left: {one.fallback}"
        )
    lines += [
        f"Not promised. Answers farther apart than {near} are told apart more and more easily, and about answers {across} apart, from one "
        f"end of the "
        f"range to the other, nothing is promised. That somebody took part, and how many did, is not hidden. People who send false "
        f"reports can move "
        f"the result. This promise is for {_times(plan.rounds)}: asking the same people again spends it again.",
        f"Accuracy. The expected error is {plain(one.expected_error)}{unit}; this release has the 95 % interval "
        f"{interval_text(study)}{unit} "
        f"from {study.release.reports:,} reports. The interval is about the noise: it says nothing of people who did not take part. Plan "
        f"{plan.digest[:16]}.",
    ]  # fmt: skip
    return lines


def _times(rounds: int) -> str:
    return "one release" if rounds == 1 else f"{rounds} releases together"
