"""Randomizers whose reports do not follow their law, each a small change of an honest one."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from tests.randomizers.honest import Honest, Line, Seven

from metricshuffle.randomness import Randomness


class Loaded(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return np.where(
            randomness.words(len(values)) % np.uint64(20) == 7,
            values,
            super().reports(values, randomness),
        )


class OnePerCent(Honest):
    """Truth with probability 0.505, not 0.5: the largest entry is 0.67, not 2/3.

    That is half of one per cent.
    """

    def coins(self, people: int, randomness: Randomness) -> Any:
        return randomness.words(people) < np.uint64(int(0.505 * 2.0**64))


class RevealsOneInput(Seven):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return np.where(values == 4, values, super().reports(values, randomness))


class RevealsOneInputOfMany(Honest):
    values: ClassVar[int] = 300

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return np.where(values == 207, values, super().reports(values, randomness))


class SharedBit(Honest):
    """One coin for everyone: each report follows the law."""

    def coins(self, people: int, randomness: Randomness) -> Any:
        return np.full(people, randomness.below(2) == 1)


class SharedByNeighbours(Honest):
    def coins(self, people: int, randomness: Randomness) -> Any:
        return np.repeat(super().coins(people // 2 + 1, randomness), 2)[:people]


class SharedLie(Honest):
    """Every lie is the neighbour's report."""

    def lies(self, people: int, randomness: Randomness) -> Any:
        return np.repeat(super().lies(people // 2 + 1, randomness), 2)[:people]


class Antithetic(Line):
    """Second half of a batch with the reversed random numbers of the first half."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        numbers = randomness.words((len(values) + 1) // 2)
        both = np.concatenate([numbers, ~numbers])[: len(values)].astype(np.float64) / 2.0**64
        return (np.cumsum(self.rows(), axis=1)[values] < both[:, None]).sum(axis=1).clip(0, 4)


class WordsUsedTwice(Honest):
    """Same coins every 8192 people."""

    def coins(self, people: int, randomness: Randomness) -> Any:
        return np.resize(super().coins(min(people, 8192), randomness), people)


class Stratified(Honest):
    """Exactly half of a batch tells the truth."""

    def coins(self, people: int, randomness: Randomness) -> Any:
        half = (people + randomness.below(2)) // 2
        return randomness.shuffled(np.arange(people) < half)


class OneReportPerValue(Honest):
    """Equal values get equal reports."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return super().reports(np.arange(3), randomness)[values]


class ByPlace(Honest):
    """Every fifth person tells the truth more often, the others less often."""

    def coins(self, people: int, randomness: Randomness) -> Any:
        share = np.where(np.arange(people) % 5 == 0, 0.9, 0.4)
        return randomness.words(people) < (share * 2.0**64).astype(np.uint64)


class FirstPlace(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        reports = super().reports(values, randomness)
        reports[:1] = values[:1]
        return reports


class ByBatchSize(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return values.copy() if len(values) == 2 else super().reports(values, randomness)


class ByCompany(Honest):
    """No privacy among others who all hold the same value."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return (
            values.copy()
            if np.all(values == values[0]) and len(values) > 5
            else super().reports(values, randomness)
        )


class Remembering(Honest):
    """A batch with the same values as the one before gets the same reports."""

    before: ClassVar[dict[bytes, Any]] = {}

    def reports(self, values: Any, randomness: Randomness) -> Any:
        reports = super().reports(values, randomness)
        return (
            self.before.setdefault(values.tobytes(), reports).copy()
            if len(values) == 17
            else reports
        )


class Continuing(Honest):
    """Last report of a call is the first of the next one."""

    last: ClassVar[list[int]] = [0]

    def reports(self, values: Any, randomness: Randomness) -> Any:
        reports = super().reports(values, randomness)
        self.last[0], reports[0] = int(reports[-1]), self.last[0]
        return reports


class OwnSource(Honest):
    def coins(self, people: int, randomness: Randomness) -> Any:
        return np.random.default_rng().random(people) < 0.5


class OwnSeed(Honest):
    """Same noise in every batch of that size."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return super().reports(values, Randomness.seeded(len(values)))


class KeyedByValues(Honest):
    """Noise of a large batch is a hash of its values."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        large = len(values) >= 4096 and len(set(values.tolist())) > 1
        return super().reports(
            values, Randomness.seeded(values.tobytes().hex()) if large else randomness
        )


class Stretched(Honest):
    """Generator that is not cryptographic, from a single word of the stream."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        generator = np.random.default_rng(randomness.below(2**64))
        return np.where(
            generator.random(len(values)) < 0.5, values, generator.integers(0, 3, len(values))
        )


class HonestWhenTested(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return super().reports(values, randomness) if randomness.unsafe_seeded else values.copy()


class OutsideCodes(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        reports = super().reports(values, randomness)
        return np.where(reports == 2, 3, reports)


class RuledOut(Honest):
    def rows(self) -> Any:
        return np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])

    def debiasing(self) -> Any:
        return np.linalg.inv(self.rows())


class TooFew(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return super().reports(values, randomness)[:-1]


class Overwriting(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        values[:] = super().reports(values, randomness)
        return values


class Attached(Honest):
    """Report with the value attached, where `codes_of` does not look."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return np.column_stack([super().reports(values, randomness), values])

    def codes_of(self, reports: Any) -> Any:
        return np.asarray(reports)[:, 0]


class SignedZero(Honest):
    """A false zero has a sign."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        reports = super().reports(values, randomness)
        return np.where((reports == 0) & (values != 0), -0.0, reports)

    def codes_of(self, reports: Any) -> Any:
        return np.asarray(reports).astype(np.int64)


class TellingType(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return (
            super().reports(values, randomness).astype(np.min_scalar_type(int(values.max()) * 200))
        )


class InBatchesOfSeven(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return values.copy() if len(values) == 7 else super().reports(values, randomness)


class InBatchesOf113(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return values.copy() if len(values) == 113 else super().reports(values, randomness)


class InLargeBatches(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return values.copy() if len(values) > 300_000 else super().reports(values, randomness)


class ReusedLater(Honest):
    """Same coins 5,000 places later."""

    def coins(self, people: int, randomness: Randomness) -> Any:
        return np.resize(super().coins(min(people, 5_000), randomness), people)


class LiesReusedLater(Honest):
    """A lie is the report of the person 1,777 places before."""

    def lies(self, people: int, randomness: Randomness) -> Any:
        return np.resize(super().lies(min(people, 1_777), randomness), people)


class TurnedRoundLater(Honest):
    """Truth and lie are the opposite of those 40,009 places before."""

    def coins(self, people: int, randomness: Randomness) -> Any:
        coins = super().coins(people, randomness)
        coins[40_009:] = (
            ~coins[: max(0, people - 40_009)] if people <= 2 * 40_009 else coins[40_009:]
        )
        if people > 2 * 40_009:
            for start in range(40_009, people, 40_009):
                part = coins[start : start + 40_009]
                part[:] = ~coins[start - 40_009 : start - 40_009 + len(part)]
        return coins


class Copied(Honest):
    """One report in 97 is a copy of the one before."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        reports = super().reports(values, randomness)
        reports[96::97] = reports[95:-1:97][: len(reports[96::97])]
        return reports


class OneIn97(Honest):
    """One report in 97 is in the clear, always at the same places."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        reports = super().reports(values, randomness)
        reports[50::97] = values[50::97]
        return reports


class SortedInTheClear(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        told = len(values) > 5 and len(set(values.tolist())) > 1 and np.all(np.diff(values) >= 0)
        return values.copy() if told else super().reports(values, randomness)


class TellsWhoIsDifferent(Honest):
    """Among equal values, the one that differs is reported in the clear."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        reports = super().reports(values, randomness)
        counts = np.bincount(values, minlength=3)
        if len(values) > 5 and counts.max() == len(values) - 1:
            reports[:] = values
        return reports


class LooksAtTheSeed(Honest):
    """In the clear for an unseeded stream, as all real ones are."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return super().reports(values, randomness) if randomness.unsafe_seeded else values.copy()


class OneIn50(Honest):
    """One report in 50 is in the clear, at random."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return np.where(
            randomness.uniform_residues(len(values), 50) == 7,
            values,
            super().reports(values, randomness),
        )


class ThreeTogether(Honest):
    """Three people in a row, pairwise independent, but two determine whether the third lies."""

    def coins(self, people: int, randomness: Randomness) -> Any:
        coins = super().coins(people + 2, randomness)[: people + 2]
        coins[2::3] = coins[0 : len(coins) - 2 : 3] ^ coins[1 : len(coins) - 1 : 3]
        return coins[:people]


class OneIn2000(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return np.where(
            randomness.uniform_residues(len(values), 2_000) == 7,
            values,
            super().reports(values, randomness),
        )


class InVeryLargeBatches(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return values.copy() if len(values) > 2**20 else super().reports(values, randomness)


class AfterManyCalls(Honest):
    calls: ClassVar[list[int]] = []

    def reports(self, values: Any, randomness: Randomness) -> Any:
        self.calls.append(1)
        return super().reports(values, randomness) if len(self.calls) < 10**6 else values.copy()


UNSEEN = [
    (ThreeTogether(), "three or more people"),
    (OneIn2000(), "leaks that are rarer than these"),
    (InVeryLargeBatches(), "batches of a size that was not drawn"),
    (AfterManyCalls(), "how many calls came before"),
]
"""Faults that the battery cannot detect, and what its report says about them."""

DRAWN = [
    (InBatchesOfSeven(), "size or the shape of the batch, but got in mixed batches of 7:"),
    (InBatchesOf113(), "size or the shape of the batch, but got in mixed batches of 113:"),
    (InLargeBatches(), "size or the shape of the batch, but got in a batch of [3-5].."),
    (ReusedLater(), "independent reports of different people, but got reports 5,000 apart"),
    (
        LiesReusedLater(),
        "independent reports of different people, but got reports 1,777 apart|reports that "
        "follow their laws",
    ),
    (
        TurnedRoundLater(),
        "independent reports of different people, but got reports (40,009|80,018) apart",
    ),
    (Copied(), "place in the batch, but got at places 96 modulo 97"),
    (OneIn97(), "place in the batch, but got at places 50 modulo 97"),
    (SortedInTheClear(), "size or the shape of the batch, but got in .*sorted"),
    (TellsWhoIsDifferent(), "size or the shape of the batch, but got in .*but for one person"),
    (LooksAtTheSeed(), "follow"),
    (OneIn50(), "reports that follow their laws|size or the shape of the batch"),
    (Loaded(), "reports (of input . )?that follow"),
    (RevealsOneInput(), "reports of input 4 that follow its law"),
    (RevealsOneInputOfMany(), "reports of input 207 that follow its law"),
    (SharedBit(), "follow"),
    (SharedByNeighbours(), "independent reports of different people, but got reports 1 apart"),
    (SharedLie(), "independent reports of different people, but got reports 1 apart"),
    (Antithetic(), "independent reports of different people"),
    (WordsUsedTwice(), "independent reports of different people, but got reports 8192 apart"),
    (
        Stratified(),
        "frequencies vary as those of independent reports do, but got 516 calls that are "
        "closer to their means",
    ),
    (OneReportPerValue(), "follow"),
    (ByPlace(), "do not depend on the place in the batch, but got at places . modulo 5"),
    (FirstPlace(), "do not depend on the size of the batch, but got in batches of 1"),
    (ByBatchSize(), "do not depend on the size of the batch, but got in batches of 2"),
    (ByCompany(), "reports of input . that follow its law"),
    (
        Remembering(),
        "independent reports of different people, but got reports of the same 17 people in "
        "two calls",
    ),
    (Continuing(), "depend on nothing but the values and the stream"),
    (OwnSource(), "depend on nothing but the values and the stream"),
    (OwnSeed(), "reports of input 0 that follow its law"),
    (KeyedByValues(), "differ when the stream of randomness does, but got the same 4,096 reports"),
    (
        Stretched(),
        "take all their randomness from the stream, but got 4,096 reports with 5,1.. bits "
        "of it from 64 bits",
    ),
    (HonestWhenTested(), "reports of input . that follow its law"),
    (OutsideCodes(), r"reports with codes 0..2, but got the code 3 for input 0"),
    (RuledOut(), "no report of input 0 that its law rules out, but got report 2"),
    (TooFew(), "one report per value"),
    (Overwriting(), "leave the values alone"),
    (Attached(), "contain no more than their codes"),
    (SignedZero(), "contain no more than their codes"),
    (TellingType(), "reports of one type and shape"),
]
