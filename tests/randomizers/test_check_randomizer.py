"""check_randomizer passes an honest randomizer of one's own and names what is wrong with a dishonest one.

Every cheat here is a small change of an honest randomizer that a reader might miss. Classes without a `kind` cannot be stored, which
is all right for these; those about JSON have one.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from metricshuffle.accounting.blanket.law import BlanketLaw
from metricshuffle.errors import ConditionError
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile
from metricshuffle.randomizers import Channel, KaryRandomizedResponse, Randomizer, _sampler_evidence
from metricshuffle.randomizers._sampler_checks import check_attack
from metricshuffle.randomness import Randomness
from metricshuffle.testing import check_randomizer


class Honest(Randomizer):
    """One of `values` values; half of the people tell the truth, the others any value."""

    values: ClassVar[int] = 3

    @property
    def inputs(self) -> int:
        return self.values

    @property
    def outputs(self) -> int:
        return self.values

    def rows(self) -> Any:
        return 0.5 * np.eye(self.values) + 0.5 / self.values

    def coins(self, people: int, randomness: Randomness) -> Any:
        """Who tells the truth."""
        return randomness.words(people) >> np.uint64(63) == 1

    def lies(self, people: int, randomness: Randomness) -> Any:
        return randomness.uniform_residues(people, self.values).astype(np.int64)

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return np.where(self.coins(len(values), randomness), values, self.lies(len(values), randomness))

    def targets(self) -> Any:
        return np.eye(self.values)

    def debiasing(self) -> Any:
        return 2.0 * np.eye(self.values) - 1.0 / self.values


class Mine(Honest):
    """The example of the documentation, with a kind."""

    kind: Literal["mine-for-test"] = "mine-for-test"


class Seven(Honest):
    values: ClassVar[int] = 7


class Line(Honest):
    """Five values on a line: a report that is d away has the weight 2^-d."""

    values: ClassVar[int] = 5

    @property
    def channel(self) -> Channel:
        places = np.arange(self.values)
        weights = 0.5 ** np.abs(places[:, None] - places)
        return Channel(weights / weights.sum(axis=1, keepdims=True))

    def rows(self) -> Any:
        return self.channel.rows()

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return self.channel.reports(values, randomness)

    def debiasing(self) -> Any:
        return self.channel.debiasing()

    def distance(self, a: int, b: int) -> float:
        return 0.1 * abs(a - b)

    def local_profile(self) -> PrivacyProfile:
        return PureProfile(20.0 * math.log(2.0))


@pytest.mark.slow
def test_honest_ones_pass_and_the_rest_follows_from_the_rows() -> None:
    for honest in (Mine(), Seven(), Line()):
        check_randomizer(honest, draws=20_000)
    assert Mine().local_epsilon() == pytest.approx(math.log(4))
    assert Mine().local_profile().delta(math.log(2), 1) == pytest.approx(1 / 3)
    assert Mine().variances()[0, 0] == pytest.approx((2 / 3) * (5 / 3) ** 2 + (1 / 3) * (1 / 3) ** 2 - 1)
    check_randomizer(Mine())
    check_randomizer(Mine(), draws=5_000, randomness=Randomness.system())
    check_randomizer(Channel([[0.25, 0.75]]), draws=1_000)  # nothing to hide


# What is computed.


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


# What is drawn.


class Loaded(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return np.where(randomness.words(len(values)) % np.uint64(20) == 7, values, super().reports(values, randomness))


class OnePerCent(Honest):
    """The truth with probability 0.505, and not 0.5: the largest entry is 0.67, and not 2/3, which is half of one per cent."""

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
    """One coin for everybody: each report follows the law."""

    def coins(self, people: int, randomness: Randomness) -> Any:
        return np.full(people, randomness.below(2) == 1)


class SharedByNeighbours(Honest):
    def coins(self, people: int, randomness: Randomness) -> Any:
        return np.repeat(super().coins(people // 2 + 1, randomness), 2)[:people]


class SharedLie(Honest):
    """Who lies says what the neighbour would say."""

    def lies(self, people: int, randomness: Randomness) -> Any:
        return np.repeat(super().lies(people // 2 + 1, randomness), 2)[:people]


class Antithetic(Line):
    """The second half of a batch uses the random numbers of the first half, turned round."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        numbers = randomness.words((len(values) + 1) // 2)
        both = np.concatenate([numbers, ~numbers])[: len(values)].astype(np.float64) / 2.0**64
        return (np.cumsum(self.rows(), axis=1)[values] < both[:, None]).sum(axis=1).clip(0, 4)


