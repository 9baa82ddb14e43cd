"""Attacker's view of two neighbouring inputs as two laws, without the accountants' code.

A view may leave outcomes out: the rest is still a lower bound on the divergence of the whole. So a
guarantee that fails here is false, whatever its proof says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.special import gammaln, logsumexp, xlogy

Law = NDArray[np.float64]
DIRECT = 3000
"""Number of cells up to which sums are added term by term, so that small masses are exact."""


@dataclass(frozen=True)
class View:
    """Probabilities of the same outcomes under two inputs `distance` units apart."""

    distance: float
    first: Law
    second: Law
    what: str = ""
    exact_above: float = 1e-250
    """Masses below this are not known to all their digits."""

    def delta(self, epsilon: float, rounds: int = 1) -> float:
        """Lower bound on the hockey-stick divergence of `rounds` independent rounds.

        In the worse direction.
        """
        if rounds == 1:
            growth = math.exp(min(epsilon, 700.0))
            return max(
                float(np.maximum(p - growth * q, 0.0).sum())
                for p, q in ((self.first, self.second), (self.second, self.first))
            )
        return max(
            _over_rounds(p, q, epsilon, rounds)
            for p, q in ((self.first, self.second), (self.second, self.first))
        )

    def loss(self, rounds: int = 1) -> float:
        """Largest log ratio of clearly possible outcomes, over all rounds."""
        if np.any((self.first > 1e-12) & (self.second == 0.0)) or np.any(
            (self.second > 1e-12) & (self.first == 0.0)
        ):
            return math.inf
        seen = (self.first > self.exact_above) & (self.second > self.exact_above)
        return rounds * float(np.abs(np.log(self.first[seen] / self.second[seen])).max(initial=0.0))


def _over_rounds(p: Law, q: Law, epsilon: float, rounds: int) -> float:
    """Divergence of several rounds: losses rounded down to a grid, their law to a power."""
    certain = float(p[(q == 0.0)].sum())
    seen = (p > 0.0) & (q > 0.0)
    losses = np.log(p[seen] / q[seen])
    masses = p[seen]
    step = max(1e-6, min(epsilon, 40.0) / 2000.0)
    cells = np.floor(np.clip(losses, -40.0, 40.0) / step).astype(np.int64)
    law: Law = np.bincount(cells - cells.min(), masses).astype(np.float64)
    total = law
    start = int(cells.min())
    for _ in range(rounds - 1):
        total = _summed(total, law)
        start = start + int(cells.min())
    values = (start + np.arange(total.size)) * step
    beyond = values > epsilon
    spread = float(np.sum(np.maximum(total[beyond], 0.0) * -np.expm1(epsilon - values[beyond])))
    # the transform is off by some 1e-16 of its largest entry in every cell
    return -math.expm1(rounds * math.log1p(-min(certain, 1.0 - 1e-16))) + max(
        0.0, spread - 1e-15 * total.size * float(total.max(initial=0.0))
    )


def _summed(one: Law, other: Law) -> Law:
    if min(one.size, other.size) <= DIRECT:
        return np.convolve(one, other)
    return np.asarray(np.maximum(fftconvolve(one, other), 0.0))


def power(law: Law, count: int) -> Law:
    """Law of a sum of `count` draws."""
    total = np.ones(1)
    while count:
        if count & 1:
            total = _summed(total, law)
        count >>= 1
        law = _summed(law, law) if count else law
    return total


@cache
def polya(shape: float, rate: float) -> tuple[Law, int]:
    """Difference of two negative binomials of that shape and ratio e^-rate, from -r to r, and r."""

    def log_mass(k: Law) -> Law:
        scale = shape * math.log(-math.expm1(-rate)) - gammaln(shape)
        return np.asarray(gammaln(shape + k) - gammaln(k + 1.0) + scale - rate * k)

    if shape == 1.0:
        far = min(2**17, math.ceil(45.0 / rate))
        return math.tanh(0.5 * rate) * np.exp(-rate * np.abs(np.arange(-far, far + 1.0))), far
    cells = 64
    while cells < 2**17 and float(log_mass(np.array([float(cells)]))[0]) > -45.0:
        cells *= 2
    half = np.exp(log_mass(np.arange(2.0 * cells)))
    both = _summed(half, half[::-1])  # what is cut off makes a difference near the ends only
    return both[cells - 1 : -cells + 1], cells


def shifted(
    law: Law,
    zero: int,
    first: dict[int, float],
    second: dict[int, float],
    distance: float,
    what: str,
) -> View:
    """View of the same noise on two (randomly rounded) numbers, each given as value -> probability.

    Only where both laws are known.
    """
    low = min(*first, *second)
    high = max(*first, *second)
    width = law.size - (high - low)
    if width < 1:
        return View(distance, np.zeros(1), np.zeros(1), what)
    laws = [
        np.asarray(
            sum(chance * law[high - value : high - value + width] for value, chance in held.items())
        )
        for held in (first, second)
    ]
    return View(distance, laws[0], laws[1], what, 1e-250 if law.size <= DIRECT else 1e-8)


def product(one: View, other: View, distance: float, what: str) -> View:
    """Two independent views together."""
    return View(
        distance,
        np.outer(one.first, other.first).ravel(),
        np.outer(one.second, other.second).ravel(),
        what,
        max(one.exact_above, other.exact_above),
    )


def binomial(count: int, chance: float) -> Law:
    k = np.arange(count + 1, dtype=np.float64)
    logs = (
        gammaln(count + 1.0)
        - gammaln(k + 1.0)
        - gammaln(count - k + 1.0)
        + xlogy(k, chance)
        + xlogy(count - k, 1.0 - chance)
    )
    return np.asarray(np.exp(logs))


def multisets(rows: list[Law]) -> dict[tuple[int, ...], float]:
    """Probability of every vector of counts when one report is drawn from each row."""
    current: dict[tuple[int, ...], float] = {(0,) * rows[0].size: 1.0}
    for row in rows:
        after: dict[tuple[int, ...], float] = {}
        for counts, mass in current.items():
            for report in np.flatnonzero(row):
                key = (*counts[:report], counts[report] + 1, *counts[report + 1 :])
                after[key] = after.get(key, 0.0) + mass * float(row[report])
        current = after
    return current


def counted(
    first: list[Law], second: list[Law], others: list[Law], distance: float, what: str
) -> View:
    """View of the counts of all reports, one person's drawn from `first` or from `second`."""
    one = multisets([*first, *others])
    other = multisets([*second, *others])
    keys = sorted({*one, *other})
    return View(
        distance,
        np.array([one.get(key, 0.0) for key in keys]),
        np.array([other.get(key, 0.0) for key in keys]),
        what,
    )


