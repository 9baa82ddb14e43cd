"""Inversion of amplification bounds: the largest local epsilon of a pair for a target.

Let m be the largest local epsilon between any two values of the domain (the diameter), n the number
of users, and L = log(4/delta). For each of three bounds, this module finds the largest local
epsilon v of a pair whose amplified epsilon is certified to be at most the target. Each bound
applies to a range of diameters; the result is non-decreasing in the target and is rounded down.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from metricshuffle.accounting.shuffling._clone_counts import CloneCounts
from metricshuffle.accounting.shuffling.clone_bound import (
    LARGEST_EXPONENT,
    ClonePair,
    epsilon_upper,
)
from metricshuffle.accounting.shuffling.closed_form_bounds import (
    LOG_TWO,
    ROUNDING_SLACK,
    chernoff_clones,
)
from metricshuffle.numerics.certified_search import last_certified, last_certified_integer
from metricshuffle.numerics.types import Floats

DIAMETER_TOLERANCE = 1e-9  # relative bracket of a diameter
MAX_SEARCHED_DISTANCES = 64  # up to this many distances, each is inverted by its own search
MAX_ACCOUNTED_DISTANCES = 512  # up to this many distances, each gets the epsilon of its own pair


@dataclass(frozen=True)
class EpsilonInversion(ABC):
    """Bound eps(v; m) on the amplified epsilon of a pair with local epsilon v <= m.

    m is the largest local epsilon.
    """

    users: int
    delta: float

    @property
    @abstractmethod
    def limit(self) -> float:
        """Largest m for which the bound improves (noticeably) on the local epsilon itself."""

    @abstractmethod
    def diameter(self, target: float) -> float:
        """Largest v with eps(v; v) <= target, rounded down; -inf if the bound never applies."""

    @abstractmethod
    def solved(self, targets: Floats, diameter: float) -> Floats:
        """Largest v <= m with eps(v; m) <= target for each (sorted) target.

        Rounded down, but at least min(target, m).
        """

    @abstractmethod
    def amplified(self, local: Floats, targets: Floats, diameter: float) -> Floats:
        """min(v, eps(v; m)), rounded up, for a vector that `solved` returned for these targets."""


@dataclass(frozen=True)
class ClosedForm(EpsilonInversion):
    """Bound of the form eps(v; m) = log(1 + tanh(v/2) g(m)), g increasing in m."""

    @abstractmethod
    def gain(self, diameter: float) -> float:
        """Return g(m), rounded up; infinite where the condition of the bound fails."""

    def diameter(self, target: float) -> float:
        def certified(v: float) -> bool:
            return bool(self._bound(np.array([v]), self.gain(v))[0] <= target)

        top = self.limit
        if not top > 0.0:
            return -math.inf
        return (
            top
            if certified(top)
            else last_certified(certified, top, 0.0, relative=DIAMETER_TOLERANCE)
        )

    def solved(self, targets: Floats, diameter: float) -> Floats:
        gain = self.gain(diameter)
        plain = np.minimum(targets, diameter)
        if not math.isfinite(gain):
            return plain
        # The margin is in the target, because the bound is flat in a large v.
        odds = np.expm1(np.minimum(targets, LARGEST_EXPONENT) * (1.0 - 8.0 * ROUNDING_SLACK)) / gain
        local = np.full_like(targets, diameter)
        inside = odds < 1.0
        local[inside] = np.minimum(2.0 * np.arctanh(odds[inside]), diameter)
        local = np.where(self._bound(local, gain) <= targets, local, plain)  # NaN does not pass
        # A value that meets a smaller target meets a larger one.
        return np.asarray(np.maximum.accumulate(np.maximum(local, plain)), dtype=np.float64)

    def amplified(self, local: Floats, targets: Floats, diameter: float) -> Floats:
        gain = self.gain(diameter)
        return np.minimum(local, self._bound(local, gain)) if math.isfinite(gain) else local

    @staticmethod
    def _bound(local: Floats, gain: float) -> Floats:
        return np.asarray(
            np.log1p(np.tanh(0.5 * local) * gain) * (1.0 + ROUNDING_SLACK), dtype=np.float64
        )


@dataclass(frozen=True)
class ChernoffInversion(ClosedForm):
    """Inversion of Corollary 1, with g = (2s+1)/(Omega/2-s).

    s = sqrt(Omega L/2), Omega = (n-1) e^-m - sqrt(3 (n-1) e^-m L), L = log(4/delta), and n is the
    number of users.
    """

    @property
    def limit(self) -> float:
        """Largest m with Omega >= 2L: e^m <= (n-1)/(L (sqrt(3)+sqrt(11))^2/4)."""
        if self.users < 2:
            return -math.inf
        return math.log(self.users - 1) - math.log(
            math.log(4.0 / self.delta) * (math.sqrt(3.0) + math.sqrt(11.0)) ** 2 / 4.0
        )

    def gain(self, diameter: float) -> float:
        clones = chernoff_clones(
            (LOG_TWO + diameter) * (1.0 + ROUNDING_SLACK), self.users, self.delta
        )
        s = math.sqrt(0.5 * max(clones, 0.0) * math.log(4.0 / self.delta))
        room = (0.5 * clones - s) - 2.0 * ROUNDING_SLACK * clones
        return (2.0 * s + 1.0) / room * (1.0 + ROUNDING_SLACK) if room > 0.0 else math.inf


@dataclass(frozen=True)
class SimpleInversion(ClosedForm):
    """Inversion of Corollary 2: g = 8 (sqrt(e^m L/(n-1)) + e^m/(n-1)), if n > 16 L e^m."""

    @property
    def limit(self) -> float:
        if self.users < 2:
            return -math.inf
        exact = math.log(self.users) - math.log(16.0 * math.log(4.0 / self.delta))
        return exact - 4.0 * ROUNDING_SLACK * (1.0 + abs(exact))

    def gain(self, diameter: float) -> float:
        if not diameter <= self.limit:
            return math.inf
        each = math.exp(diameter) / (self.users - 1) * (1.0 + 4.0 * ROUNDING_SLACK)
        return 8.0 * (math.sqrt(each * math.log(4.0 / self.delta)) + each) * (1.0 + ROUNDING_SLACK)


@dataclass(frozen=True)
class CloneInversion(EpsilonInversion):
    """Inversion of the certified epsilon of the clone pair (v, m, m).

    This epsilon grows in v and m and never exceeds v.
    """

    @property
    def limit(self) -> float:
        """Largest m with two expected clones of a pair."""
        return math.log(self.users)

    def passes(self, local: float, diameter: float, target: float) -> bool:
        """Whether eps(v; m) <= target is certified.

        The margin is wider than the bracket of `epsilon_upper`.
        """
        if local <= target:
            return True
        counts = CloneCounts.absolute(ClonePair(local, diameter, diameter), self.users, self.delta)
        return (
            0.0
            <= counts.delta(min(target * (1.0 - 4.0 * DIAMETER_TOLERANCE), LARGEST_EXPONENT))
            <= self.delta
        )

    def diameter(self, target: float) -> float:
        failing = max(target, math.log(self.users)) + 40.0  # there are no clones: epsilon is v
        if self.passes(failing, failing, target):
            return target  # unreachable; the target itself is always valid
        return last_certified(
            lambda v: self.passes(v, v, target), failing, target, relative=DIAMETER_TOLERANCE
        )

    def solved(self, targets: Floats, diameter: float) -> Floats:
        # the first target that m itself meets
        capped = last_certified_integer(
            lambda index: self.passes(diameter, diameter, float(targets[index])), -1, len(targets)
        )
        local = np.full_like(targets, diameter)
        if capped:
            local[:capped] = self._below(targets[:capped], diameter)
        return np.asarray(
            np.maximum.accumulate(local), dtype=np.float64
        )  # a value that meets a smaller target meets a larger one

    def amplified(self, local: Floats, targets: Floats, diameter: float) -> Floats:
        """min(v, eps(v; m)), rounded up.

        Beyond 512 distances the target, which `solved` has certified, replaces eps(v; m).
        """
        if len(local) > MAX_ACCOUNTED_DISTANCES:
            return np.minimum(local, targets)
        each = np.array(
            [
                epsilon_upper(ClonePair(float(v), diameter, diameter), self.users, self.delta)
                for v in local
            ],
            dtype=np.float64,
        )
        return np.asarray(np.minimum(each, np.minimum(local, targets)), dtype=np.float64)

    def _below(self, targets: Floats, diameter: float) -> Floats:
        """Solve for the targets that m does not meet.

        Some are searched; the others are read off a curve through these, and each is certified.
        """
        count = len(targets)
        rising = np.rint(np.geomspace(1, count, MAX_SEARCHED_DISTANCES)).astype(np.int64)
        # The curve is steep before m, so many points lie there.
        some = (
            np.arange(count)
            if count <= MAX_SEARCHED_DISTANCES
            else np.unique(np.concatenate((rising - 1, count - rising)))
        )
        local: Floats = np.array(targets)
        ratio = 1.0
        for index in some:
            local[index] = self._searched(float(targets[index]), diameter, ratio)
            ratio = float(local[index] / targets[index])
        if len(some) == count:
            return local
        from scipy.interpolate import PchipInterpolator

        curve = np.exp(
            PchipInterpolator(np.log(targets[some]), np.log(local[some]))(np.log(targets))
        )
        searched = frozenset(some.tolist())
        for index in range(count):
            if index in searched:
                continue
            target = float(targets[index])
            aim = float(curve[index])
            guesses = (min(aim * (1.0 - lower), diameter) for lower in (1e-5, 1e-4, 1e-3, 1e-2))
            # found[index - 1] passed for a smaller target.
            local[index] = next(
                (v for v in guesses if self.passes(v, diameter, target)),
                max(target, float(local[index - 1])),
            )
        return np.asarray(np.maximum(local, targets), dtype=np.float64)

    def _searched(self, target: float, diameter: float, ratio: float) -> float:
        passing = target
        failing = diameter
        for guess in (target * ratio * (1.0 - 1e-3), target * ratio * (1.0 + 1e-3)):
            if passing < guess < failing:
                passing, failing = (
                    (guess, failing) if self.passes(guess, diameter, target) else (passing, guess)
                )
        return last_certified(
            lambda v: self.passes(v, diameter, target),
            failing,
            passing,
            relative=10.0 * DIAMETER_TOLERANCE,
        )