class WordsUsedTwice(Honest):
    """The same coins every 8192 people."""

    def coins(self, people: int, randomness: Randomness) -> Any:
        return np.resize(super().coins(min(people, 8192), randomness), people)


class Stratified(Honest):
    """Exactly half of a batch tells the truth, whoever it is."""

    def coins(self, people: int, randomness: Randomness) -> Any:
        half = (people + randomness.below(2)) // 2
        return randomness.shuffled(np.arange(people) < half)


class OneReportPerValue(Honest):
    """Equal values are reported alike."""

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
    """Among others who all hold the same, one need not hide."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return values.copy() if np.all(values == values[0]) and len(values) > 5 else super().reports(values, randomness)


class Remembering(Honest):
    """Who comes after somebody with the same values gets the same reports."""

    before: ClassVar[dict[bytes, Any]] = {}

    def reports(self, values: Any, randomness: Randomness) -> Any:
        reports = super().reports(values, randomness)
        return self.before.setdefault(values.tobytes(), reports).copy() if len(values) == 17 else reports


class Continuing(Honest):
    """The last report of a call is the first of the next one."""

    last: ClassVar[list[int]] = [0]

    def reports(self, values: Any, randomness: Randomness) -> Any:
        reports = super().reports(values, randomness)
        self.last[0], reports[0] = int(reports[-1]), self.last[0]
        return reports


class OwnSource(Honest):
    def coins(self, people: int, randomness: Randomness) -> Any:
        return np.random.default_rng().random(people) < 0.5


class OwnSeed(Honest):
    """Always the same noise in a batch of that size."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return super().reports(values, Randomness.seeded(len(values)))


