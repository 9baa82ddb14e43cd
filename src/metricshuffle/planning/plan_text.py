"""A plan as text: the table of candidates, why one was chosen, what is hidden and what is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from metricshuffle.errors import ArgumentNames, python_name
from metricshuffle.numerics.rounding import (
    format_delta,
    format_distance,
    format_epsilon,
    format_number,
    format_rough,
)
from metricshuffle.planning.candidate import SUBTRACTION_PRICE
from metricshuffle.privacy.guarantee import likelihood_text
from metricshuffle.protocols.damage import Damage
from metricshuffle.protocols.features.group_features import error_by_numbers
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.queries.by_group import ByGroup
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.query import Query
from metricshuffle.queries.user_queries import UserHistogram, UserQuery
from metricshuffle.spaces import Categories, ZonePairs, Zones
from metricshuffle.tasks.wording import wording_lines

if TYPE_CHECKING:
    from metricshuffle.planning.candidate import Candidate
    from metricshuffle.planning.plan import Plan

COLUMNS = (
    "",
    "protocol",
    "encoding",
    "trusts",
    "expected error",
    "one liar moves it",
    "epsilon if it colludes",
    "bits per user",
)
# Largest number of people that is called too few.
FEW_PEOPLE = 100
NOT_HIDDEN = "Not hidden: that somebody took part, and how many did."


def unit_of(plan: Plan) -> str:
    """Unit of the values, preceded by a space; empty if there is none."""
    return f" {plan.query.unit}" if plan.query.unit else ""


def error_text(query: Query, error: float) -> str:
    """Format an error with its unit; shares are in percent."""
    if query.in_percent:
        return f"{format_number(100.0 * error)} %"
    return f"{format_number(error)} {query.error_unit}".rstrip()


def damage_text(query: Query, damage: Damage | None) -> str:
    """Format how far a liar can move the answer; empty in plans that do not say it."""
    return "" if damage is None else damage.text(query)


def is_simulated(query: Query) -> bool:
    """Whether expected errors are simulated: those of shares are, as they depend on the data."""
    return query.simulated


def expected_error_text(query: Query, error: float) -> str:
    """Format an expected error with its unit; a simulated one with its significant digits only."""
    if not is_simulated(query):
        return error_text(query, error)
    return (
        f"{format_rough(100.0 * error)} %"
        if query.in_percent
        else f"{format_rough(error)} {query.error_unit}".rstrip()
    )


def target_text(plan: Plan) -> str:
    """Format the target with its unit; epsilon is rounded up, never below the guarantee."""
    target = plan.target
    growth = (
        "in proportion to the distance up to"
        if target.shape == "linear"
        else "for every move up to"
    )
    label = (
        f", epsilon {format_epsilon(target.label_epsilon or target.epsilon)} for another label"
        if isinstance(plan.query, ByGroup)
        else ""
    )
    return (
        f"epsilon {format_epsilon(target.epsilon)} {growth} "
        f"{format_distance(target.distance)}{unit_of(plan)}{label}, delta "
        f"{format_delta(target.delta)}"
    )


def plan_heading(plan: Plan) -> str:
    """The query, the number of people and the rounds."""
    rounds = "" if plan.rounds == 1 else f", {plan.rounds} rounds"
    return (
        f"{plan.query}, {plan.users:,} user{'s' * (plan.users != 1)} ({plan.honest:,} "
        f"honest){rounds}"
    )


def candidate_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return the candidates as text cells, in the order of COLUMNS."""
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
                damage_text(plan.query, offer.damage),
                "raw values" if offer.trusted == "curator" else format_epsilon(offer.local_epsilon),
                f"{offer.bits_per_user:,}",
            )
        )
    return table


def protocol_label(offer: Candidate) -> str:
    """Name of the protocol, with its total shape where that distinguishes candidates."""
    return (
        f"{offer.protocol} (shape {offer.shape:,})"
        if offer.protocol == "polya-shuffle" and offer.shape not in (None, 1)
        else offer.protocol
    )


