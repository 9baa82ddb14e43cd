"""Calibration of noise by the shuffler: partitions that are counted with dummies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from metricshuffle.accounting.dummies.dummy_losses import (
    DummyLaw,
    one_person_delta,
    ramp_rate,
)
from metricshuffle.errors import ConditionError, InputError, NotCertified, argument
from metricshuffle.noise.dyadic_table import LARGEST_RADIUS
from metricshuffle.numerics.certified_search import (
    farthest_certified,
    last_certified,
    last_certified_integer,
)
from metricshuffle.planning.candidate import Candidate, candidate
from metricshuffle.planning.candidates.item_calibration import default_draws, pure_total
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.candidates.vector_calibration import floors_of, least_regret
from metricshuffle.planning.setting import Setting
from metricshuffle.protocols.features import (
    Cells,
    Edges,
    Features,
    Lattice,
    Ramps,
    ShiftedBoxes,
    TreeLevels,
    space_of,
)
from metricshuffle.protocols.features.feature_set import MAX_COORDINATES
from metricshuffle.protocols.features.point_pairs import nearest_distance
from metricshuffle.protocols.item_accounts import reach_of
from metricshuffle.protocols.noisy_vectors import FINE_MAP_POINTS
from metricshuffle.protocols.partition_family import PartitionFamily, family_of
from metricshuffle.protocols.shuffler_noise import ShufflerNoise, promised
from metricshuffle.protocols.vector_accounts import floor_slope
from metricshuffle.queries.cell_query import MAX_LABELS
from metricshuffle.queries.user_queries import UserHistogram
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.spaces import Categories, Space

NAME = "shuffler-noise"
# Widths of random ramps that are tried: wider ones lose wherever they were measured.
RAMP_WIDTHS = (2, 4)
# A line has at least this many windows of a width that is tried.
MIN_WINDOWS = 4
# The smallest delta that 64-bit weights of the dummies resolve.
MIN_DELTA = 1e-15
# Relative accuracy of the rate for flat targets, and how much it is reduced to need fewer dummies.
RATE_TOLERANCE = 1e-4
RATE_REDUCTION = 5e-4
# If rounded weights have too large ratios, the rate is reduced, at most this many times.
MAX_REDUCTIONS = 8


@family
def shuffler_noise(setting: Setting) -> Iterator[Offer]:
    """Offer counts of parts with dummies of the shuffler, with a floor and without one."""
    query = setting.query
    if query.points is None or not query.shared or setting.trusted == "aggregator":
        return
    floors = floors_of(setting)
    if floors and setting.floor != "never":
        yield Offer(NAME, "with a floor", partial(calibrate_dummies, setting, floors))
    yield Offer(NAME, "no floor", partial(calibrate_dummies, setting, ()))


def calibrate_dummies(setting: Setting, floors: tuple[Randomizer, ...]) -> Candidate:
    """Calibrate the partition family of least regret with the least noise that meets the target."""
    delta = setting.target.delta
    if not delta >= MIN_DELTA:
        raise ConditionError(
            "Shuffler noise", f"a delta of at least {MIN_DELTA:g}", f"delta = {delta:g}"
        )
    query = setting.query
    if query.items == "any" and setting.draw is None:
        raise NotCertified(
            "it needs a number of items that is the same for everybody; give "
            f"`{argument('items')}`, or let everybody draw `{argument('draw')}`."
        )
    space = space_of(query)
    reasons = []
    protocols: list[ShufflerNoise] = []
    for features in partition_features(setting, space):
        floor = next(
            (floor for floor in floors if floor_slope(floor, features, space) is not None), None
        )
        if floors and (floor is None or family_of(features, space).width > 1):
            continue
        try:
            made = calibrated_dummies(setting, features)
            _check_dummies(setting, made)
            protocols.append(made.model_copy(update={"floor": floor}))
        except (ConditionError, NotCertified, InputError) as reason:
            reasons.append(f"{features}: {reason.template}")
    if not protocols:
        raise NotCertified("; ".join(reasons) or "no partition fits this space.")
    fitting = [
        protocol
        for protocol in protocols
        if setting.max_bits is None or protocol.bits_per_user <= setting.max_bits
    ]
    shortest = min(fitting or protocols, key=lambda protocol: protocol.bits_per_user)
    best, details = least_regret(setting, fitting) if len(fitting) > 1 else (shortest, {})
    account = best.account(query, setting.target, setting.honest, setting.rounds)
    if not account.kept:
        raise NotCertified(
            "the calibrated dummies did not pass the final verification; please report this as a "
            "bug."
        )
    needless = not floors and setting.floor != "never" and bool(floors_of(setting))
    details |= {"baseline": True} if needless else {}
    details |= {"dummies": best.dummies, "sealing_seconds": best.sealing_seconds}
    return candidate(setting, best, account, rate=best.rate, **details)


def partition_features(setting: Setting, space: Space) -> list[Features]:
    """Feature sets that are partitions; the sets that identify single points come first."""
    size = space.domain.size or 0
    lattice = Lattice.of(space)
    flat = setting.target.shape == "flat"
    rate = setting.target.slope
    sets: list[Features] = []
    labelled = isinstance(space.domain, Categories)
    if not 2 <= size <= (MAX_LABELS if labelled else MAX_COORDINATES):
        sets += ShiftedBoxes.offered(space, setting.users, rate)
        return sets[:1]
    if lattice is not None and len(lattice.sides) == 1:
        widths = [width for width in RAMP_WIDTHS if not flat and size - 1 >= MIN_WINDOWS * width]
        line: list[Features] = [Ramps(1), *(Ramps(width) for width in widths)]
        return [*line, Cells()] if flat and size > 2 else line
    if size == 2:
        return [*Edges.offered(space, setting.users, rate)] or [Cells()]
    if lattice is not None or nearest_distance(space) > 0.0:
        sets.append(Cells())
    if lattice is not None:
        sets += ShiftedBoxes.offered(space, setting.users, rate)
    elif TreeLevels.fits(space):
        sets.append(TreeLevels())
    return sets if size <= FINE_MAP_POINTS else sets[:1]


def calibrated_dummies(setting: Setting, features: Features) -> ShufflerNoise:
    """Protocol of the least noise on these partitions that meets the target."""
    query = setting.query
    target = promised(query, setting.target)
    partitions = family_of(features, space_of(query))
    drawn = query.items == "any"
    items = query.items if isinstance(query.items, int) else 1
    if isinstance(query, UserHistogram) and drawn:
        items = setting.drawn_number or default_draws(
            target.for_each_of(setting.rounds), reach_of(query.people)
        )
    base = ShufflerNoise(
        name=NAME,
        trusted="shuffler",
        features=features,
        sizes=tuple(partitions.sizes.tolist()),
        rate=1.0,
        radius=1,
        items=items,
        drawn=drawn,
    )
    if drawn and not base.identifies_points:
        raise NotCertified("drawn items have intervals only if points are told apart.")
    if target.shape == "flat" and query.items is None and partitions.width == 1:
        counts = setting.rounds * partitions.changed(target.distance)
        rate, radius = flat_law(target.epsilon, target.delta, counts)
        return base.model_copy(update={"rate": rate, "radius": radius})
    step_loss = target.slope / (partitions.slope * items * setting.rounds) * (1.0 - 1e-12)
    allowed = ramp_rate(step_loss, partitions.width)
    if drawn:
        largest = max(partitions.changed(query.diameter), 1)
        allowed = pure_total(step_loss * largest) / largest * (1.0 - 1e-12)

    def with_law(rate: float, radius: int) -> ShufflerNoise:
        return base.model_copy(update={"rate": rate, "radius": radius})

    def ends_kept(rate: float, radius: int) -> bool:
        profile = with_law(rate, radius).graded_profile(query, setting.rounds)
        return profile.ends(target.distance) <= target.delta

    rate = allowed
    for _ in range(MAX_REDUCTIONS):
        radius = least_radius(partial(ends_kept, rate), _radius_guess(setting, partitions, rate))
        protocol = with_law(rate, radius)
        if protocol.account(query, setting.target, setting.honest, setting.rounds).kept:
            return protocol
        excess = protocol.law.rate / rate - 1.0
        rate = allowed * (1.0 - 2.0 * max(excess, 0.0) - 1e-12)
    raise NotCertified("no table of dummies is fine enough for this target; use a larger delta.")


def _radius_guess(setting: Setting, partitions: PartitionFamily, rate: float) -> int:
    """Radius at which the ends of the dummies' law have about the probability delta."""
    target = setting.target
    by_lemma = partitions.width > 1 or setting.query.items == "any"
    parts = partitions.parts if by_lemma else partitions.sides
    log_allowed = math.log(parts * setting.rounds / target.delta)
    extra = target.epsilon if by_lemma else 0.0
    items = setting.query.items if isinstance(setting.query.items, int) else 1
    changes = min(partitions.slope * items * target.distance, float(LARGEST_RADIUS))
    return math.ceil(min((log_allowed + extra) / rate + changes, float(LARGEST_RADIUS)))


