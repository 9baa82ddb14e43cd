"""Randomizers that say something wrong about their own law, each a small change of an honest one that a reader might miss."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
from tests.randomizers.honest import Honest, Line, Seven

from metricshuffle.accounting.blanket.law import BlanketLaw
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile
from metricshuffle.randomizers import Channel, Randomizer
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
    """The profile is right for distances that are three times as large."""

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
    """The matrix of the review: upper 0.0471 where at least 0.1196 is true, for 1,000 people and delta 1e-6."""

    kind: Literal["misses-the-worst-pair-for-test"] = "misses-the-worst-pair-for-test"  # type: ignore[assignment]

    def __init__(self, matrix: Any = None, **more: Any) -> None:
        super().__init__([[0.04, 0.01, 0.38, 0.1, 0.47], [0.01, 0.04, 0.38, 0.1, 0.47], [0.02, 0.02, 0.1, 0.38, 0.48]], **more)

    def pairs(self) -> Any:
        return [(0, 1)]


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
        return law if (a, b) != (6, 3) else BlanketLaw(law.mass * np.where(law.a == law.b, 0.99, 1.01), law.a, law.b)


class SomethingElse(Seven):
    """The blanket of another, more private pair."""

    def blanket(self, a: int, b: int) -> BlanketLaw:
        return super().blanket(a, b) if (a, b) != (2, 4) else BlanketLaw.from_rows(0.9 * self.rows() + 0.1 / 7, a, b)


class Biased(Honest):
    def debiasing(self) -> Any:
        return 2.0 * np.eye(3)


class SlightlyBiased(Seven):
    def debiasing(self) -> Any:
        shifted = super().debiasing()
        shifted[4, 2] += 1e-3
        return shifted


class Steady(Honest):
    def variances(self) -> Any:
        return 0.99 * super().variances()


class Loose(Honest):
    def totals(self, reports: Any) -> Any:
        return super().totals(reports) * 1.01


class Forgetful(Honest):
    """Reads its parameter back as another one."""

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
    (Wavering(), r"rows\(\) that are the same whenever they are asked for"),
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
    (NoDistance(), "positive distance between inputs with different laws, but got 0 for inputs 0 and 1"),
    (SmallDiameter(), "a diameter of at least 0.4, as inputs 0 and 4 have, but got 0.3"),
    (WithoutTheBoundary(), r"pairs_within\(0.1\) to stand for all pairs"),
    (MissesTheWorstPair(), r"pairs\(\) to stand for all pairs of inputs, but got none that is as easy to tell apart as inputs 0 and 2"),
    (ForeignPairs(), r"pairs\(\) of two different inputs out of 0..6, but got the pair \(0, 7\)"),
    (FewBlankets(), r"blankets\(inf\) to stand for all pairs"),
    (Thick(), "a blanket of inputs 0 and 1 that all inputs have in common"),
    (ThickForOnePair(), "a blanket of inputs 6 and 3|for 6 and 3"),
    (SomethingElse(), "(local_epsilon|a blanket) of inputs 2 and 4"),
    (Biased(), "debiasing with the mean"),
    (SlightlyBiased(), "for input 0, target 2, but got an error of 7.14e-05"),
    (Steady(), "variance of debiasing for input 0, target 0"),
    (Loose(), "totals"),
    (Forgetful(share=0.25), r"JSON that holds the whole randomizer, but got another rows\(\)"),
    (Unreadable(), "JSON that holds the whole randomizer, but got what cannot be read back .*more is not one of its fields"),
]
