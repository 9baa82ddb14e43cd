"""Advice on a plan: which candidates are worth a look, what is fragile about the choice, and what another wish would change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metricshuffle.errors import MetricShuffleError
from metricshuffle.numerics.rounding import format_distance, format_epsilon
from metricshuffle.planning.candidate import ERROR_TOLERANCE, TRUST_ORDER, Candidate
from metricshuffle.planning.candidates import SkippedCandidate, calibrate_offers
from metricshuffle.planning.plan import Plan, most_exact, planned
from metricshuffle.planning.plan_text import FEW_PEOPLE, expected_error_text, needless_trust_sentence, protocol_label, unit_of
from metricshuffle.planning.setting import EncodingChoice, Setting
from metricshuffle.privacy.target import Honest, honest_count
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.spaces import Categories

# One report with a larger epsilon hides little: odds may shift by a factor of thousands.
LARGE_EPSILON = 8.0
SUGGESTED_HONEST = "90%"
# How many times as many people are tried where a shuffler does not help, one after the other.
MORE_PEOPLE = (10, 100)


@dataclass(frozen=True)
class Wishes:
    """What was asked for, where advice depends on it and the plan does not tell."""

    honest: Honest = None
    max_local_epsilon: float | None = None
    max_bits: int | None = None
    narrowed: bool = False
    """Only some protocols were to be looked at."""

    @property
    def limits(self) -> list[str]:
        """The caps, as options."""
        local = [] if self.max_local_epsilon is None else [f"--max-local-epsilon {self.max_local_epsilon:g}"]
        return local + ([] if self.max_bits is None else [f"--max-bits {self.max_bits}"])

    def allow(self, offer: Candidate) -> bool:
        """Whether a candidate keeps to the caps."""
        quiet = self.max_local_epsilon is None or offer.local_epsilon <= self.max_local_epsilon
        return quiet and (self.max_bits is None or offer.bits_per_user <= self.max_bits)


# Which candidates are shown


def worth_showing(plan: Plan) -> tuple[int, ...]:
    """The places of the candidates that are not dominated by another one that is shown; the chosen one and baselines always are."""

    def first_the_cheap(index: int) -> tuple[bool, int, float]:
        # Whatever dominates a candidate has no more bits, so that it is looked at before.
        return index != plan.chosen, plan.candidates[index].bits_per_user, plan.candidates[index].expected_error

    indices: list[int] = []
    for index in sorted(range(len(plan.candidates)), key=first_the_cheap):
        offer = plan.candidates[index]
        if offer.baseline or not any(dominates(plan.candidates[shown_index], offer) for shown_index in indices):
            indices.append(index)
    return tuple(sorted(indices))


def with_only(plan: Plan, shown: Sequence[int]) -> Plan:
    """The same plan with the candidates at these places only, to be shown; the chosen one must be among them."""
    return plan.model_copy(
        update={"candidates": tuple(plan.candidates[index] for index in shown), "chosen": list(shown).index(plan.chosen)}
    )


def dominates(better: Candidate, offer: Candidate) -> bool:
    """Whether it asks for no more trust or bits, is as exact, and gives away no more in one report (to 0.1 %), for no weaker a promise."""
    same = 1.0 + ERROR_TOLERANCE
    return (
        not better.baseline
        and TRUST_ORDER[better.trusted] <= TRUST_ORDER[offer.trusted]
        and better.expected_error <= offer.expected_error * same
        and better.local_epsilon <= offer.local_epsilon * same
        and better.bits_per_user <= offer.bits_per_user
        and (better.guarantee.delta == 0.0 or offer.guarantee.delta > 0.0)
        and (better.guarantee.protects == "people together" or offer.guarantee.protects != "people together")
    )


def hidden_sentence(plan: Plan, shown: Sequence[int]) -> list[str]:
    """How many candidates are left out of the table, and why."""
    hidden = len(plan.candidates) - len(shown)
    if not hidden:
        return []
    what, they = ("1 more candidate is", "it") if hidden == 1 else (f"{hidden} more candidates are", "them")
    return [f"{what} not shown: another one is as good or better in error, epsilon of one report, bits and trust; --all shows {they}."]


# What is fragile about the choice


def advice(plan: Plan, wishes: Wishes, log: Callable[[str], None] = lambda now: None) -> list[str]:
    """Sentences that a person who made this plan should read before she uses it."""
    return [
        *on_few_people(plan, wishes, log),
        *on_limits(plan, wishes),
        *on_one_report(plan, wishes),
        *on_honest(plan, wishes, log),
    ]


def on_honest(plan: Plan, wishes: Wishes, log: Callable[[str], None] = lambda now: None) -> list[str]:
    """That a share of the people may stay away, where nobody said so; and what a bare number was taken for."""
    written = "" if wishes.honest is None else str(wishes.honest).strip()
    if written.isdigit() and plan.honest <= 100 < plan.users:
        share = honest_count(f"{written}%", plan.users)
        return [f"--honest {written} is {plan.honest:,} people of {plan.users:,}; write {written}% for {share:,} of them."]
    fewer = honest_count(SUGGESTED_HONEST, plan.users) if plan.users > 1 else 1
    if written or fewer < 2 or plan.choice.trusted not in ("shuffler", "aggregator"):
        return []
    log(f"what --honest {SUGGESTED_HONEST} would cost")
    then, now = recalibrate(plan, honest=fewer), expected_error_text(plan.query, plan.choice.expected_error)
    cost = ""
    if then is not None:
        # Who trusts nobody or a curator does not count on others, and may be chosen instead.
        steady = [
            offer for offer in plan.candidates if offer.trusted in ("nobody", "curator") and not offer.baseline and wishes.allow(offer)
        ]
        error = min(offer.expected_error for offer in (then, *steady))
        cost = f"; the expected error would then be {expected_error_text(plan.query, error)} instead of {now}"
    return [
        f"Without --honest all {plan.users:,} must report: if one stays away the batch is refused, and everybody has to be asked again. "
        f"--honest {SUGGESTED_HONEST} counts on {fewer:,} of them{cost}."
    ]


def on_one_report(plan: Plan, wishes: Wishes) -> list[str]:
    """A warning where one report alone hides little, and what it would take to change that."""
    choice = plan.choice
    if choice.trusted == "curator" or choice.local_epsilon <= LARGE_EPSILON:
        return []
    if choice.trusted == "nobody":
        lead = f"Warning: epsilon {format_epsilon(choice.local_epsilon)} hides little, whoever looks: {_shift(plan, choice.local_epsilon)}."
        return [lead]
    if not math.isfinite(choice.local_epsilon):
        lead = f"Warning: one report alone hides nothing that could be promised: a {choice.trusted} who colludes may read it."
    else:
        lead = (
            f"Warning: one report alone has epsilon {format_epsilon(choice.local_epsilon)}, which hides little: if the "
            f"{choice.trusted} shows it "
            f"to the analyst, {_shift(plan, choice.local_epsilon)}."
        )
    return [f"{lead} {_quieter(plan, wishes)}"]


def _shift(plan: Plan, epsilon: float) -> str:
    """What an epsilon means for the odds, in words."""
    if epsilon > 100.0:
        return f"the odds of {_two(plan)} may shift by any factor"
    return f"the odds of {_two(plan)} may shift by a factor of {format_epsilon(math.exp(epsilon))}"


def _two(plan: Plan) -> str:
    """Two things that a person may hold, as far apart as the plan's distance."""
    if isinstance(plan.query, Histogram) and isinstance(plan.query.domain, Categories):
        return "two labels"
    return f"two {'users' if isinstance(plan.query, UserQuery) else 'values'} {format_distance(plan.target.distance)}{unit_of(plan)} apart"


