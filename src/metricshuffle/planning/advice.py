"""Advice on a plan: candidates worth showing, weaknesses of the choice, and effects of changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metricshuffle.errors import MetricShuffleError
from metricshuffle.numerics.rounding import format_distance, format_epsilon
from metricshuffle.planning.candidate import (
    ERROR_TOLERANCE,
    TRUST_ORDER,
    Candidate,
    most_exact,
)
from metricshuffle.planning.candidates import SkippedCandidate, calibrate_offers
from metricshuffle.planning.plan import Plan, planned
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.planning.plan_text import (
    FEW_PEOPLE,
    expected_error_text,
    needless_trust_sentence,
    protocol_label,
    unit_of,
)
from metricshuffle.planning.setting import EncodingChoice, Setting
from metricshuffle.privacy.target import Honest, honest_count
from metricshuffle.protocols.damage import Damage
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.spaces import Categories

# Above this epsilon one report hides little: odds may shift by a factor of thousands.
LARGE_EPSILON = 8.0
SUGGESTED_HONEST = "90%"
# Multiples of the number of people that are tried, in order, if a shuffler does not help.
MORE_PEOPLE = (10, 100)


@dataclass(frozen=True)
class Wishes:
    """The parts of a request on which advice depends and which the plan does not contain."""

    honest: Honest = None
    max_local_epsilon: float | None = None
    max_bits: int | None = None
    max_damage: float | None = None
    liars: int = 1
    narrowed: bool = False
    """Whether the request names the protocols to consider, or a randomizer."""

    @classmethod
    def of(cls, request: PlanRequest) -> Wishes:
        narrowed = request.protocols is not None or request.randomizer is not None
        return cls(
            request.honest,
            request.max_local_epsilon,
            request.max_bits,
            request.max_damage,
            request.setting.liars,
            narrowed,
        )

    @property
    def limits(self) -> list[str]:
        """The limits, as options of the command line."""
        local = (
            []
            if self.max_local_epsilon is None
            else [f"--max-local-epsilon {self.max_local_epsilon:g}"]
        )
        bits = [] if self.max_bits is None else [f"--max-bits {self.max_bits}"]
        damage = [] if self.max_damage is None else [f"--max-damage {self.max_damage:g}"]
        return local + bits + damage

    def allow(self, offer: Candidate) -> bool:
        """Whether a candidate is within the limits."""
        quiet = self.max_local_epsilon is None or offer.local_epsilon <= self.max_local_epsilon
        short = self.max_bits is None or offer.bits_per_user <= self.max_bits
        return quiet and short and self.allow_damage(offer)

    def allow_damage(self, offer: Candidate) -> bool:
        """Whether the requested number of liars certainly moves the answer within the limit."""
        return self.max_damage is None or offer.keeps_damage(self.max_damage, self.liars)


# Candidates to show


def worth_showing(plan: Plan) -> tuple[int, ...]:
    """Indices of the chosen candidate, baselines, and candidates that no shown one dominates."""

    def first_the_cheap(index: int) -> tuple[bool, int, float]:
        # Candidates are dominated only by those with at most as many bits, so sort by bits.
        return (
            index != plan.chosen,
            plan.candidates[index].bits_per_user,
            plan.candidates[index].expected_error,
        )

    indices: list[int] = []
    for index in sorted(range(len(plan.candidates)), key=first_the_cheap):
        offer = plan.candidates[index]
        if offer.baseline or not any(
            dominates(plan.candidates[shown_index], offer) for shown_index in indices
        ):
            indices.append(index)
    return tuple(sorted(indices))


def with_only(plan: Plan, shown: Sequence[int]) -> Plan:
    """Return the plan with only these candidates, for display; they must include the chosen one."""
    return plan.model_copy(
        update={
            "candidates": tuple(plan.candidates[index] for index in shown),
            "chosen": list(shown).index(plan.chosen),
        }
    )


def dominates(better: Candidate, offer: Candidate) -> bool:
    """Whether `better` is no worse in trust, bits, error, damage, local epsilon and guarantee.

    Its error, damage and local epsilon may be up to 0.1 % larger.
    """
    same = 1.0 + ERROR_TOLERANCE
    return (
        not better.baseline
        and TRUST_ORDER[better.trusted] <= TRUST_ORDER[offer.trusted]
        and better.expected_error <= offer.expected_error * same
        and better.local_epsilon <= offer.local_epsilon * same
        and better.bits_per_user <= offer.bits_per_user
        and _does_less_damage(better.damage, offer.damage)
        and (better.guarantee.delta == 0.0 or offer.guarantee.delta > 0.0)
        and (
            better.guarantee.protects == "people together"
            or offer.guarantee.protects != "people together"
        )
    )


def _does_less_damage(better: Damage | None, damage: Damage | None) -> bool:
    """Whether `better` is no larger and no less certain; unstated damages are not compared."""
    if better is None or damage is None:
        return True
    return better.sort_key <= damage.sort_key * (1.0 + ERROR_TOLERANCE) and (
        better.certified or not damage.certified
    )


def hidden_sentence(plan: Plan, shown: Sequence[int]) -> list[str]:
    """Say how many candidates are left out of the table, and why."""
    hidden = len(plan.candidates) - len(shown)
    if not hidden:
        return []
    subject, pronoun = (
        ("1 more candidate is", "it") if hidden == 1 else (f"{hidden} more candidates are", "them")
    )
    return [
        f"{subject} not shown: another one is as good or better in error, damage, epsilon of one "
        f"report, bits and trust; --all shows {pronoun}."
    ]


# Weaknesses of the choice


def advice(
    plan: Plan, wishes: Wishes, log: Callable[[str], None] = lambda message: None
) -> list[str]:
    """Return what a person should read before using this plan."""
    return [
        *on_few_people(plan, wishes, log),
        *on_limits(plan, wishes),
        *on_one_report(plan, wishes),
        *on_honest(plan, wishes, log),
    ]


def on_honest(
    plan: Plan, wishes: Wishes, log: Callable[[str], None] = lambda message: None
) -> list[str]:
    """Say that people may stay away if `honest` was not given, and how a bare number was read."""
    written = "" if wishes.honest is None else str(wishes.honest).strip()
    if written.isdigit() and plan.honest <= 100 < plan.users:
        share = honest_count(f"{written}%", plan.users)
        return [
            f"--honest {written} is {plan.honest:,} people of {plan.users:,}; write "
            f"{written}% for {share:,} of them."
        ]
    fewer = honest_count(SUGGESTED_HONEST, plan.users) if plan.users > 1 else 1
    if written or fewer < 2 or not plan.protocol.counts_on_honest:
        return []
    log(f"what --honest {SUGGESTED_HONEST} would cost")
    then = recalibrate(plan, honest=fewer)
    now = expected_error_text(plan.query, plan.choice.expected_error)
    cost = ""
    if then is not None:
        # Candidates that trust nobody or a curator keep their errors, so one may be better then.
        steady = [
            offer
            for offer in plan.candidates
            if offer.trusted in ("nobody", "curator") and not offer.baseline and wishes.allow(offer)
        ]
        error = min(offer.expected_error for offer in (then, *steady))
        cost = (
            f"; the expected error would then be {expected_error_text(plan.query, error)} "
            f"instead of {now}"
        )
    return [
        f"Without --honest all {plan.users:,} must report: if one stays away the batch is "
        "refused, and everybody has to be asked again. "
        f"--honest {SUGGESTED_HONEST} counts on {fewer:,} of them{cost}."
    ]


def on_one_report(plan: Plan, wishes: Wishes) -> list[str]:
    """Warn if one report alone hides little, and say what would change that."""
    choice = plan.choice
    if choice.trusted == "curator" or choice.local_epsilon <= LARGE_EPSILON:
        return []
    if choice.trusted == "nobody":
        lead = (
            f"Warning: epsilon {format_epsilon(choice.local_epsilon)} hides little from "
            f"anybody: {_odds_text(plan, choice.local_epsilon)}."
        )
        return [lead]
    if not math.isfinite(choice.local_epsilon):
        lead = (
            "Warning: one report alone is not guaranteed to hide anything: a colluding "
            f"{choice.trusted} may read it."
        )
    else:
        lead = (
            "Warning: one report alone has epsilon "
            f"{format_epsilon(choice.local_epsilon)}, which hides little: if the "
            f"{choice.trusted} shows it "
            f"to the analyst, {_odds_text(plan, choice.local_epsilon)}."
        )
    return [f"{lead} {_quieter_text(plan, wishes)}"]


def _odds_text(plan: Plan, epsilon: float) -> str:
    """Say what an epsilon means for the odds."""
    factor = "any factor" if epsilon > 100.0 else f"a factor of {format_epsilon(math.exp(epsilon))}"
    return f"the odds of {_two_values(plan)} may shift by {factor}"


def _two_values(plan: Plan) -> str:
    """Name two possible values, or users, at the plan's distance."""
    if isinstance(plan.query, Histogram) and isinstance(plan.query.domain, Categories):
        return "two labels"
    return (
        f"two {'users' if isinstance(plan.query, UserQuery) else 'values'} "
        f"{format_distance(plan.choice.fallback.distance)}{unit_of(plan)} apart"
    )


