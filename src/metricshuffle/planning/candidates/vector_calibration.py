"""Calibration of noisy vectors: sums of features with noise of all people or of a curator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from metricshuffle.accounting.vectors.encoding_terms import residue_bits
from metricshuffle.encodings.packed_vectors import cheapest_packing
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.numerics.certified_search import farthest_certified, last_certified
from metricshuffle.planning.candidate import Candidate, candidate, expected_error
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.guarantee import Who
from metricshuffle.protocols.features import (
    Cells,
    Features,
    Lattice,
    space_of,
)
from metricshuffle.protocols.features.feature_set import MAX_COORDINATES
from metricshuffle.protocols.features.query_features import query_features
from metricshuffle.protocols.noisy_vectors import FINE_MAP_POINTS, NoisyVectors
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.protocols.vector_accounts import floor_slope
from metricshuffle.queries.by_group import ByGroup
from metricshuffle.queries.flows import Flows
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.simulation.share_errors import moved_errors, regrets, share_errors
from metricshuffle.simulation.simulated_releases import FEW_RUNS_POINTS
from metricshuffle.spaces import Discrete, Domain, ZonePairs, Zones

Vectors = TypeVar("Vectors", NoisyVectors, ShufflerNoise)
NAME = "noisy-vectors"
# Default epsilon of one report with a floor, at the target's distance, if the shuffler colludes.
FLOOR_EPSILON = 10.0
# Simulated releases per kind of people to compare feature sets for users' items: for many points
# and for few. Simulating many points is slow, and sets that three releases do not distinguish are
# nearly equally good.
ITEM_RUNS = (3, 32)
# If randomized values have more points times features than this, only one feature set is tried.
MAX_FITTED = 2**18
# Units are this many times finer than units whose rounding adds 1 % to the variance of the noise.
ROUNDING_FINENESS = 4.0
# Fractions of the target's delta for mixing, if the noise needs delta too. A smaller fraction needs
# less noise, and sometimes more bits.
MIXING_DELTA_SHARES = (1 / 2, 1 / 8, 1 / 32, 1 / 128)


@family
def noisy_vectors(setting: Setting) -> Iterator[Offer]:
    """Offer noisy vectors with a floor, without one, by a curator, and for some queries locally.

    They are sent to an aggregator if the setting trusts one, otherwise to a shuffler.
    """
    query = setting.query
    if query.points is None:
        return
    mixed: Who = "aggregator" if setting.trusted == "aggregator" else "shuffler"
    floors = floors_of(setting)
    if floors and setting.floor != "never":
        yield Offer(NAME, "with a floor", partial(calibrate_vectors, setting, mixed, floors))
    yield Offer(NAME, "no floor", partial(calibrate_vectors, setting, mixed, ()))
    yield Offer(NAME, "curator", partial(calibrate_vectors, setting, "curator", ()))
    # There is no other local protocol for these queries.
    if isinstance(query, LineQuery | ByGroup | RecordQuery) or (
        isinstance(query, Flows) and query.by_blocks
    ):
        yield Offer(NAME, "nobody", partial(calibrate_vectors, setting, "nobody", ()))


def calibrate_vectors(setting: Setting, trusted: Who, floors: tuple[Randomizer, ...]) -> Candidate:
    """Calibrate the feature set of least regret with the least noise that meets the target.

    The regret of a set is the largest ratio of its error to that of the best set, over the kinds of
    people that count, in the error measure of the plan.
    """
    if trusted == "shuffler" and setting.target.delta == 0.0:
        raise ConditionError(
            "Noisy vectors", "delta > 0 (shares are mixed up to a probability)", "delta = 0"
        )
    space = space_of(setting.query)
    reasons = []
    protocols: list[NoisyVectors] = []
    for features in _feature_sets(setting, trusted):
        floor = next(
            (floor for floor in floors if floor_slope(floor, features, space) is not None), None
        )
        if floors and floor is None:
            continue
        # With many features, fitting shares of randomized values is slow. Sets that distinguish all
        # points come first.
        if (
            floors
            and protocols
            and (space.domain.size or 0) * len(features.weights(space)) > MAX_FITTED
        ):
            continue
        try:
            made = _best_split(setting, trusted, features)
            # A floor changes neither the required noise nor how it is sent.
            if floor is not None and made.alone(
                setting.query, setting.target, setting.rounds
            ).epsilon > local_cap(setting):
                made = made.model_copy(update={"floor": floor})
            protocols.append(made)
        except (ConditionError, NotCertified, InputError) as reason:
            reasons.append(f"{features}: {reason}")
    if not protocols:
        raise NotCertified("; ".join(reasons) or "no feature set fits this space.")
    fitting = [
        protocol
        for protocol in protocols
        if setting.max_bits is None or protocol.bits_per_user <= setting.max_bits
    ]
    details: dict[str, Any] = {}
    if len(fitting) > 1:
        best, details = least_regret(setting, fitting)
    else:
        best = min(fitting or protocols, key=lambda protocol: protocol.bits_per_user)
    # `decide_floor` still offers these vectors if the floor costs much and the setting is "auto".
    needless = (
        not floors
        and setting.floor != "never"
        and trusted != "curator"
        and bool(floors_of(setting))
    )
    if needless and best.alone(setting.query, setting.target, setting.rounds).epsilon <= local_cap(
        setting
    ):
        raise NotCertified(
            f"one report has at most epsilon {local_cap(setting):g} without a floor, so the other "
            "candidate has no floor either."
        )
    account = best.account(setting.query, setting.target, setting.honest, setting.rounds)
    if not account.kept:
        raise NotCertified(
            "the calibrated noise did not pass the final verification; please report this as a bug."
        )
    details |= {"baseline": True} if needless else {}
    return candidate(setting, best, account, rate=best.factor, **details)


def least_regret(setting: Setting, protocols: Sequence[Vectors]) -> tuple[Vectors, dict[str, Any]]:
    """Return the protocol of least regret (among equals, of fewest bits) and its details."""
    query = setting.query
    users = setting.users
    if not query.shared:
        best = min(protocols, key=lambda protocol: expected_error(query, protocol, users))
        return best, {"feature_sets": tuple(str(protocol.features) for protocol in protocols)}
    if isinstance(query, Histogram):
        errors = [share_errors(protocol, query, users) for protocol in protocols]
    else:
        runs = ITEM_RUNS[(space_of(query).domain.size or 0) <= FEW_RUNS_POINTS]
        errors = [moved_errors(protocol, query, users, runs) for protocol in protocols]
    regret_values = regrets(errors, setting.spread)
    least = min(
        range(len(regret_values)),
        key=lambda index: (regret_values[index], protocols[index].bits_per_user),
    )
    remarks = {
        "regret": regret_values[least],
        "feature_sets": tuple(str(protocol.features) for protocol in protocols),
    }
    return protocols[least], remarks | (
        {"errors": errors[least]} if isinstance(query, Histogram) else {}
    )


def _feature_sets(setting: Setting, trusted: Who) -> list[Features]:
    """Return the feature sets to try.

    For a flat target on a line, zones or pairs of zones they include single cells: with cells, a
    long move costs no more than a short one, while with thresholds every step of a move costs the
    same. Features that are rounded at random are for linear targets only: no exact law of a long
    move is known for them.
    """
    space = space_of(setting.query)
    sets: list[Features] = []
    if not setting.query.shared:
        # If everyone adds all of the noise, the sums have as much noise as at a lower rate.
        noises = math.sqrt(setting.users) if trusted == "nobody" else 1.0
        sets += query_features(setting.query, setting.users, setting.target.slope / noises)
        return sets
    if (
        setting.target.shape == "flat"
        and (Lattice.of(space) is not None or _has_nearest(space.domain))
        and 2 <= (space.domain.size or 0) <= MAX_COORDINATES
    ):
        sets.append(Cells())
    for kind in sorted(Features.kinds):
        known = Features.kinds[kind]
        if issubclass(known, Features):
            sets += [
                features
                for features in known.offered(space, setting.users, setting.target.slope)
                if features not in sets and not (features.fine and setting.target.shape == "flat")
            ]
    # Zones are few enough for all of their sets: fitting hats takes few steps.
    few = (space.domain.size or 0) <= FINE_MAP_POINTS or isinstance(space.domain, Zones)
    return sets if few else sets[:1]


def _has_nearest(domain: Domain) -> bool:
    """Whether values are zones, or pairs of zones without blocks."""
    by_pairs = isinstance(domain, ZonePairs) and domain.zones.blocks is None
    return isinstance(domain, Zones) or by_pairs


class Units(NamedTuple):
    """Units of a vector: a person's features, averaged over their items, times units/divisor."""

    units: int
    divisor: int = 1
    rounding: Literal["random"] | None = None

    @property
    def ratio(self) -> float:
        return self.units / self.divisor