def likely(
    first: list[Law],
    second: list[Law],
    others: list[Law],
    copies: int,
    seen: NDArray[np.bool_],
    distance: float,
    what: str,
) -> View:
    """View of the number of reports among those `seen`, for any number of people.

    It reveals less than all the counts. Everyone else is `copies` times the same.
    """
    crowd = np.ones(1)
    for row in others:
        crowd = _summed(crowd, binomial(copies, min(1.0, float(row[seen].sum()))))
    laws = []
    for rows in (first, second):
        law = crowd
        for row in rows:
            chance = min(1.0, float(row[seen].sum()))
            law = np.convolve(law, np.array([1.0 - chance, chance]))
        laws.append(law)
    return View(distance, laws[0], laws[1], what)


@dataclass(frozen=True)
class SameOthers:
    """One report of a or of b among n - 1 people who all hold c: (1/n) E[(G_1 + .. + G_n)_+].

    G = (K_a - e K_b)/K_c under K_c. The density of the counts under a, against those of n people at
    c, is the mean of K_a/K_c over the reports. E[(.)_+] is an integral over a vertical line, cut
    off where the rest is below a thousandth; that is subtracted.
    """

    distance: float
    first: Law
    second: Law
    held: Law
    users: int
    what: str = ""

    def delta(self, epsilon: float, rounds: int = 1) -> float:
        if rounds != 1 or np.any(self.held <= 0.0):
            return 0.0
        growth = math.exp(min(epsilon, 700.0))
        return max(
            self._positive_part(a - growth * b)
            for a, b in ((self.first, self.second), (self.second, self.first))
        )

    def loss(self, rounds: int = 1) -> float:
        return 0.0

    def _positive_part(self, excess: Law) -> float:
        values = excess / self.held
        logs = np.log(self.held)
        largest = float(values.max())
        if largest <= 0.0:
            return 0.0
        lines = np.geomspace(1e-6 / largest, 300.0 / largest, 400)
        heights = np.array(
            [self.users * float(logsumexp(logs + s * values)) - 2.0 * math.log(s) for s in lines]
        )
        line = float(lines[np.argmin(heights)])
        top = self.users * float(logsumexp(logs + line * values))
        nodes = 20_000
        step = line / 12.0
        places = line + 1j * step * np.arange(nodes)
        exponents = logs[None, :] + places[:, None] * values[None, :]
        peak = exponents.real.max(axis=1, keepdims=True)
        moments = np.log(np.exp(exponents - peak).sum(axis=1)) + peak[:, 0]
        terms = np.exp(self.users * moments - top) / places**2
        total = step / math.pi * (float(terms.real.sum()) - 0.5 * float(terms.real[0]))
        rest = 1.0 / (math.pi * step * nodes)
        # the trapezoidal sum adds e^(-line period) times what lies a period, 2 pi/step, to the
        # left: at most e^(-75) of the peak
        return max(0.0, (total - rest) * math.exp(min(top, 700.0)) / self.users * (1.0 - 1e-9))
