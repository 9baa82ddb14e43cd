"""check_randomizer passes an honest randomizer of one's own and names what is wrong with a dishonest one."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest

from metricshuffle.accounting.blanket.law import BlanketLaw
from metricshuffle.errors import ConditionError
from metricshuffle.randomizers import KaryRandomizedResponse, Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.testing import check_randomizer


class Mine(Randomizer):
    """The example of the documentation: a value 0, 1 or 2; half of the people tell the truth."""

    kind: Literal["mine-for-test"] = "mine-for-test"

    @property
    def inputs(self) -> int:
        return 3

    @property
    def outputs(self) -> int:
        return 3

    def rows(self) -> Any:
        return 0.5 * np.eye(3) + 0.5 / 3

    def reports(self, values: Any, randomness: Randomness) -> Any:
        coins = randomness.words(len(values)) >> np.uint64(63)
        return np.where(coins == 1, values, randomness.uniform_residues(len(values), 3).astype(np.int64))

    def targets(self) -> Any:
        return np.eye(3)

    def debiasing(self) -> Any:
        return 2.0 * np.eye(3) - 1.0 / 3


def test_the_rest_follows_from_the_rows() -> None:
    check_randomizer(Mine())
    assert Mine().local_epsilon() == pytest.approx(math.log(4))
    assert Mine().local_profile().delta(math.log(2), 1) == pytest.approx(1 / 3)
    assert Mine().variances()[0, 0] == pytest.approx((2 / 3) * (5 / 3) ** 2 + (1 / 3) * (1 / 3) ** 2 - 1)


class NotStochastic(Mine):
    kind: Literal["not-stochastic-for-test"] = "not-stochastic-for-test"  # type: ignore[assignment]

    def rows(self) -> Any:
        return 0.5 * np.eye(3) + 0.1


class Overconfident(Mine):
    kind: Literal["overconfident-for-test"] = "overconfident-for-test"  # type: ignore[assignment]

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        return 1.0


class Thick(Mine):
    kind: Literal["thick-for-test"] = "thick-for-test"  # type: ignore[assignment]

    def blanket(self, a: int, b: int) -> BlanketLaw:
        law = super().blanket(a, b)
        return BlanketLaw(law.mass * np.where(law.a == law.b, 0.5, 1.25), law.a, law.b)


class Biased(Mine):
    kind: Literal["biased-for-test"] = "biased-for-test"  # type: ignore[assignment]

    def debiasing(self) -> Any:
        return 2.0 * np.eye(3)


class Loaded(Mine):
    kind: Literal["loaded-for-test"] = "loaded-for-test"  # type: ignore[assignment]

    def reports(self, values: Any, randomness: Randomness) -> Any:
        return np.where(randomness.words(len(values)) % np.uint64(20) == 7, values, super().reports(values, randomness))


class Loose(Mine):
    kind: Literal["loose-for-test"] = "loose-for-test"  # type: ignore[assignment]

    def totals(self, reports: Any) -> Any:
        return super().totals(reports) * 1.01


@pytest.mark.parametrize(
    ("randomizer", "told"),
    [
        (NotStochastic(), "sum to one, but got 0.8"),
        (Overconfident(), "local_epsilon of inputs 0 and 1 to be at least 1.386"),
        (Thick(), "blanket"),
        (Biased(), "debiasing with the mean"),
        (Loaded(), "follow its law"),
        (Loose(), "totals"),
    ],
)
def test_a_broken_one_is_named(randomizer: Randomizer, told: str) -> None:
    with pytest.raises(ConditionError, match=told):
        check_randomizer(randomizer, draws=200_000 if "law" in told else 20_000)


def test_an_attack_is_seen_even_if_the_law_lies() -> None:
    class Liar(Mine):
        kind: Literal["liar-for-test"] = "liar-for-test"  # type: ignore[assignment]

        def reports(self, values: Any, randomness: Randomness) -> Any:
            return KaryRandomizedResponse(3, 4.0).reports(values, randomness)

    from metricshuffle.randomizers import _checks

    with pytest.raises(ConditionError, match="an attack that shows"):
        _checks.check_attack(Liar(), Liar().rows(), (0, 1), 20_000, Randomness.seeded(1))
