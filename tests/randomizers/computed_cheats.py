"""Randomizers with a wrong statement about their law, each a small change of an honest one."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
from tests.randomizers.honest import Honest, Line, Seven

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile
from metricshuffle.randomizers import (
    BoundedGeometric,
    Channel,
    KaryRandomizedResponse,
    LocalHash,
    Randomizer,
)
from metricshuffle.randomness import Randomness


class NotStochastic(Honest):
    def rows(self) -> Any:
        return 0.5 * np.eye(3) + 0.1


class Negative(Honest):
    def rows(self) -> Any:
        return np.array([[1.1, -0.1, 0.0], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])


class Wavering(Honest):
    asked: ClassVar[list[int]] = []

    def rows(self) -> Any:
        self.asked.append(1)
        return super().rows() if len(self.asked) % 5 else np.full((3, 3), 1 / 3)


class AnotherLaw(Honest):
    def law(self, value: int) -> Any:
        return super().law(value) if value != 1 else np.full(3, 1 / 3)


class Overconfident(Honest):
    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        return 1.0


class OverconfidentAboutOnePair(Seven):
    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        return 1.0 if (a, b) == (5, 2) else math.log(8.0) * (1.0 + 1e-15)


class OverconfidentAboutAll(Seven):
    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        return (math.log(8.0) if a is not None else 2.0) * (1.0 + 1e-15)


class SmallDelta(Honest):
    def local_delta(self, a: int, b: int, epsilon: float) -> float:
        return 0.9 * super().local_delta(a, b, epsilon)


class SmallVariation(Honest):
    def total_variation(self, a: int, b: int) -> float:
        return 0.99 * super().total_variation(a, b)


class SmallProfile(Line):
    def local_profile(self) -> PrivacyProfile:
        return PureProfile(0.5 * 20.0 * math.log(2.0))


class LopsidedDistance(Line):
    def distance(self, a: int, b: int) -> float:
        return super().distance(a, b) * (1.5 if (a, b) == (3, 1) else 1.0)


class SmallDistance(Line):
    """Profile that is correct for distances three times as large."""

    def distance(self, a: int, b: int) -> float:
        return super().distance(a, b) / 3.0


class NoMetric(Line):
    def distance(self, a: int, b: int) -> float:
        return (a - b) ** 2 / 10

    def local_profile(self) -> PrivacyProfile:
        return Randomizer.local_profile(self)


class NoDistance(Line):
    def distance(self, a: int, b: int) -> float:
        return 0.0 if {a, b} == {0, 1} else super().distance(a, b)

    def local_profile(self) -> PrivacyProfile:
        return Randomizer.local_profile(self)


class SmallDiameter(Line):
    @property
    def diameter(self) -> float:
        return 0.3


class WithoutTheBoundary(Line):
    def pairs_within(self, distance: float) -> Any:
        return [pair for pair in self.pairs() if self.distance(*pair) < distance * (1.0 - 1e-9)]


class MissesTheWorstPair(Channel):
    """Matrix with an upper bound of 0.0471 where the truth is at least 0.1196.

    For 1,000 people and delta 1e-6.
    """

    kind: Literal["misses-the-worst-pair-for-test"] = "misses-the-worst-pair-for-test"  # type: ignore[assignment]

    def __init__(self, matrix: Any = None, **more: Any) -> None:
        super().__init__(
            [
                [0.04, 0.01, 0.38, 0.1, 0.47],
                [0.01, 0.04, 0.38, 0.1, 0.47],
                [0.02, 0.02, 0.1, 0.38, 0.48],
            ],
            **more,
        )

    def pairs(self) -> Any:
        return [(0, 1)]


class MissesAPairOfWholeLaws(Channel):
    """Leaves out (1, 2), which (0, 1) dominates over the common part, but not among others at 0.

    Upper 0.1516 where at least 0.1611 is true, for 10,000 people and delta 1e-6.
    """

    kind: Literal["misses-a-pair-of-whole-laws-for-test"] = "misses-a-pair-of-whole-laws-for-test"  # type: ignore[assignment]

    def __init__(self, matrix: Any = None, **more: Any) -> None:
        counts = np.array([[5.0, 90.0, 8.0], [88.0, 8.0, 8.0], [5.0, 30.0, 68.0]])
        super().__init__(counts / counts.sum(axis=1, keepdims=True), **more)

    def pairs(self) -> Any:
        return [(0, 1), (0, 2)]


class MissesARareReport(Channel):
    """Leaves out the pair with the largest local epsilon, on a report of probability 1e-11."""

    kind: Literal["misses-a-rare-report-for-test"] = "misses-a-rare-report-for-test"  # type: ignore[assignment]

    def __init__(self, matrix: Any = None, **more: Any) -> None:
        rows = np.array(
            [[0.6, 0.4 - 1e-14, 1e-14], [0.4, 0.6 - 1e-14, 1e-14], [0.5, 0.5 - 1e-11, 1e-11]]
        )
        super().__init__(rows, **more)

    def pairs(self) -> Any:
        return [(0, 1)]


class MissesThePairAround(Channel):
    """Two reports with probabilities 0.2, 0.5 and 0.6: leaves out the first and last pair."""

    kind: Literal["misses-the-pair-around-for-test"] = "misses-the-pair-around-for-test"  # type: ignore[assignment]

    def __init__(self, matrix: Any = None, **more: Any) -> None:
        super().__init__([[0.8, 0.2], [0.5, 0.5], [0.4, 0.6]], **more)

    def pairs(self) -> Any:
        return [(0, 1), (1, 2)]


class MissesANearPair(Line):
    """All pairs, but within 0.2 only those of one end, where the laws differ."""

    def pairs_within(self, distance: float) -> Any:
        near = super().pairs_within(distance)
        return near if distance > 0.25 else [pair for pair in near if max(pair) <= 2]

    def local_profile(self) -> PrivacyProfile:
        return PureProfile(20.0 * math.log(2.0))


class OwnTable(KaryRandomizedResponse):
    """k-ary response by its class and a table by its law.

    All its statements are correct, and it lists its pairs.
    """

    kind: Literal["own-table-for-test"] = "own-table-for-test"  # type: ignore[assignment]
    table: ClassVar[Any] = np.array(
        [[0.5, 0.1, 0.2, 0.2], [0.1, 0.5, 0.2, 0.2], [0.3, 0.3, 0.3, 0.1], [0.05, 0.05, 0.1, 0.8]]
    )

    @property
    def channel(self) -> Channel:
        return Channel(self.table)

    def rows(self) -> Any:
        return self.channel.rows()

    def law(self, value: int) -> Any:
        return self.rows()[value]

    def pairs(self) -> Any:
        return [(a, b) for a in range(4) for b in range(4) if a != b]

    def blanket(self, a: int, b: int) -> BlanketLaw:
        return self.channel.blanket(a, b)

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        return self.channel.local_epsilon(a, b)

    def total_variation(self, a: int, b: int) -> float:
        return self.channel.total_variation(a, b)

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return self.channel.reports(values, randomness)

    def debiasing(self) -> Any:
        return self.channel.debiasing()

    def totals(self, reports: Any) -> Any:
        return self.channel.totals(reports)


class SaysItKeepsTheLaw(OwnTable):
    """False declaration, which counts only if the class in between makes it, too."""

    kind: Literal["says-it-keeps-the-law-for-test"] = "says-it-keeps-the-law-for-test"  # type: ignore[assignment]
    keeps_law: ClassVar[bool] = True
    table: ClassVar[Any] = OwnTable.table[::-1]


class FalselyKary(KaryRandomizedResponse):
    """Law of the table in a class that declares that of the k-ary response."""

    kind: Literal["falsely-kary-for-test"] = "falsely-kary-for-test"  # type: ignore[assignment]
    keeps_law: ClassVar[bool] = True
    channel: ClassVar[Any] = OwnTable.channel
    rows: ClassVar[Any] = OwnTable.rows
    law: ClassVar[Any] = OwnTable.law
    pairs: ClassVar[Any] = OwnTable.pairs
    blanket: ClassVar[Any] = OwnTable.blanket
    local_epsilon: ClassVar[Any] = OwnTable.local_epsilon
    total_variation: ClassVar[Any] = OwnTable.total_variation
    reports: ClassVar[Any] = OwnTable.reports
    debiasing: ClassVar[Any] = OwnTable.debiasing
    totals: ClassVar[Any] = OwnTable.totals
    table: ClassVar[Any] = OwnTable.table


class NearerLine(BoundedGeometric):
    """Halved distances and profile, declared to keep the law."""

    kind: Literal["nearer-line-for-test"] = "nearer-line-for-test"  # type: ignore[assignment]
    keeps_law: ClassVar[bool] = True

    def distance(self, a: int, b: int) -> float:
        return 0.5 * abs(a - b)

    @property
    def diameter(self) -> float:
        return 0.5 * self.span

    def local_profile(self) -> PrivacyProfile:
        return PureProfile(2.0 * self.rate)


class SlowerRate(BoundedGeometric):
    """Closed forms use half of its rate."""

    kind: Literal["slower-rate-for-test"] = "slower-rate-for-test"  # type: ignore[assignment]
    keeps_law: ClassVar[bool] = True

    @property
    def channel(self) -> Channel:
        return Channel(BoundedGeometric(self.span, self.rate).rows())

    @property
    def exact_rate(self) -> Any:
        return BoundedGeometric(self.span, self.rate).exact_rate / 2

    def rows(self) -> Any:
        return self.channel.rows()

    def blanket(self, a: int, b: int) -> BlanketLaw:
        return self.channel.blanket(a, b)

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        return self.channel.local_epsilon(a, b)

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return self.channel.reports(values, randomness)

    def local_profile(self) -> PrivacyProfile:
        return BoundedGeometric(self.span, self.rate).local_profile()

    def targets(self) -> Any:
        return np.eye(self.inputs)

    def debiasing(self) -> Any:
        return self.channel.debiasing()


class WeakerHash(LocalHash):
    """Closed forms use a response of half the epsilon."""

    kind: Literal["weaker-hash-for-test"] = "weaker-hash-for-test"  # type: ignore[assignment]
    keeps_law: ClassVar[bool] = True

    @property
    def response(self) -> Any:
        return KaryRandomizedResponse(self.buckets, 0.5 * self.epsilon)

    def rows(self) -> Any:
        return LocalHash(self.options, self.epsilon, self.buckets).rows()

    def law(self, value: int) -> Any:
        return self.rows()[value]

    def blanket(self, a: int, b: int) -> BlanketLaw:
        return LocalHash(self.options, self.epsilon, self.buckets).blanket(a, b)

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        return self.epsilon

    def debiasing(self) -> Any:
        return LocalHash(self.options, self.epsilon, self.buckets).debiasing()


class ForeignPairs(Seven):
    def pairs(self) -> Any:
        return [(0, 7)]


class FewBlankets(Line):
    def blankets(self, distance: float = math.inf) -> Any:
        return super().blankets(distance)[:1]


class Thick(Honest):
    def blanket(self, a: int, b: int) -> BlanketLaw:
        law = super().blanket(a, b)
        return BlanketLaw(law.mass * np.where(law.a == law.b, 0.5, 1.25), law.a, law.b)


class ThickForOnePair(Seven):
    def blanket(self, a: int, b: int) -> BlanketLaw:
        law = super().blanket(a, b)
        return (
            law
            if (a, b) != (6, 3)
            else BlanketLaw(law.mass * np.where(law.a == law.b, 0.99, 1.01), law.a, law.b)
        )


class SomethingElse(Seven):
    """Blanket of another, more private pair."""

    def blanket(self, a: int, b: int) -> BlanketLaw:
        return (
            super().blanket(a, b)
            if (a, b) != (2, 4)
            else BlanketLaw.from_rows(0.9 * self.rows() + 0.1 / 7, a, b)
        )


class Biased(Honest):
    def debiasing(self) -> Any:
        return 2.0 * np.eye(3)


class SlightlyBiased(Seven):
    def debiasing(self) -> Any:
        shifted = super().debiasing()
        shifted[4, 2] += 1e-3
        return shifted


class SteadyTime(Honest):
    def variances(self) -> Any:
        return 0.99 * super().variances()


class Loose(Honest):
    def totals(self, reports: Any) -> Any:
        return super().totals(reports) * 1.01


class Forgetful(Honest):
    """Parameter that is read back as another one."""

    kind: Literal["forgetful-for-test"] = "forgetful-for-test"
    share: float = 0.5

    def rows(self) -> Any:
        return self.share * np.eye(3) + (1.0 - self.share) / 3

    def coins(self, people: int, randomness: Randomness) -> Any:
        return randomness.words(people) < np.uint64(int(self.share * 2.0**64))

    def debiasing(self) -> Any:
        return (np.eye(3) - (1.0 - self.share) / 3) / self.share

    def model_dump_json(self, **options: Any) -> str:
        return '{"kind": "forgetful-for-test"}'


class Unreadable(Honest):
    kind: Literal["unreadable-for-test"] = "unreadable-for-test"

    def model_dump_json(self, **options: Any) -> str:
        return '{"kind": "unreadable-for-test", "more": 1}'


COMPUTED = [
    (NotStochastic(), "sum to one, but got 0.8"),
    (Negative(), "smallest entry -0.1"),
    (Wavering(), r"rows\(\) that are the same at every call"),
    (AnotherLaw(), "law.x. to be row x.*a different law for x = 1"),
    (Overconfident(), "at least 1.386.*but got 1.0"),
    (OverconfidentAboutOnePair(), "local_epsilon of inputs 5 and 2 to be at least 2.0794"),
    (OverconfidentAboutAll(), r"local_epsilon\(\) to be at least 2.0794.* but got 2.0"),
    (SmallDelta(), "local_delta of inputs 0 and 1"),
    (SmallVariation(), "total_variation of inputs 0 and 1"),
    (SmallProfile(), "local_profile to give epsilon >= .* at distance"),
    (LopsidedDistance(), "same distance in both directions"),
    (SmallDistance(), "local_profile to give epsilon >= [0-9.]* at distance 0.0333333, as inputs"),
    (NoMetric(), "triangle inequality, but got 0.4 from 0 to 2, but 0.1 . 0.1 by way of 1"),
    (
        NoDistance(),
        "positive distance between inputs with different laws, but got 0 for inputs 0 and 1",
    ),
    (SmallDiameter(), "a diameter of at least 0.4, as inputs 0 and 4 have, but got 0.3"),
    (WithoutTheBoundary(), r"pairs_within\(0.1\) to represent all pairs"),
    (
        MissesTheWorstPair(),
        r"pairs\(\) to represent all pairs of inputs, but got none that is as "
        r"distinguishable as inputs 0 and 2",
    ),
    (
        MissesAPairOfWholeLaws(),
        r"pairs\(\) to represent all pairs of inputs.* inputs [12] and [12] .*others who hold",
    ),
    (
        MissesARareReport(),
        r"pairs\(\) to represent all pairs of inputs.*with a local epsilon of 6.90776",
    ),
    (MissesThePairAround(), r"pairs\(\) to represent all pairs of inputs.* inputs 0 and 2"),
    (MissesANearPair(), r"pairs_within\(0.[12]\) to represent all pairs of inputs"),
    (
        FalselyKary(options=4, epsilon=1.0),
        r"the rows\(\) of KaryRandomizedResponse, whose law it says it keeps",
    ),
    (NearerLine(span=6, rate=0.5), "the distances of BoundedGeometric, whose law it says it keeps"),
    (
        SlowerRate(span=6, rate=0.5),
        r"the (rows\(\)|targets\(\)) of BoundedGeometric, whose law it says it keeps",
    ),
    (
        WeakerHash(options=6, epsilon=1.0, buckets=5),
        r"the rows\(\) of LocalHash|a closed form for inputs",
    ),
    (ForeignPairs(), r"pairs\(\) of two different inputs out of 0..6, but got the pair \(0, 7\)"),
    (FewBlankets(), r"blankets\(inf\) to represent all pairs"),
    (Thick(), "a blanket of inputs 0 and 1 that all inputs have in common"),
    (ThickForOnePair(), "a blanket of inputs 6 and 3|for 6 and 3"),
    (SomethingElse(), "(local_epsilon|a blanket) of inputs 2 and 4"),
    (Biased(), "debiasing with the mean"),
    (SlightlyBiased(), "for input 0, target 2, but got an error of 7.14e-05"),
    (SteadyTime(), "variance of debiasing for input 0, target 0"),
    (Loose(), "totals"),
    (Forgetful(share=0.25), r"JSON that holds the whole randomizer, but got another rows\(\)"),
    (
        Unreadable(),
        "JSON that holds the whole randomizer, but got what cannot be read back .*more is "
        "not one of its fields",
    ),
]
