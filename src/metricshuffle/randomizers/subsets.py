"""Reports that are k-subsets of the options: subset selection for one option, the exponential mechanism for a set of them."""

from __future__ import annotations

import itertools
import math
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import DomainError, InputError
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.randomizers.dyadic_weights import Epsilon, Levels, draw_events, growth
from metricshuffle.randomizers.randomizer import Codes, Pair, Randomizer
from metricshuffle.randomness import Randomness

Sets = Integers64


def uniform_subsets(count: int, size: int, below: int, randomness: Randomness) -> Sets:
    """`count` uniform subsets of 0..below-1 of the given size, as sorted rows: Floyd's algorithm, exact."""
    chosen = np.empty((count, size), dtype=np.int64)
    for place in range(size):
        last = below - size + place
        residues = randomness.uniform_residues(count, last + 1).astype(np.int64)
        taken = (chosen[:, :place] == residues[:, None]).any(axis=1)
        chosen[:, place] = np.where(taken, last, residues)
    chosen.sort(axis=1)
    return chosen


def sorted_sets(values: Any, size: int, below: int) -> Sets:
    """Sets as sorted rows of `size` different whole numbers below `below`."""
    sets = np.asarray(values)
    if sets.ndim != 2 or sets.shape[1] != size or sets.dtype.kind not in "iu":
        raise DomainError(f"sets must be an array of whole numbers with {size} columns, got {sets.dtype} of shape {sets.shape}.")
    sets = np.sort(sets.astype(np.int64), axis=1)
    invalid = (sets[:, 0] < 0) | (sets[:, -1] >= below) | (np.diff(sets, axis=1) == 0).any(axis=1)
    if invalid.any():
        row = int(np.argmax(invalid))
        raise DomainError(
            f"row {row} (counting from 0) must hold {size} different whole numbers from 0 to {below - 1}, got {sets[row].tolist()}."
        )
    return sets


