"""Noisy vectors: features of what everybody holds, with a share of the noise from each, through a shuffler, an adder or a curator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Any

from metricshuffle.accounting.vectors.average_rounding import rounding_factor
from metricshuffle.accounting.vectors.modulus_wrap import residue_bits
from metricshuffle.encodings.packed_vectors import cheapest_packing
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.numerics.certified_search import farthest_certified, last_certified
from metricshuffle.planning.candidate import Candidate, candidate
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.setting import Setting
from metricshuffle.planning.share_errors import moved_errors, regrets, share_errors
from metricshuffle.privacy.guarantee import Who
from metricshuffle.protocols.features import Cells, Features, Lattice, space_of
from metricshuffle.protocols.features.feature_set import MAX_COORDINATES
from metricshuffle.protocols.noisy_vectors import FINE_MAP_POINTS, NoisyVectors, feature_table, floor_slope
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.user_queries import UserHistogram
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.simulation.vector_runs import FEW_RUNS_POINTS
from metricshuffle.spaces import Discrete

NAME = "noisy-vectors"
# What a floor leaves of a report at the target's distance if the shuffler colludes, where nobody says otherwise.
FLOOR_EPSILON = 10.0
# Simulated releases by which feature sets are compared for users' items, of each kind of people: of many points, and of few. Their other
# candidates take long, and sets that three releases do not tell apart are nearly as good as each other.
ITEM_RUNS = (3, 32)
# Points times features of randomized values, beyond which no more than one set is tried.
MAX_FITTED = 2**18
# Rounding everybody's shares to whole units may take this much of the rate.
ROUNDING_STRETCH = 0.01
# Of a target's delta, what mixing may take where the noise needs some too.
MIXING_DELTA_SHARE = 0.5


@family
def noisy_vectors(setting: Setting) -> Iterator[Offer]:
    """With a floor, without, and by a curator; to somebody who only adds where such a one is trusted."""
    query = setting.query
    if not isinstance(query, Histogram | UserHistogram):
        return
    mixed: Who = "aggregator" if setting.trusted == "aggregator" else "shuffler"
    floors = _floors(setting)
    if floors and setting.floor:
        yield Offer(NAME, "with a floor", partial(calibrate_vectors, setting, mixed, floors))
    yield Offer(NAME, "no floor", partial(calibrate_vectors, setting, mixed, ()))
    yield Offer(NAME, "curator", partial(calibrate_vectors, setting, "curator", ()))


def calibrate_vectors(setting: Setting, trusted: Who, floors: tuple[Randomizer, ...]) -> Candidate:
    """The feature set with the least regret, with the least noise that keeps the target.

    Regret: its error over that of the best set, at most over the kinds of people that count, in the measure of the plan.
    """
    if trusted == "shuffler" and setting.target.delta == 0.0:
        raise ConditionError("Noisy vectors", "delta > 0 (shares are mixed up to a probability)", "delta = 0")
    _units(setting)  # refuses users with any number of items, once
    space, reasons = space_of(setting.query), []
    protocols: list[NoisyVectors] = []
    for features in _feature_sets(setting):
        floor = next((floor for floor in floors if floor_slope(floor, features, space) is not None), None)
        if floors and floor is None:
            continue
        # The shares of randomized values take long to fit where there are many features; sets that tell all points apart come first.
        if floors and protocols and (space.domain.size or 0) * len(features.weights(space)) > MAX_FITTED:
            continue
        try:
            made = _protocol(setting, trusted, features)
            # (a floor changes neither the noise that is needed nor how it is sent)
            if floor is not None and made.alone(setting.query, setting.target, setting.rounds).epsilon > _cap(setting):
                made = made.model_copy(update={"floor": floor})
            protocols.append(made)
        except (ConditionError, NotCertified, InputError) as reason:
            reasons.append(f"{features}: {reason}")
    if not protocols:
        raise NotCertified("; ".join(reasons) or "no feature set fits this space.")
    fitting = [protocol for protocol in protocols if setting.max_bits is None or protocol.bits_per_user <= setting.max_bits]
    details: dict[str, Any] = {}
    if len(fitting) > 1:
        best, details = _least_regret(setting, fitting)
    else:
        best = min(fitting or protocols, key=lambda protocol: protocol.bits_per_user)
    needless = not floors and setting.floor and _floors(setting) and trusted != "curator"
    if needless and best.alone(setting.query, setting.target, setting.rounds).epsilon <= _cap(setting):
        raise NotCertified(f"a report leaves no more than epsilon {_cap(setting):g} without one, so that there is none above either.")
    account = best.account(setting.query, setting.target, setting.honest, setting.rounds)
    if not account.kept:
        raise NotCertified("the calibrated noise did not pass the final verification; please report this as a bug.")
    details |= {"baseline": True} if needless else {}
    return candidate(setting, best, account, rate=best.factor, **details)


def _least_regret(setting: Setting, protocols: list[NoisyVectors]) -> tuple[NoisyVectors, dict[str, Any]]:
    """The one with the least regret, and what is told of it; of equal ones that with the fewest bits."""
    query, users = setting.query, setting.users
    if isinstance(query, Histogram):
        errors = [share_errors(protocol, query, users) for protocol in protocols]
    else:
        runs = ITEM_RUNS[(space_of(query).domain.size or 0) <= FEW_RUNS_POINTS]
        errors = [moved_errors(protocol, query, users, runs) for protocol in protocols]
    regret_values = regrets(errors, setting.spread)
    best = min(range(len(regret_values)), key=lambda index: (regret_values[index], protocols[index].bits_per_user))
    remarks = {"regret": regret_values[best], "feature_sets": tuple(str(protocol.features) for protocol in protocols)}
    return protocols[best], remarks | ({"errors": errors[best]} if isinstance(query, Histogram) else {})


def _feature_sets(setting: Setting) -> list[Features]:
    """Those that the kinds of features offer; on a line also single cells for a flat target, where a long move costs no more than a short
    one (thresholds cost as much for every step)."""
    space = space_of(setting.query)
    sets: list[Features] = []
    if setting.target.shape == "flat" and Lattice.of(space) is not None and 2 <= (space.domain.size or 0) <= MAX_COORDINATES:
        sets.append(Cells())
    for kind in sorted(Features.kinds):
        known = Features.kinds[kind]
        if issubclass(known, Features):
            sets += [features for features in known.offered(space, setting.users, setting.target.slope) if features not in sets]
    return sets if (space.domain.size or 0) <= FINE_MAP_POINTS else sets[:1]


def _units(setting: Setting) -> tuple[int, int | None, float]:
    """How many units a vector makes up, the most items that may be averaged, and what rounding them adds to a slope."""
    query = setting.query
    if not isinstance(query, UserHistogram):
        return 1, None, 1.0
    if query.people.items is not None:
        return query.people.items, None, 1.0
    max_items = setting.most_items
    if max_items is None:
        raise ConditionError("Noisy vectors", "a largest number of items that a user may hold (--most-items)", "any number of them")
    exact = math.lcm(*range(1, min(max_items, 20) + 1))
    units = (
        exact
        if max_items <= 20 and exact <= max_items * (max_items - 1) / ROUNDING_STRETCH
        else max(1, math.ceil(max_items * (max_items - 1) / ROUNDING_STRETCH))
    )
    return units, max_items, float(rounding_factor(max_items, units))


def _protocol(setting: Setting, trusted: Who, features: Features) -> NoisyVectors:
    """The least noise on these features that keeps the target."""
    target, space = setting.target, space_of(setting.query)
    units, most_items, stretch = _units(setting)
    sharers = 1 if trusted == "curator" else setting.honest
    coordinates, weights = feature_table(features, space).shape[1], features.weights(space)
    slope = features.slope(space, weights) * units * stretch * setting.rounds
    base = NoisyVectors(
        name=NAME, trusted=trusted, features=features, coordinates=coordinates, factor=target.slope / slope * (1.0 - 1e-12),
        sharers=sharers, units=units, most_items=most_items, modulus=4, shares=3 if trusted == "shuffler" else 1,
    )  # fmt: skip
    spent = target.delta
    if target.shape == "flat":
        base, spent = _flat(setting, base)
    shape = Fraction(1) if trusted == "curator" else Fraction(setting.users, sharers)
    top = units * int(feature_table(features, space).max())
    bits = residue_bits(setting.users, top, base.rates(space), shape)
    sending = {"modulus": 2**bits}
    if trusted == "shuffler":
        packed = cheapest_packing(setting.honest, coordinates, bits, target.epsilon, spent / setting.rounds * (1.0 - 1e-12))
        sending |= {"together": packed.together, "shares": packed.shares}
    return NoisyVectors.model_validate({**base.model_dump(), **sending})


def _flat(setting: Setting, base: NoisyVectors) -> tuple[NoisyVectors, float]:
    """The largest factor that keeps a flat target, by the exact law of one person's move; and what is left of delta for mixing."""
    mixed = base.trusted == "shuffler"
    target = setting.target.with_delta(setting.target.delta * (1.0 - MIXING_DELTA_SHARE if mixed else 1.0))

    def kept(factor: float) -> bool:
        return target.kept_by(base.model_copy(update={"factor": factor}).accounts(setting.query, setting.rounds).ideal(target))

    bracket = farthest_certified(kept, base.factor, 1e6 * base.factor, step=0.5)
    factor = last_certified(kept, *bracket, relative=1e-6) if bracket.passing < bracket.failing else bracket.passing
    strongest = base.model_copy(update={"factor": factor})
    pure = target.with_delta(0.0).kept_by(strongest.accounts(setting.query, setting.rounds).ideal(target))
    return strongest, setting.target.delta if pure else MIXING_DELTA_SHARE * setting.target.delta


def _cap(setting: Setting) -> float:
    """What a report may leave at the target's distance if the shuffler colludes, where it can be helped."""
    return FLOOR_EPSILON if setting.max_local_epsilon is None else setting.max_local_epsilon


def _floors(setting: Setting) -> tuple[Randomizer, ...]:
    """How values may be randomized first so that one report alone keeps the cap at the target's distance; none where the space has none."""
    query, space = setting.query, space_of(setting.query)
    if query.items == "any":
        return ()
    items = query.items if isinstance(query.items, int) else 1
    epsilon, size = _cap(setting) / (items * setting.rounds) * (1.0 - 1e-9), space.domain.size or 0
    lattice, rate = Lattice.of(space), epsilon / setting.target.distance
    if lattice is not None and size == max(lattice.sides):  # (a grid of one row or one column is a line, too)
        return (BoundedGeometric(size - 1, rate * lattice.step),)
    if lattice is not None:
        return (PlanarGeometric(lattice.sides[0], lattice.sides[1], rate, lattice.step, "euclidean" if lattice.straight else "manhattan"),)
    return (KaryRandomizedResponse(size, epsilon),) if type(space.metric) is Discrete else ()
