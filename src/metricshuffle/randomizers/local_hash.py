"""Local hashing: a public random hash function, and randomized response on the hash value."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument, owner
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.randomizers.dyadic_weights import TOTAL_WEIGHT, Epsilon, exact_blanket, growth
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Pair, Randomizer, code_values
from metricshuffle.randomness import Randomness


class LocalHash(Randomizer):
    """The report is a random hash function and the hash of the value under randomized response.

    It is (f, y) with f a uniform hash function to 0..buckets-1 and y the response, coded f *
    buckets + y. The functions are linear over the field of `buckets` (a prime) elements: f(x) = sum
    f_i x_i mod buckets, x_i the digits of x. For x != x', f(x) - f(x') = sum f_i (x_i - x'_i) is
    uniform, so EVERY pair collides with probability 1/buckets exactly, and the function costs no
    more to send than the value.

    Reference: Wang, Blocki, Li, Jha 2017 (optimal local hashing: buckets near e^epsilon + 1).
    """

    kind: Literal["local-hash"] = "local-hash"
    options: Whole
    epsilon: Epsilon
    buckets: Whole

    def __init__(
        self, options: int, epsilon: float, buckets: int | None = None, **fields: object
    ) -> None:
        if buckets is None:
            buckets = _prime_from(
                min(round(growth(epsilon)) + 1, options if isinstance(options, int) else 2, 2**23)
            )
        FrozenModel.__init__(self, options=options, epsilon=epsilon, buckets=buckets, **fields)

    def model_post_init(self, context: object) -> None:
        if not 2 <= self.options <= 2**24:
            raise InputError(
                f"{owner('LocalHash')}{argument('options')} must lie in 2..2^24, got "
                f"{self.options}."
            )
        if not 2 <= self.buckets <= 2**24 or _prime_from(self.buckets) != self.buckets:
            raise InputError(
                f"{owner('LocalHash')}{argument('buckets')} must be a prime number up to 2^24, so "
                "that every pair of values collides equally often, "
                f"got {self.buckets}; the next one is "
                f"{_prime_from(max(2, min(self.buckets, 2**24)))}."
            )
        if self.outputs >= 2**62:
            raise InputError(
                f"{owner('LocalHash')}{self.options:,} options and {self.buckets:,} "
                "buckets make too many functions; take fewer buckets."
            )
        _ = self.response  # validates epsilon

    @cached_property
    def response(self) -> KaryRandomizedResponse:
        """The randomized response to the hash value."""
        return KaryRandomizedResponse(self.buckets, self.epsilon)

    @cached_property
    def digits(self) -> int:
        """Number of digits of a value to base `buckets`."""
        count = 1
        covered = self.buckets
        while covered < self.options:
            count = count + 1
            covered = covered * self.buckets
        return count

    @property
    def functions(self) -> int:
        """Number of hash functions."""
        return int(self.buckets**self.digits)

    @property
    def inputs(self) -> int:
        return self.options

    @property
    def outputs(self) -> int:
        return self.functions * self.buckets

    def hashed(self, functions: Integers64, values: Integers64) -> Integers64:
        """Return f(x), for arrays that broadcast."""
        total = np.zeros(np.broadcast_shapes(functions.shape, values.shape), dtype=np.int64)
        for place in range(self.digits):
            scale = self.buckets**place
            total += (functions // scale % self.buckets) * (values // scale % self.buckets)
        return total % self.buckets

    def rows(self) -> Floats:
        self._listable()
        hashes = self.hashed(np.arange(self.functions)[None, :], np.arange(self.options)[:, None])
        same = hashes[:, :, None] == np.arange(self.buckets)
        return (
            np.where(
                same, self.response.keep / TOTAL_WEIGHT, self.response.other / TOTAL_WEIGHT
            ).reshape(self.options, -1)
            / self.functions
        )

    def law(self, value: int) -> Floats:
        hashes = self.hashed(np.arange(self.functions), np.array(self._checked_input(value)))
        same = hashes[:, None] == np.arange(self.buckets)
        return (
            np.where(
                same, self.response.keep / TOTAL_WEIGHT, self.response.other / TOTAL_WEIGHT
            ).ravel()
            / self.functions
        )

    def pairs(self) -> list[Pair]:
        return [(0, 1)]

    @theorem("metricshuffle", "blanket of local hashing with exactly uniform collisions")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Blanket of (a, b) in closed form.

        Statement: let there be F functions and l buckets. F/l - 1 functions send a and b, but not
        all values, to one bucket; F - F/l functions send a and b to two; only f = 0 is constant.
        Proof: f(a) - f(b) is uniform; f != 0 is not constant, because every digit place holds 0 for
        one value and 1 for another. So w = other/F everywhere but at (f = 0, y = 0), where every
        law is keep/F. Total variation: (1 - 1/l)(keep - other).
        Numerics: exact fractions, rounded once.
        """
        self._checked_pair(a, b)
        functions = self.functions
        buckets = self.buckets
        keep = Fraction(self.response.keep, TOTAL_WEIGHT * functions)
        other_probability = Fraction(self.response.other, TOTAL_WEIGHT * functions)
        together = functions // buckets - 1
        apart = functions - functions // buckets
        return exact_blanket(
            [
                (1, keep, keep, keep),
                (together, other_probability, keep, keep),
                (apart, other_probability, keep, other_probability),
                (apart, other_probability, other_probability, keep),
                (
                    (1 + together) * (buckets - 1) + apart * (buckets - 2),
                    other_probability,
                    other_probability,
                    other_probability,
                ),
            ]
        )

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """Return the local epsilon of the response, equal for all pairs; never above epsilon."""
        if a is not None and b is not None:
            self._checked_pair(a, b)
        return self.response.local_epsilon()

    def reports(self, values: object, randomness: Randomness) -> Integers64:
        codes = code_values(values, self.options).astype(np.int64)
        functions = randomness.uniform_residues(len(codes), self.functions).astype(np.int64)
        answers = self.response.reports(self.hashed(functions, codes), randomness)
        return np.asarray(functions * self.buckets + answers, dtype=np.int64)

    def targets(self) -> Floats:
        return np.eye(self.options)

    @property
    def _scale(self) -> tuple[float, float]:
        """(c, s) such that (1[f(x) = y] - c) s has mean 1 for the own value and 0 for another."""
        keep = self.response.keep
        other_weight = self.response.other
        # For another value, f(x') = y has probability keep/l + (1 - 1/l) other = 1/l, because f(x')
        # is uniform given f(x).
        return 1.0 / self.buckets, 1.0 / (
            (keep - other_weight) / TOTAL_WEIGHT * (1.0 - 1.0 / self.buckets)
        )

    def debiasing(self) -> Floats:
        self._listable()
        centre, scale = self._scale
        hashes = self.hashed(np.arange(self.functions)[:, None], np.arange(self.options)[None, :])
        same = hashes[:, None, :] == np.arange(self.buckets)[None, :, None]
        return np.asarray((same - centre) * scale, dtype=np.float64).reshape(
            self.outputs, self.options
        )

    def totals(self, reports: object) -> Floats:
        codes = self.codes_of(reports).astype(np.int64)
        centre, scale = self._scale
        everyone = np.arange(self.options)
        total = np.zeros(self.options, dtype=np.int64)
        together = max(1, 2**20 // self.options)
        for start in range(0, len(codes), together):
            functions, answers = np.divmod(codes[start : start + together], self.buckets)
            total += np.count_nonzero(
                self.hashed(functions[:, None], everyone[None, :]) == answers[:, None], axis=0
            )
        return (total.astype(np.float64) - len(codes) * centre) * scale


def _prime_from(number: int) -> int:
    candidate = max(2, number)
    while any(candidate % factor == 0 for factor in range(2, int(candidate**0.5) + 1)):
        candidate += 1
    return candidate
