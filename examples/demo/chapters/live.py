"""A live round: separate posts to a shuffler that was killed in the middle, and the release that
came of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from examples.demo.live_round import LiveRound

from metricshuffle.numerics.rounding import format_number
from metricshuffle.report.components import Card, GuaranteeLine, TextTable
from metricshuffle.report.plan_view import release_facts

STATES = {
    "open": "reports are opened, checked, stored and acknowledged",
    "sealed": "nothing is accepted any more",
    "shuffled": "all messages, sorted by their bytes; the reports are deleted",
    "erased": "the keys are destroyed",
    "released": "the analyst may fetch the messages",
    "purged": "the analyst has them; a digest and a number stay",
}


@dataclass(frozen=True)
class Live:
    people: int
    acknowledged: int
    kept: int
    seconds: str
    digest: str
    posts: TextTable
    states: TextTable
    card: Card


def live(played: LiveRound) -> Live:
    release = played.release
    facts = release_facts(played.release)
    unit = f" {release.query.unit}" if release.query.unit else ""
    return Live(
        people=played.people,
        acknowledged=played.acknowledged,
        kept=played.kept,
        seconds=f"{played.seconds:.0f}",
        digest=played.digest,
        posts=TextTable(
            ("reports", "sent", "answered"),
            [(posts.kind, f"{posts.sent:,}", posts.answer) for posts in played.posts],
            numeric=(1,),
        ),
        states=TextTable(
            ("state", "after (s)", "what it means"),
            [(state, f"{seconds:.1f}", STATES.get(state, "")) for state, seconds in played.states],
            numeric=(1,),
        ),
        card=Card(
            title="What the analyst got",
            answer=facts.value_text,
            unit=unit,
            caption=f"private {release.query.kind} of {release.reports:,} reports",
            facts=(
                ("truth", f"{facts.written(played.truth)}{unit}"),
                ("95 % interval", f"{facts.interval_text}{unit}"),
                (
                    "error",
                    f"{format_number(float(f'{abs(release.value - played.truth):.3g}'))}{unit}",
                ),
            ),
            promises=(
                GuaranteeLine(f"If the {facts.trusted} is honest", facts.guarantee),
                GuaranteeLine("If it is not", facts.if_shuffler_colludes, broken=True),
            ),
        ),
    )