def why_chosen(plan: Plan, names: ArgumentNames = python_name) -> str:
    """Say why the candidate was chosen, for which people, and what a floor costs.

    `names` formats arguments for an interface.
    """
    choice = plan.choice
    offers = [offer for offer in plan.candidates if not offer.baseline]
    mixed = [offer for offer in offers if offer.dummies is None]
    most_exact_offer = min(
        mixed if choice.dummies is None else offers, key=lambda offer: offer.expected_error
    )
    reason = "the least expected error"
    if most_exact_offer.expected_error < choice.expected_error <= most_exact_offer.largest_equal:
        equal = (
            "to 0.1 %"
            if most_exact_offer.simulation_error is None
            else "as far as the simulation tells"
        )
        reason = (
            f"the least expected error ({equal}) with the "
            f"{'fewest bits' if choice.trusted == most_exact_offer.trusted else 'least trust'}"
        )
    elif choice.expected_error > most_exact_offer.largest_equal:
        reason = "the least expected error within the limits on bits, damage and local epsilon"
    trust = "trust nobody" if plan.trusted == "nobody" else f"trust no more than the {plan.trusted}"
    encoding = f" ({choice.encoding})" if choice.encoding else ""
    return (
        f"Chosen: {protocol_label(choice)}{encoding}, {reason} among the protocols that "
        f"{trust}.{_whose_errors(plan)}{_which_features(plan)}"
        f"{_floor_price(plan, names)}{_dummies_text(plan)}"
    )


def _dummies_text(plan: Plan) -> str:
    """Say how many dummies the shuffler adds, or why a candidate without dummies was chosen."""
    protocol = plan.protocol
    if not isinstance(protocol, ShufflerNoise):
        least = plan.choice.expected_error
        rivals = [
            offer
            for offer in plan.candidates
            if offer.dummies is not None and not offer.baseline and offer.largest_equal < least
        ]
        if not rivals or least > SUBTRACTION_PRICE * rivals[0].expected_error:
            return ""
        return (
            f" {protocol_label(rivals[0])} would err less, but by no more than "
            f"{SUBTRACTION_PRICE:g} times, and its shuffler could subtract the noise."
        )
    seconds = format_rough(protocol.sealing_seconds)
    return (
        f" The shuffler adds {protocol.dummies:,} dummies{' a round' * (plan.rounds > 1)} on "
        f"average, which it would seal in about {seconds} seconds."
    )


def option_words(name: str, value: str | None) -> str:
    """Argument as an option of the command line, which pages translate into their labels."""
    option = f"--{name.replace('_', '-')}"
    return option if value is None else f"{option} {value.strip(chr(39))}"


def _floor_price(plan: Plan, names: ArgumentNames) -> str:
    """Say what a floor costs, if there could be one."""
    price = plan.floor_price
    sentence = "" if price is None else price.sentence(plan.floor, names)
    return f" {sentence}" if sentence else ""


def _group_errors(plan: Plan, query: ByGroup) -> str:
    """Say for which groups errors were computed, and if the promise about labels sets the noise."""
    text = (
        " Expected errors are those of groups of equal size, whose means lie anywhere in the range."
    )
    target = plan.target
    if target.label_distance >= query.length:
        return text
    needed = target.slope * query.length
    sharers = getattr(plan.protocol, "sharers", 1)
    shape = Fraction(1) if plan.protocol.trusted == "curator" else Fraction(plan.users, sharers)
    error = error_by_numbers(query, target.slope / plan.rounds, shape, plan.users)
    return text + (
        " The promise about labels decides the noise, because a change of the label takes the "
        f"whole number along: with a label epsilon of {format_epsilon(needed)} (epsilon "
        f"across the whole range) the expected error would be {error_text(query, error)}."
    )


def _whose_errors(plan: Plan) -> str:
    """Say for which people expected errors were computed."""
    if isinstance(plan.query, CellQuery):
        if not plan.choice.other_errors:
            return ""
        error_texts = ", ".join(
            f"{expected_error_text(plan.query, error)} for people {kind}"
            for kind, error in plan.choice.other_errors.items()
        )
        which = {
            "any": "the largest of three",
            "smooth": (
                "the larger one of the first two of three, as people are said to be spread smoothly"
            ),
            "spiky": "the last of three, as people are said to be at few points",
        }[plan.spread]
        return f" Its expected error is {which}, each about what a simulation finds: {error_texts}."
    if isinstance(plan.query, ByGroup):
        return _group_errors(plan, plan.query)
    if not isinstance(plan.query, UserHistogram):
        return ""
    others = [
        f"{expected_error_text(plan.query, error)} for items {spread}"
        for spread, error in plan.choice.other_errors.items()
    ]
    also = f"; {protocol_label(plan.choice)} is off by {' and by '.join(others)}" if others else ""
    return (
        f" Expected errors are those of users whose items are spread evenly over all points{also}."
    )


