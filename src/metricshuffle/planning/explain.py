"""A plan in words: the table of candidates, why one was chosen, and what is and is not hidden."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from metricshuffle.privacy.guarantee import plain, promised

if TYPE_CHECKING:
    from metricshuffle.planning.candidate import Candidate
    from metricshuffle.planning.plan import Plan

COLUMNS = ("", "protocol", "encoding", "trusts", "expected error", "epsilon if it colludes", "bits per user")


def unit_of(plan: Plan) -> str:
    """The unit of the values with a space before it; empty if there is none."""
    return f" {plan.query.unit}" if plan.query.unit else ""


def target_text(plan: Plan) -> str:
    """The target with its unit; an epsilon that was searched for is not rounded below what is promised."""
    target = plan.target
    growth = "in proportion to the distance up to" if target.shape == "linear" else "for every move up to"
    return f"epsilon {promised(target.epsilon)} {growth} {plain(target.distance)}{unit_of(plan)}, delta {target.delta:g}"


def rows(plan: Plan) -> list[tuple[str, ...]]:
    """The candidates as text cells, in the order of COLUMNS."""
    unit = unit_of(plan)
    table: list[tuple[str, ...]] = []
    for index, one in enumerate(plan.candidates):
        mark = "->" if index == plan.chosen else ("(baseline)" if one.baseline else "")
        table.append((
            mark, name_of(one), one.encoding, one.trusted, f"{plain(one.expected_error)}{unit}",
            "raw values" if one.trusted == "curator" else promised(one.local_epsilon), f"{one.bits_per_user:,}",
        ))  # fmt: skip
    return table


def name_of(one: Candidate) -> str:
    """The protocol, with its total shape where that tells two of them apart."""
    return f"{one.protocol} (shape {one.shape:,})" if one.protocol == "polya-shuffle" and one.shape not in (None, 1) else one.protocol


def why_chosen(plan: Plan) -> str:
    """One sentence on the choice."""
    one = plan.choice
    least = min(other.expected_error for other in plan.candidates if not other.baseline)
    near = "the least expected error" if one.expected_error <= least else "the least expected error (to 0.1 %) with the fewest bits"
    if one.expected_error > least * 1.001:
        near = "the least expected error within the limits on bits and local epsilon"
    trust = {"nobody": "nobody", "shuffler": "the shuffler", "curator": "the curator"}[plan.trusted]
    return f"Chosen: {name_of(one)} ({one.encoding}), {near} among the protocols that trust no more than {trust}."


def explanation(plan: Plan) -> list[str]:
    """Sentences on what is hidden and what is not, with numbers from the guarantee and the domain."""
    target, unit, one = plan.target, unit_of(plan), plan.choice
    diameter = plan.query.diameter
    lines = []
    if target.shape == "linear":
        half = target.distance / 2
        lines.append(
            f"A change of {plain(half)}{unit} is hidden at epsilon {promised(target.epsilon / 2)}, "
            f"one of {plain(target.distance)}{unit} at epsilon {promised(target.epsilon)}: nobody's odds of one against the other "
            f"shift by more than a factor {promised(math.exp(target.epsilon))}, up to a failure probability of {target.delta:g}."
        )
    else:
        lines.append(
            f"Every change up to {plain(target.distance)}{unit} is hidden at epsilon {promised(target.epsilon)} "
            f"(odds shift by at most a factor {promised(math.exp(target.epsilon))}), up to a failure probability of {target.delta:g}."
        )
    if diameter > target.distance * 1.001:
        lines.append(f"A change of {plain(diameter)}{unit}, from one end of the range to the other, is NOT promised to be hidden.")
    if one.trusted != "nobody":
        if one.trusted == "curator":
            lines.append("The curator sees every raw value; if the curator is dishonest nothing is hidden.")
        else:
            left = (
                f"hidden at epsilon {promised(one.local_epsilon)} only" if math.isfinite(one.local_epsilon) else "NOT hidden at this delta"
            )
            seen = "one report" if plan.rounds == 1 else f"one person's {plan.rounds} reports"
            lines.append(f"If the {one.trusted} colludes with the analyst, a change of {plain(target.distance)}{unit} in {seen} is {left}.")
    if one.trusted in ("shuffler", "aggregator"):
        lines.append(
            f"The promise counts {plan.honest:,} honest reports of {plan.users:,}: people who drop out or collude beyond that weaken it, "
            f"and a batch of fewer than {plan.minimum:,} reports is refused."
        )
    if plan.query.between == "cells":
        lines.append("Distances are between grid cells: two places less than a cell apart can fall into neighbouring cells.")
    if one.guarantee.protects == "one person" and plan.query.grain(plan.granularity) != 1:
        lines.append("Values are rounded at random first, so the promise is about one person moving, not several together.")
    lines.append("Not hidden: that somebody took part, how many did, and anything a lying client sends to move the answer.")
    return lines


def plan_text(plan: Plan) -> str:
    """The whole plan as plain text."""
    table = [COLUMNS, *rows(plan)]
    widths = [max(len(row[column]) for row in table) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    lines.insert(0, f"{plan.query.kind} over {plan.query.domain}, {plan.users:,} users ({plan.honest:,} honest), {target_text(plan)}")
    lines += ["", why_chosen(plan)]
    if plan.choice.trusted == "nobody":
        lines.append(str(plan.choice.guarantee))
    else:
        lines += [f"If the {plan.choice.trusted} is honest: {plan.choice.guarantee}", f"If it is not: {plan.choice.fallback}"]
    lines += [f"Not offered: {one.protocol} ({one.encoding}): {one.reason}" for one in plan.not_offered]
    return "\n".join(lines)
