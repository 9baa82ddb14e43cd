"""Correlated noise, from which Athanasiou25 (Section 5.1) starts: messages +1 and -1 of a sum.

Everybody sends value + a + c messages +1 and b + c messages -1; a, b and c are parts of three
negative binomial numbers. The sum loses c, which hides how a and b are divided between the
messages. The constants of Ghazi20 are those that readers of that paper quote: NB(r, p) with
r = 3 (1 + log(1/delta)) and p = e^(-0.2 epsilon/span), and Athanasiou25's share of 0.01 for c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.privacy.profile import checked_epsilon
from metricshuffle_papers.published import checked_number, checked_people, open_delta

Floats = NDArray[np.float64]

SHARE = 0.01
"""Part of epsilon that the third number c takes (Athanasiou25, Section 5.1)."""
MAX_MESSAGES = 20_000_000
"""Largest table of messages of -1 that is listed."""
TAIL = 1e-18


@theorem("Ghazi20", "Negative binomial mechanism, as quoted: loose")
def negative_binomial(epsilon: float, delta: float, span: int = 1) -> tuple[float, float]:
    """Shape r and ratio p of one-sided noise that hides moves up to `span`.

    Statement: with r = 3 (1 + log(1/delta)) and p = e^(-0.2 epsilon/span), a whole number plus
    NB(r, p) is (epsilon, delta)-private for moves of at most `span`.
    Conditions: 0 < epsilon < 1, 0 < delta < 1, span a whole number >= 1.
    Reference: Ghazi, Kumar, Manurangsi, Pagh 2020, by readers' notes; we had no text of the paper.
    `CorrelatedNoise.shifted_delta` is exact, and smaller.
    """
    checked_number("epsilon", epsilon, 0.0, 1.0)
    if span < 1 or span != int(span):
        raise InputError(f"span must be a whole number >= 1, got {span!r}.")
    shape = 3.0 * (1.0 + math.log(1.0 / open_delta(delta)))
    return shape, math.exp(-0.2 * epsilon / span)


@dataclass(frozen=True)
class CorrelatedNoise:
    """Noise of a sum of whole numbers: geometric a and b at `rate`, c ~ NB(shape, ratio) in total.

    All people are honest; each draws the n-th part of the three numbers.
    """

    rate: float
    shape: float
    ratio: float

    def __post_init__(self) -> None:
        checked_number("rate", self.rate, 0.0)
        checked_number("shape", self.shape, 0.0)
        if not 0.0 < self.ratio < 1.0:
            raise InputError(f"ratio must lie strictly between 0 and 1, got {self.ratio!r}.")

    @classmethod
    def published(
        cls, epsilon: float, delta: float, span: int = 1, share: float = SHARE
    ) -> CorrelatedNoise:
        """Noise of Ghazi20 for moves up to `span`, epsilon and delta in total at that distance."""
        checked_number("share", share, 0.0, 1.0 - 1e-12)
        shape, ratio = negative_binomial(share * epsilon, delta, span)
        return cls((1.0 - share) * epsilon / span, shape, ratio)

    @property
    def variance(self) -> float:
        """Variance of the estimated sum: that of discrete Laplace noise; c cancels out."""
        return 2.0 * math.exp(-self.rate) / math.expm1(-self.rate) ** 2

    def messages(self, users: int, mean: float) -> float:
        """Expected number of messages of one person, where the mean value is `mean`."""
        laplace = 1.0 / math.expm1(self.rate)
        third = self.shape * self.ratio / (1.0 - self.ratio)
        return mean + 2.0 * (laplace + third) / checked_people(users)

    @cached_property
    def _third_law(self) -> tuple[Floats, float, float]:
        """Law g of w + c, w geometric at twice the rate; its tail, and its relative error."""
        slack = math.ceil(-math.log(TAIL) / (2.0 * self.rate)) + 1
        spread = self.shape * self.ratio / (1.0 - self.ratio)
        reach = 12.0 * math.sqrt(spread / (1.0 - self.ratio)) + 50.0 / (1.0 - self.ratio)
        last = math.ceil(spread + reach) + 1
        log_first = self.shape * math.log1p(-self.ratio)
        if last + slack > MAX_MESSAGES or log_first < -600.0:
            raise NotCertified(
                f"about {last + slack:,} messages -1 are too many to list; raise epsilon or delta."
            )
        steps = np.arange(1.0, last + slack + 1.0)
        factors = (self.shape + steps - 1.0) / steps * self.ratio
        third: Floats = np.cumprod(np.concatenate([[math.exp(log_first)], factors]))
        # Beyond `last` no factor exceeds `falling`, so that the tail is at most a geometric sum.
        falling = max(1.0, (self.shape + last) / (last + 1.0)) * self.ratio
        if not falling < 1.0:
            raise NotCertified("the noise has no listed tail; raise epsilon or delta.")
        tail = float(third[last]) * falling / (1.0 - falling) + TAIL
        law = _geometric_sum(third, math.exp(-2.0 * self.rate), -math.expm1(-2.0 * self.rate))
        error = (8.0 * len(law) + 4.0 * abs(log_first) + 64.0) * ROUNDOFF
        return law, tail * (1.0 + error), error

    def shifted_delta(self, epsilon: float, shift: int) -> float:
        """Delta of the number of messages -1 against its law moved by `shift`; epsilon any number.

        A positive shift moves the second law up, a negative one down. An upper bound: the tail and
        the rounding of both laws are added.
        """
        law, tail, error = self._third_law
        growth = math.exp(min(epsilon, 700.0))
        if shift == 0:
            return max(0.0, 1.0 - growth) * (1.0 + error)
        moved = np.zeros(len(law))
        if shift > 0:
            moved[shift:] = law[: max(0, len(law) - shift)]
        else:
            moved[:shift] = law[-shift:]
        excess = float(np.maximum(law - growth * moved, 0.0).sum())
        # Where the difference is positive, growth * moved is below law: two errors of law.
        return min(1.0, excess * (1.0 + error) + tail + 2.0 * error)

    @theorem("metricshuffle", "exact delta of correlated noise")
    def delta(self, epsilon: float, distance: int) -> float:
        """Delta of all messages, where one value moves by `distance`; epsilon in total.

        Statement: let p = e^-rate and D the distance. The numbers of messages +1 and -1 are U and
        V; S = U - V is the true sum x plus discrete Laplace noise f, and given S = s, V is
        max(0, x - s) + w + c with w ~ p^(2w). With g the law of w + c and H(e, k) the delta at e of
        g against g moved by k, x = 0 against D has delta H(epsilon - rate D, D)/(1 + p) + sum over
        0 < s < D of f(s) H(epsilon - rate (D - 2 s), D - s), and D against 0 has
        max(0, 1 - e^(epsilon - rate D))/(1 + p) + p^D H(epsilon + rate D, -D)/(1 + p) + sum over
        0 < s < D of f(s - D) H(epsilon + rate (D - 2 s), s - D). The larger one is returned; at
        epsilon = (rate + e) D it is at most H(e D, D).
        Proof: a and b are geometric in total, so that P(a = s - x + z) P(b = z) is proportional to
        p^(2 z + s - x) for z >= max(0, x - s). The orders of the messages are uniform.
        Conditions: all people are honest; values are whole numbers.
        Numerics: laws are listed; tails and rounding are added.
        """
        epsilon = checked_epsilon(epsilon)
        if distance < 1 or distance != int(distance):
            raise InputError(f"distance must be a whole number >= 1, got {distance!r}.")
        p = math.exp(-self.rate)
        whole = self.rate * distance
        up = self.shifted_delta(epsilon - whole, distance) / (1.0 + p)
        down = max(0.0, -math.expm1(epsilon - whole)) / (1.0 + p)
        down += p**distance * self.shifted_delta(epsilon + whole, -distance) / (1.0 + p)
        for s in range(1, distance):
            loss = self.rate * (distance - 2 * s)
            likely = (1.0 - p) / (1.0 + p)
            up += likely * p**s * self.shifted_delta(epsilon - loss, distance - s)
            down += likely * p ** (distance - s) * self.shifted_delta(epsilon + loss, s - distance)
        return min(1.0, max(up, down) * (1.0 + 64.0 * distance * ROUNDOFF))


def _geometric_sum(law: Floats, ratio: float, start: float) -> Floats:
    """Law of a number plus a geometric one: g(v) = ratio g(v - 1) + start law(v)."""
    from scipy.signal import lfilter

    summed: Floats = lfilter([start], [1.0, -ratio], law)
    return summed