def _units(setting: Setting, features: Features) -> Units:
    """Units for the least noise: exact sums, or averages rounded at random to fine units.

    Statement: noise of rate a on a sum has a variance of at least about 2/a^2, and rounding n
    values adds at most n/4; so rounding adds at most 1 % if a <= sqrt(0.08/n), and a sixteenth of
    that where a is a quarter of it. Finer units take more bits and change nothing else.
    """
    items = 1 if setting.query.items is None else setting.query.items
    space = space_of(setting.query)
    if not features.fine and isinstance(items, int):
        return Units(items)
    weights = features.weights(space)
    rate = setting.target.slope / setting.rounds / features.slope(space, weights)
    finest = rate * float(weights.max()) * math.sqrt(12.5 * setting.users) * ROUNDING_FINENESS
    top = float(features.ranges(space)[1].max())
    if isinstance(items, int) and items <= max(finest, features.exact_sum / top):
        return Units(items)
    # A unit is never more than half of the largest feature.
    power = max(math.ceil(math.log2(finest)), 1 - math.floor(math.log2(top)))
    return Units(2 ** max(power, 0), 2 ** max(-power, 0), "random")


def _best_split(setting: Setting, trusted: Who, features: Features) -> NoisyVectors:
    """Protocol with the least noise that takes no more bits than with half of delta for mixing."""
    first, *others = MIXING_DELTA_SHARES
    best = _protocol(setting, trusted, features, first)
    if setting.target.shape == "linear" or trusted != "shuffler":
        return best  # the noise needs no delta, or nothing is mixed
    for share in others:
        made = _protocol(setting, trusted, features, share)
        if made.factor > best.factor and made.bits_per_user <= best.bits_per_user:
            best = made
    return best