def _quieter(plan: Plan, wishes: Wishes) -> str:
    """What a cap on one report would cost, as far as the candidates tell that send no more bits than was allowed."""
    max_bits = math.inf if wishes.max_bits is None else wishes.max_bits
    usable = [offer for offer in plan.candidates if not offer.baseline and offer.bits_per_user <= max_bits]
    capped = [offer for offer in usable if offer.local_epsilon <= LARGE_EPSILON]
    if capped:
        best = most_exact(capped)
        now = expected_error_text(plan.query, plan.choice.expected_error)
        return (
            f"--max-local-epsilon {LARGE_EPSILON:g} limits that: the expected error would be "
            f"{expected_error_text(plan.query, best.expected_error)} ({_named(best)}) or less, instead of {now}."
        )
    quietest = min(usable, key=lambda offer: offer.local_epsilon)
    if quietest.local_epsilon >= plan.choice.local_epsilon:
        return "No candidate gives away less; more people, a shorter distance or a smaller epsilon would."
    return (
        f"The least of these candidates is {format_epsilon(quietest.local_epsilon)} ({_named(quietest)}, expected error "
        f"{expected_error_text(plan.query, quietest.expected_error)}); --max-local-epsilon looks for the most exact one below a limit."
    )


def on_limits(plan: Plan, wishes: Wishes) -> list[str]:
    """What a cap cost: the most exact candidate that it ruled out, and the least that could be reached."""
    usable = [offer for offer in plan.candidates if not offer.baseline]
    best = most_exact(usable)
    if not wishes.limits or plan.choice.expected_error <= best.largest_equal:
        return []
    lines = []
    relying = [offer for offer in usable if offer.trusted != "nobody"]
    if plan.choice.trusted == "nobody" and relying:
        quietest = min(relying, key=lambda offer: offer.local_epsilon)
        if wishes.max_local_epsilon is not None and quietest.local_epsilon > wishes.max_local_epsilon:
            lines.append(
                f"--max-local-epsilon {wishes.max_local_epsilon:g} leaves nothing that relies on the {plan.trusted}: the least epsilon of "
                f"one report that any such candidate reaches here is {format_epsilon(quietest.local_epsilon)} "
                f"({_named(quietest)}, expected "
                f"error {expected_error_text(plan.query, quietest.expected_error)})."
            )
        shortest = min(relying, key=lambda offer: offer.bits_per_user)
        if wishes.max_bits is not None and shortest.bits_per_user > wishes.max_bits:
            lines.append(
                f"--max-bits {wishes.max_bits} leaves nothing that relies on the {plan.trusted}: the fewest bits that any such candidate "
                f"sends are {shortest.bits_per_user:,} ({_named(shortest)}, expected error "
                f"{expected_error_text(plan.query, shortest.expected_error)})."
            )
    lost = (
        f"expected error {expected_error_text(plan.query, best.expected_error)}, epsilon {format_epsilon(best.local_epsilon)} of one report"
    )
    lines.append(f"More exact, but ruled out by {' and '.join(wishes.limits)}: {_named(best)} ({lost}, {best.bits_per_user:,} bits).")
    return lines