def least_radius(is_kept: Callable[[int], bool], guess: int) -> int:
    """Smallest number of dummies found for which `is_kept` is true, searched from a guess."""
    high = max(guess, 1)
    # More dummies do not help if the last weights of the table are too small.
    limit = min(4 * high + 64, LARGEST_RADIUS)
    while not is_kept(high):
        if high >= limit:
            raise NotCertified(
                f"more than {limit:,} dummies of each part would be needed; use a larger epsilon "
                "or delta."
            )
        high = min(2 * high, limit)
    low = high // 2
    while low > 0 and is_kept(low):
        high = low
        low //= 2
    return last_certified_integer(is_kept, low, high)


def flat_law(epsilon: float, delta: float, counts: int) -> tuple[float, int]:
    """Largest rate for one person who changes `counts` counts, and the least radius for it.

    The rate may exceed epsilon/counts, because large losses of all counts at once are rare.
    """
    pure = epsilon / max(counts, 1) * (1.0 - 1e-9)

    def enough(rate: float) -> int:
        return min(math.ceil(math.log(40.0 * max(counts, 1) / delta) / rate) + 2, LARGEST_RADIUS)

    def is_kept(rate: float, radius: int) -> bool:
        return one_person_delta(DummyLaw.geometric(rate, radius), counts, epsilon) <= delta

    def is_kept_far(rate: float) -> bool:
        return is_kept(rate, enough(rate))

    rate = pure
    for _ in range(MAX_REDUCTIONS):
        if is_kept_far(rate):
            break
        excess = DummyLaw.geometric(rate, enough(rate)).rate / rate - 1.0
        rate = pure * (1.0 - 2.0 * max(excess, 0.0) - 1e-12)
    if counts > 2 and is_kept_far(rate):
        bracket = farthest_certified(is_kept_far, rate, 64.0 * pure + 1.0, step=0.5)
        if bracket.passing < bracket.failing:
            largest = last_certified(
                is_kept_far, bracket.failing, bracket.passing, relative=RATE_TOLERANCE
            )
            rate = max(rate, largest * (1.0 - RATE_REDUCTION))
    return rate, least_radius(partial(is_kept, rate), enough(rate))


def _check_dummies(setting: Setting, protocol: ShufflerNoise) -> None:
    """Raise if the shuffler would have to add more dummies than allowed, and say what fits."""
    limit = setting.max_dummies
    if protocol.dummies <= limit:
        return
    parts = sum(protocol.sizes)
    fitting = limit // protocol.radius
    fewer = f"; {fitting:,} parts would fit" if fitting >= 2 else ""
    raise InputError(
        f"{parts:,} parts with {protocol.radius:,} dummies each are {protocol.dummies:,} dummies, "
        f"more than {argument('max_dummies', limit)}{fewer}. "
        f"{argument('max_dummies', protocol.dummies)} allows them, or a larger epsilon or delta "
        "needs fewer."
    )
