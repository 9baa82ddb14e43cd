"""Symmetric laws on -c..c whose probabilities are integers divided by 2^64, sampled exactly.

Clients with bounded noise draw from such a table (`AdditiveRandomizer`). One 64-bit word makes one
draw, and the account uses the law of the table itself: nothing is approximated between the
guarantee and the noise.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.types import Integers32, Integers64, Words
from metricshuffle.randomness import BUFFER_WORDS, Randomness, validate_count

TOTAL_WEIGHT = 2**64
LARGEST_RADIUS = 2**20
MASS_TOLERANCE = Fraction(1, 10**6)

Mass = float | Fraction | Decimal


@dataclass(frozen=True)
class DyadicTable:
    """Law with P(Z = z) = weights[|z|] / 2^64 for |z| <= radius.

    The sum weights[0] + 2 (weights[1] + ... + weights[radius]) is exactly 2^64 and every weight is
    at least 1.
    """

    weights: tuple[int, ...] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))
        if not 1 <= len(self.weights) <= LARGEST_RADIUS + 1:
            raise InputError(
                "a table needs weights for z = 0..c with c up to 2^20, got "
                f"{len(self.weights)} of them."
            )
        for z, weight in enumerate(self.weights):
            if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
                raise InputError(
                    "every weight of a table must be an integer >= 1, but the weight of z "
                    f"= {z} is {weight!r}."
                )
        total = 2 * sum(self.weights) - self.weights[0]
        if total != TOTAL_WEIGHT:
            raise InputError(
                "the weights of a table must sum to 2^64 over -c..c, but they miss it by "
                f"{total - TOTAL_WEIGHT}."
            )

    @classmethod
    def from_masses(cls, masses: Sequence[Mass]) -> Self:
        """Round masses to w_z = max(1, floor(2^64 q(z))) for z = 1..c; z = 0 gets the remainder.

        `masses` are q(0)..q(c) of a law that is already truncated and renormalised; a float counts
        as the rational number it represents. The result is within total variation 2c 2^-64 (plus
        the error of the masses) of q.
        """
        exact = [_exact_mass(z, mass) for z, mass in enumerate(masses)]
        if not exact:
            raise InputError("a table needs at least the mass of 0.")
        total = 2 * sum(exact) - exact[0]
        if abs(total - 1) > MASS_TOLERANCE:
            raise InputError(
                f"the masses over -c..c must sum to 1, but they sum to {float(total)!r}; "
                "divide by their sum first."
            )
        return cls._with_centre([max(1, math.floor(TOTAL_WEIGHT * mass)) for mass in exact[1:]])

    @classmethod
    @theorem("Ghosh12", "geometric mechanism, truncated and tabulated")
    def bounded_geometric(cls, rate: float | Fraction, radius: int) -> Self:
        """Table of the discrete Laplace law of the given rate, conditioned on |z| <= radius.

        Statement: w_z = max(1, floor(2^64 p^z / (1 + 2 sum_{j=1..c} p^j))) for z = 1..c with p =
        exp(-rate), c = radius; z = 0 gets the remainder.
        Conditions: rate > 0 finite, 0 <= radius <= 2^20.
        Numerics: decimal arithmetic, with as many digits as are needed to determine every floor; a
        float rate counts as the rational number it represents.
        Reference: Ghosh, Roughgarden, Sundararajan 2012 for the law.
        """
        if (
            isinstance(radius, bool)
            or not isinstance(radius, int)
            or not 0 <= radius <= LARGEST_RADIUS
        ):
            raise InputError(f"radius must be an integer in 0..2^20, got {radius!r}.")
        if not (isinstance(rate, int | float | Fraction) and 0 < rate < math.inf):
            raise InputError(f"{argument('rate')} must be a finite number > 0, got {rate!r}.")
        digits = 50
        weights = None
        # A tie is impossible (e^-rate is transcendental), so some precision determines every floor.
        while weights is None:
            weights = _geometric_weights(Fraction(rate), radius, digits)
            digits *= 2
        return cls._with_centre(weights)

    @classmethod
    def _with_centre(cls, outer: list[int]) -> Self:
        centre = TOTAL_WEIGHT - 2 * sum(outer)
        if centre < 1:
            raise InputError(
                f"the weights of z != 0 leave {centre} of 2^64 for z = 0; give z = 0 some "
                "mass or lower the radius."
            )
        return cls((centre, *outer))

    @property
    def radius(self) -> int:
        """Largest value drawn."""
        return len(self.weights) - 1

    def probability(self, z: int) -> float:
        """P(Z = z), to the nearest float; the exact value is weights[|z|] / 2^64."""
        return self.weights[abs(z)] / TOTAL_WEIGHT if abs(z) <= self.radius else 0.0

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the weights: two machines with the same digest draw from the same law."""
        return hashlib.sha256(",".join(map(str, self.weights)).encode()).hexdigest()

    @cached_property
    def variance(self) -> float:
        """E Z^2, to the nearest float."""
        return 2 * sum(z * z * weight for z, weight in enumerate(self.weights)) / TOTAL_WEIGHT

    @cached_property
    def _thresholds(self) -> Words:
        """The 2c partial sums of the weights below 2^64, from z = -c upwards; c = radius."""
        ordered = (*self.weights[:0:-1], *self.weights[:-1]) if self.radius else ()
        return np.array(list(accumulate(ordered)), dtype=np.uint64)

    @cached_property
    def _look_up(self) -> tuple[Words, Integers32, Integers32, int]:
        """(thresholds, guide, first, radius) for the kernels.

        For each cell of top bits, `guide` is the draw if these bits determine it, else AMBIGUOUS.
        An ambiguous draw is found by counting thresholds from the index `first` of the cell on.
        """
        from metricshuffle.noise import _table_kernels as kernels

        cells = np.arange(2**kernels.GUIDE_BITS, dtype=np.uint64)
        starts = cells << kernels.SHIFT
        ends = starts | np.uint64(2 ** int(kernels.SHIFT) - 1)
        first = np.searchsorted(self._thresholds, starts, side="right").astype(np.int32)
        last = np.searchsorted(self._thresholds, ends, side="right").astype(np.int32)
        guide = np.where(first == last, first - self.radius, kernels.AMBIGUOUS).astype(np.int32)
        return self._thresholds, guide, first, self.radius

    def draw(
        self, count: int, randomness: Randomness, *, constant_time: bool = False
    ) -> Integers64:
        """Return `count` independent draws; `constant_time` is slower and has no timing leak."""
        out = np.empty(validate_count(count), dtype=np.int64)
        self.draw_into(out, randomness, constant_time=constant_time)
        return out

    def draw_into(
        self, out: NDArray[Any], randomness: Randomness, *, constant_time: bool = False
    ) -> None:
        """Overwrite a one-dimensional int32 or int64 array with draws."""
        from metricshuffle.noise import _table_kernels as kernels

        if out.ndim != 1 or out.dtype not in (np.int32, np.int64):
            raise InputError(
                f"out must be a one-dimensional int32 or int64 array, got {out.dtype} {out.shape}."
            )
        for words, part in _chunks(out.size, randomness):
            if constant_time:
                kernels.draw_constant_time(words, self._thresholds, self.radius, out[part])
            else:
                kernels.draw(words, *self._look_up, out[part])

    def add_noise_to(self, values: Integers64, randomness: Randomness) -> None:
        """Add a draw to every entry of a one-dimensional int64 array, in place."""
        from metricshuffle.noise import _table_kernels as kernels

        if values.ndim != 1 or values.dtype != np.int64:
            raise InputError(
                f"values must be a one-dimensional int64 array, got {values.dtype} {values.shape}."
            )
        if values.size and not (
            int(values.min()) >= self.radius - 2**63 and int(values.max()) < 2**63 - self.radius
        ):
            raise InputError(
                f"values within {self.radius} of the ends of int64 would overflow when "
                "noise is added; use smaller ones."
            )
        for words, part in _chunks(values.size, randomness):
            kernels.add(words, *self._look_up, values[part])

    def to_dict(self) -> dict[str, list[str]]:
        """Return a JSON-ready dict of decimal strings (JSON numbers lose digits beyond 2^53)."""
        return {"weights": [str(weight) for weight in self.weights]}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """Read the result of `to_dict`, validating everything."""
        weights = data.get("weights") if isinstance(data, Mapping) else None
        if not isinstance(weights, list) or set(data) != {"weights"}:
            raise InputError('a table is stored as {"weights": ["...", ...]} and nothing else.')
        for z, text in enumerate(weights):
            if not (
                isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 20
            ):
                raise InputError(
                    f"the stored weight of z = {z} must be a decimal string of at most 20 "
                    f"digits, got {text!r}."
                )
        return cls(tuple(int(text) for text in weights))

    def to_json(self) -> str:
        """Return the table as JSON text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the result of `to_json`."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"this is not the JSON text of a table: {error}.") from error
        return cls.from_dict(data)


def _chunks(count: int, randomness: Randomness) -> Iterator[tuple[Words, slice]]:
    """Yield random words and the slice of entries that they are for, in one reused buffer."""
    buffer = np.empty(min(count, BUFFER_WORDS), dtype=np.uint64)
    for start in range(0, count, BUFFER_WORDS):
        stop = min(start + BUFFER_WORDS, count)
        words = buffer[: stop - start]
        randomness.fill(words)
        yield words, slice(start, stop)


def _exact_mass(z: int, mass: Mass) -> Fraction:
    if isinstance(mass, float | Decimal) and not math.isfinite(mass):
        raise InputError(f"the mass of z = {z} must be a number in [0, 1], got {mass!r}.")
    exact = Fraction(mass)
    if not 0 <= exact <= 1:
        raise InputError(f"the mass of z = {z} must lie in [0, 1], got {mass!r}.")
    return exact


def _geometric_weights(rate: Fraction, radius: int, digits: int) -> list[int] | None:
    """max(1, floor(2^64 p^z / Zc)) for z = 1..c, or None if `digits` do not decide some floor.

    Here p = exp(-rate), c = radius and Zc = 1 + 2 sum_{j=1..c} p^j.

    Every operation has a relative error of at most 10^(1-digits); the error of the rate enters p
    too, multiplied by the size of the rate. So p^z and the sum of the powers have a relative error
    below (2c + 2)(rate + 2) 10^(1-digits). Each quotient is enlarged and reduced by the slack
    below, which with c <= 2^20 covers these errors; so a floor is undecided only if an integer lies
    between the two ends.
    """
    with localcontext(Context(prec=digits, Emin=-(10**9), Emax=10**9)):
        exponent = Decimal(rate.numerator) / Decimal(rate.denominator)
        ratio = (-exponent).exp()
        powers = list(accumulate([ratio] * radius, lambda left, right: left * right))
        scale = TOTAL_WEIGHT / (1 + 2 * sum(powers, Decimal(0)))
        slack = Decimal(4 * radius + 8) * (exponent + 2) * Decimal(10) ** (1 - digits)
        weights = []
        for power in powers:
            value = scale * power
            low = math.floor(value * (1 - slack))
            high = math.floor(value * (1 + slack))
            if low != high and high > 0 and max(1, low) != max(1, high):
                return None
            weights.append(max(1, low))
    return weights
