"""Guarantees: the sentence, its numbers, and what may not become one."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError
from tests.tables import check_all

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.errors import NotCertified
from metricshuffle.noise.polya import Geometric, Polya
from metricshuffle.numerics.rounding import format_number
from metricshuffle.privacy.guarantee import Guarantee, Trust, likelihood_text
from metricshuffle.privacy.profile import LowerProfile, PureProfile

SHUFFLER = Trust(trusted="shuffler", honest_reports=900)


def guarantee(**changes: Any) -> Guarantee:
    fields: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "distance": 100.0,
        "unit": "kcal",
        "shape": "linear",
        "protects": "people together",
        "trust": SHUFFLER,
        "bound": "exact",
    }
    return Guarantee(**{**fields, **changes})


def test_the_sentence() -> None:
    assert str(guarantee()) == (
        "Hidden at epsilon 1, and proportionally less for a smaller move (delta 1e-06): "
        "values moving by up to 100 kcal in total, "
        "over any number of people, as long as the shuffler is honest and at least 900 "
        "reports come from honest people (bound: exact)."
    )
    flat = guarantee(
        shape="flat",
        delta=0.0,
        protects="one person",
        trust=Trust(trusted="nobody"),
        rounds=3,
        between="cells",
        unit="",
    )
    assert str(flat) == (
        "Hidden at epsilon 1 (with certainty, over all 3 rounds together): one person's "
        "value moving by up to 100 "
        "(distance between cells) even if everyone else, the shuffler included, colludes "
        "(bound: exact)."
    )
    assert "earth mover" in str(guarantee(protects="one user's items"))
    assert "sees the raw values" in str(guarantee(trust=Trust(trusted="curator")))


def test_an_infinite_epsilon_is_said_plainly() -> None:
    assert str(guarantee(epsilon=math.inf)).startswith("NOT hidden: ")


def test_printed_promises_are_rounded_up() -> None:
    assert "epsilon 0.03225 " in str(guarantee(epsilon=0.0322401, shape="flat"))
    assert "delta 1.01e-06" in str(guarantee(delta=1.0001e-6))
    # What is off by rounding only is not shown as more.
    assert "epsilon 1 " in str(guarantee(epsilon=math.nextafter(1.0, 2.0), shape="flat"))
    assert format_number(12345.0) == "12,345"


@check_all(
    "changes",
    [
        {"epsilon": math.nan},
        {"epsilon": -1.0},
        {"delta": 1.5},
        {"delta": math.nan},
        {"distance": math.inf},
        {"rounds": 0},
        {"extra": 1},
    ],
)
def test_impossible_numbers_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        guarantee(**changes)


def from_profile(profile: Any, distance: float, step: float = 1.0, delta: float = 0.0) -> Guarantee:
    return Guarantee.from_profile(
        profile,
        delta=delta,
        distance=distance,
        unit="m",
        protects="people together",
        trust=SHUFFLER,
        step=step,
    )


@check_all(
    ("distance", "step", "steps"),
    [
        (0.3, 0.1, 3),
        (0.7, 0.1, 7),
        (2.3, 0.1, 23),
        (1e6, 1.0, 10**6),
        (0.29, 0.1, 2),
        (5.0, 2.0, 2),
    ],
)
def test_steps_are_not_lost_to_rounding(distance: float, step: float, steps: int) -> None:
    """0.3 / 0.1 is 2.9999999999999996 in doubles, but three steps fit."""
    found = from_profile(AdditiveNoise(Geometric(1.0)), distance, step)
    assert found.epsilon == pytest.approx(steps, rel=1e-12)
    assert found.shape == "flat"
    assert found.bound == "exact"


def test_a_guarantee_carries_the_certified_epsilon() -> None:
    profile = AdditiveNoise(Polya(Fraction(100), 0.2))
    found = from_profile(profile, 10.0, delta=5e-5)
    assert found.epsilon == profile.epsilon(5e-5, 10)
    assert profile.delta(found.epsilon, 10) == pytest.approx(5e-5, rel=1e-9)
    assert profile.covers(found.epsilon, 5e-5, 10, "flat")
    assert Guarantee.model_validate_json(found.model_dump_json()) == found


def test_only_an_upper_bound_becomes_a_guarantee() -> None:
    class Attack(LowerProfile):
        def delta(self, epsilon: float, distance: float) -> float:
            return 0.0

    for wrong in (Attack(), PureProfile, 1.0):
        with pytest.raises(NotCertified, match="upper bound"):
            from_profile(wrong, 1.0)


def test_epsilon_and_delta_are_put_into_words_that_are_true() -> None:
    """A factor rounded up and an added probability.

    A loss above epsilon may have more probability than delta.
    """
    assert likelihood_text(1.0, 0.0) == "at most 2.719 times as likely with one as with the other"
    assert (
        likelihood_text(1.0, 1.23e-6)
        == "at most 2.719 times as likely with one as with the other, plus a probability of "
        "1.23e-06"
    )
    assert (
        likelihood_text(1e4, 0.0) == "at most e^10,000 times as likely with one as with the other"
    )
