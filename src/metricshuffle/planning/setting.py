"""The input of the planner: a query, a target, the people, and limits on the candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from metricshuffle.errors import argument
from metricshuffle.numerics.rounding import format_distance, format_number
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.target import Target
from metricshuffle.queries.query import Query
from metricshuffle.randomizers.randomizer import Randomizer

EncodingChoice = Literal["unary", "modular", "auto"]
ShareTransport = Literal["shuffler", "aggregator"]
Padding = Literal["clamp", "bounded"]
KindsOfPeople = Literal["any", "smooth", "spiky"]
"""How people are spread: unknown, evenly or in clusters ("smooth"), or at few points ("spiky")."""
FloorRule = Literal["always", "auto", "never"]
"""Whether noisy vectors have a floor: wherever there is one, only where it costs little, or not."""
Draws = int | Literal["auto"]
"""Number of items that each user draws, or "auto" if the planner chooses it."""
OWN_RANDOMIZER = "own-randomizer"
MAX_DUMMIES = 10_000_000
"""Default limit on dummies: a shuffler seals about 6,500 a second on one core."""


@dataclass(frozen=True)
class Setting:
    """A query, a target and the people, with the choices that narrow the candidates."""

    query: Query
    target: Target
    users: int
    honest: int
    rounds: int = 1
    trusted: Who = "shuffler"
    encoding: EncodingChoice = "auto"
    padding: Padding = "clamp"
    granularity: float = 1.0
    draw: Draws | None = None
    """Number of items that each user draws for item-wise reports."""
    without_replacement: bool = False
    transport: ShareTransport = "shuffler"
    max_local_epsilon: float | None = None
    max_bits: int | None = None
    max_dummies: int = MAX_DUMMIES
    """Most dummies that a shuffler may have to add in a round, on average."""
    max_damage: float | None = None
    """Largest change of the answer by `liars` participants who lie, certified."""
    liars: int = 1
    floor: FloorRule = "always"
    """Whether noisy vectors randomize values locally first, in case the shuffler colludes."""
    spread: KindsOfPeople = "any"
    """The kinds of people for whom histogram errors count and feature sets are chosen."""
    randomizer: Randomizer | None = None
    """A randomizer that the user supplies; then no other protocol is calibrated."""
    protocols: tuple[str, ...] | None = None
    """Names of the protocols to calibrate (all if None)."""
    shapes: tuple[int, ...] | None = None
    """Total shapes of shuffled noise to calibrate (a few between 1 and honest if None)."""
    title: str | None = None
    question: str | None = None

    def at_epsilon(self, epsilon: float) -> Setting:
        target = Target(
            epsilon,
            self.target.delta,
            self.target.distance,
            self.target.shape,
            self.target.label_epsilon,
        )
        return replace(self, target=target, query=self.query.for_target(target))

    @property
    def drawn_number(self) -> int | None:
        """Number of items that each user draws, if it was given."""
        return None if self.draw == "auto" else self.draw

    def wants(self, protocol: str) -> bool:
        """Whether a protocol of this name may be a candidate."""
        return self.protocols is None or protocol in self.protocols


def step_sentence(query: Query, distance: float, step: float) -> str:
    """Error sentence for a distance below one step."""
    return (
        f"{argument('distance')} {format_distance(distance)} is less than one step "
        f"({f'{format_number(step)} {query.unit}'.strip()}); "
        f"values closer than a step are the same value, so nothing would be promised."
    )
