"""Reports that are k-subsets of the options: subset selection and the exponential mechanism."""

from __future__ import annotations

import itertools
import math
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import DomainError, InputError, argument, owner
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.randomizers.dyadic_weights import Epsilon, Levels, draw_events, growth
from metricshuffle.randomizers.randomizer import Codes, FittedFamily, Pair, Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Domain, LabelSets

Sets = Integers64
MAX_OPTIONS = 2**12


def uniform_subsets(count: int, size: int, below: int, randomness: Randomness) -> Sets:
    """Draw `count` uniform subsets of 0..below-1 as sorted rows, exactly (Floyd's algorithm)."""
    chosen = np.empty((count, size), dtype=np.int64)
    for place in range(size):
        last = below - size + place
        residues = randomness.uniform_residues(count, last + 1).astype(np.int64)
        taken = (chosen[:, :place] == residues[:, None]).any(axis=1)
        chosen[:, place] = np.where(taken, last, residues)
    chosen.sort(axis=1)
    return chosen


def sorted_sets(values: object, size: int, below: int) -> Sets:
    """Return sets as sorted rows of `size` different whole numbers below `below`, or raise."""
    sets = np.asarray(values)
    if sets.ndim != 2 or sets.shape[1] != size or sets.dtype.kind not in "iu":
        raise DomainError(
            f"sets must be an array of whole numbers with {size} columns, got {sets.dtype} "
            f"of shape {sets.shape}."
        )
    sets = np.sort(sets.astype(np.int64), axis=1)
    invalid = (sets[:, 0] < 0) | (sets[:, -1] >= below) | (np.diff(sets, axis=1) == 0).any(axis=1)
    if invalid.any():
        row = int(np.argmax(invalid))
        raise DomainError(
            f"row {row} (counting from 0) must hold {size} different whole numbers from 0 "
            f"to {below - 1}, got {sets[row].tolist()}."
        )
    return sets


