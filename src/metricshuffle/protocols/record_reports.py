"""Record reports: each person sends their row, set or keys through one local randomizer.

The trusted party releases how often each mark occurs in the reports; the analyst estimates means,
shares, or means by key from the counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.errors import NotCertified, PlanError
from metricshuffle.estimation.interval_widths import error_width
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.numerics.rounding import round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.damage import NO_LIMIT, Damage
from metricshuffle.protocols.features.group_features import MEAN_PLACES, mean_ratio
from metricshuffle.protocols.frequencies import (
    READOUT_SLACK,
    AnyRandomizer,
    shuffled_profile,
    single_report_profile,
)
from metricshuffle.protocols.protocol import Account, Layout, Protocol, single_person_guarantee
from metricshuffle.protocols.tally import Shuffled
from metricshuffle.queries.column_means import Means
from metricshuffle.queries.keyed_means import KeyValues
from metricshuffle.queries.query import Estimate, Inputs, Query
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.queries.sets import Sets
from metricshuffle.randomizers.corner_vectors import Duchi, Harmony
from metricshuffle.randomizers.key_values import PrivKV
from metricshuffle.randomizers.randomizer import Randomizer, counted, has_law_of, smallest_type
from metricshuffle.randomizers.subsets import SubsetExponential
from metricshuffle.randomness import Randomness
from metricshuffle.spaces.person_records import NOTHING

# Part of the allowed miss probability for the wide interval that limits a variance.
WIDE_MISS = 0.1


@dataclass(frozen=True, eq=False)
class Marks:
    """What is counted in reports, and how counts become answers.

    A report has `each` of `kinds` marks. It adds `offset` plus the sum of factors[j] over its marks
    to answer j. The mean of this term is the person's true number; the term varies by at most
    `spans`[j], with a variance of at most `variances`[j].
    """

    kinds: int
    each: int
    factors: Floats
    offset: float
    spans: Floats
    variances: Floats

    @classmethod
    def of(cls, randomizer: Randomizer) -> Marks:
        """Marks of a randomizer of records.

        Statement (variances, for any value): Duchi's coordinate is scale or -scale, so its variance
        is at most scale^2. Harmony's is scale or -scale with probability 1/d, else 0. PrivSet
        counts a label with one probability if it is in the set, and another if not. PrivKV: a value
        is a mixture of three states of a key, whose largest second moment is taken.
        """
        if has_law_of(randomizer, Duchi):
            d, scale = randomizer.dimensions, randomizer.scale
            signs = np.full(d, scale)
            factors = 2.0 * scale * np.eye(d)
            return cls(d, d, factors, -scale, 2.0 * signs, signs**2)
        if has_law_of(randomizer, Harmony):
            d = randomizer.dimensions
            factors = randomizer.debiasing().T
            largest = np.abs(factors).max(axis=1)
            return cls(2 * d, 1, factors, 0.0, 2.0 * largest, largest**2 / d)
        if has_law_of(randomizer, SubsetExponential):
            own, other = randomizer.chances
            labels = randomizer.options - randomizer.held
            scale = 1.0 / (own - other)
            factors = scale * np.eye(labels, randomizer.options)
            variance = max(chance * (1.0 - chance) for chance in (own, other)) * scale**2
            return cls(
                randomizer.options,
                randomizer.size,
                factors,
                -other * scale,
                np.full(labels, scale),
                np.full(labels, variance),
            )
        if has_law_of(randomizer, PrivKV):
            return cls._of_keys(randomizer)
        raise PlanError(f"reports of {type(randomizer).__name__} are not those of records.")

    @classmethod
    def _of_keys(cls, randomizer: PrivKV) -> Marks:
        """Answers: half of presence plus value, then half of presence minus value, of all keys."""
        keys = randomizer.keys
        presence, value = np.split(randomizer.debiasing().T, 2)
        factors = np.concatenate([0.5 * (presence + value), 0.5 * (presence - value)])
        states = np.array([[float(part) for part in law] for law in randomizer.laws_by_state])
        first = factors[[0, keys], :3]  # all keys are alike
        moments = (first**2 @ states.T).max(axis=1) / keys
        ends = np.concatenate([first, np.zeros((2, 1))], axis=1)
        spans = ends.max(axis=1) - ends.min(axis=1)
        return cls(3 * keys, 1, factors, 0.0, np.repeat(spans, keys), np.repeat(moments, keys))

    def answers(self, counts: Floats, people: int) -> Floats:
        """Sums of the answers over the people."""
        return np.asarray(self.factors @ counts + people * self.offset)

    def halves(self, people: int, miss: float, method: IntervalMethod) -> Floats:
        """Half-widths of intervals of the sums, exceeded with probability at most `miss`.

        "bernstein" holds for any number of people and any values.
        """
        if method == "bernstein":
            log_miss = math.log(2.0 / miss)
            linear = self.spans * log_miss / 3.0
            return np.asarray(
                linear + np.sqrt(linear**2 + 2.0 * people * self.variances * log_miss)
            )
        return np.asarray(error_width(people, miss) * np.sqrt(people * self.variances))


class RecordReports(Protocol):
    """A randomizer of rows in a cube (Duchi, Harmony), of sets (PrivSet) or of keys (PrivKV).

    All records are hidden alike, so that the guarantee is flat.
    """

    kind: Literal["record-reports"] = "record-reports"
    randomizer: AnyRandomizer

    @cached_property
    def marks(self) -> Marks:
        return Marks.of(self.randomizer)

    @property
    def layout(self) -> Layout:
        marks = self.marks
        size = 2 if has_law_of(self.randomizer, Duchi) else marks.kinds
        kind = np.dtype(smallest_type(size)).newbyteorder("<")
        return Layout(kind, marks.each, 1, marks.each)

    @property
    def bits_per_user(self) -> int:
        marks = self.marks
        if has_law_of(self.randomizer, Duchi):
            return marks.kinds
        return marks.each * max(1, (marks.kinds - 1).bit_length())

    @property
    def messages_per_user(self) -> int:
        return 1

    @property
    def row(self) -> int:
        return self.marks.kinds

    # Clients

    def messages(self, inputs: Inputs, randomness: Randomness) -> NDArray[np.generic]:
        reports = np.asarray(self.randomizer.reports(self._values(inputs), randomness))
        if has_law_of(self.randomizer, Duchi):
            reports = reports > 0
        return reports.astype(self.layout.type).reshape(inputs.people, -1)

    def _values(self, inputs: Inputs) -> Floats | Integers64:
        """Records as the randomizer takes them."""
        query, rows = inputs.query, inputs.numbers
        if isinstance(query, Means):
            return np.clip(2.0 * rows / query.top - 1.0, -1.0, 1.0)
        if isinstance(query, Sets):
            # A set with few labels is filled up with labels of no meaning.
            return np.where(rows == NOTHING, query.rows + np.arange(query.size), rows)
        if not isinstance(query, KeyValues):
            raise PlanError(f"a {query.kind} has no records.")
        keys, steps = np.divmod(rows, query.top + 1)
        values = np.full((len(rows), query.rows + 1), np.nan)
        columns = np.where(rows == NOTHING, query.rows, keys)
        values[np.arange(len(rows))[:, None], columns] = np.clip(
            2.0 * steps / query.top - 1.0, -1.0, 1.0
        )
        return values[:, : query.rows]

    # Shuffler

    def counted(self, messages: NDArray[np.generic]) -> dict[int, list[int]]:
        self.check_width(messages)
        rows = messages.astype(np.int64)
        if has_law_of(self.randomizer, Duchi):
            if rows.size and not 0 <= int(rows.min()) <= int(rows.max()) <= 1:
                raise PlanError("a report of this task is zeros and ones; this one is different.")
            return {0: rows.sum(axis=0).tolist()}
        rows.sort(axis=1)
        if np.any(np.diff(rows, axis=1) == 0):
            raise PlanError("a report of this task has no mark twice; this one is different.")
        return {0: counted(rows.ravel(), self.marks.kinds).tolist()}

    # Analyst

    def estimate(self, query: Query, shuffled: Shuffled) -> Estimate:
        marks, people = self.marks, shuffled.people
        numbers = shuffled.numbers
        single = not has_law_of(self.randomizer, Duchi)
        fits = len(numbers) == marks.kinds and all(0 <= number <= people for number in numbers)
        if not fits or (single and sum(numbers) != people * marks.each):
            raise PlanError(
                f"a batch of this task is {marks.kinds:,} counts of marks in {people:,} reports; "
                "this one is different."
            )
        sums = marks.answers(np.array(numbers, dtype=np.float64), people)
        if isinstance(query, KeyValues):
            return self._keyed(query, sums, people)
        top = float(query.top) if isinstance(query, Means) else 1.0
        scale = self._scale(query)
        middle = scale if isinstance(query, Means) else 0.0
        means = middle + scale * sums / people
        errors = scale * np.sqrt(self._variances(means, means) / people)

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            miss = (1.0 - level) / (len(means) if simultaneous else 1)
            halves = scale * marks.halves(people, miss, method) / people
            if method == "normal":
                # A wide interval limits the variance, from which the final interval follows.
                wide = scale * marks.halves(people, WIDE_MISS * miss, method) / people
                deviations = np.sqrt(self._variances(means - wide, means + wide) / people)
                narrow = scale * error_width(people, (1.0 - WIDE_MISS) * miss) * deviations
                halves = np.minimum(halves, narrow)
            return np.clip(means - halves, 0.0, top), np.clip(means + halves, 0.0, top)

        return Estimate(np.clip(means, 0.0, top), errors, people, 1.0, ends)

    def _variances(self, low: Floats, high: Floats) -> Floats:
        """Largest variance of a report's answer for shares of labels from `low` to `high`.

        Other answers have one variance; the variance of a share is linear in the share.
        """
        if not has_law_of(self.randomizer, SubsetExponential):
            return self.marks.variances
        own, other = self.randomizer.chances
        ends = [np.clip(end, 0.0, 1.0) for end in (low, high)]
        spreads = [end * own * (1.0 - own) + (1.0 - end) * other * (1.0 - other) for end in ends]
        return np.asarray(np.maximum(*spreads) / (own - other) ** 2)

    def _keyed(self, query: KeyValues, sums: Floats, people: int) -> Estimate:
        """Counts of all keys, then their means in steps; see `KeyValues.answer`."""
        marks, top = self.marks, query.top
        up, down = np.split(sums, 2)
        counts = up + down
        values = mean_ratio(np.maximum(up, 0.0), np.maximum(down, 0.0), top)
        deviations = np.split(np.sqrt(people * marks.variances), 2)
        shares = values / top
        turned = np.hypot((1.0 - shares) * deviations[0], shares * deviations[1])
        # Presence is the sum of both halves, so its deviation is at most the sum of theirs.
        count_errors = deviations[0] + deviations[1]
        errors = np.minimum(top * turned / np.maximum(counts, 1.0), top)

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            miss = (1.0 - level) / (2 * query.rows if simultaneous else 1)
            halves = np.split(marks.halves(people, 0.5 * miss, method), 2)
            low = [
                np.maximum(sum_ - half, 0.0) for sum_, half in zip((up, down), halves, strict=True)
            ]
            high = [
                np.maximum(sum_ + half, 0.0) for sum_, half in zip((up, down), halves, strict=True)
            ]
            around = halves[0] + halves[1]
            return (
                np.concatenate(
                    [
                        np.clip(counts - around, 0.0, people),
                        mean_ratio(low[0], high[1], top, empty=0.0),
                    ]
                ),
                np.concatenate(
                    [
                        np.clip(counts + around, 0.0, people),
                        mean_ratio(high[0], low[1], top, empty=float(top)),
                    ]
                ),
            )

        return Estimate(
            np.concatenate([np.clip(counts, 0.0, people), values]),
            np.concatenate([count_errors, errors]),
            people,
            1.0,
            ends,
        )

    def damage(self, query: Query, people: int) -> Damage:
        """Return how far one participant who lies can move the answer.

        Statement: a mean or share j moves by at most its units per term times spans[j]/people. Two
        reports attain it. Means by key have no number: they are ratios of noisy sums.
        Proof: a report that is not made of distinct marks is refused, so that its term is one of
        those over which `spans` is the range; the limits 0 and the top move no answer farther. QED
        """
        if isinstance(query, KeyValues):
            return NO_LIMIT
        moved = self._scale(query) * float(self.marks.spans.max()) * READOUT_SLACK / people
        return Damage(moved * getattr(query, "step", 1.0), certified=True)

    def lies(self, query: Query, liars: int) -> NDArray[np.generic]:
        """The report that counts most for the first number."""
        marks = self.marks
        if has_law_of(self.randomizer, Duchi):
            row = np.ones(marks.each)
        else:
            row = np.sort(np.argsort(-marks.factors[0], kind="stable")[: marks.each])
        return np.tile(row, (liars, 1)).astype(self.layout.type)

    @staticmethod
    def _scale(query: Query) -> float:
        """Steps, or shares, per unit of a term."""
        return 0.5 * query.top if isinstance(query, Means) else 1.0

    def expected_error(self, query: Query, people: int) -> float:
        """Mean absolute error, as the query measures it, for people spread evenly.

        Rows of numbers count with the largest variance. For keys it is the first-order error of a
        ratio, for people who have the same number for a key, and at most half the range.
        """
        if isinstance(query, KeyValues):
            errors = [self._key_error(query, people, place) for place in (*MEAN_PLACES, 0.5)]
            return max(errors) * query.top * query.step
        share = np.array([query.size / query.rows if isinstance(query, Sets) else 0.5])
        variance = float(self._variances(share, share).mean())
        scale = 0.5 * query.top * query.step if isinstance(query, Means) else 1.0
        return scale * math.sqrt(2.0 / math.pi * variance / people)

    def _key_error(self, query: KeyValues, people: int, place: float) -> float:
        """Mean error of the mean of a key; error and `place` are fractions of the range."""
        randomizer = self.randomizer
        if not has_law_of(randomizer, PrivKV):
            raise PlanError("only PrivKV's reports are read out as means by key.")
        holders = query.typical_size(people) / people
        first = self.marks.factors[[0, query.rows], :3]
        turned = (1.0 - place) * first[0] - place * first[1]
        states = np.array([[float(part) for part in law] for law in randomizer.laws_by_state])
        chances = np.array([1.0 - holders, holders * place, holders * (1.0 - place)])
        moment = float(chances @ (states @ turned**2)) / query.rows
        return min(math.sqrt(2.0 / math.pi * moment / people) / holders, 0.5)

    # What it hides

    def check(self, query: Query) -> None:
        if self.modulus is not None or self.trusted not in ("shuffler", "nobody"):
            raise PlanError(
                "people randomize these reports themselves, and counts are not residues; the task "
                "is damaged."
            )
        randomizer = self.randomizer
        fits = isinstance(query, RecordQuery) and (
            (isinstance(query, Means) and _dimensions(randomizer) == query.rows)
            or (
                isinstance(query, Sets)
                and has_law_of(randomizer, SubsetExponential)
                and (randomizer.options, randomizer.held) == (query.rows + query.size, query.size)
            )
            or (
                isinstance(query, KeyValues)
                and has_law_of(randomizer, PrivKV)
                and (randomizer.keys, randomizer.held) == (query.rows, query.size)
            )
        )
        if not fits:
            raise PlanError(
                f"reports of {type(randomizer).__name__} are not those of this {query.kind}; the "
                "task is damaged."
            )

    def account(self, query: Query, target: Target, honest: int, rounds: int) -> Account:
        if target.shape != "flat":
            raise NotCertified(
                f"{self.name} hides all records alike, near ones no better; ask for a flat promise."
            )
        each = target.for_each_of(rounds)
        promise = Target(each.epsilon, 0.0, 1.0, "flat").with_delta(each.delta)
        if self.trusted == "nobody":
            profile = single_report_profile(self.randomizer)
            return Account(profile, promise.with_delta(0.0), "one person", 0.0, "pure", "flat")
        shuffled = shuffled_profile(self.randomizer, honest)
        bound = "pure" if promise.delta == 0.0 else shuffled.bound
        account = Account(shuffled, promise, "one person", target.delta, bound, "flat")
        # Finding the decisive argument is expensive; there is none if the target is not met.
        if promise.delta > 0.0 and isinstance(shuffled, BestBoundProfile) and account.kept:
            decisive = shuffled.decisive(promise.epsilon, promise.distance, promise.shape)
            return Account(shuffled, promise, "one person", target.delta, decisive, "flat")
        return account

    def alone(self, query: Query, target: Target, rounds: int) -> Guarantee:
        epsilon = round_up(self.randomizer.local_epsilon() * rounds, 2)
        bound = self.randomizer.local_profile().bound
        return single_person_guarantee(query, target, rounds, epsilon, bound, step=self.step)


def _dimensions(randomizer: Randomizer) -> int | None:
    """Number of columns of a randomizer of rows; None for others."""
    if has_law_of(randomizer, Duchi) or has_law_of(randomizer, Harmony):
        return randomizer.dimensions
    return None