class SubsetExponential(Randomizer):
    """Who holds a set of `held` of the `options` reports a set of `size` of them; sets that meet the own one are e^epsilon times likelier.

    held = 1 is subset selection (Ye and Barg 2018), in general PrivSet (Wang et al. 2018). Values and reports are rows of
    different whole numbers, codes count the subsets in lexicographic order.
    """

    kind: Literal["subset-exponential"] = "subset-exponential"
    options: Whole
    held: Whole
    size: Whole
    epsilon: Epsilon

    def __init__(self, options: int, held: int, epsilon: float, size: int | None = None, **fields: Any) -> None:
        if size is None:  # near the optimum of subset selection, d / (e^epsilon + 1), shared by the members
            known = isinstance(options, int) and isinstance(held, int)
            size = max(1, round(options / (max(1, held) * (growth(epsilon) + 1.0)))) if known else 1
        FrozenModel.__init__(self, options=options, held=held, size=size, epsilon=epsilon, **fields)

    def model_post_init(self, context: Any) -> None:
        if not (self.held >= 1 and self.size >= 1 and self.held + self.size <= self.options <= 2**12):
            raise InputError(
                f"{type(self).__name__}: size must be at least 1, and with what a person holds at most all options, which are up to "
                f"2^12; got size {self.size} and held {self.held} of {self.options} options."
            )
        _ = self.levels

    @cached_property
    def levels(self) -> Levels:
        """High for the sets that meet the own one."""
        missing = math.comb(self.options - self.held, self.size)
        return Levels(self.epsilon, math.comb(self.options, self.size) - missing, missing)

    @property
    def inputs(self) -> int:
        return math.comb(self.options, self.held)

    @property
    def outputs(self) -> int:
        return math.comb(self.options, self.size)

    def values_of(self, codes: Codes) -> Any:
        wanted, place = np.unique(np.asarray(codes), return_inverse=True)
        return np.array([subset_at(int(code), self.options, self.held) for code in wanted], dtype=np.int64).reshape(-1, self.held)[place]

    def codes_of(self, reports: Any) -> Codes:
        """Lexicographic ranks."""
        if self.outputs >= 2**62:
            raise InputError(f"there are {self.outputs:,} different reports, too many to number; use totals(reports).")
        return ranks(sorted_sets(reports, self.size, self.options), self.options)

    def rows(self) -> Floats:
        self._listable()
        own, reported = _members(self.options, self.held), _members(self.options, self.size)
        return np.where(own @ reported.T > 0.0, float(self.levels.high), float(self.levels.low))

    def pairs(self) -> list[Pair]:
        """One pair for each number of members in common: the first set, and the first that shares so many with it."""
        representatives = []
        for common in range(max(0, 2 * self.held - self.options), self.held):
            second_set = [*range(common), *range(self.held, 2 * self.held - common)]
            representatives.append((0, rank_of(second_set, self.options)))
        return representatives

    @theorem("Wang18", "PrivSet: exponential mechanism over k-subsets")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Statement: with c members in common, sets fall into those that meet both, only a, only b, or neither; w is low everywhere.

        Proof: a report of size k <= options - held misses the set of some user, so the smallest law is the low one. Of C(d, k)
        reports, C(d-s, k) miss a, and C(d-2s+c, k) miss both. Numerics: exact fractions, rounded once.
        """
        self._checked_pair(a, b)
        common = len({*subset_at(a, self.options, self.held)} & {*subset_at(b, self.options, self.held)})
        missing = math.comb(self.options - self.held, self.size)
        neither = math.comb(self.options - 2 * self.held + common, self.size)
        both = self.outputs - 2 * missing + neither
        return self.levels.blanket([
            (both, False, True, True), (missing - neither, False, True, False),
            (missing - neither, False, False, True), (neither, False, False, False),
        ])  # fmt: skip

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """log(high/low), the same for every pair; never above epsilon."""
        if a is not None and b is not None:
            self._checked_pair(a, b)
        return self.levels.local_epsilon

    def reports(self, values: Any, randomness: Randomness) -> Sets:
        """One set per value, exactly by the law: sets that meet the own one are drawn again until they do."""
        own = sorted_sets(values, self.held, self.options)
        out = np.empty((len(own), self.size), dtype=np.int64)
        meet = draw_events(self.levels.threshold, len(own), randomness)
        rows = np.flatnonzero(meet)
        while rows.size:
            out[rows] = uniform_subsets(rows.size, self.size, self.options, randomness)
            rows = rows[~(out[rows][:, :, None] == own[rows][:, None, :]).any(axis=(1, 2))]
        rows = np.flatnonzero(~meet)
        others = uniform_subsets(rows.size, self.size, self.options - self.held, randomness)
        for member in own[rows].T:  # in increasing order: the j-th number that is not in the set
            others += others >= member[:, None]
        out[rows] = np.sort(others, axis=1)
        return out

    def targets(self) -> Floats:
        """A column per option: whether the set holds it."""
        return _members(self.options, self.held)

    @cached_property
    def _chances(self) -> tuple[float, float]:
        """P(an option is reported), if the set holds it and if it does not."""
        high, low, d, k, s = self.levels.high, self.levels.low, self.options, self.size, self.held
        member, stranger = math.comb(d - 1, k - 1), math.comb(d - 1 - s, k - 1)
        return float(member * high), float((member - stranger) * high + stranger * low)

    def debiasing(self) -> Floats:
        self._listable()
        own, other_chance = self._chances
        return np.asarray((_members(self.options, self.size) - other_chance) / (own - other_chance), dtype=np.float64)

    def totals(self, reports: Any) -> Floats:
        """Unbiased estimates of how many people hold each option."""
        sets = sorted_sets(reports, self.size, self.options)
        own, other_chance = self._chances
        counts = np.bincount(sets.ravel(), minlength=self.options).astype(np.float64)
        return (counts - len(sets) * other_chance) / (own - other_chance)


class SubsetSelection(SubsetExponential):
    """Who holds one of the `options` reports `size` of them; sets with the own option are e^epsilon times likelier (Ye and Barg 2018)."""

    kind: Literal["subset-selection"] = "subset-selection"  # type: ignore[assignment]
    keeps_law: ClassVar[bool] = True
    held: Literal[1] = 1

    def __init__(self, options: int, epsilon: float, size: int | None = None, held: int = 1, **fields: Any) -> None:
        super().__init__(options, held, epsilon, size, **fields)

    def values_of(self, codes: Codes) -> Any:
        return codes

    def reports(self, values: Any, randomness: Randomness) -> Sets:
        column = np.asarray(values)
        return super().reports(column[:, None] if column.ndim == 1 else column, randomness)


def subset_at(code: int, options: int, size: int) -> list[int]:
    """The subset with the given lexicographic rank."""
    members: list[int] = []
    for candidate in range(options):
        if len(members) == size:
            break
        starting_here = math.comb(options - 1 - candidate, size - 1 - len(members))
        if code < starting_here:
            members.append(candidate)
        else:
            code -= starting_here
    return members


def rank_of(members: list[int], options: int) -> int:
    """The lexicographic rank of a sorted subset, however large."""
    size = len(members)
    after = sum(math.comb(options - 1 - member, size - place) for place, member in enumerate(members))
    return math.comb(options, size) - 1 - after


def ranks(sets: Sets, options: int) -> Codes:
    """rank_of for many subsets of one size, as 64-bit integers."""
    size = sets.shape[1]
    total = np.full(len(sets), math.comb(options, size) - 1, dtype=np.int64)
    for place in range(size):
        after = [math.comb(options - 1 - member, size - place) for member in range(options)]
        # No sorted subset has a member so early in a late place that this does not fit.
        total -= np.array([many if many < 2**62 else 0 for many in after], dtype=np.int64)[sets[:, place]]
    return total


def _all_subsets(options: int, size: int) -> Sets:
    return np.array(list(itertools.combinations(range(options), size)), dtype=np.int64)


def _members(options: int, size: int) -> Floats:
    sets = _all_subsets(options, size)
    out = np.zeros((len(sets), options))
    np.put_along_axis(out, sets, 1.0, axis=1)
    return out
