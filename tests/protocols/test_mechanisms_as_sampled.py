"""Samplers against statements: errors, standard errors, intervals, and a privacy audit."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, symmetric_p_value
from tests.oracles.mechanism_runs import certain_delta, estimated_totals, observed_sums

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.planar_noise import PlanarNoise
from metricshuffle.noise.polya import Polya
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.protocols.sums import Sums
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import CountResponse


def additive(
    shape: Fraction,
    rate: float,
    padding: str = "none",
    radius: int = 0,
    span: int = 9,
    granularity: int = 1,
) -> AdditiveRandomizer:
    return AdditiveRandomizer(
        span=span, shape=shape, rate=rate, padding=padding, radius=radius, granularity=granularity
    )


def unary(*randomizers: AdditiveRandomizer | CountResponse) -> Sums:
    name = (
        "randomized-response-shuffle"
        if isinstance(randomizers[0], CountResponse)
        else "polya-shuffle"
    )
    return Sums(name=name, trusted="shuffler", randomizers=randomizers)


def modular(*randomizers: AdditiveRandomizer, trusted: Who = "shuffler") -> Sums:
    shares = 3 if trusted == "shuffler" else 1
    return Sums(
        name="polya-shuffle", trusted=trusted, randomizers=randomizers, modulus=2003, shares=shares
    )


ONE = Fraction(1)
THIRD = Fraction(1, 3)
FIFTH = Fraction(1, 5)
MECHANISMS: dict[str, tuple[Sums, int]] = {
    "one geometric report": (modular(additive(ONE, 0.5), trusted="nobody"), 1),
    "geometric, shares": (modular(additive(ONE, 0.5)), 19),
    "polya, shares": (modular(additive(Fraction(1, 19), 0.25)), 19),
    "polya, aggregator, two more than honest": (
        modular(additive(THIRD, 0.25), trusted="aggregator"),
        5,
    ),
    "polya, clamped": (unary(additive(FIFTH, 0.25, "clamp", 60)), 5),
    "polya, bounded": (unary(additive(FIFTH, 0.25, "bounded", 20)), 5),
    "geometric, clamped": (unary(additive(ONE, 0.5, "clamp", 40)), 3),
    "geometric, bounded": (unary(additive(ONE, 0.5, "bounded", 8)), 2),
    "rounded first, clamped": (unary(additive(ONE, 0.75, "clamp", 30, granularity=3)), 3),
    "rounded first, shares": (modular(additive(THIRD, 0.75, granularity=4)), 7),
    "curator": (modular(additive(ONE, 0.25), trusted="curator"), 3),
    "curator, rounded first": (modular(additive(ONE, 0.5, granularity=4), trusted="curator"), 40),
    "randomized response": (unary(CountResponse(span=9, flip=0.25)), 3),
    "binary randomized response": (unary(CountResponse(span=1, flip=0.125)), 19),
    "two axes, shares": (modular(additive(THIRD, 0.25), additive(THIRD, 0.25, span=5)), 3),
    "two axes, clamped": (
        unary(additive(ONE, 0.5, "clamp", 40), additive(ONE, 0.5, "clamp", 40, span=5)),
        2,
    ),
}


def spread_values(mechanism: Sums, people: int) -> np.ndarray:
    """Remainders of every size, so that roundings have their average variance."""
    return np.stack(
        [np.arange(people) % (randomizer.span + 1) for randomizer in mechanism.randomizers], axis=1
    ).astype(np.int64)


@pytest.mark.parametrize("name", MECHANISMS)
def test_errors_are_as_large_as_stated_and_intervals_hold(name: str) -> None:
    mechanism, people = MECHANISMS[name]
    runs = 2000
    steps = spread_values(mechanism, people)
    errors = estimated_totals(mechanism, steps, runs, name) - steps.sum(axis=0)
    sizes = np.sqrt((errors**2).sum(axis=1))
    wobble = 4.5 * sizes.std() / math.sqrt(runs)
    rough = (
        0.05
        if any(randomizer.granularity > 1 for randomizer in mechanism.randomizers)
        or "binary" in name
        else 0.002
    )
    assert sizes.mean() == pytest.approx(mechanism.mean_error(people), abs=wobble, rel=rough)
    assert (np.abs(errors.mean(axis=0)) < 4.5 * errors.std(axis=0) / math.sqrt(runs)).all()
    stated = mechanism.standard_errors(people)
    assert (errors.std(axis=0) < stated * 1.09).all()
    if rough < 0.05:
        assert (errors.std(axis=0) > stated * 0.91).all()
    for level in (0.5, 0.95):
        randomizer = mechanism.randomizers[0]
        if isinstance(randomizer, CountResponse):
            shrunk = (errors[:, 0] + steps.sum()) * (1 - 2 * randomizer.flip)
            counts = np.rint(shrunk + people * randomizer.span * randomizer.flip).astype(int)
            held = 0
            for count, times in zip(*np.unique(counts, return_counts=True), strict=True):
                low, high = mechanism.count_intervals((int(count),), people, level)[0]
                held += int(times) * bool(low <= steps.sum() <= high)
            share = held / runs
        else:
            share = (np.abs(errors) <= mechanism.half_widths(people, level)).all(axis=1).mean()
        assert share >= level - 4.5 * math.sqrt(level * (1 - level) / runs)
        if level == 0.95 and rough < 0.05 and "two axes" not in name:
            assert (np.abs(errors) <= 0.7 * mechanism.half_widths(people, level)).all(
                axis=1
            ).mean() < level


def test_the_curator_adds_noise_once_and_exactly() -> None:
    mechanism, _ = MECHANISMS["curator"]
    totals = estimated_totals(mechanism, np.array([[2], [5], [9]]), 3000, "curator once")
    masses = [float(mass) for mass in Polya(ONE, 0.25).law(-40.0).mass]
    assert symmetric_p_value((totals[:, 0] - 16).astype(np.int64), masses) > TOO_UNLIKELY


def less_noisy(mechanism: Sums) -> Sums:
    """The same protocol with a fifth less noise."""
    changed = tuple(
        randomizer.model_copy(update={"flip": round(randomizer.flip * 0.8 * 2**32) / 2**32})
        if isinstance(randomizer, CountResponse)
        else randomizer.model_copy(update={"rate": randomizer.rate * 1.25})
        for randomizer in mechanism.randomizers
    )
    return mechanism.model_copy(update={"randomizers": changed})


def claimed(mechanism: Sums, people: int) -> PrivacyProfile:
    axis = mechanism.randomizers[0].summed_profile(people)
    if len(mechanism.randomizers) == 1:
        return axis
    return PlanarNoise(AdditiveNoise(Polya(ONE, 0.25)))


AUDITED = [name for name in MECHANISMS if "curator" not in name and name != "two axes, clamped"]


@pytest.mark.parametrize("name", AUDITED)
def test_an_attacker_gains_no_more_than_certified_and_would_notice_a_fifth_less_noise(
    name: str,
) -> None:
    """Attack on the sum with moves of `far` in total: lower bounds stay below the profile."""
    mechanism, people = MECHANISMS[name]
    runs = min(50_000, 350_000 // people)
    far = {
        "binary randomized response": 1,
        "rounded first, clamped": 6,
        "rounded first, shares": 8,
    }.get(name, 5)
    near_values = np.zeros((people, len(mechanism.randomizers)), dtype=np.int64)
    far_values = near_values.copy()
    far_values[0] = far if len(mechanism.randomizers) == 1 else (5, 5)
    if name == "geometric, shares":
        far_values[:] = 1  # everybody moves a little
    distance = float(np.linalg.norm(far_values.sum(axis=0)))
    profile = claimed(mechanism, people)
    samples = [
        observed_sums(mechanism, values, runs, f"{name} {side}")
        for side, values in enumerate((near_values, far_values))
    ]
    for epsilon in (0.0, 0.4, 1.0):
        assert certain_delta(samples[0], samples[1], epsilon) <= profile.delta(epsilon, distance)
        assert certain_delta(samples[1], samples[0], epsilon) <= profile.delta(epsilon, distance)
    weaker = less_noisy(mechanism)
    samples = [
        observed_sums(weaker, values, runs, f"less {name} {side}")
        for side, values in enumerate((near_values, far_values))
    ]
    seen = [
        certain_delta(samples[0], samples[1], epsilon) / profile.delta(epsilon, distance)
        for epsilon in (0.0, 0.4, 1.0)
    ]
    assert max(seen) > 1.0