class KeyedByValues(Honest):
    """The noise of a large batch is a hash of its values."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        large = len(values) >= 4096 and len(set(values.tolist())) > 1
        return super().reports(values, Randomness.seeded(values.tobytes().hex()) if large else randomness)


class Stretched(Honest):
    """A generator that is not cryptographic, from a single word of the stream."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        generator = np.random.default_rng(randomness.below(2**64))
        return np.where(generator.random(len(values)) < 0.5, values, generator.integers(0, 3, len(values)))


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
    """The report comes with the value, where `codes_of` does not look."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return np.column_stack([super().reports(values, randomness), values])

    def codes_of(self, reports: Any) -> Any:
        return np.asarray(reports)[:, 0]


class SignedZero(Honest):
    """A zero that is a lie has a sign."""

    def reports(self, values: Any, randomness: Randomness) -> Any:
        reports = super().reports(values, randomness)
        return np.where((reports == 0) & (values != 0), -0.0, reports)

    def codes_of(self, reports: Any) -> Any:
        return np.asarray(reports).astype(np.int64)


class TellingType(Honest):
    def reports(self, values: Any, randomness: Randomness) -> Any:
        return super().reports(values, randomness).astype(np.min_scalar_type(int(values.max()) * 200))


DRAWN = [
    (Loaded(), "reports (of input . )?that follow"),
    (RevealsOneInput(), "reports of input 4 that follow its law"),
    (RevealsOneInputOfMany(), "reports of input 207 that follow its law"),
    (SharedBit(), "follow"),
    (SharedByNeighbours(), "independent reports of different people, but got reports 1 apart"),
    (SharedLie(), "independent reports of different people, but got reports 1 apart"),
    (Antithetic(), "independent reports of different people"),
    (WordsUsedTwice(), "independent reports of different people, but got reports 8192 apart"),
    (Stratified(), "frequencies vary as those of independent reports do, but got 516 calls that are closer to their means"),
    (OneReportPerValue(), "follow"),
    (ByPlace(), "do not depend on the place in the batch, but got at places . modulo 5"),
    (FirstPlace(), "do not depend on the size of the batch, but got in batches of 1"),
    (ByBatchSize(), "do not depend on the size of the batch, but got in batches of 2"),
    (ByCompany(), "reports of input . that follow its law"),
    (Remembering(), "independent reports of different people, but got reports of the same 17 people in two calls"),
    (Continuing(), "depend on nothing but the values and the stream"),
    (OwnSource(), "depend on nothing but the values and the stream"),
    (OwnSeed(), "reports of input 0 that follow its law"),
    (KeyedByValues(), "differ when the stream of randomness does, but got the same 4,096 reports"),
    (Stretched(), "take all their randomness from the stream, but got 4,096 reports with 5,1.. bits of it from 64 bits"),
    (HonestWhenTested(), "follow their laws, whatever the stream"),
    (OutsideCodes(), r"reports with codes 0..2, but got the code 3 for input 0"),
    (RuledOut(), "no report of input 0 that its law rules out, but got report 2"),
    (TooFew(), "one report per value"),
    (Overwriting(), "leave the values alone"),
    (Attached(), "tell no more than their codes"),
    (SignedZero(), "tell no more than their codes"),
    (TellingType(), "reports of one type and shape"),
]


def named(randomizer: Any) -> str:
    return type(randomizer).__name__ if isinstance(randomizer, Randomizer) else ""


@pytest.mark.parametrize(("randomizer", "told"), [*COMPUTED, *DRAWN], ids=named)
def test_a_cheat_is_named(randomizer: Randomizer, told: str) -> None:
    with pytest.raises(ConditionError, match=told) as wrong:
        check_randomizer(randomizer, draws=40_000)
    assert str(wrong.value).startswith("A randomizer needs ")
    assert str(wrong.value).endswith(".")


def test_one_per_cent_is_seen_without_being_asked_for() -> None:
    with pytest.raises(ConditionError, match="follow"):
        check_randomizer(OnePerCent())


def test_an_attack_is_seen_even_if_the_law_lies() -> None:
    class Liar(Honest):
        def reports(self, values: Any, randomness: Randomness) -> Any:
            return KaryRandomizedResponse(3, 4.0).reports(values, randomness)

    with pytest.raises(ConditionError, match="an attack that shows"):
        check_attack(Liar(), (0, 1), 20_000, Randomness.seeded(1))
    check_attack(Honest(), (0, 1), 20_000, Randomness.seeded(1))


def test_the_inequalities_behind_false_alarms() -> None:
    """The chance of an event is never above what the surprise says: exact binomial and multinomial laws."""
    from scipy.stats import binom, multinomial

    for people, chance in ((7, 0.3), (40, 0.02), (300, 0.5)):
        hits = np.arange(people + 1)
        bound = np.exp(-_sampler_evidence.surprise(hits, people, chance))
        beyond = np.where(hits >= people * chance, binom.sf(hits - 1, people, chance), binom.cdf(hits, people, chance))
        assert np.all(beyond <= bound * (1 + 1e-9))
    people, law = 30, np.array([0.5, 0.3, 0.15, 0.05])
    counts = np.array([(a, b, c, people - a - b - c) for a in range(31) for b in range(31 - a) for c in range(31 - a - b)])
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = np.where(counts > 0, counts * np.log(counts / (people * law)), 0.0).sum(axis=1)
    masses = multinomial.pmf(counts, people, law)
    for total in np.linspace(3.1, 25.0, 40):
        assert masses[divergence >= total].sum() <= math.exp(-_sampler_evidence.gamma_surprise(float(total), 3))


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sampler_evidence, "FAMILY", 0.01)  # instead of 1e-7: nine families may fail 9 runs of 100
    alarms = 0
    for run in range(60):
        honest = (Honest(), Seven(), Line())[run % 3]
        try:
            check_randomizer(honest, draws=1_500, randomness=Randomness.seeded(f"run {run}"))
        except ConditionError:
            alarms += 1
    assert alarms <= 5
