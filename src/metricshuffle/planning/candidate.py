"""One calibrated protocol of a plan: its errors, its guarantee and its fallback."""

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
from metricshuffle.privacy.guarantee import Guarantee, Who
from metricshuffle.protocols.damage import Damage
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.protocol import Account, AnyProtocol, Protocol
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.query import Query
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.simulation.share_errors import COUNTED_POPULATIONS, ShareErrors, share_errors

TRUST_ORDER: dict[Who, int] = {"nobody": 0, "shuffler": 1, "aggregator": 1, "curator": 2}
# Errors that differ by at most this fraction are equal; then less trust wins, then fewer bits.
ERROR_TOLERANCE = 1e-3
# Differences up to this many standard errors of a simulation may be chance.
CHANCE_STANDARD_ERRORS = 4.0
# Up to this ratio of their errors, noise of people is preferred to noise of a shuffler.
SUBTRACTION_PRICE = 1.1
# An estimate in which one report counts for more items than this is fragile.
WARNED_CONDITION = 1e3


class Candidate(HtmlRepr, FrozenModel):
    """A protocol that meets the target, with the numbers that decide between protocols.

    `expected_error` is E|estimate - truth| as the query measures it. If it depends on users' items,
    it is the error for items spread evenly over the points. For a histogram it is the mean error of
    the shares that a release prints first, over the cells (for quantiles and spread, over the
    numbers), for the kind of people with the largest error. `other_errors` has the errors
    for other kinds of people, and `simulation_error` is the standard error of a simulated
    `expected_error`. `local_epsilon` is the epsilon of one report at the target's distance.

    Sums: `rate` is the noise's own epsilon per step (per coarse cell if values are rounded first,
    per grid cell for a centroid), `shape` the total shape of the honest people's noise. Users'
    items: `item_rate` is the rate of one report, `condition` the number of items that one report
    can count for in the estimate.
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
    """Expected errors by how people's items are distributed.

    For users' items they are computed for the chosen candidate only, because simulating them is
    slow.
    """
    local_epsilon: OrInfinite
    local_epsilon_per_unit: OrInfinite = math.inf
    bits_per_user: int
    messages_per_user: int
    dummies: int | None = None
    """Mean number of dummies that the shuffler adds in a round, if it adds the noise."""
    sealing_seconds: float | None = None
    """Seconds in which one core would seal these dummies."""
    guarantee: Guarantee
    fallback: Guarantee
    damage: Damage | None = None
    """How far one participant who lies can move the answer; None in plans that do not say it."""
    baseline: bool
    feature_sets: tuple[str, ...] = ()
    """The feature sets that were compared, if there were several."""
    regret: float | None = None
    """Largest ratio of the error to that of the best feature set, over the kinds of people."""
    gain: str = ""
    """Text on what the shuffler gains."""
    mechanism: AnyProtocol | None = Field(default=None)
    """The protocol itself; a saved plan stores it for the chosen candidate only."""

    def __repr__(self) -> str:
        encoding = f" ({self.encoding})" if self.encoding else ""
        return (
            f"Candidate({self.protocol}{encoding}, trusting {self.trusted}: expected error "
            f"{self.expected_error:.4g}, "
            f"epsilon {format_epsilon(self.local_epsilon)} of one report, "
            f"{self.bits_per_user:,} bits{', a baseline' * self.baseline})"
        )

    @property
    def largest_equal(self) -> float:
        """Largest error that counts as equal to this one: 0.1 % and two simulation errors more."""
        return self.expected_error * (1.0 + ERROR_TOLERANCE) + 2.0 * (self.simulation_error or 0.0)

    @property
    def trusted(self) -> Who:
        return self.guarantee.trust.trusted

    def keeps_damage(self, limit: float, liars: int) -> bool:
        """Whether this many liars certainly move the answer by no more than the limit."""
        return self.damage is not None and self.damage.keeps(limit, liars)

    @property
    def details(self) -> dict[str, Any]:
        """The calibrated parameters."""
        names = ("rate", "flip", "shape", "padding", "radius", "item_rate", "condition")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def warning(self) -> str:
        """Sentence on what makes the estimate fragile; empty if nothing does."""
        if self.condition is None or self.condition <= WARNED_CONDITION:
            return ""
        return (
            f"{self.protocol} (trusting {self.trusted}) is ill-conditioned: one report "
            "counts for up to "
            f"{format_number(self.condition)} items in "
            "the estimate, so that its shares come out only as well as their standard "
            "errors say; merge points, or allow a larger rate."
        )


def allowed_candidates(
    setting: Setting, candidates: Sequence[Candidate]
) -> list[tuple[int, Candidate]]:
    """Return the candidates within the limits of the setting, with indices."""
    cap = setting.max_local_epsilon
    bits = setting.max_bits
    limit = setting.max_damage
    return [
        (index, offer)
        for index, offer in enumerate(candidates)
        if not offer.baseline
        and (cap is None or offer.local_epsilon <= cap)
        and (bits is None or offer.bits_per_user <= bits)
        and (limit is None or offer.keeps_damage(limit, setting.liars))
    ]


def most_exact(offers: Sequence[Candidate]) -> Candidate:
    """Candidate of the least expected error; among equals the least trust, then the fewest bits.

    A shuffler that adds the noise can also subtract it, so it is trusted with more than one that
    only mixes. It is chosen only if the errors of all candidates without such a shuffler are more
    than SUBTRACTION_PRICE times the least error.
    """
    mixed = [offer for offer in offers if offer.dummies is None]
    least = min(offer.expected_error for offer in offers)
    if any(offer.expected_error <= SUBTRACTION_PRICE * least for offer in mixed):
        offers = mixed
    best = min(offers, key=lambda offer: offer.expected_error)
    equal = [offer for offer in offers if offer.expected_error <= best.largest_equal]
    return min(
        equal,
        key=lambda offer: (
            TRUST_ORDER[offer.trusted],
            offer.bits_per_user,
            offer.expected_error,
        ),
    )


def expected_error(
    query: Query, protocol: Protocol, users: int, samples: int | None = None
) -> float:
    """Expected error by the protocol's formula, or by simulation if it has none."""
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
    """Build the candidate of a calibrated protocol.

    Args:
        account: The account that certified the protocol, if at hand.
        alike: A candidate of the same setting with the same law of reports and possibly other
            trust; its expected errors are reused.
        errors: The protocol's simulated errors, if at hand.
    """
    query = setting.query
    target = setting.target
    users = setting.users
    guarantee = protocol.guarantee(query, target, setting.honest, setting.rounds, account)
    # If nobody is trusted with a user's items, the guarantee itself is the fallback.
    fallback = (
        guarantee
        if query.items is not None and protocol.trusted == "nobody"
        else protocol.alone(query, target, setting.rounds)
    )
    numbers: dict[str, Any]
    if isinstance(query, CellQuery) and protocol.expected_error(query, users) is None:
        measured = share_errors(protocol, query, users) if errors is None else errors
        expected, deviation = measured.largest(setting.spread)
        numbers = {
            "expected_error": expected,
            "simulation_error": deviation,
            "other_errors": measured.means,
        }
    else:
        numbers = {
            "expected_error": expected_error(query, protocol, users, setting.drawn_number)
            if alike is None
            else alike.expected_error,
        }
    return Candidate(
        protocol=protocol.name,
        encoding=protocol.encoding,
        standard_error=protocol.standard_error(query, users),
        local_epsilon=fallback.epsilon,
        bits_per_user=protocol.bits_per_user,
        messages_per_user=protocol.messages_per_user,
        damage=protocol.damage(query, users),
        guarantee=guarantee,
        fallback=fallback,
        mechanism=protocol,
        **{
            "baseline": TRUST_ORDER[protocol.trusted] > TRUST_ORDER[setting.trusted],
            **numbers,
            **details,
        },
    )