def _which_features(plan: Plan) -> str:
    """Say how the features were chosen, if several sets were compared."""
    choice = plan.choice
    if choice.regret is None:
        return ""
    people = {
        "any": "any of these people",
        "smooth": "people spread smoothly",
        "spiky": "people at few points",
    }[plan.spread]
    sets = f"{', '.join(choice.feature_sets[:-1])} and {choice.feature_sets[-1]}"
    features = str(getattr(choice.mechanism, "features", choice.encoding))
    if format_rough(choice.regret) == "1":
        return f" Of the feature sets {sets}, {features} is the most exact one for {people}."
    return (
        f" Of the feature sets {sets} it takes {features}: for {people}, its error is at most "
        f"{format_rough(choice.regret)} times that of the best set; every other set has a "
        "larger ratio for some of them."
    )


def needless_trust_sentence(plan: Plan) -> list[str]:
    """Say that nobody needs to be trusted because trust gains nothing; empty if trust helps."""
    choice = plan.choice
    who = plan.trusted
    if (
        choice.trusted != "nobody"
        or who not in ("shuffler", "aggregator")
        or plan.target.delta == 0.0
    ):
        return []  # without a delta there are only pure protocols
    relying = [
        offer
        for offer in plan.candidates
        if offer.trusted in ("shuffler", "aggregator") and not offer.baseline
    ]
    if any(offer.expected_error < choice.expected_error * 0.999 for offer in relying):
        return []  # because of a limit on bits or local epsilon
    if not relying:
        reasons = [f"{row.protocol}: {row.reason.rstrip('.')}" for row in plan.not_offered[:1]]
        return [
            f"Nothing that relies on a {who} could be offered ({why}), so every person's own "
            "noise has to suffice."
            for why in reasons
        ]
    people = "1 honest person is" if plan.honest == 1 else f"{plan.honest:,} honest people are"
    few = (
        f"{people} too few for a {who} to help here: nothing"
        if plan.honest <= FEW_PEOPLE
        else "Nothing"
    )
    return [
        f"{few} that relies on a {who} is more exact than {protocol_label(choice)}, for "
        "which nobody need be trusted."
    ]


def guarantee_lines(plan: Plan) -> list[str]:
    """The guarantee, the fallback, and what a liar can do."""
    trusted = plan.choice.trusted
    if trusted == "nobody":
        return [str(plan.guarantee), *_zone_remarks(plan), *_damage_lines(plan)]
    warning = plan.protocol.warning(plan.query)
    return [
        f"If the {trusted} is honest: {plan.guarantee}",
        f"If it is not: {plan.if_shuffler_colludes}",
        *([warning] if warning else []),
        *_zone_remarks(plan),
        *_damage_lines(plan),
    ]


def _damage_lines(plan: Plan) -> list[str]:
    """How far one participant who lies can move the answer."""
    damage = plan.choice.damage
    return [] if damage is None else [damage.sentence(plan.query)]


def _zone_remarks(plan: Plan) -> list[str]:
    """What the guarantee means for places inside zones; empty for other queries."""
    return plan.query.remarks() if isinstance(plan.query.values_in, Zones | ZonePairs) else []


def warnings(plan: Plan, shown: Sequence[int] | None = None) -> list[str]:
    """Warn of fragile estimates (of the shown candidates) and of a guarantee that covers little."""
    offers = plan.candidates if shown is None else [plan.candidates[index] for index in shown]
    lines = [offer.warning for offer in offers if offer.warning]
    if isinstance(plan.query, UserQuery):
        nearest = plan.query.people.nearest
        distance = plan.target.distance
        unit = unit_of(plan)
        if distance < nearest * (1.0 - 1e-12):
            lines.append(
                f"different points are at least {format_number(nearest)}{unit} apart, so "
                "that a move of "
                f"{format_number(distance)}{unit} is one of "
                f"{format_number(100.0 * distance / nearest)} % of a user's items at most; "
                "who holds few items has no change that small."
            )
    return [f"Warning: {line}" for line in lines]


def not_offered(plan: Plan) -> list[str]:
    """List the protocols that do not apply, with reasons."""
    names = [
        f"{row.protocol} ({row.encoding})" if row.encoding else row.protocol
        for row in plan.not_offered
    ]
    return [
        f"Not offered: {name}: {row.reason}"
        for name, row in zip(names, plan.not_offered, strict=True)
    ]


