"""One calibrated protocol of a plan: its numbers, what it promises, and what is left if the shuffler colludes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from metricshuffle.declared import Declared, OrInfinite
from metricshuffle.numerics.rounding import plain, promised
from metricshuffle.planning.setting import Setting
from metricshuffle.planning.simulate import other_errors, simulated_error
from metricshuffle.privacy.guarantee import Guarantee, Who
from metricshuffle.protocols.base import Account, AnyProtocol, Protocol
from metricshuffle.queries.base import Query
from metricshuffle.queries.user_items import UserQuery
from metricshuffle.shown import Shown

TRUST_ORDER: dict[Who, int] = {"nobody": 0, "shuffler": 1, "aggregator": 1, "curator": 2}
# One report that counts for more people than this makes an estimate fragile.
WARNED_CONDITION = 1e3


class Candidate(Shown, Declared):
    """A protocol that keeps the target, with the numbers that decide between protocols.

    `expected_error` is E|estimate - truth| as the query measures it, for users' items that are spread evenly over the points where it
    depends on them (`other_errors` tells it for items that are not; of a histogram from noisy vectors it is the largest of these);
    `local_epsilon` what one report gives away at the target's distance. Sums: `rate` is the noise's own epsilon per step (per coarse
    cell if values are rounded first, per grid cell for a
    centroid), `shape` the total shape of the honest people's noise. Users' items: `item_rate` is that of one report, `condition`
    how many items one report can count for in the estimate.
    """

    protocol: str
    encoding: str | None = None
    rate: float | None = None
    flip: float | None = None
    shape: int | None = None
    padding: str | None = None
    radius: int | None = None
    item_rate: float | None = None
    condition: float | None = None
    expected_error: OrInfinite
    standard_error: float | None = None
    other_errors: dict[str, float] = Field(default_factory=dict)
    """Expected errors for people whose items lie otherwise, by how they lie; of users' items for the chosen candidate only, because
    they take long to simulate."""
    local_epsilon: OrInfinite
    local_epsilon_per_unit: OrInfinite = math.inf
    bits_per_user: int
    messages_per_user: int
    guarantee: Guarantee
    fallback: Guarantee
    baseline: bool
    gain: str = ""
    """What the shuffler buys, in words."""
    mechanism: AnyProtocol | None = Field(default=None)
    """The protocol itself; a saved plan keeps it for the chosen candidate only."""

    def __repr__(self) -> str:
        encoding = f" ({self.encoding})" if self.encoding else ""
        return (
            f"Candidate({self.protocol}{encoding}, trusting {self.trusted}: expected error {self.expected_error:.4g}, "
            f"epsilon {promised(self.local_epsilon)} of one report, {self.bits_per_user:,} bits{', a baseline' * self.baseline})"
        )

    @property
    def trusted(self) -> Who:
        return self.guarantee.trust.trusted

    @property
    def details(self) -> dict[str, Any]:
        """The parameters that were calibrated."""
        names = ("rate", "flip", "shape", "padding", "radius", "item_rate", "condition")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def warning(self) -> str:
        """What makes the estimate fragile, in a sentence; empty if nothing does."""
        if self.condition is None or self.condition <= WARNED_CONDITION:
            return ""
        return (
            f"{self.protocol} (trusting {self.trusted}) is ill-conditioned: one report counts for up to {plain(self.condition)} items in "
            "the estimate, so that its shares come out only as well as their standard errors say; merge points, or allow a larger rate."
        )


def expected_error(
    query: Query, protocol: Protocol, users: int, others: Mapping[str, float] | None = None, samples: int | None = None
) -> float:
    """By the protocol's formula, or by a simulation where it has none; `others` are its `other_errors`, if they are at hand."""
    if (expected := protocol.expected_error(query, users)) is not None:
        return expected
    if isinstance(query, UserQuery):
        return simulated_error(query, protocol, users, samples)
    return max((other_errors(query, protocol, users, samples) if others is None else others).values())


def candidate(
    setting: Setting, protocol: Protocol, account: Account | None = None, alike: Candidate | None = None, **details: Any
) -> Candidate:
    """The numbers of a calibrated protocol put together; `account` is what certified it, if that is at hand.

    `alike` is a candidate of the same setting with the same law of reports, whoever is trusted: its expected errors are the same.
    """
    query, target, users = setting.query, setting.target, setting.users
    guarantee = protocol.guarantee(query, target, setting.honest, setting.rounds, account)
    # Where nobody is trusted with a user's items, the promise itself is what is left.
    fallback = guarantee if query.items is not None and protocol.trusted == "nobody" else protocol.alone(query, target, setting.rounds)
    others = {} if isinstance(query, UserQuery) else other_errors(query, protocol, users, setting.samples)
    expected = expected_error(query, protocol, users, others, setting.samples) if alike is None else alike.expected_error
    return Candidate(
        protocol=protocol.name,
        encoding=protocol.encoding,
        expected_error=expected,
        standard_error=protocol.standard_error(query, users),
        other_errors=others,
        local_epsilon=fallback.epsilon,
        bits_per_user=protocol.bits_per_user,
        messages_per_user=protocol.messages_per_user,
        guarantee=guarantee,
        fallback=fallback,
        mechanism=protocol,
        **{"baseline": TRUST_ORDER[protocol.trusted] > TRUST_ORDER[setting.trusted], **details},
    )