def enforce_known_order(candidates: Sequence[Candidate], spread: KindsOfPeople) -> list[Candidate]:
    """Return the candidates, with simulated histogram errors in the order that is known to hold.

    Noisy vectors of the same features are no more exact through a shuffler than by a curator, nor
    with a floor than without. If simulated errors contradict this order by no more than chance
    allows, both get the larger error. (A larger contradiction is kept, because a floor may bring
    smoothed shares nearer to peaks.)
    """
    ordered = list(candidates)
    for features in {
        str(offer.mechanism.features)
        for offer in ordered
        if isinstance(offer.mechanism, NoisyVectors)
    }:
        min_errors: dict[str, float] = {}
        chance = 0.0
        for index in sorted(range(len(ordered)), key=lambda index: _rank(ordered[index])):
            offer = ordered[index]
            if (
                not isinstance(offer.mechanism, NoisyVectors)
                or str(offer.mechanism.features) != features
                or offer.simulation_error is None
            ):
                continue
            chance += CHANCE_STANDARD_ERRORS * offer.simulation_error
            min_errors = {
                kind: min_errors[kind]
                if error < min_errors.get(kind, 0.0) <= error + chance
                else error
                for kind, error in offer.other_errors.items()
            }
            if min_errors != offer.other_errors:
                expected = max(min_errors[kind] for kind in COUNTED_POPULATIONS[spread])
                ordered[index] = offer.model_copy(
                    update={"other_errors": min_errors, "expected_error": expected}
                )
    return ordered


def _rank(offer: Candidate) -> tuple[bool, bool]:
    """Sort key that puts curators before distributed noise, and then no floor before a floor."""
    return offer.trusted != "curator", getattr(offer.mechanism, "floor", None) is not None