def explanation(plan: Plan) -> list[str]:
    """Say what is hidden and what is not, with numbers from the guarantee and the domain."""
    target = plan.target
    unit = unit_of(plan)
    choice = plan.choice
    lines = [_hidden_sentences(plan)]
    if isinstance(plan.query, UserQuery):
        lines.append(plan.task.full_replacement)
    elif plan.query.diameter > target.distance * 1.001:
        lines.append(
            f"A change of {format_number(plan.query.diameter)}{unit}, {plan.query.farthest_move}, "
            "is NOT promised to be hidden."
        )
    if choice.trusted == "curator":
        lines.append(
            "The curator sees every raw value; if the curator is dishonest nothing is hidden."
        )
    elif choice.trusted != "nobody":
        left = (
            f"hidden at epsilon {format_epsilon(choice.local_epsilon)} only"
            if math.isfinite(choice.local_epsilon)
            else "NOT hidden at this delta"
        )
        seen = "one report" if plan.rounds == 1 else f"one person's {plan.rounds} reports"
        change = f"a change of {format_distance(target.distance)}{unit} in {seen}"
        lines.append(f"If the {choice.trusted} colludes with the analyst, {change} is {left}.")
    sealed = [
        f"{protocol_label(offer)}{f' ({offer.encoding})' if offer.encoding else ''} "
        f"{offer.dummies:,} dummies ({format_rough(offer.sealing_seconds)} seconds)"
        for offer in plan.candidates
        if offer.dummies is not None and offer.sealing_seconds is not None
    ]
    if sealed:
        lines.append(
            "What a shuffler that adds noise would have to add on average in a round, and how "
            f"long one core seals it: {'; '.join(sealed)}."
        )
    if plan.protocol.counts_on_honest:
        lines.append(
            f"The promise counts {plan.honest:,} honest reports of {plan.users:,}: people "
            "who drop out or collude beyond that weaken it, "
            f"and a batch of fewer than {plan.minimum:,} reports is refused."
        )
    lines += [choice.gain] if choice.gain else []
    if plan.query.between(1.0).startswith("cells, "):
        lines.append(
            "Distances are between grid cells: two places less than a cell apart can fall "
            "into neighbouring cells."
        )
    if choice.guarantee.protects == "one person" and plan.protocol.grain != 1:
        lines.append(
            "Values are rounded at random first, so the promise is about one person "
            "moving, not several together."
        )
    lines += plan.protocol.remarks(plan.query, target, plan.honest, plan.rounds)
    return [*lines, *plan.query.remarks(), NOT_HIDDEN, _lies(plan)]


def _lies(plan: Plan) -> str:
    """Say what is not prevented: participants who lie."""
    damage = plan.protocol.damage(plan.query, plan.users)
    liars = 1 if damage.one is None else math.ceil(plan.users / 100)
    return f"What people send is not checked for truth. {damage.sentence(plan.query, liars)}"


def _hidden_sentences(plan: Plan) -> str:
    target = plan.target
    unit = unit_of(plan)
    seen = f"whatever is seen is {likelihood_text(target.epsilon, target.delta)}"
    if isinstance(plan.query, CellQuery) and isinstance(plan.query.domain, Categories):
        return (
            "Any label is hidden among the others at epsilon "
            f"{format_epsilon(target.epsilon)}: {seen}."
        )
    if (
        target.shape == "linear"
        and isinstance(plan.query, CellQuery)
        and plan.query.between(1.0) != "values"
    ):
        smallest = target.epsilon * min(1.0, plan.query.step / target.distance)
        return (
            f"A change of {format_distance(target.distance)}{unit} is hidden at epsilon "
            f"{format_epsilon(target.epsilon)}: {seen}. A "
            f"smaller one may cross into the next {plan.query.part}, and then costs that of one "
            f"step, {format_epsilon(smallest)}."
        )
    if target.shape == "linear":
        return (
            f"A change of {format_distance(target.distance / 2)}{unit} is hidden at "
            f"epsilon {format_epsilon(target.epsilon / 2)}, "
            f"one of {format_distance(target.distance)}{unit} at epsilon "
            f"{format_epsilon(target.epsilon)}: {seen}."
        )
    return (
        f"Every change up to {format_distance(target.distance)}{unit} is hidden at epsilon "
        f"{format_epsilon(target.epsilon)}: {seen}."
    )


def plan_text(plan: Plan) -> str:
    """Format the whole plan as plain text."""
    table = [COLUMNS, *candidate_rows(plan)]
    widths = [max(len(row[column]) for row in table) for column in range(len(COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    lines = [
        *wording_lines(plan.title, plan.question),
        f"{plan_heading(plan)}, {target_text(plan)}",
        *lines,
    ]
    lines += ["", why_chosen(plan), *needless_trust_sentence(plan), *guarantee_lines(plan)]
    if isinstance(plan.query, UserQuery):
        lines.append(plan.task.full_replacement)
    return "\n".join([*lines, *not_offered(plan), *warnings(plan)])
