"""Joint privacy profile of several rounds on the same data.

`compose_rounds` and `compose_profiles` build it from the profiles of the single rounds. The delta
of all rounds together comes from the convolution of their loss distributions (`loss_distribution`)
or from basic composition, whichever is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from metricshuffle.accounting.composition.loss_distribution import (
    TotalLoss,
    dominating_losses,
    grid_step,
)
from metricshuffle.accounting.sums.additive_noise import Clamped
from metricshuffle.accounting.sums.flipped_bit_count import RandomizedResponseProfile
from metricshuffle.accounting.sums.rare_clamping import RarelyClampedProfile
from metricshuffle.accounting.sums.split_and_mix import SplitAndMix
from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.privacy.dominating_pair import DominatingPair
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    PureProfile,
    Shape,
    checked_epsilon,
    validate_distance,
)

# If the pure epsilon of a round is infinite, its losses end where its delta, times the number of
# rounds, is this; larger losses count as infinite. Smaller deltas come from basic composition.
SMALLEST_DELTA = 1e-18
# The grid of losses ends here.
MAX_LOSS = 600.0
# Multiples of an estimated extent of the losses that are tried.
REACH_FACTORS = np.array([0.7, 0.85, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35])
GRID_POINTS = 1000
COARSE_GRID_POINTS = 250
MAX_POINTS = 8000
MAX_CELLS = 2**21
MAX_ROUNDS = 100_000
TABLE_POINTS = 128
SMALLEST_TABULATED = 1e-24  # smaller than any delta that a composition of many rounds uses
Look = Literal["quick", "coarse", "fine"]
"""Accuracy of the loss grid: quick profiles on few points, or exact ones on few or many points."""
# Number of distances whose totals are cached: more where the totals are small.
MIN_CACHED = 16
MAX_CACHED = 128


@dataclass(frozen=True)
class TabulatedProfile(PrivacyProfile):
    """Profile tabulated at about 100 epsilons, for callers that evaluate it thousands of times.

    The chords between the tabulated points lie above the true curve (`dominating_pair`); the
    epsilon of several rounds is larger by less than a thousandth.
    """

    profile: PrivacyProfile
    bound: str = "sampled"
    _known: dict[float, DominatingPair] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def pure(self, distance: float) -> float:
        return self.profile.pure(distance)

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        if epsilon >= self.pure(distance):
            return 0.0
        if distance not in self._known:
            self._known[distance] = self.profile.dominating_pair(
                distance, points=TABLE_POINTS, negligible=SMALLEST_TABULATED
            )
        return self._known[distance].delta(epsilon)


@dataclass(frozen=True)
class ComposedProfile(PrivacyProfile):
    """Composition of the rounds in `parts`, pairs of a profile and a number of rounds.

    Statement: inputs at distance d are at distance d in every round, so the rounds together are
    (epsilon, delta(epsilon, d))-indistinguishable, also when each round is chosen after seeing the
    earlier ones (within the same parts).
    Conditions: each part is a PrivacyProfile, i.e. an upper bound in both directions.
    Numerics: the result is the smaller of two upper bounds, the composed loss distribution
    (`loss_distribution.dominating_losses`, then `TotalLoss.delta`) and basic composition (sum of
    deltas at epsilons that sum to epsilon), and never below the delta of one round alone. The
    losses of a part whose pure epsilon is infinite (or far beyond the losses that matter) are cut
    where 1e-18 of delta is left, so for smaller deltas only basic composition is used; otherwise
    delta may be arbitrarily small. Use `compose_rounds` or `compose_profiles` to build one.
    """

    parts: tuple[tuple[PrivacyProfile, int], ...]
    bound: str = "composed"
    _totals: dict[tuple[float, Look], TotalLoss | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _reaches: dict[tuple[int, float], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Extent of the losses of each part at distances that are powers of 2.

    No other distances are cached, so the result at a distance does not depend on earlier calls.
    """

    def __post_init__(self) -> None:
        for profile, rounds in self.parts:
            if not isinstance(profile, PrivacyProfile):
                raise InputError(
                    "only a PrivacyProfile (an upper bound) can be composed, got "
                    f"{type(profile).__name__}."
                )
            if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
                raise InputError(
                    f"{argument('rounds')} must be a whole number >= 1, got {rounds!r}."
                )
        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise InputError(
                f"a composition needs between 1 and {MAX_ROUNDS:,} rounds in total, got "
                f"{self.rounds:,}."
            )

    @cached_property
    def _quick_parts(self) -> tuple[tuple[PrivacyProfile, int], ...]:
        """Quick profiles, built once, so that their caches may serve several distances."""
        return tuple((profile.quick(), rounds) for profile, rounds in self.parts)

    @property
    def rounds(self) -> int:
        return sum(rounds for _, rounds in self.parts)

    def pure(self, distance: float) -> float:
        """Sum of the pure epsilons of the rounds, rounded up."""
        distance = validate_distance(distance)
        total = math.fsum(rounds * profile.pure(distance) for profile, rounds in self.parts)
        return total * (1.0 + 1e-15) if self.rounds > 1 else total

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        distance = validate_distance(distance)
        # If pure is infinite, outputs that only one of the inputs can have remain at any epsilon.
        if math.inf > self.pure(distance) <= epsilon:
            return 0.0
        floor = max(profile.delta(epsilon, distance) for profile, _ in self.parts)
        answer = self.basic(epsilon, distance)
        if answer > floor:
            total = self._total(distance)
            if total is not None and total.infinite < answer:
                answer = min(answer, total.delta(epsilon))
        return max(answer, floor)

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Return True only if the target is certified at every possible distance up to `distance`.

        Statement: a linear target is checked in one of three ways. If every round is pure, it is
        checked at `distance` alone, which certifies every REAL distance. If the rounds are about
        whole steps, it is checked at whole steps (as in PrivacyProfile.covers). Otherwise (points
        of a plane, say) it is checked by basic composition: every round meets its share of epsilon
        and delta by its own `covers`.
        Proof: let round k be pure with rate_k. Pure rounds are dominated by randomized responses,
        whose total loss at distance d is d l(s), l(s) = sum of s_k rate_k, with independent signs
        s_k that are +1 with probability 1 / (1 + e^(-d rate_k)). With r = epsilon / distance, delta
        at distance d is E[(1 - e^(-d (l(s) - r)))_+]. The term inside the expectation increases
        with d and each s_k, and s_k increases stochastically with d; so delta increases with d.
        """
        epsilon = checked_epsilon(epsilon)
        distance = validate_distance(distance)
        others = [profile for profile, _ in self.parts if type(profile) is not PureProfile]
        if shape == "flat" or not others:
            return self.covers_at(epsilon, delta, distance)
        if all(_on_whole_steps(profile) for profile in others):
            return super().covers(epsilon, delta, distance, shape)
        each = delta / self.rounds * (1.0 - 1e-15)
        return any(
            all(
                profile.covers(epsilon * share * (1.0 - 1e-15), each, distance, shape)
                for share, (profile, _) in zip(shares, self.parts, strict=True)
            )
            for shares in self._splits(distance)
        )

    def basic(self, epsilon: float, distance: float) -> float:
        """Basic composition: sum of delta_k(epsilon_k) with sum of epsilon_k <= epsilon.

        Statement: rounds that are (epsilon_k, delta_k)-indistinguishable are together
        (sum epsilon_k, sum delta_k)-indistinguishable. Two splits are tried: equal shares, and
        shares in proportion to the pure epsilons where these are finite.
        Numerics: shares are rounded down.
        Reference: Dwork, Roth 2014, Theorem 3.16 (adaptive form: Theorem B.1).
        """
        epsilon = checked_epsilon(epsilon)
        distance = validate_distance(distance)
        if math.inf > self.pure(distance) <= epsilon:
            return 0.0
        sums = (
            math.fsum(
                rounds * profile.delta(epsilon * share * (1.0 - 1e-15), distance)
                for share, (profile, rounds) in zip(shares, self.parts, strict=True)
            )
            for shares in self._splits(distance)
        )
        return min(1.0, min(sums) * (1.0 + 1e-15))

    def _splits(self, distance: float) -> list[list[float]]:
        """Return shares of epsilon for one round of each part.

        One split is equal; where the pure epsilons are finite, another is in proportion to them.
        """
        pures = [profile.pure(distance) for profile, _ in self.parts]
        splits = [[1.0 / self.rounds] * len(pures)]
        whole = math.fsum(
            rounds * pure for pure, (_, rounds) in zip(pures, self.parts, strict=True)
        )
        if len(pures) > 1 and 0.0 < whole < math.inf:
            splits.append([pure / whole for pure in pures])
        return splits

    def covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        return (
            self.surely_covers_at(epsilon, delta, distance)
            or (
                any(profile.quick() is not profile for profile, _ in self.parts)
                and self._covered("coarse", epsilon, delta, distance)
            )
            or super().covers_at(epsilon, delta, distance)
        )

    def surely_covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        """Check a sufficient condition for `covers_at` on a coarse grid of losses."""
        epsilon = checked_epsilon(epsilon)
        distance = validate_distance(distance)
        if delta == 0.0 or epsilon >= self.pure(distance):
            return super().covers_at(epsilon, delta, distance)
        return self._covered("quick", epsilon, delta, distance)

    def _covered(self, look: Look, epsilon: float, delta: float, distance: float) -> bool:
        """Return whether the composed losses alone certify (epsilon, delta)."""
        if delta == 0.0:
            return False
        total = self._total(distance, look)
        return total is not None and total.delta(epsilon) <= delta

    def _total(self, distance: float, look: Look = "fine") -> TotalLoss | None:
        """Return the composed loss distribution at that distance; None if there are no losses."""
        key = (distance, look)
        if key in (known := self._totals):
            return known[key]
        total = self._built(distance, look)
        cache_size = min(
            max(MIN_CACHED, MAX_CELLS // (2 * COARSE_GRID_POINTS * self.rounds)), MAX_CACHED
        )
        # A new dictionary each time, because other threads may be reading the old one.
        object.__setattr__(
            self, "_totals", {**dict(list(known.items())[-cache_size + 1 :]), key: total}
        )
        return total

    def _built(self, distance: float, look: Look) -> TotalLoss | None:
        parts = self._quick_parts if look == "quick" else self.parts
        reaches = [
            self._reach(index, profile, distance, look) for index, (profile, _) in enumerate(parts)
        ]
        widest = max(reaches)
        if widest == 0.0:
            return None
        cells = 2.0 * sum(rounds * reach for reach, (_, rounds) in zip(reaches, parts, strict=True))
        finest = min(reach for reach in reaches if reach > 0.0) / (
            GRID_POINTS if look == "fine" else COARSE_GRID_POINTS
        )
        step = grid_step(max(finest, widest / MAX_POINTS, cells / MAX_CELLS))
        laws = []
        for reach, (profile, rounds) in zip(reaches, parts, strict=True):
            points = max(1, math.ceil(reach / step))
            points += points * step < reach
            laws.append(
                (
                    dominating_losses(
                        profile.curve(step * np.arange(points + 1.0), distance), step
                    ),
                    rounds,
                )
            )
        return TotalLoss(laws)

    def _reach(self, index: int, profile: PrivacyProfile, distance: float, look: Look) -> float:
        """Return the extent of the losses of a part on the grid.

        Except for "fine", it is estimated from the extent at the next power of 2 of the distance.
        """
        negligible = SMALLEST_DELTA / self.rounds
        if look != "fine" and distance > 0.0:
            key = index, 2.0 ** math.ceil(math.log2(distance))
            if key not in self._reaches:
                self._reaches[key] = _reach(self._quick_parts[index][0], negligible, key[1])
            tried = self._reaches[key] * (distance / key[1]) * REACH_FACTORS
            if 0.0 < tried[-1] < min(profile.pure(distance), MAX_LOSS):
                first = int(
                    np.argmax(np.append(profile.curve(tried, distance) <= negligible, True))
                )
                if 0 < first < len(tried):
                    return float(tried[first])
        return _reach(profile, negligible, distance)


def _reach(profile: PrivacyProfile, negligible: float, distance: float) -> float:
    """Return the extent of a round's losses: its pure epsilon, or where delta is negligible."""
    pure = profile.pure(distance)
    max_loss = min(pure, MAX_LOSS)
    # If delta never becomes negligible, the losses end where delta stops decreasing.
    target = (
        max(negligible, 1.001 * profile.delta(max_loss, distance))
        if max_loss < pure
        else negligible
    )
    if profile.delta(0.0, distance) <= target:
        return 0.0
    # Three curves of 31 points locate where delta falls to the target, to a thirty-thousandth of
    # `max_loss`, so that the bisection below rarely evaluates delta.
    failing = 0.0
    passing = max_loss
    for _ in range(3):
        grid = np.linspace(failing, passing, 33)[1:-1]
        small = np.append(profile.curve(grid, distance) <= target, True)
        first = int(np.argmax(small))
        failing = failing if first == 0 else float(grid[first - 1])
        passing = passing if first == len(grid) else float(grid[first])

    def negligible_at(epsilon: float) -> bool:
        return epsilon >= passing or (
            epsilon > failing and profile.delta(epsilon, distance) <= target
        )

    reach = last_certified(negligible_at, 0.0, max_loss, relative=0.02)
    return pure if pure <= min(4.0 * reach, MAX_LOSS) else reach


