"""check_randomizer passes honest user-defined randomizers and names faults of others."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.randomizers.computed_cheats import COMPUTED
from tests.randomizers.drawn_cheats import DRAWN, UNSEEN, InBatchesOfSeven, OnePerCent
from tests.randomizers.honest import Honest, Line, Mine, Seven

from metricshuffle.errors import ConditionError, InputError
from metricshuffle.randomizers import (
    Channel,
    KaryRandomizedResponse,
    Randomizer,
    _batch_checks,
    _sampler_evidence,
)
from metricshuffle.randomizers._sampler_checks import check_attack
from metricshuffle.randomness import Randomness
from metricshuffle.testing import check_randomizer


@pytest.mark.slow
def test_honest_ones_pass_and_the_rest_follows_from_the_rows() -> None:
    for honest in (Mine(), Seven(), Line()):
        check_randomizer(honest, draws=20_000)
    assert Mine().local_epsilon() == pytest.approx(math.log(4))
    assert Mine().local_profile().delta(math.log(2), 1) == pytest.approx(1 / 3)
    assert Mine().variances()[0, 0] == pytest.approx(
        (2 / 3) * (5 / 3) ** 2 + (1 / 3) * (1 / 3) ** 2 - 1
    )
    check_randomizer(Mine())
    check_randomizer(Mine(), draws=5_000, randomness=Randomness.system())
    check_randomizer(Channel([[0.25, 0.75]]), draws=1_000)  # nothing to hide


def named(randomizer: Any) -> str:
    return type(randomizer).__name__ if isinstance(randomizer, Randomizer) else ""


def is_named(randomizer: Randomizer, told: str, draws: int) -> None:
    with pytest.raises(ConditionError, match=told) as refusal:
        check_randomizer(randomizer, draws=draws, seed="cheats")
    assert str(refusal.value).startswith("A randomizer needs ")
    assert str(refusal.value).endswith(".")


@pytest.mark.thorough
@pytest.mark.parametrize(("randomizer", "told"), COMPUTED, ids=named)
def test_a_cheat_that_is_computed_is_named(randomizer: Randomizer, told: str) -> None:
    """Without many draws: what is wrong follows from what the randomizer says of itself."""
    is_named(randomizer, told, 2_000)


EVERY_SECOND = [
    pytest.param(*row, marks=[pytest.mark.slow] * (place % 2)) for place, row in enumerate(DRAWN)
]


@pytest.mark.thorough
@pytest.mark.parametrize(("randomizer", "told"), EVERY_SECOND, ids=named)
def test_a_cheat_that_is_drawn_is_named(randomizer: Randomizer, told: str) -> None:
    is_named(randomizer, told, 40_000)


@pytest.mark.thorough
@pytest.mark.parametrize(("randomizer", "told"), UNSEEN, ids=named)
def test_what_cannot_be_seen_is_named(randomizer: Randomizer, told: str) -> None:
    report = check_randomizer(randomizer, draws=20_000, seed="unseen")
    assert any(told in sentence for sentence in report.unseen)
    assert told in str(report)
    assert (
        report.leak > 1 / 2_000
    )  # the leak that it would have seen is larger than that of OneIn2000
    assert report.largest_batch < 2**20


@pytest.mark.thorough
def test_a_report_tells_what_was_drawn_and_a_failure_how_to_repeat_it() -> None:
    report = check_randomizer(Honest(), draws=3_000)
    assert report.seed is not None
    assert check_randomizer(Honest(), draws=3_000, seed=report.seed) == report
    assert check_randomizer(Honest(), draws=3_000).seed != report.seed  # drawn anew each time
    told = str(report)
    assert f"seed={report.seed!r}" in told
    assert f"{report.reports:,} reports were drawn" in told
    assert "in batches of every size up to 128" in told
    assert (
        f"A report in the clear, in more than 1 of {math.floor(1 / report.leak):,}, would "
        "have been seen with probability 99.9 %." in told
    )
    with pytest.raises(ConditionError) as wrong:
        check_randomizer(InBatchesOfSeven(), draws=3_000)
    (note,) = wrong.value.__notes__
    seed = note.removeprefix("The same is drawn again by check_randomizer(..., seed=").removesuffix(
        ")."
    )
    with pytest.raises(ConditionError) as again:
        check_randomizer(InBatchesOfSeven(), draws=3_000, seed=int(seed))
    assert str(again.value) == str(wrong.value)
    assert check_randomizer(Honest(), draws=1_000, randomness=Randomness.system()).seed is None
    with pytest.raises(InputError, match="a seed or a stream"):
        check_randomizer(Honest(), randomness=Randomness.system(), seed=1)


@pytest.mark.slow
def test_leaks_of_the_size_that_a_report_names_are_seen() -> None:
    """Leaks of the stated shares are detected in 20 of 20 runs (99.9 % each at least)."""
    usual = check_randomizer(Honest(), draws=4_000, seed="usual")

    class Leaks(Honest):
        share: ClassVar[float] = 0.0

        def reports(self, values: Any, randomness: Randomness) -> Any:
            clear = randomness.words(len(values)) < np.uint64(int(self.share * 2.0**64))
            return np.where(clear, values, super().reports(values, randomness))

    class LeaksInSizes(Leaks):
        def reports(self, values: Any, randomness: Randomness) -> Any:
            return (
                super().reports(values, randomness)
                if len(values) == 60
                else Honest.reports(self, values, randomness)
            )

    Leaks.share = 1.02 * usual.leak
    LeaksInSizes.share = 1.02 * usual.leak_at_one_size
    for cheat in (Leaks(), LeaksInSizes()):
        for run in range(20):
            with pytest.raises(ConditionError):
                check_randomizer(cheat, draws=4_000, seed=run)


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
    """Probabilities never exceed the surprise, for exact binomial and multinomial laws."""
    from scipy.stats import binom, multinomial

    for people, chance in ((7, 0.3), (40, 0.02), (300, 0.5)):
        hits = np.arange(people + 1)
        bound = np.exp(-_sampler_evidence.surprise(hits, people, chance))
        beyond = np.where(
            hits >= people * chance,
            binom.sf(hits - 1, people, chance),
            binom.cdf(hits, people, chance),
        )
        assert np.all(beyond <= bound * (1 + 1e-9))
    people = 30
    law = np.array([0.5, 0.3, 0.15, 0.05])
    counts = np.array(
        [
            (a, b, c, people - a - b - c)
            for a in range(31)
            for b in range(31 - a)
            for c in range(31 - a - b)
        ]
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = np.where(counts > 0, counts * np.log(counts / (people * law)), 0.0).sum(axis=1)
    masses = multinomial.pmf(counts, people, law)
    for total in np.linspace(3.1, 25.0, 40):
        assert masses[divergence >= total].sum() <= math.exp(
            -_sampler_evidence.gamma_surprise(float(total), 3)
        )


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_batch_checks, "FALSE_ALARM_PROBABILITY", 0.01)
    monkeypatch.setattr(
        _sampler_evidence, "FALSE_ALARM_PROBABILITY", 0.01
    )  # instead of 7.5e-8: thirteen families may fail 13 runs of 100
    alarms = 0
    for run in range(60):
        honest = (Honest(), Seven(), Line())[run % 3]
        try:
            check_randomizer(honest, draws=1_500, randomness=Randomness.seeded(f"run {run}"))
        except ConditionError:
            alarms += 1
    assert alarms <= 8
