"""Messages among dummies: parameters, privacy they provide, and unbiased counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.oracles.shuffled_brute_force import shuffled_delta
from tests.tables import check_all

from metricshuffle.accounting.shuffling.blanket_bound import delta_upper
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.randomizers import AmongDummies
from metricshuffle.randomness import Randomness

EVERY = {
    "coins": AmongDummies.coins(0.25),
    "balls": AmongDummies.balls(5),
    "mixed": AmongDummies.mixed(5, 0.3),
    "fake users": AmongDummies.fake_users(3, 0.25),
}


def ratios(hidden: AmongDummies, pair: tuple[int, int] = (0, 1)) -> tuple[float, float, float]:
    """(p, beta, q): ratio within the pair, total variation, and largest ratio to a dummy."""
    law = hidden.blanket(*pair)
    held = law.mass > 0.0
    worst = max(
        float((law.a[held] / law.mass[held]).max()), float((law.b[held] / law.mass[held]).max())
    )
    return math.exp(max(law.pure, law.reversed.pure)), float(np.maximum(law.excess, 0).sum()), worst


def test_the_parameters_of_the_table() -> None:
    f = 0.25
    d = 5
    assert ratios(EVERY["coins"]) == pytest.approx((math.inf, 1.0, max(1 / f, 1 / (1 - f))))
    assert ratios(EVERY["balls"]) == pytest.approx((math.inf, 1.0, d))
    assert ratios(EVERY["fake users"]) == pytest.approx(
        ((1 - f) ** 2 / f**2, 1 - 2 * f, (1 - f) / f)
    )
    f = 0.3
    assert ratios(EVERY["mixed"]) == pytest.approx(
        ((1 - f) * (d - 1) / f, ((1 - f) * (d - 1) - f) / (d - 1), (1 - f) * d)
    )


def test_real_people_are_not_dummies() -> None:
    """Users in place of dummies square the ratio: 9, not 3, at flip 1/4; mixed 9.33, not 3.5."""
    rows = EVERY["fake users"].real.rows()
    assert float((rows[0] / rows.min(axis=0)).max()) == pytest.approx(9.0)
    rows = EVERY["mixed"].real.rows()
    assert float((rows[0] / rows.min(axis=0)).max()) == pytest.approx(0.7 * 4 / 0.3)


@check_all("name", EVERY)
def test_the_blanket_is_exact_when_only_dummies_hide_the_message(name: str) -> None:
    from fractions import Fraction

    hidden = EVERY[name]
    growth = Fraction(3, 2)
    real = hidden.real.weights.tolist()
    dummy = hidden.dummy.weights.tolist()[0]
    exact = float(shuffled_delta(real[0], real[1], [dummy] * 3, growth))
    assert (
        exact
        <= delta_upper(hidden.blanket(0, 1), 4, math.log(1.5), directions="forward")
        <= exact * (1 + 1e-6) + 1e-12
    )


@check_all("name", EVERY)
def test_counts_are_unbiased(name: str) -> None:
    hidden = EVERY[name]
    people = 4_000
    dummies = 6_000
    values = np.arange(people) % 2
    messages = hidden.messages(values, dummies, Randomness.seeded(name))
    assert len(messages) == people + dummies
    truth = np.bincount(values, minlength=hidden.real.inputs)
    spread = math.sqrt((people + dummies) * float((hidden.real.debiasing() ** 2).max()))
    assert np.abs(hidden.totals(messages, dummies) - truth).max() < 5 * spread


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="heads must be a probability"):
        AmongDummies.coins(1.0)
    with pytest.raises(ConditionError, match="1 - flip >= 1/options"):
        AmongDummies.mixed(3, 0.9)
    with pytest.raises(InputError, match="flip below 1/2"):
        AmongDummies.fake_users(3, 0.5)
    with pytest.raises(InputError, match="one row"):
        AmongDummies(EVERY["coins"].real, EVERY["coins"].real)