def _quieter_text(plan: Plan, wishes: Wishes) -> str:
    """Say what a limit on the local epsilon would cost, within the limits on bits and damage."""
    max_bits = math.inf if wishes.max_bits is None else wishes.max_bits
    usable = [
        offer
        for offer in plan.candidates
        if not offer.baseline and offer.bits_per_user <= max_bits and wishes.allow_damage(offer)
    ]
    capped = [offer for offer in usable if offer.local_epsilon <= LARGE_EPSILON]
    if capped:
        best = most_exact(capped)
        now = expected_error_text(plan.query, plan.choice.expected_error)
        return (
            f"--max-local-epsilon {LARGE_EPSILON:g} limits that: the expected error would be "
            f"{expected_error_text(plan.query, best.expected_error)} ({_candidate_label(best)}) or "
            f"less, instead of {now}."
        )
    quietest = min(usable, key=lambda offer: offer.local_epsilon)
    if quietest.local_epsilon >= plan.choice.local_epsilon:
        return (
            "No candidate gives away less; more people, a shorter distance or a smaller "
            "epsilon would."
        )
    return (
        "The smallest epsilon of one report among these candidates is "
        f"{format_epsilon(quietest.local_epsilon)} "
        f"({_candidate_label(quietest)}, expected error "
        f"{expected_error_text(plan.query, quietest.expected_error)}); --max-local-epsilon "
        "looks for the most exact one below a limit."
    )


