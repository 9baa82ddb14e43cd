"""Hadamard response: a value prefers the reports with entry +1 in its row of a Hadamard matrix."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument, owner
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.types import Floats, Integers64, Mask
from metricshuffle.randomizers.dyadic_weights import Epsilon, Levels, draw_events, growth
from metricshuffle.randomizers.randomizer import (
    LARGEST_MATRIX,
    FittedFamily,
    Pair,
    Randomizer,
    code_values,
)
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Domain


class HadamardResponse(Randomizer):
    """One of `options` values; it prefers half of the reports of its block of a Hadamard matrix.

    Reports are `blocks` blocks of `order` (a power of two). Value x belongs to block x // (order -
    1) and to row r = x mod (order - 1) + 1 of the Hadamard matrix; it prefers the reports y of its
    block for which r and y have an even number of ones in common. Preferred reports are e^epsilon
    times likelier.

    Reference: Acharya, Sun, Zhang 2019; their number of blocks is about min(e^epsilon, options),
    the default here.
    """

    kind: Literal["hadamard-response"] = "hadamard-response"
    options: Whole
    epsilon: Epsilon
    blocks: Whole

    def __init__(
        self, options: int, epsilon: float, blocks: int | None = None, **fields: object
    ) -> None:
        if blocks is None:
            options = options if isinstance(options, int) else 2
            blocks = 2 ** max(
                0, math.ceil(math.log2(min(growth(epsilon), max(2.0, 2.0 * options)))) - 1
            )
            # No block may be empty.
            while blocks > 1 and (blocks - 1) * (_order(options, blocks) - 1) >= options:
                blocks //= 2
        FrozenModel.__init__(self, options=options, epsilon=epsilon, blocks=blocks, **fields)

    def model_post_init(self, context: object) -> None:
        if not 2 <= self.options <= 2**24 or not 1 <= self.blocks <= self.options:
            raise InputError(
                f"{owner('HadamardResponse')}{argument('options')} must lie in 2..2^24 and blocks "
                f"in 1..options, got {self.options} and {self.blocks}."
            )
        if (self.blocks - 1) * (self.order - 1) >= self.options:
            raise InputError(
                f"{owner('HadamardResponse')}with {self.blocks} blocks of order {self.order} the "
                f"{self.options} options leave the last block empty; "
                "take fewer blocks."
            )
        _ = self.levels

    @cached_property
    def order(self) -> int:
        """The smallest power of two with enough rows besides the constant one."""
        return _order(self.options, self.blocks)

    @cached_property
    def levels(self) -> Levels:
        preferred = self.order // 2
        return Levels(self.epsilon, preferred, self.outputs - preferred)

    @classmethod
    def fitted(cls, domain: Domain, cells: int) -> FittedFamily | None:
        """Return the family for labels without an order, unless there are too many."""
        few = 2 * cells * cells <= LARGEST_MATRIX // 4
        return (
            FittedFamily(lambda epsilon: cls(cells, epsilon))
            if few and isinstance(domain, Categories)
            else None
        )

    @property
    def inputs(self) -> int:
        return self.options

    @property
    def outputs(self) -> int:
        return self.blocks * self.order

    def preferred(self, values: Integers64, reports: Integers64) -> Mask:
        """Return whether a value prefers a report, for arrays that broadcast."""
        block, row = np.divmod(values, self.order - 1)
        odd = np.bitwise_count((row + 1) & (reports % self.order)) & 1
        return np.asarray((reports // self.order == block) & (odd == 0))

    def law(self, value: int) -> Floats:
        likely = self.preferred(np.array(self._checked_input(value)), np.arange(self.outputs))
        return np.where(likely, float(self.levels.high), float(self.levels.low))

    def rows(self) -> Floats:
        self._listable()
        likely = self.preferred(np.arange(self.options)[:, None], np.arange(self.outputs)[None, :])
        return np.where(likely, float(self.levels.high), float(self.levels.low))

    def pairs(self) -> list[Pair]:
        """Return two values of one block, and two of different blocks."""
        within = [(0, 1)] if self.order > 2 else []
        return within + ([(0, self.order - 1)] if self.blocks > 1 else [])

    @theorem("Acharya19", "Hadamard response")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Blanket of (a, b) in closed form.

        Statement: two rows of a block share half of their s = order/2 preferred reports, rows of
        different blocks none. w is low everywhere, except that with a single block every value
        prefers report 0.
        Proof: two different non-constant rows are orthogonal, so they agree on half the columns, +1
        on a quarter. A report y != 0 has a one at some place, and the row with just that one (a
        value, since order/2 <= options) does not prefer y; with several blocks, values of others do
        not.
        Numerics: exact fractions, rounded once.
        """
        self._checked_pair(a, b)
        half = self.order // 2
        both = half // 2 if a // (self.order - 1) == b // (self.order - 1) else 0
        everybody = 1 if self.blocks == 1 else 0
        return self.levels.blanket(
            [
                (everybody, True, True, True),
                (both - everybody, False, True, True),
                (half - both, False, True, False),
                (half - both, False, False, True),
                (self.outputs - 2 * half + both, False, False, False),
            ]
        )

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """Return log(high/low), the same for every pair; never above epsilon."""
        if a is not None and b is not None:
            self._checked_pair(a, b)
        return self.levels.local_epsilon

    def reports(self, values: object, randomness: Randomness) -> Integers64:
        codes = code_values(values, self.options).astype(np.int64)
        block, row = np.divmod(codes, self.order - 1)
        row += 1
        likely = draw_events(self.levels.threshold, len(codes), randomness)
        inside = randomness.uniform_residues(len(codes), self.order).astype(np.int64)
        # Uniform over all reports that are not preferred: the other half of the own block, and all
        # other blocks.
        place = (
            randomness.uniform_residues(len(codes), self.outputs - self.order // 2).astype(np.int64)
            - self.order // 2
        )
        elsewhere = ~likely & (place >= 0)
        # y, and y with the lowest bit of the row flipped, have different parities, so one of them
        # has the right parity, and the result is uniform.
        mismatched = (np.bitwise_count(row & inside) & 1).astype(bool) == likely
        inside = np.where(mismatched, inside ^ (row & -row), inside)
        other_block, other_place = np.divmod(np.maximum(place, 0), self.order)
        other_block += other_block >= block
        return np.where(
            elsewhere, other_block * self.order + other_place, block * self.order + inside
        )

    def targets(self) -> Floats:
        return np.eye(self.options)

    def debiasing(self) -> Floats:
        """Return 1[y is preferred] - 1[y in the block]/2, rescaled.

        It is unbiased because the rows of one block are orthogonal to each other and to 1.
        """
        self._listable()
        reports = np.arange(self.outputs)[:, None]
        values = np.arange(self.options)[None, :]
        own = reports // self.order == values // (self.order - 1)
        gap = float((self.levels.high - self.levels.low) * (self.order // 2) / 2)
        return np.asarray((self.preferred(values, reports) - 0.5 * own) / gap, dtype=np.float64)

    def totals(self, reports: object) -> Floats:
        """Return unbiased estimates of the number of people with each option.

        It uses one fast Walsh-Hadamard transform per block.
        """
        spectrum = self.counts(reports).reshape(self.blocks, self.order).astype(np.float64)
        step = 1
        while step < self.order:
            split = spectrum.reshape(self.blocks, -1, 2, step)
            spectrum = np.stack(
                [split[:, :, 0] + split[:, :, 1], split[:, :, 0] - split[:, :, 1]], axis=2
            ).reshape(self.blocks, self.order)
            step *= 2
        gap = float((self.levels.high - self.levels.low) * (self.order // 2))
        estimates: Floats = spectrum[:, 1:].reshape(-1)[: self.options] / gap
        return estimates


def _order(options: int, blocks: int) -> int:
    return 1 << (-(-options // blocks)).bit_length()