def _on_whole_steps(profile: PrivacyProfile) -> bool:
    """Return whether this profile, or one it wraps, checks linear targets at whole steps only."""
    if isinstance(profile, RarelyClampedProfile | SplitAndMix):
        return _on_whole_steps(profile.ideal)
    if isinstance(profile, Clamped):
        return _on_whole_steps(profile.truncated)
    if isinstance(profile, ComposedProfile):
        others = [part for part, _ in profile.parts if type(part) is not PureProfile]
        return bool(others) and all(_on_whole_steps(part) for part in others)
    # Counts of randomized bits check the same distances as any profile, in another order.
    return (
        isinstance(profile, RandomizedResponseProfile)
        or type(profile).covers is PrivacyProfile.covers
    )


def _is_same_profile(left: PrivacyProfile, right: PrivacyProfile) -> bool:
    """Return whether two profiles are known to be equal; with arrays, only if identical."""
    try:
        return left is right or bool(left == right)
    except ValueError:
        return False


def compose_rounds(profile: PrivacyProfile, rounds: int) -> PrivacyProfile:
    """Return the joint profile of `rounds` rounds of one profile (the profile itself for one)."""
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise InputError(f"{argument('rounds')} must be a whole number >= 1, got {rounds!r}.")
    if rounds == 1:
        return compose_profiles([profile])
    if isinstance(profile, ComposedProfile):
        return ComposedProfile(tuple((part, count * rounds) for part, count in profile.parts))
    return ComposedProfile(((profile, rounds),))


def compose_profiles(profiles: Iterable[PrivacyProfile]) -> PrivacyProfile:
    """Return the joint profile of one round of each profile, or a single profile unchanged."""
    profiles = list(profiles)
    if not profiles:
        raise InputError("there is nothing to compose; give at least one profile.")
    for profile in profiles:
        if not isinstance(profile, PrivacyProfile):
            raise InputError(
                "only a PrivacyProfile (an upper bound) can be composed, got "
                f"{type(profile).__name__}."
            )
    if len(profiles) == 1:
        return profiles[0]
    counted: list[tuple[PrivacyProfile, int]] = []
    for profile in profiles:
        for part, count in (
            profile.parts if isinstance(profile, ComposedProfile) else ((profile, 1),)
        ):
            same = next(
                (i for i, (known, _) in enumerate(counted) if _is_same_profile(known, part)), None
            )
            if same is None:
                counted.append((part, count))
            else:
                counted[same] = (part, counted[same][1] + count)
    return ComposedProfile(tuple(counted))