def on_limits(plan: Plan, wishes: Wishes) -> list[str]:
    """Say what a limit cost: the most exact candidate it excludes, and what could be reached."""
    usable = [offer for offer in plan.candidates if not offer.baseline]
    best = most_exact(usable)
    if not wishes.limits or plan.choice.expected_error <= best.largest_equal:
        return []
    lines = []
    relying = [offer for offer in usable if offer.trusted != "nobody"]
    if plan.choice.trusted == "nobody" and relying:
        quietest = min(relying, key=lambda offer: offer.local_epsilon)
        if (
            wishes.max_local_epsilon is not None
            and quietest.local_epsilon > wishes.max_local_epsilon
        ):
            lines.append(
                f"--max-local-epsilon {wishes.max_local_epsilon:g} leaves nothing that "
                f"relies on the {plan.trusted}: the least epsilon of "
                "one report that any such candidate reaches here is "
                f"{format_epsilon(quietest.local_epsilon)} "
                f"({_candidate_label(quietest)}, expected "
                f"error {expected_error_text(plan.query, quietest.expected_error)})."
            )
        shortest = min(relying, key=lambda offer: offer.bits_per_user)
        if wishes.max_bits is not None and shortest.bits_per_user > wishes.max_bits:
            lines.append(
                f"--max-bits {wishes.max_bits} leaves nothing that relies on the "
                f"{plan.trusted}: the fewest bits that any such candidate "
                f"sends are {shortest.bits_per_user:,} ({_candidate_label(shortest)}, expected "
                f"error {expected_error_text(plan.query, shortest.expected_error)})."
            )
    lost = (
        f"expected error {expected_error_text(plan.query, best.expected_error)}, epsilon "
        f"{format_epsilon(best.local_epsilon)} of one report"
    )
    lines.append(
        f"More exact, but ruled out by {' and '.join(wishes.limits)}: {_candidate_label(best)} "
        f"({lost}, {best.bits_per_user:,} bits)."
    )
    return lines


