"""What the report says in words: one collection with its outcome, and the paragraphs for an assessment."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.numerics.rounding import promised, promised_delta
from metricshuffle.pages.facts import PlanFacts, plan_facts, release_facts
from metricshuffle.pages.what_if import Consequence
from metricshuffle.planning import Plan
from metricshuffle.wire.release import Release

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
        return release_facts(self.release).error(self.truth)


def consequence_text(row: Consequence, index: int) -> str:
    """The epsilon of one protocol in a row; where the mixing of shares gives out, what the noise alone would do."""
    epsilon, noise = row.epsilons[index], row.noise_alone[index]
    if math.isfinite(epsilon) or not math.isfinite(noise):
        return promised(epsilon)
    return f"no promise (noise alone: {promised(noise)})"


def assessment(study: Study) -> list[str]:
    """Paragraphs a privacy officer can paste: what is collected, what is promised, assuming what, what is not, how accurate."""
    plan = plan_facts(study.plan)
    paragraphs = [_collection(plan, study.asked), _promise(plan)]
    if plan.choice.trusted != "nobody":
        paragraphs.append(_assumptions(plan))
    return [*paragraphs, _not_promised(plan), _accuracy(plan, study)]


def _collection(plan: PlanFacts, asked: str) -> str:
    chosen = plan.choice
    if chosen.trusted == "nobody":
        seen = "The analyst sees the reports, and publishes the"
    else:
        seen = (
            f"A {chosen.trusted} mixes the messages of all people and forgets who sent which; the analyst sees the mixture only, and "
            "publishes the"
        )
    return (
        f"Collection. {plan.users:,} people are asked for {asked} ({plan.domain}). Before anything leaves a person's device, "
        f"random noise from the operating system's cryptographic generator is added to the answer, and the report is sent as "
        f"{chosen.messages_per_user:,} messages of equal length, {chosen.bits_per_user:,} bits in all "
        f"(protocol {chosen.name}{f', {chosen.encoding} encoding' if chosen.encoding else ''}). {seen} {plan.kind} with a 95 % interval."
    )


def _promise(plan: PlanFacts) -> str:
    closer = "; for answers closer together the factor is smaller still." if plan.in_proportion else "."
    return (
        f"Promise. {plan.choice.guarantee} In other words: of two answers {plan.in_units(plan.distance)} apart, nobody who sees what the "
        f"analyst sees can shift the odds by more than a factor of {promised(math.exp(plan.epsilon))}, except with "
        f"probability at most {promised_delta(plan.choice.delta)}{closer}"
    )


def _assumptions(plan: PlanFacts) -> str:
    trusted = plan.choice.trusted
    return (
        f"Assumptions. The {trusted} does not share what it sees, and at least {plan.honest:,} of the {plan.users:,} reports come from "
        f"people who follow the protocol; batches of fewer than {plan.minimum:,} reports are refused. If the {trusted} does collude with "
        f"the analyst, this is left: {plan.choice.fallback}"
    )


def _not_promised(plan: PlanFacts) -> str:
    times = "one release" if plan.rounds == 1 else f"{plan.rounds} releases together"
    return (
        f"Not promised. Answers farther apart than {plan.in_units(plan.distance)} are told apart more and more easily, and about answers "
        f"{plan.in_units(plan.diameter)} apart, from one end of the range to the other, nothing is promised. That somebody took part, and "
        "how many did, is not hidden. People who send false reports can move the result. "
        f"This promise is for {times}: asking the same people again spends it again."
    )


def _accuracy(plan: PlanFacts, study: Study) -> str:
    release = release_facts(study.release)
    return (
        f"Accuracy. The expected error is {plan.in_units(plan.choice.expected_error)}; this release has the 95 % interval "
        f"{release.interval_text}{plan.spaced_unit} from {release.reports:,} reports. The interval is about the noise: it says nothing of "
        f"people who did not take part. Plan {plan.digest[:16]}."
    )
