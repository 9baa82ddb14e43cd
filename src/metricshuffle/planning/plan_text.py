"""A plan in words: the table of candidates, why one was chosen, and what is and is not hidden."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon, format_number, format_rough
from metricshuffle.privacy.guarantee import likelihood_text
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.query import Query
from metricshuffle.queries.user_queries import UserHistogram, UserQuery
from metricshuffle.spaces import Categories
from metricshuffle.tasks.wording import wording_lines

if TYPE_CHECKING:
    from metricshuffle.planning.candidate import Candidate
    from metricshuffle.planning.plan import Plan

COLUMNS = ("", "protocol", "encoding", "trusts", "expected error", "epsilon if it colludes", "bits per user")
# Of more people than this, it is not said that they are too few.
FEW_PEOPLE = 100
NOT_HIDDEN = "Not hidden: that somebody took part, how many did, and anything a lying client sends to move the answer."


def unit_of(plan: Plan) -> str:
    """The unit of the values with a space before it; empty if there is none."""
    return f" {plan.query.unit}" if plan.query.unit else ""


def error_text(query: Query, error: float) -> str:
    """An error with its unit; shares are told in percent."""
    if isinstance(query, Histogram):
        return f"{format_number(100.0 * error)} %"
    return f"{format_number(error)} {query.error_unit}".rstrip()


def is_simulated(query: Query) -> bool:
    """Whether expected errors come from a simulation: those of shares do, as they depend on what people hold."""
    return query.shared


def expected_error_text(query: Query, error: float) -> str:
    """An expected error with its unit, and with the digits that it has where it is simulated."""
    if not is_simulated(query):
        return error_text(query, error)
    return f"{format_rough(100.0 * error)} %" if isinstance(query, Histogram) else f"{format_rough(error)} {query.error_unit}".rstrip()


def target_text(plan: Plan) -> str:
    """The target with its unit; an epsilon that was searched for is not rounded below what is promised."""
    target = plan.target
    growth = "in proportion to the distance up to" if target.shape == "linear" else "for every move up to"
    return (
        f"epsilon {format_epsilon(target.epsilon)} {growth} {format_distance(target.distance)}{unit_of(plan)}, delta "
        f"{format_delta(target.delta)}"
    )


def plan_heading(plan: Plan) -> str:
    """What is asked of whom."""
    rounds = "" if plan.rounds == 1 else f", {plan.rounds} rounds"
    return f"{plan.query}, {plan.users:,} user{'s' * (plan.users != 1)} ({plan.honest:,} honest){rounds}"


def candidate_rows(plan: Plan) -> list[tuple[str, ...]]:
    """The candidates as text cells, in the order of COLUMNS."""
    table: list[tuple[str, ...]] = []
    for index, offer in enumerate(plan.candidates):
        mark = "->" if index == plan.chosen else ("(baseline)" if offer.baseline else "")
        table.append(
            (
                mark,
                protocol_label(offer),
                offer.encoding or "",
                offer.trusted,
                expected_error_text(plan.query, offer.expected_error),
                "raw values" if offer.trusted == "curator" else format_epsilon(offer.local_epsilon),
                f"{offer.bits_per_user:,}",
            )
        )
    return table


def protocol_label(offer: Candidate) -> str:
    """The protocol, with its total shape where that tells two of them apart."""
    return (
        f"{offer.protocol} (shape {offer.shape:,})"
        if offer.protocol == "polya-shuffle" and offer.shape not in (None, 1)
        else offer.protocol
    )


def why_chosen(plan: Plan) -> str:
    """One sentence on the choice; and one on whose errors were compared, where they depend on what people hold."""
    choice = plan.choice
    most_exact_offer = min((offer for offer in plan.candidates if not offer.baseline), key=lambda offer: offer.expected_error)
    reason = "the least expected error"
    if most_exact_offer.expected_error < choice.expected_error <= most_exact_offer.largest_equal:
        equal = "to 0.1 %" if most_exact_offer.simulation_error is None else "as far as the simulation tells"
        reason = (
            f"the least expected error ({equal}) with the {'fewest bits' if choice.trusted == most_exact_offer.trusted else 'least trust'}"
        )
    elif choice.expected_error > most_exact_offer.largest_equal:
        reason = "the least expected error within the limits on bits and local epsilon"
    trust = "trust nobody" if plan.trusted == "nobody" else f"trust no more than the {plan.trusted}"
    encoding = f" ({choice.encoding})" if choice.encoding else ""
    return (
        f"Chosen: {protocol_label(choice)}{encoding}, {reason} among the protocols that "
        f"{trust}.{_whose_errors(plan)}{_which_features(plan)}"
    )


def _whose_errors(plan: Plan) -> str:
    """For which people expected errors were computed."""
    if isinstance(plan.query, Histogram):
        if not plan.choice.other_errors:
            return ""
        error_texts = ", ".join(
            f"{expected_error_text(plan.query, error)} for people {kind}" for kind, error in plan.choice.other_errors.items()
        )
        which = {
            "any": "the largest of three",
            "smooth": "the larger one of the first two of three, as people are said to be spread smoothly",
            "spiky": "the last of three, as people are said to be at few points",
        }[plan.spread]
        return f" Its expected error is {which}, each about what a simulation finds: {error_texts}."
    if not isinstance(plan.query, UserHistogram):
        return ""
    others = [f"{expected_error_text(plan.query, error)} for items {spread}" for spread, error in plan.choice.other_errors.items()]
    also = f"; {protocol_label(plan.choice)} is off by {' and by '.join(others)}" if others else ""
    return f" Expected errors are those of users whose items are spread evenly over all points{also}."


def _which_features(plan: Plan) -> str:
    """By which rule its features were chosen, where there were several sets of them."""
    choice = plan.choice
    if choice.regret is None:
        return ""
    people = {"any": "any of these people", "smooth": "people spread smoothly", "spiky": "people at few points"}[plan.spread]
    sets = f"{', '.join(choice.feature_sets[:-1])} and {choice.feature_sets[-1]}"
    features = str(getattr(choice.mechanism, "features", choice.encoding))
    if format_rough(choice.regret) == "1":
        return f" Of the feature sets {sets}, {features} is the most exact one for {people}."
    return (
        f" Of the feature sets {sets} it takes {features}, which for {people} is at most {format_rough(choice.regret)} times as "
        "far off as the "
        "best of these sets is for them; each of the others is farther from the best for some of them."
    )


def needless_trust_sentence(plan: Plan) -> list[str]:
    """That somebody could have been trusted and is not, because nothing that relies on her is more exact; empty if that is not so."""
    choice, who = plan.choice, plan.trusted
    if choice.trusted != "nobody" or who not in ("shuffler", "aggregator") or plan.target.delta == 0.0:
        return []  # without a delta pure protocols are all there is, whoever could be trusted
    relying = [offer for offer in plan.candidates if offer.trusted in ("shuffler", "aggregator") and not offer.baseline]
    if any(offer.expected_error < choice.expected_error * 0.999 for offer in relying):
        return []  # a limit on bits or on local epsilon is why
    if not relying:
        reasons = [f"{row.protocol}: {row.reason.rstrip('.')}" for row in plan.not_offered[:1]]
        return [f"Nothing that relies on a {who} could be offered ({why}), so that everybody's own noise does it all." for why in reasons]
    people = "1 honest person is" if plan.honest == 1 else f"{plan.honest:,} honest people are"
    few = f"{people} too few for a {who} to help here: nothing" if plan.honest <= FEW_PEOPLE else "Nothing"
    return [f"{few} that relies on a {who} is more exact than {protocol_label(choice)}, for which nobody need be trusted."]


def guarantee_lines(plan: Plan) -> list[str]:
    """Both promises."""
    trusted = plan.choice.trusted
    if trusted == "nobody":
        return [str(plan.guarantee)]
    warning = plan.protocol.warning(plan.query)
    return [
        f"If the {trusted} is honest: {plan.guarantee}",
        f"If it is not: {plan.if_shuffler_colludes}",
        *([warning] if warning else []),
    ]


def warnings(plan: Plan, shown: Sequence[int] | None = None) -> list[str]:
    """What makes an estimate fragile (of the candidates that are shown), or a promise smaller than it looks."""
    offers = plan.candidates if shown is None else [plan.candidates[index] for index in shown]
    lines = [offer.warning for offer in offers if offer.warning]
    if isinstance(plan.query, UserQuery):
        nearest, distance, unit = plan.query.people.nearest, plan.target.distance, unit_of(plan)
        if distance < nearest * (1.0 - 1e-12):
            lines.append(
                f"different points are at least {format_number(nearest)}{unit} apart, so that a move of "
                f"{format_number(distance)}{unit} is one of "
                f"{format_number(100.0 * distance / nearest)} % of a user's items at most; who holds few items has no change that small."
            )
    return [f"Warning: {line}" for line in lines]


def not_offered(plan: Plan) -> list[str]:
    """What did not apply, and why."""
    names = [f"{row.protocol} ({row.encoding})" if row.encoding else row.protocol for row in plan.not_offered]
    return [f"Not offered: {name}: {row.reason}" for name, row in zip(names, plan.not_offered, strict=True)]


def explanation(plan: Plan) -> list[str]:
    """Sentences on what is hidden and what is not, with numbers from the guarantee and the domain."""
    target, unit, choice = plan.target, unit_of(plan), plan.choice
    lines = [_hidden_sentences(plan)]
    if isinstance(plan.query, UserQuery):
        lines.append(plan.task.full_replacement)
    elif plan.query.diameter > target.distance * 1.001:
        lines.append(
            f"A change of {format_number(plan.query.diameter)}{unit}, from one end of the range to the other, is NOT promised to be hidden."
        )
    if choice.trusted == "curator":
        lines.append("The curator sees every raw value; if the curator is dishonest nothing is hidden.")
    elif choice.trusted != "nobody":
        left = (
            f"hidden at epsilon {format_epsilon(choice.local_epsilon)} only"
            if math.isfinite(choice.local_epsilon)
            else "NOT hidden at this delta"
        )
        seen = "one report" if plan.rounds == 1 else f"one person's {plan.rounds} reports"
        change = f"a change of {format_distance(target.distance)}{unit} in {seen}"
        lines.append(f"If the {choice.trusted} colludes with the analyst, {change} is {left}.")
    if choice.trusted in ("shuffler", "aggregator"):
        lines.append(
            f"The promise counts {plan.honest:,} honest reports of {plan.users:,}: people who drop out or collude beyond that weaken it, "
            f"and a batch of fewer than {plan.minimum:,} reports is refused."
        )
    lines += [choice.gain] if choice.gain else []
    if plan.query.between(1.0).startswith("cells, "):
        lines.append("Distances are between grid cells: two places less than a cell apart can fall into neighbouring cells.")
    if choice.guarantee.protects == "one person" and plan.protocol.grain != 1:
        lines.append("Values are rounded at random first, so the promise is about one person moving, not several together.")
    lines += plan.protocol.remarks(plan.query, target, plan.honest, plan.rounds)
    return [*lines, *plan.query.remarks(), NOT_HIDDEN]


def _hidden_sentences(plan: Plan) -> str:
    target, unit = plan.target, unit_of(plan)
    seen = f"whatever is seen is {likelihood_text(target.epsilon, target.delta)}"
    if isinstance(plan.query, Histogram) and isinstance(plan.query.domain, Categories):
        return f"Any label is hidden among the others at epsilon {format_epsilon(target.epsilon)}: {seen}."
    if target.shape == "linear" and isinstance(plan.query, Histogram) and plan.query.between(1.0) != "values":
        smallest = target.epsilon * min(1.0, plan.query.step / target.distance)
        return (
            f"A change of {format_distance(target.distance)}{unit} is hidden at epsilon {format_epsilon(target.epsilon)}: {seen}. A "
            f"smaller one may cross into the next cell, and then costs that of one step, {format_epsilon(smallest)}."
        )
    if target.shape == "linear":
        return (
            f"A change of {format_distance(target.distance / 2)}{unit} is hidden at epsilon {format_epsilon(target.epsilon / 2)}, "
            f"one of {format_distance(target.distance)}{unit} at epsilon {format_epsilon(target.epsilon)}: {seen}."
        )
    return f"Every change up to {format_distance(target.distance)}{unit} is hidden at epsilon {format_epsilon(target.epsilon)}: {seen}."


def plan_text(plan: Plan) -> str:
    """The whole plan as plain text."""
    table = [COLUMNS, *candidate_rows(plan)]
    widths = [max(len(row[column]) for row in table) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    lines = [*wording_lines(plan.title, plan.question), f"{plan_heading(plan)}, {target_text(plan)}", *lines]
    lines += ["", why_chosen(plan), *needless_trust_sentence(plan), *guarantee_lines(plan)]
    if isinstance(plan.query, UserQuery):
        lines.append(plan.task.full_replacement)
    return "\n".join([*lines, *not_offered(plan), *warnings(plan)])
