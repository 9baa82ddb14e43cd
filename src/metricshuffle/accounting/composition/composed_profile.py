"""Several rounds on the same data: what they promise together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from metricshuffle.accounting.composition.loss_distribution import TotalLoss, dominating_losses, grid_step
from metricshuffle.accounting.sums.additive_noise import Clamped
from metricshuffle.accounting.sums.flipped_bit_count import RandomizedResponseProfile
from metricshuffle.accounting.sums.rare_clamping import RarelyClampedProfile
from metricshuffle.accounting.sums.split_and_mix import SplitAndMix
from metricshuffle.errors import InputError
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, Shape, checked_epsilon, validate_distance

# A round without a finite pure epsilon is cut where what is left of its delta, over all
# rounds, is this much; the rest counts as infinite loss. Smaller deltas come from the basic bound.
SMALLEST_DELTA = 1e-18
# Losses beyond this are not put on a grid.
MAX_LOSS = 600.0
# Of a reach that is about right: those that are tried.
REACH_FACTORS = np.array([0.7, 0.85, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35])
GRID_POINTS, COARSE_GRID_POINTS, MAX_POINTS, MAX_CELLS = 1000, 250, 8000, 2**21
MAX_ROUNDS = 100_000
Look = Literal["quick", "coarse", "fine"]
"""How losses are looked at: those of quick profiles on few points, those of the profiles themselves on few points, or on many."""
# Totals that are kept, for as many distances: more of them where they are small.
MIN_CACHED, MAX_CACHED = 16, 128


@dataclass(frozen=True)
class ComposedProfile(PrivacyProfile):
    """The rounds of `parts` (profile, how many times) on the same data.

    Statement: inputs at distance d are at distance d in every round, so the rounds together
    are (epsilon, delta(epsilon, d))-indistinguishable, also when each round is chosen after
    seeing the earlier ones (within the same parts).
    Conditions: each part is a PrivacyProfile, i.e. an upper bound in both directions.
    Numerics: the smaller of two upper bounds, the composed loss distribution
    (`loss_distribution.dominating_losses`, then `TotalLoss.delta`) and basic composition
    (sum of deltas at epsilons that sum to epsilon); and never below one round alone.
    A part whose pure epsilon is infinite (or far beyond the losses that matter) is cut where
    1e-18 of delta is left, so below that basic composition answers alone; otherwise
    there is no floor under delta. Use `compose_rounds` or `compose_profiles` to build one.
    """

    parts: tuple[tuple[PrivacyProfile, int], ...]
    bound: str = "composed"
    _totals: dict[tuple[float, Look], TotalLoss | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _reaches: dict[tuple[int, float], float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Of each part, at distances that are powers of 2: how far its losses go. What is found at a distance does not depend on others."""

    def __post_init__(self) -> None:
        for profile, rounds in self.parts:
            if not isinstance(profile, PrivacyProfile):
                raise InputError(f"only a PrivacyProfile (an upper bound) can be composed, got {type(profile).__name__}.")
            if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
                raise InputError(f"rounds must be a whole number >= 1, got {rounds!r}.")
        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise InputError(f"a composition needs between 1 and {MAX_ROUNDS:,} rounds in total, got {self.rounds:,}.")

    @cached_property
    def _quick_parts(self) -> tuple[tuple[PrivacyProfile, int], ...]:
        """Made once: what they remember of one distance may serve the next."""
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
        epsilon, distance = checked_epsilon(epsilon), validate_distance(distance)
        # (an infinite epsilon still leaves the outputs that only one of the inputs can have)
        if math.inf > self.pure(distance) <= epsilon:
            return 0.0
        floor = max(profile.delta(epsilon, distance) for profile, _ in self.parts)
        answer = self.basic(epsilon, distance)
        if answer > floor:
            total = self._total(distance)
            if total is not None and total.infinite < answer:
                answer = min(answer, total.delta(epsilon))
        return max(answer, floor)

    def covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """True only if the promise is certified at every distance up to `distance` that the rounds know.

        Statement: a linear promise is checked at `distance` alone if every round is pure, which certifies every REAL
        distance; at whole steps if the rounds are about whole steps (as in PrivacyProfile.covers); and otherwise
        (points of a plane, say) by basic composition: every round keeps its share of epsilon and delta by its own `covers`.
        Proof for pure rounds: they are dominated by randomized responses, whose total loss at distance d is d l(s),
        l(s) = sum of s_k rate_k, with independent signs s_k that are +1 with probability 1 / (1 + e^(-d rate_k)). With
        e = epsilon / distance, delta = E[(1 - e^(-d (l(s) - e)))_+]. The bracket rises with d and with each s_k, and each s_k
        rises with d, so delta does.
        """
        epsilon, distance = checked_epsilon(epsilon), validate_distance(distance)
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
        epsilon, distance = checked_epsilon(epsilon), validate_distance(distance)
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
        """Shares of epsilon for one round of each part: equal, and in proportion to the pure epsilons where these are finite."""
        pures = [profile.pure(distance) for profile, _ in self.parts]
        splits = [[1.0 / self.rounds] * len(pures)]
        whole = math.fsum(rounds * pure for pure, (_, rounds) in zip(pures, self.parts, strict=True))
        if len(pures) > 1 and 0.0 < whole < math.inf:
            splits.append([pure / whole for pure in pures])
        return splits

    def covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        return (
            self.surely_covers_at(epsilon, delta, distance)
            or (any(profile.quick() is not profile for profile, _ in self.parts) and self._covered("coarse", epsilon, delta, distance))
            or super().covers_at(epsilon, delta, distance)
        )

    def surely_covers_at(self, epsilon: float, delta: float, distance: float) -> bool:
        """By a coarse grid of losses."""
        epsilon, distance = checked_epsilon(epsilon), validate_distance(distance)
        if delta == 0.0 or epsilon >= self.pure(distance):
            return super().covers_at(epsilon, delta, distance)
        return self._covered("quick", epsilon, delta, distance)

    def _covered(self, look: Look, epsilon: float, delta: float, distance: float) -> bool:
        """Whether the composed losses alone tell so."""
        if delta == 0.0:
            return False
        total = self._total(distance, look)
        return total is not None and total.delta(epsilon) <= delta

    def _total(self, distance: float, look: Look = "fine") -> TotalLoss | None:
        """The composed loss distribution at that distance; None where no grid can hold it."""
        key = (distance, look)
        if key in (known := self._totals):
            return known[key]
        total = self._built(distance, look)
        cache_size = min(max(MIN_CACHED, MAX_CELLS // (2 * COARSE_GRID_POINTS * self.rounds)), MAX_CACHED)
        # A new dictionary each time: whoever else asks this profile, in another thread, goes on with the old one.
        object.__setattr__(self, "_totals", {**dict(list(known.items())[-cache_size + 1 :]), key: total})
        return total

    def _built(self, distance: float, look: Look) -> TotalLoss | None:
        parts = self._quick_parts if look == "quick" else self.parts
        reaches = [self._reach(index, profile, distance, look) for index, (profile, _) in enumerate(parts)]
        widest = max(reaches)
        if widest == 0.0:
            return None
        cells = 2.0 * sum(rounds * reach for reach, (_, rounds) in zip(reaches, parts, strict=True))
        finest = min(reach for reach in reaches if reach > 0.0) / (GRID_POINTS if look == "fine" else COARSE_GRID_POINTS)
        step = grid_step(max(finest, widest / MAX_POINTS, cells / MAX_CELLS))
        laws = []
        for reach, (profile, rounds) in zip(reaches, parts, strict=True):
            points = max(1, math.ceil(reach / step))
            points += points * step < reach
            laws.append((dominating_losses(profile.curve(step * np.arange(points + 1.0), distance), step), rounds))
        return TotalLoss(laws)

    def _reach(self, index: int, profile: PrivacyProfile, distance: float, look: Look) -> float:
        """How far the losses of a part are put on the grid; unless looked at finely about as far, for the distance, as at a power of 2."""
        negligible = SMALLEST_DELTA / self.rounds
        if look != "fine" and distance > 0.0:
            key = index, 2.0 ** math.ceil(math.log2(distance))
            if key not in self._reaches:
                self._reaches[key] = _reach(self._quick_parts[index][0], negligible, key[1])
            tried = self._reaches[key] * (distance / key[1]) * REACH_FACTORS
            if 0.0 < tried[-1] < min(profile.pure(distance), MAX_LOSS):
                first = int(np.argmax(np.append(profile.curve(tried, distance) <= negligible, True)))
                if 0 < first < len(tried):
                    return float(tried[first])
        return _reach(profile, negligible, distance)


def _reach(profile: PrivacyProfile, negligible: float, distance: float) -> float:
    """How far the losses of a round go: to its pure epsilon, or to where its delta stops mattering."""
    pure = profile.pure(distance)
    max_loss = min(pure, MAX_LOSS)
    # A delta that never becomes negligible is followed to where it stops falling.
    target = max(negligible, 1.001 * profile.delta(max_loss, distance)) if max_loss < pure else negligible
    if profile.delta(0.0, distance) <= target:
        return 0.0
    # Bisected on what a few curves tell: where delta falls to the target, to a thirty thousandth of `far`.
    failing, passing = 0.0, max_loss
    for _ in range(3):
        grid = np.linspace(failing, passing, 33)[1:-1]
        small = np.append(profile.curve(grid, distance) <= target, True)
        first = int(np.argmax(small))
        failing, passing = (failing if first == 0 else float(grid[first - 1])), (passing if first == len(grid) else float(grid[first]))

    def negligible_at(epsilon: float) -> bool:
        return epsilon >= passing or (epsilon > failing and profile.delta(epsilon, distance) <= target)

    reach = last_certified(negligible_at, 0.0, max_loss, relative=0.02)
    return pure if pure <= min(4.0 * reach, MAX_LOSS) else reach


def _on_whole_steps(profile: PrivacyProfile) -> bool:
    """Whether a linear promise about this profile is one about whole steps: it, or what it wraps, checks no others."""
    if isinstance(profile, RarelyClampedProfile | SplitAndMix):
        return _on_whole_steps(profile.ideal)
    if isinstance(profile, Clamped):
        return _on_whole_steps(profile.truncated)
    if isinstance(profile, ComposedProfile):
        others = [part for part, _ in profile.parts if type(part) is not PureProfile]
        return bool(others) and all(_on_whole_steps(part) for part in others)
    # Counts of randomized bits check the same distances as any profile, in another order.
    return isinstance(profile, RandomizedResponseProfile) or type(profile).covers is PrivacyProfile.covers


def _is_same_profile(left: PrivacyProfile, right: PrivacyProfile) -> bool:
    """Whether two profiles are known to be equal (those with arrays in them only if they are one object)."""
    try:
        return left is right or bool(left == right)
    except ValueError:
        return False


def compose_rounds(profile: PrivacyProfile, rounds: int) -> PrivacyProfile:
    """What `rounds` rounds of one profile promise together; one round is the profile itself."""
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise InputError(f"rounds must be a whole number >= 1, got {rounds!r}.")
    if rounds == 1:
        return compose_profiles([profile])
    if isinstance(profile, ComposedProfile):
        return ComposedProfile(tuple((part, count * rounds) for part, count in profile.parts))
    return ComposedProfile(((profile, rounds),))


def compose_profiles(profiles: Iterable[PrivacyProfile]) -> PrivacyProfile:
    """What one round of each profile promises together; a single profile is returned unchanged."""
    profiles = list(profiles)
    if not profiles:
        raise InputError("there is nothing to compose; give at least one profile.")
    for profile in profiles:
        if not isinstance(profile, PrivacyProfile):
            raise InputError(f"only a PrivacyProfile (an upper bound) can be composed, got {type(profile).__name__}.")
    if len(profiles) == 1:
        return profiles[0]
    counted: list[tuple[PrivacyProfile, int]] = []
    for profile in profiles:
        for part, count in profile.parts if isinstance(profile, ComposedProfile) else ((profile, 1),):
            same = next((i for i, (known, _) in enumerate(counted) if _is_same_profile(known, part)), None)
            if same is None:
                counted.append((part, count))
            else:
                counted[same] = (part, counted[same][1] + count)
    return ComposedProfile(tuple(counted))