def on_few_people(
    plan: Plan, wishes: Wishes, log: Callable[[str], None] = lambda message: None
) -> list[str]:
    """Say if people are too few for a shuffler to help, and what more people would change."""
    if wishes.narrowed or wishes.limits:
        return []
    alone = (
        plan.choice.trusted == "nobody"
        and plan.trusted in ("shuffler", "aggregator")
        and plan.target.delta > 0.0
    )
    return [
        *needless_trust_sentence(plan),
        *(_with_more_people(plan, log) if alone and plan.honest <= FEW_PEOPLE else []),
    ]


def _with_more_people(plan: Plan, log: Callable[[str], None]) -> list[str]:
    """Say the error with more people, up to the first number at which a trusted party helps."""
    lines = []
    for times in MORE_PEOPLE:
        users = plan.users * times
        honest = plan.honest * times
        log(f"what {users:,} people would do")
        try:
            more = planned(_setting(plan, users, honest)).choice
        except MetricShuffleError:  # advice must not fail the command
            continue
        relies = "" if more.trusted == "nobody" else f", relying on the {more.trusted}"
        lines.append(
            f"With {users:,} people the expected error would be "
            f"{expected_error_text(plan.query, more.expected_error)} "
            f"({_candidate_label(more)}{relies})."
        )
        if more.trusted != "nobody":
            break
    return lines


# Planning again with another number of people


def recalibrate(plan: Plan, honest: int) -> Candidate | None:
    """Calibrate the chosen protocol for another number of honest people.

    None if that fails, or would be slow because errors are simulated.
    """
    choice = plan.choice
    if not isinstance(choice.mechanism, Sums | Frequencies):
        return None  # simulating errors is slow
    shape = honest if choice.shape == plan.honest else choice.shape
    setting = _setting(
        plan,
        plan.users,
        honest,
        protocols=(choice.protocol,),
        shapes=None if shape is None else (shape,),
    )
    try:
        offers = [
            offer for offer in calibrate_offers(setting) if not isinstance(offer, SkippedCandidate)
        ]
    except MetricShuffleError:
        return None
    like = [
        offer
        for offer in offers
        if (offer.protocol, offer.trusted) == (choice.protocol, choice.trusted)
    ]
    return min(like, key=lambda offer: offer.expected_error, default=None)


def _setting(
    plan: Plan,
    users: int,
    honest: int,
    *,
    protocols: tuple[str, ...] | None = None,
    shapes: tuple[int, ...] | None = None,
) -> Setting:
    """Rebuild the setting of the plan, as far as it is known, for other numbers of people.

    If `protocols` is given, a sum keeps the encoding of the chosen candidate.
    """
    choice = plan.choice
    mechanism = plan.protocol
    named = choice.encoding if protocols is not None and isinstance(mechanism, Sums) else None
    encoding: EncodingChoice = (
        "unary" if named == "unary" else "modular" if named == "modular" else "auto"
    )
    return Setting(
        plan.query,
        plan.target,
        users,
        honest,
        rounds=plan.rounds,
        trusted=plan.trusted,
        encoding=encoding,
        padding="bounded" if choice.padding == "bounded" else "clamp",
        granularity=plan.granularity,
        draw=plan.samples,
        without_replacement=getattr(mechanism, "drawn", False) == "without replacement",
        transport="aggregator" if "aggregator" in (choice.trusted, plan.trusted) else "shuffler",
        spread=plan.spread,
        floor=plan.floor,
        protocols=protocols,
        shapes=shapes,
    )


def _candidate_label(offer: Candidate) -> str:
    return f"{protocol_label(offer)}, {offer.encoding}" if offer.encoding else protocol_label(offer)
