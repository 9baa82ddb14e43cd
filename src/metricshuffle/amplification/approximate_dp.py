"""Bounds on shuffled reports of any randomizer that is private up to a local delta."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.accounting.shuffling.clone_bound import ClonePair
from metricshuffle.accounting.shuffling.clone_bound import delta_upper as clones_delta
from metricshuffle.amplification.lower_bound import DataSetLower
from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import round_up
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    checked_delta,
    checked_epsilon,
    validate_distance,
)


@dataclass(frozen=True)
class ApproximateLocal(PrivacyProfile):
    """One report of any randomizer with local epsilon `total` and local delta `leak`."""

    total: float
    leak: float
    bound: str = "approximate"

    @theorem("metricshuffle", "what one approximately private report hides")
    def delta(self, epsilon: float, distance: float) -> float:
        """Upper bound on delta of one report.

        Statement: delta <= leak + (1 - leak) (p - e)_+/(p + 1), with p = e^total, e = e^epsilon and
        (y)_+ = max(y, 0).
        Proof: docs/proofs/groups.md.
        Numerics: rounded up.
        """
        epsilon = checked_epsilon(epsilon)
        if validate_distance(distance) == 0.0:
            return 0.0
        pure = (
            -math.expm1(epsilon - self.total) / (1.0 + math.exp(-self.total))
            if epsilon < self.total
            else 0.0
        )
        return min(1.0, round_up(self.leak + (1.0 - self.leak) * pure, 16))


@dataclass(frozen=True)
class ApproximateClones(PrivacyProfile):
    """Shuffled reports of `users` people, one each, by any randomizer with local (total, leak)."""

    total: float
    leak: float
    users: int
    bound: str = "clones"

    @property
    def local(self) -> ApproximateLocal:
        """The profile of one report alone."""
        return ApproximateLocal(self.total, self.leak)

    @theorem("metricshuffle", "clone pair of approximately private randomizers")
    def delta(self, epsilon: float, distance: float) -> float:
        """Upper bound on the divergence of the shuffled reports at e = e^epsilon.

        Statement: let n be the number of users, p = e^total, d0 = leak, h = 2 d0/p and q = (p + 2
        d0)/(1 - d0). The divergence is at most d0 + (1 - d0) (C + (1 + e) (n-1) h/(1 + h)), where C
        is the divergence of the clone pair of p, q, q for n people.
        Proof: docs/proofs/groups.md. In short: except for a mass of d0 of each, the laws K_a and
        K_b of the two inputs differ by at most the factor p; the law of every other person is
        within h/(1 + h) of a law that contains enough of both.
        Conditions: any two laws of the randomizer have divergence at most d0 at p, both ways.
        Numerics: everything is rounded up; never above one report alone.
        Reference: docs/proofs/groups.md.
        """
        epsilon, alone = checked_epsilon(epsilon), self.local.delta(epsilon, distance)
        if validate_distance(distance) == 0.0 or epsilon > 700.0:
            return alone
        missed = round_up(2.0 * self.leak * math.exp(-self.total), 8)
        largest = round_up(self.total + math.log1p(missed) - math.log1p(-self.leak), 16)
        cloned = clones_delta(ClonePair(self.total, largest, largest), self.users, epsilon)
        replaced = (1.0 + math.exp(epsilon)) * (self.users - 1) * missed
        bound = round_up(self.leak + cloned + replaced, 32)
        return min(alone, bound) if bound >= 0.0 else alone


@dataclass(frozen=True)
class ApproximateLower(DataSetLower):
    """Lower bound for any randomizer with local (total, leak).

    It is the lower bound for pure randomizers, raised to `leak` where it is smaller: some
    randomizers report the truth with probability `leak`.
    """

    leak: float = 0.0

    def delta(self, epsilon: float, distance: float) -> float:
        pure = super().delta(epsilon, distance)
        return max(pure, self.leak) if distance > 0.0 else pure

    def epsilon(self, delta: float, distance: float) -> float:
        if checked_delta(delta) < self.leak and validate_distance(distance) > 0.0:
            return math.inf
        return super().epsilon(delta, distance)
