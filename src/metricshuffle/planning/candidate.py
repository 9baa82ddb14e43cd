"""One calibrated protocol of a plan: its numbers, what it promises, and what is left if the shuffler colludes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from metricshuffle.display import HtmlRepr
from metricshuffle.models import FrozenModel, OrInfinite
from metricshuffle.numerics.rounding import format_epsilon, format_number
from metricshuffle.planning.error_simulation import simulated_error
from metricshuffle.planning.setting import KindsOfPeople, Setting
from metricshuffle.planning.share_errors import COUNTED_POPULATIONS, ShareErrors, share_errors
from metricshuffle.privacy.guarantee import Guarantee, Who
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.protocol import Account, AnyProtocol, Protocol
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.query import Query
from metricshuffle.queries.user_queries import UserQuery

TRUST_ORDER: dict[Who, int] = {"nobody": 0, "shuffler": 1, "aggregator": 1, "curator": 2}
# Candidates whose expected errors differ by less than this are equal; less trust wins, then fewer bits.
ERROR_TOLERANCE = 1e-3
# So many standard errors of a simulation may be chance.
CHANCE_STANDARD_ERRORS = 4.0
# One report that counts for more people than this makes an estimate fragile.
WARNED_CONDITION = 1e3


class Candidate(HtmlRepr, FrozenModel):
    """A protocol that keeps the target, with the numbers that decide between protocols.

    `expected_error` is E|estimate - truth| as the query measures it, for users' items that are spread evenly over the points where it
    depends on them (`other_errors` tells it for items that are not). Of a histogram it is the mean over the cells of the share that a
    release prints first, for that kind of people for whom it is largest: `other_errors` tells all kinds; where it is simulated,
    `simulation_error` is its standard error;
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
    simulation_error: float | None = None
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
    feature_sets: tuple[str, ...] = ()
    """The sets of features that were compared, where there were several."""
    regret: float | None = None
    """How many times the error of the best of these sets that of the one taken is, at most over the kinds of people."""
    gain: str = ""
    """What the shuffler buys, in words."""
    mechanism: AnyProtocol | None = Field(default=None)
    """The protocol itself; a saved plan keeps it for the chosen candidate only."""

    def __repr__(self) -> str:
        encoding = f" ({self.encoding})" if self.encoding else ""
        return (
            f"Candidate({self.protocol}{encoding}, trusting {self.trusted}: expected error {self.expected_error:.4g}, "
            f"epsilon {format_epsilon(self.local_epsilon)} of one report, {self.bits_per_user:,} bits{', a baseline' * self.baseline})"
        )

    @property
    def largest_equal(self) -> float:
        """Up to which expected error another candidate counts as equally exact: to 0.1 %, and as far as a simulation tells them apart."""
        return self.expected_error * (1.0 + ERROR_TOLERANCE) + 2.0 * (self.simulation_error or 0.0)

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
            f"{self.protocol} (trusting {self.trusted}) is ill-conditioned: one report counts for up to "
            f"{format_number(self.condition)} items in "
            "the estimate, so that its shares come out only as well as their standard errors say; merge points, or allow a larger rate."
        )


def allowed_candidates(setting: Setting, candidates: Sequence[Candidate]) -> list[tuple[int, Candidate]]:
    """The candidates that may be chosen, with their indices: no more trust, bits or local epsilon than allowed."""
    cap, bits = setting.max_local_epsilon, setting.max_bits
    return [
        (index, offer)
        for index, offer in enumerate(candidates)
        if not offer.baseline and (cap is None or offer.local_epsilon <= cap) and (bits is None or offer.bits_per_user <= bits)
    ]


def expected_error(query: Query, protocol: Protocol, users: int, samples: int | None = None) -> float:
    """By the protocol's formula, or by a simulation where it has none."""
    if (expected := protocol.expected_error(query, users)) is not None:
        return expected
    if isinstance(query, UserQuery):
        return simulated_error(query, protocol, users, samples)
    return share_errors(protocol, query, users).largest()[0]


def candidate(
    setting: Setting,
    protocol: Protocol,
    account: Account | None = None,
    alike: Candidate | None = None,
    errors: ShareErrors | None = None,
    **details: Any,
) -> Candidate:
    """The numbers of a calibrated protocol put together; `account` is what certified it, and `errors` its errors, if they are at hand.

    `alike` is a candidate of the same setting with the same law of reports, whoever is trusted: its expected errors are the same.
    """
    query, target, users = setting.query, setting.target, setting.users
    guarantee = protocol.guarantee(query, target, setting.honest, setting.rounds, account)
    # Where nobody is trusted with a user's items, the promise itself is what is left.
    fallback = guarantee if query.items is not None and protocol.trusted == "nobody" else protocol.alone(query, target, setting.rounds)
    numbers: dict[str, Any]
    if isinstance(query, Histogram) and protocol.expected_error(query, users) is None:
        measured = share_errors(protocol, query, users) if errors is None else errors
        expected, deviation = measured.largest(setting.spread)
        numbers = {"expected_error": expected, "simulation_error": deviation, "other_errors": measured.means}
    else:
        numbers = {
            "expected_error": expected_error(query, protocol, users, setting.samples) if alike is None else alike.expected_error,
        }
    return Candidate(
        protocol=protocol.name,
        encoding=protocol.encoding,
        standard_error=protocol.standard_error(query, users),
        local_epsilon=fallback.epsilon,
        bits_per_user=protocol.bits_per_user,
        messages_per_user=protocol.messages_per_user,
        guarantee=guarantee,
        fallback=fallback,
        mechanism=protocol,
        **{"baseline": TRUST_ORDER[protocol.trusted] > TRUST_ORDER[setting.trusted], **numbers, **details},
    )


def enforce_known_order(candidates: Sequence[Candidate], spread: KindsOfPeople) -> list[Candidate]:
    """The same candidates, with errors of histograms in the order that is known to hold: noisy vectors of the same features are no more
    exact through a shuffler than by a curator, nor with a floor than without. Where a simulation says otherwise by no more than chance
    allows, the larger error is taken for both. (Beyond chance it stands: a floor may bring smoothed shares of peaks nearer.)"""
    ordered = list(candidates)
    for features in {str(offer.mechanism.features) for offer in ordered if isinstance(offer.mechanism, NoisyVectors)}:
        min_errors: dict[str, float] = {}
        chance = 0.0
        for index in sorted(range(len(ordered)), key=lambda index: _rank(ordered[index])):
            offer = ordered[index]
            if not isinstance(offer.mechanism, NoisyVectors) or str(offer.mechanism.features) != features or offer.simulation_error is None:
                continue
            chance += CHANCE_STANDARD_ERRORS * offer.simulation_error
            min_errors = {
                kind: min_errors[kind] if error < min_errors.get(kind, 0.0) <= error + chance else error
                for kind, error in offer.other_errors.items()
            }
            if min_errors != offer.other_errors:
                expected = max(min_errors[kind] for kind in COUNTED_POPULATIONS[spread])
                ordered[index] = offer.model_copy(update={"other_errors": min_errors, "expected_error": expected})
    return ordered


def _rank(offer: Candidate) -> tuple[bool, bool]:
    """By what makes noisy vectors less exact: shares of noise from everybody, then values that are randomized first."""
    return offer.trusted != "curator", getattr(offer.mechanism, "floor", None) is not None