def _protocol(
    setting: Setting, trusted: Who, features: Features, mixing_share: float
) -> NoisyVectors:
    """Protocol with the least noise on these features that meets the target."""
    target = setting.target
    space = space_of(setting.query)
    units = _units(setting, features)
    sharers = 1 if trusted in ("curator", "nobody") else setting.honest
    weights = features.weights(space)
    coordinates = len(weights)
    slope = features.slope(space, weights) * units.ratio * setting.rounds
    base = NoisyVectors(
        name=NAME,
        trusted=trusted,
        features=features,
        coordinates=coordinates,
        factor=target.slope / slope * (1.0 - 1e-12),
        sharers=sharers,
        units=units.units,
        divisor=units.divisor,
        rounding=units.rounding,
        modulus=4,
        shares=3 if trusted == "shuffler" else 1,
    )
    spent = target.delta
    if target.shape == "flat":
        base, spent = _flat(setting, base, mixing_share)
    shape = Fraction(1) if trusted == "curator" else Fraction(setting.users, sharers)
    low, high = features.ranges(space)
    top = -(-units.units * int((high - np.minimum(low, 0)).max()) // units.divisor)
    bits = residue_bits(setting.users, top, base.rates(space), shape)
    sending = {"modulus": 2**bits}
    if trusted == "shuffler":
        packed = cheapest_packing(
            setting.honest,
            coordinates,
            bits,
            setting.query.covered(target).epsilon,
            spent / setting.rounds * (1.0 - 1e-12),
        )
        sending |= {"together": packed.together, "shares": packed.shares}
    return NoisyVectors.model_validate({**base.model_dump(), **sending})


def _flat(setting: Setting, base: NoisyVectors, mixing_share: float) -> tuple[NoisyVectors, float]:
    """Vectors of largest factor for a flat target (exact law of one move); delta for mixing."""
    mixed = base.trusted == "shuffler"
    target = setting.target.with_delta(
        setting.target.delta * (1.0 - mixing_share if mixed else 1.0)
    )

    def kept(factor: float) -> bool:
        return target.kept_by(
            base.model_copy(update={"factor": factor})
            .accounts(setting.query, setting.rounds)
            .ideal(target)
        )

    bracket = farthest_certified(kept, base.factor, 1e6 * base.factor, step=0.5)
    factor = (
        last_certified(kept, *bracket, relative=1e-6)
        if bracket.passing < bracket.failing
        else bracket.passing
    )
    strongest = base.model_copy(update={"factor": factor})
    pure = target.with_delta(0.0).kept_by(
        strongest.accounts(setting.query, setting.rounds).ideal(target)
    )
    return strongest, setting.target.delta if pure else mixing_share * setting.target.delta


def local_cap(setting: Setting) -> float:
    """Epsilon at the target's distance that a floor must leave if the shuffler colludes."""
    return FLOOR_EPSILON if setting.max_local_epsilon is None else setting.max_local_epsilon


def floors_of(setting: Setting) -> tuple[Randomizer, ...]:
    """Local randomizers after which one report alone meets the cap; empty if the space has none."""
    query = setting.query
    space = space_of(setting.query)
    if query.items == "any" or not query.shared:
        return ()
    items = query.items if isinstance(query.items, int) else 1
    epsilon = local_cap(setting) / (items * setting.rounds) * (1.0 - 1e-9)
    size = space.domain.size or 0
    lattice = Lattice.of(space)
    rate = epsilon / setting.target.distance
    if lattice is not None and size == max(
        lattice.sides
    ):  # includes a grid of one row or one column
        return (BoundedGeometric(size - 1, rate * lattice.step),)
    if lattice is not None:
        return (
            PlanarGeometric(
                lattice.sides[0],
                lattice.sides[1],
                rate,
                lattice.step,
                "euclidean" if lattice.straight else "manhattan",
            ),
        )
    listed = type(space.metric) is Discrete and size <= MAX_COORDINATES
    return (KaryRandomizedResponse(size, epsilon),) if listed else ()