def on_few_people(plan: Plan, wishes: Wishes, log: Callable[[str], None] = lambda now: None) -> list[str]:
    """That there are too few people for a shuffler to help, and what more of them would do."""
    if wishes.narrowed or wishes.limits:
        return []
    alone = plan.choice.trusted == "nobody" and plan.trusted in ("shuffler", "aggregator") and plan.target.delta > 0.0
    return [*needless_trust_sentence(plan), *(_with_more(plan, log) if alone and plan.honest <= FEW_PEOPLE else [])]


def _with_more(plan: Plan, log: Callable[[str], None]) -> list[str]:
    """The error with more people; up to the first number of them at which trusting somebody helps."""
    lines = []
    for times in MORE_PEOPLE:
        users, honest = plan.users * times, plan.honest * times
        log(f"what {users:,} people would do")
        try:
            more = planned(_setting(plan, users, honest)).choice
        except MetricShuffleError:  # advice is not worth an error
            continue
        relies = "" if more.trusted == "nobody" else f", relying on the {more.trusted}"
        lines.append(
            f"With {users:,} people the expected error would be {expected_error_text(plan.query, more.expected_error)} "
            f"({_named(more)}{relies})."
        )
        if more.trusted != "nobody":
            break
    return lines


# Planning again with other people


def recalibrate(plan: Plan, honest: int) -> Candidate | None:
    """The chosen candidate if so many people are honest; None if that cannot be told in a moment."""
    choice = plan.choice
    if not isinstance(choice.mechanism, Sums | Frequencies):
        return None  # their errors are simulated
    shape = honest if choice.shape == plan.honest else choice.shape
    setting = _setting(plan, plan.users, honest, protocols=(choice.protocol,), shapes=None if shape is None else (shape,))
    try:
        offers = [offer for offer in calibrate_offers(setting) if not isinstance(offer, SkippedCandidate)]
    except MetricShuffleError:
        return None
    like = [offer for offer in offers if (offer.protocol, offer.trusted) == (choice.protocol, choice.trusted)]
    return min(like, key=lambda offer: offer.expected_error, default=None)


def _setting(
    plan: Plan, users: int, honest: int, *, protocols: tuple[str, ...] | None = None, shapes: tuple[int, ...] | None = None
) -> Setting:
    """What the plan was made from, as far as it tells, with other people; encodings are those of the choice if protocols are named."""
    choice, mechanism = plan.choice, plan.protocol
    named = choice.encoding if protocols is not None and isinstance(mechanism, Sums) else None
    encoding: EncodingChoice = "unary" if named == "unary" else "modular" if named == "modular" else "auto"
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
        samples=plan.samples,
        transport="aggregator" if "aggregator" in (choice.trusted, plan.trusted) else "shuffler",
        most_items=getattr(mechanism, "most_items", None),
        spread=plan.spread,
        protocols=protocols,
        shapes=shapes,
    )


def _named(offer: Candidate) -> str:
    return f"{protocol_label(offer)}, {offer.encoding}" if offer.encoding else protocol_label(offer)