class SubsetExponential(Randomizer):
    """A set of `held` of the `options` is reported as a set of `size`, likelier if they meet.

    Sets that meet the own one are e^epsilon times likelier. held = 1 is subset selection (Ye and
    Barg 2018), in general it is PrivSet (Wang et al. 2018). Values and reports are rows of
    different whole numbers; codes count the subsets in lexicographic order.
    """

    kind: Literal["subset-exponential"] = "subset-exponential"
    options: Whole
    held: Whole
    size: Whole
    epsilon: Epsilon

    def __init__(
        self, options: int, held: int, epsilon: float, size: int | None = None, **fields: object
    ) -> None:
        # Near the optimum of subset selection, d / (e^epsilon + 1), divided by the set size.
        if size is None:
            known = isinstance(options, int) and isinstance(held, int)
            size = max(1, round(options / (max(1, held) * (growth(epsilon) + 1.0)))) if known else 1
        FrozenModel.__init__(self, options=options, held=held, size=size, epsilon=epsilon, **fields)

    def model_post_init(self, context: object) -> None:
        if not (
            self.held >= 1 and self.size >= 1 and self.held + self.size <= self.options <= 2**12
        ):
            raise InputError(
                f"{owner(type(self).__name__)}{argument('size')} must be at least 1, "
                f"{argument('size')} + {argument('held')} at most {argument('options')}, and that "
                f"at most 2^12; got {self.size}, {self.held} and {self.options}."
            )
        _ = self.levels

    @classmethod
    def fitted(cls, domain: Domain, cells: int) -> FittedFamily | None:
        """Family by local epsilon for sets of labels, padded with dummy labels to equal size."""
        if not isinstance(domain, LabelSets) or cells + domain.most > MAX_OPTIONS:
            return None
        most = domain.most
        return FittedFamily(lambda epsilon: cls(cells + most, most, epsilon))

    @cached_property
    def levels(self) -> Levels:
        """The two probabilities of a report; sets that meet the own set have the high one."""
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
        return np.array(
            [subset_at(int(code), self.options, self.held) for code in wanted], dtype=np.int64
        ).reshape(-1, self.held)[place]

    def codes_of(self, reports: object) -> Codes:
        """Return lexicographic ranks."""
        if self.outputs >= 2**62:
            raise InputError(
                f"there are {self.outputs:,} different reports, too many to number; use "
                "totals(reports)."
            )
        return ranks(sorted_sets(reports, self.size, self.options), self.options)

    def rows(self) -> Floats:
        self._listable()
        own = _members(self.options, self.held)
        reported = _members(self.options, self.size)
        return np.where(own @ reported.T > 0.0, float(self.levels.high), float(self.levels.low))

    def pairs(self) -> list[Pair]:
        """Return one pair for each number of common members; the first set is in all of them."""
        representatives = []
        for common in range(max(0, 2 * self.held - self.options), self.held):
            second_set = [*range(common), *range(self.held, 2 * self.held - common)]
            representatives.append((0, rank_of(second_set, self.options)))
        return representatives

    @theorem("Wang18", "PrivSet: exponential mechanism over k-subsets")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Blanket of (a, b) in closed form.

        Statement: with c members in common, sets fall into those that meet both, only a, only b, or
        neither; w is low everywhere.
        Proof: a report of size k <= options - held misses the set of some user, so the smallest law
        is the low one. With d = options and s = held, C(d-s, k) of the C(d, k) reports miss a, and
        C(d-2s+c, k) miss both.
        Numerics: exact fractions, rounded once.
        """
        self._checked_pair(a, b)
        common = len(
            {*subset_at(a, self.options, self.held)} & {*subset_at(b, self.options, self.held)}
        )
        missing = math.comb(self.options - self.held, self.size)
        neither = math.comb(self.options - 2 * self.held + common, self.size)
        both = self.outputs - 2 * missing + neither
        return self.levels.blanket(
            [
                (both, False, True, True),
                (missing - neither, False, True, False),
                (missing - neither, False, False, True),
                (neither, False, False, False),
            ]
        )

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """Return log(high/low), the same for every pair; never above epsilon."""
        if a is not None and b is not None:
            self._checked_pair(a, b)
        return self.levels.local_epsilon

    def reports(self, values: object, randomness: Randomness) -> Sets:
        """Draw one set per value, exactly by the law; sets that meet the own one by rejection."""
        own = sorted_sets(values, self.held, self.options)
        out = np.empty((len(own), self.size), dtype=np.int64)
        meet = draw_events(self.levels.threshold, len(own), randomness)
        rows = np.flatnonzero(meet)
        while rows.size:
            out[rows] = uniform_subsets(rows.size, self.size, self.options, randomness)
            rows = rows[~(out[rows][:, :, None] == own[rows][:, None, :]).any(axis=(1, 2))]
        rows = np.flatnonzero(~meet)
        others = uniform_subsets(rows.size, self.size, self.options - self.held, randomness)
        # In increasing order, this gives the j-th number that is not in the set.
        for member in own[rows].T:
            others += others >= member[:, None]
        out[rows] = np.sort(others, axis=1)
        return out

    def targets(self) -> Floats:
        """Return one column per option: whether the set contains it."""
        return _members(self.options, self.held)

    @cached_property
    def chances(self) -> tuple[float, float]:
        """P(an option is reported), if the set contains it and if it does not."""
        high = self.levels.high
        low = self.levels.low
        d = self.options
        k = self.size
        s = self.held
        member = math.comb(d - 1, k - 1)
        stranger = math.comb(d - 1 - s, k - 1)
        return float(member * high), float((member - stranger) * high + stranger * low)

    def debiasing(self) -> Floats:
        self._listable()
        own, other_chance = self.chances
        return np.asarray(
            (_members(self.options, self.size) - other_chance) / (own - other_chance),
            dtype=np.float64,
        )

    def totals(self, reports: object) -> Floats:
        sets = sorted_sets(reports, self.size, self.options)
        own, other_chance = self.chances
        counts = np.bincount(sets.ravel(), minlength=self.options).astype(np.float64)
        return (counts - len(sets) * other_chance) / (own - other_chance)


class SubsetSelection(SubsetExponential):
    """One of `options` values is reported as a set of `size` of them (Ye and Barg 2018).

    Sets with the own option are e^epsilon times likelier.
    """

    kind: Literal["subset-selection"] = "subset-selection"  # type: ignore[assignment]
    keeps_law: ClassVar[bool] = True
    held: Literal[1] = 1

    def __init__(
        self, options: int, epsilon: float, size: int | None = None, held: int = 1, **fields: object
    ) -> None:
        super().__init__(options, held, epsilon, size, **fields)

    def values_of(self, codes: Codes) -> Any:
        return codes

    def reports(self, values: object, randomness: Randomness) -> Sets:
        column = np.asarray(values)
        return super().reports(column[:, None] if column.ndim == 1 else column, randomness)


def subset_at(code: int, options: int, size: int) -> list[int]:
    """Return the subset with the given lexicographic rank."""
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
    """Return the lexicographic rank of a sorted subset, as an unbounded integer."""
    size = len(members)
    after = sum(
        math.comb(options - 1 - member, size - place) for place, member in enumerate(members)
    )
    return math.comb(options, size) - 1 - after


def ranks(sets: Sets, options: int) -> Codes:
    """Return `rank_of` of many subsets of one size, as 64-bit integers."""
    size = sets.shape[1]
    total = np.full(len(sets), math.comb(options, size) - 1, dtype=np.int64)
    for place in range(size):
        after = [math.comb(options - 1 - member, size - place) for member in range(options)]
        # Numbers that do not fit belong to members that no sorted subset has in this place.
        total -= np.array([many if many < 2**62 else 0 for many in after], dtype=np.int64)[
            sets[:, place]
        ]
    return total


def _all_subsets(options: int, size: int) -> Sets:
    return np.array(list(itertools.combinations(range(options), size)), dtype=np.int64)


def _members(options: int, size: int) -> Floats:
    sets = _all_subsets(options, size)
    out = np.zeros((len(sets), options))
    np.put_along_axis(out, sets, 1.0, axis=1)
    return out
