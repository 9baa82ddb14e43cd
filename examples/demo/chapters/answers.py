"""The answers of both collections, next to the truth."""

from __future__ import annotations

from dataclasses import dataclass

from metricshuffle.numerics.rounding import format_number
from metricshuffle.report.assessment_text import Study
from metricshuffle.report.components import Card, GuaranteeLine
from metricshuffle.report.plan_view import plan_facts, release_facts


@dataclass(frozen=True)
class Answers:
    cards: tuple[Card, ...]


def answers(*studies: Study) -> Answers:
    return Answers(tuple(_card(study) for study in studies))


def _card(study: Study) -> Card:
    plan = plan_facts(study.plan)
    release = release_facts(study.release)
    chosen = plan.choice
    unit = plan.spaced_unit
    return Card(
        title=study.title,
        asked=f"{plan.users:,} people are asked for {study.asked}.",
        answer=release.value_text,
        unit=unit,
        pair=plan.on_a_plane,
        caption=f"private {plan.kind}",
        facts=(
            ("truth", f"{release.written(study.truth)}{unit}"),
            ("95 % interval", f"{release.interval_text}{unit}"),
            (
                "error",
                f"{format_number(study.error)}{unit} (expected "
                f"{plan.in_units(chosen.expected_error)})",
            ),
            (
                "protocol",
                ", ".join(
                    filter(
                        None,
                        (chosen.name, chosen.encoding, f"{chosen.bits_per_user:,} bits a person"),
                    )
                ),
            ),
        ),
        promises=(
            GuaranteeLine(f"If the {release.trusted} is honest", release.guarantee),
            GuaranteeLine("If it is not", release.if_shuffler_colludes, broken=True),
        ),
    )
