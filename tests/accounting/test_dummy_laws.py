"""Dummies of a shuffler: golden values, whole views in fractions, and formulas that are false."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
from tests.oracles import dummy_views as oracle

from metricshuffle.accounting.dummies.dummy_losses import (
    DummyLaw,
    drawn_epsilon,
    drawn_slope,
    extension_delta,
    one_person_delta,
    ramp_rate,
    ramp_step_loss,
    together_delta,
)
from metricshuffle.accounting.dummies.dummy_profiles import (
    DrawnDummies,
    LinearDummies,
    OnePersonDummies,
    RampDummies,
)
from metricshuffle.errors import InputError
from metricshuffle.noise.dyadic_table import DyadicTable
from metricshuffle.noise.polya import Polya
from metricshuffle.randomness import Randomness

LN2 = math.log(2.0)
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class ExactLaw:
    """The law with exact ratios e^-rate, to which golden values belong; duck-typed."""

    rate: float
    radius: int

    @property
    def lowest_rate(self) -> float:
        return self.rate

    @property
    def _masses(self) -> list[float]:
        weights = [math.exp(-self.rate * abs(z - self.radius)) for z in range(2 * self.radius + 1)]
        return [weight / math.fsum(weights) for weight in weights]

    def tail(self, atoms: int) -> float:
        return math.fsum(self._masses[:atoms])

    @property
    def end(self) -> float:
        return self._masses[0]

    @property
    def steps(self) -> tuple[float, float]:
        return math.fsum(self._masses[self.radius : -1]), math.fsum(self._masses[: self.radius])


def exact(rate: float, radius: int) -> DummyLaw:
    return cast(DummyLaw, ExactLaw(rate, radius))


ROOT = math.sqrt(2.0)
# rate, t, changed counts, epsilon, delta (50 digits, by the design's own computation)
ONE_PERSON = [
    (1 / 2, 27, 2, 1.0, 6.71547513727195e-7),
    (1 / 4, 53, 4, 1.0, 8.75618454496663e-7),
    (1 / 12, 158, 12, 1.0, 9.56111861138611e-7),
    (3 / 100, 500, 60, 1.0, 6.77679178707228e-7),
    (1 / 20, 217, 2, 0.1, 9.700464313245e-7),
    (2.0, 8, 2, 4.0, 1.714122600646e-7),
    (1 / 2, 41, 2, 1.0, 6.123715361555e-10),
    (1 / 8, 105, 8, 1.0, 9.960716502419e-7),
    (1 / 18, 237, 18, 1.0, 9.564191352102e-7),
    (1 / 8, 109, 1, 1 / 8, 7.551847673e-8),
    (1 / 8, 109, 8, 1.0, 6.041476541549e-7),
    (1 / 8, 109, 63, 63 / 8, 4.75765289597e-6),
    (1 / 8, 122, 63, 63 / 8, 9.368383096797e-7),
    (1 / 4, 53, 2, 1 / 2, 4.378093230868e-7),
    (ROOT / 8, 73, 2, 1 / 2, 4.383869012071e-7),
    (ROOT / 8, 73, 4, math.sqrt(0.5), 8.767736102311e-7),
]
# rate, t, changes, sides, items of one person (None: people together), delta
TOGETHER = [
    (1 / 8, 109, 8, 1, None, 9.745665329882e-7),
    (1 / 4, 53, 2, 2, None, 9.999674810581e-7),
    (ROOT / 8, 73, 2, 2, None, 9.615421754425e-7),
    (1 / 24, 325, 24, 1, 10, 9.983492749069e-7),
    (1 / 2, 33, 4, 2, None, 3.29284640256134e-7),
]


@pytest.mark.parametrize(("rate", "radius", "counts", "epsilon", "delta"), ONE_PERSON)
def test_one_person_has_the_golden_delta(
    rate: float, radius: int, counts: int, epsilon: float, delta: float
) -> None:
    # Losses of exactly epsilon add nothing, up to the last digits of the rate.
    computed = one_person_delta(exact(rate, radius), counts, epsilon * (1 + 1e-15))
    assert computed == pytest.approx(delta, rel=1e-12, abs=0.0)
    table = one_person_delta(DummyLaw.geometric(rate, radius), counts, epsilon * (1 + 1e-9))
    assert delta * (1 - 1e-6) <= table <= delta * (1 + 1e-6)


# rate, t, standard deviation of the dummies of a part
DEVIATIONS = [
    (1 / 2, 27, 2.7990171179),
    (1 / 4, 53, 5.64169986109),
    (1 / 12, 158, 16.9640898939),
    (3 / 100, 500, 47.1377770911),
    (1 / 20, 217, 28.2625844466),
    (2.0, 8, 0.601688113514),
    (1 / 2, 41, 2.7991774492),
    (1 / 8, 105, 11.3052857473),
    (1 / 18, 237, 25.4501969166),
    (1 / 8, 109, 11.3056566403),
    (ROOT / 8, 73, 7.98870796578),
    (0.236096819238126, 77, 5.97607713858),
    (1 / 24, 325, 33.9363640251),
]


@pytest.mark.parametrize(("rate", "radius", "deviation"), DEVIATIONS)
def test_the_table_has_the_golden_deviation_and_estimates_state_no_less(
    rate: float, radius: int, deviation: float
) -> None:
    """The exact variance of the weights that are drawn, in fractions."""
    masses = oracle.table_law(DummyLaw.geometric(rate, radius).table.weights)
    variance = sum((mass * (z - radius) ** 2 for z, mass in enumerate(masses)), Fraction(0))
    assert math.sqrt(variance) == pytest.approx(deviation, rel=5e-11, abs=0.0)
    stated = Polya(Fraction(1), rate).variance()
    assert variance <= Fraction(stated) <= variance * Fraction(1.01)


@pytest.mark.parametrize(("rate", "radius", "counts", "epsilon", "delta"), ONE_PERSON)
def test_the_ends_agree_to_twelve_digits(
    rate: float, radius: int, counts: int, epsilon: float, delta: float
) -> None:
    """Above the largest loss only the ends are left: 1 - (1 - q(0))^k, by itself."""
    law = exact(rate, radius)
    if counts * rate <= epsilon * (1 + 1e-12):
        assert -math.expm1(counts * math.log1p(-law.end)) == pytest.approx(
            delta, rel=2e-12, abs=0.0
        )
    assert one_person_delta(law, counts, counts * rate * 1.001) == pytest.approx(
        -math.expm1(counts * math.log1p(-law.end)), rel=1e-12
    )


@pytest.mark.parametrize(("rate", "radius", "changes", "sides", "items", "delta"), TOGETHER)
def test_people_and_items_together_have_the_golden_delta(
    rate: float, radius: int, changes: int, sides: int, items: int | None, delta: float
) -> None:
    # The statement adds the two sides up; the golden number is that of independent ones.
    once = together_delta(exact(rate, radius), changes, sides, items) / sides
    golden = -math.expm1(sides * math.log1p(-once)) if sides == 2 else once
    assert golden == pytest.approx(delta, rel=1e-12, abs=0.0)
    table = together_delta(DummyLaw.geometric(rate, radius), changes, sides, items)
    assert table == pytest.approx(delta, rel=1e-6, abs=0.0)


def test_random_ramps_and_the_lemma_have_the_golden_numbers() -> None:
    rate = ramp_rate(1 / 8, 2)
    assert rate == pytest.approx(0.236096819238126, rel=1e-14, abs=0.0)
    assert ramp_step_loss(rate, 2) == pytest.approx(1 / 8, rel=1e-13, abs=0.0)
    each = 9.77058638955e-7 / math.e / 32  # the mass of one part beyond its ends
    bound = math.e * math.expm1(32 * math.log1p(each))
    assert extension_delta(exact(rate, 77), 1.0, 32) == pytest.approx(bound, rel=1e-10, abs=0.0)


def test_the_extension_lemma_counts_the_mass_of_all_parts_together() -> None:
    """Several parts leave 0..2t together: the continued law has (1 + m)^K - 1 more, not K m."""
    law = DummyLaw.geometric(0.5, 3)
    ends = Fraction(law.table.weights[-1], 2**64)
    each = float(2 * ends) / math.expm1(law.rate)
    for parts in (1, 2, 3):
        beyond = (1 + Fraction(each)) ** parts - 1
        assert extension_delta(law, 0.0, parts) >= min(1.0, float(beyond)) * (1 - 1e-12)


def test_atoms_are_those_of_the_golden_table() -> None:
    up, down = exact(0.5, 27).steps
    assert up * up == pytest.approx(0.387455358805402, rel=1e-13, abs=0.0)
    assert 2 * up * down == pytest.approx(0.470007108770872, rel=1e-13, abs=0.0)
    assert down * down == pytest.approx(0.142536860876212, rel=1e-13, abs=0.0)


def test_the_account_is_that_of_the_table_that_is_drawn() -> None:
    law = DummyLaw.geometric(0.5, 27)
    assert 0.5 < law.rate < 0.5 + 3e-14
    masses = oracle.table_law(law.table.weights)
    factor = Fraction(math.e)
    exact_delta = sum(
        max(
            Fraction(0),
            masses[a] * masses[b] - factor * _mass(masses, a + 1) * _mass(masses, b - 1),
        )
        for a in range(55)
        for b in range(55)
    )
    assert float(exact_delta) == pytest.approx(6.715475137568e-7, rel=1e-11, abs=0.0)
    computed = one_person_delta(law, 2, 1.0)
    assert exact_delta <= Fraction(computed) <= exact_delta * Fraction(1 + 1e-6)


def _mass(masses: Sequence[Fraction], at: int) -> Fraction:
    return masses[at] if 0 <= at < len(masses) else Fraction(0)


def small_law(rate: float, radius: int) -> tuple[DummyLaw, list[Fraction]]:
    law = DummyLaw.geometric(rate, radius)
    return law, oracle.table_law(law.table.weights)


def changed_counts(piles: Sequence[Sequence[int]], x: int, y: int) -> int:
    return sum((1 if max(parts) == 1 else 2) for parts in piles if parts[x] != parts[y])


def test_whole_views_of_one_person_agree_with_the_formula() -> None:
    """Two and three parts, one and two piles, others present: the bound is above, and attained."""
    generator = random.Random(3)
    closest = Fraction(0)
    for _ in range(40):
        law, masses = small_law(generator.choice([0.4, LN2, 1.0]), generator.choice([1, 2]))
        size = generator.choice([2, 3])
        piles = [
            [generator.randrange(size) for _ in range(3)] for _ in range(generator.choice([1, 2]))
        ]
        if any(set(parts) != set(range(max(parts) + 1)) or max(parts) == 0 for parts in piles):
            continue
        others = [generator.randrange(3) for _ in range(2)]
        counts = changed_counts(piles, 0, 1)
        views = [oracle.view(masses, piles, [x, *others]) for x in (0, 1)]
        for epsilon in (0.0, 0.3, LN2, 1.5):
            factor = Fraction(math.exp(epsilon))
            bound = Fraction(one_person_delta(law, counts, epsilon))
            for first, second in (views, views[::-1]):
                true = oracle.divergence(first, second, factor)
                assert true <= bound + Fraction(1e-15)
                if bound:
                    closest = max(closest, true / bound)
                    assert true >= bound * Fraction(999, 1000) - Fraction(1e-12)
    assert closest > Fraction(9999, 10000)


def test_whole_views_of_people_together_stay_below_the_bound() -> None:
    generator = random.Random(5)
    closest = 0.0
    for _ in range(60):
        law, masses = small_law(generator.choice([0.5, LN2]), generator.choice([3, 4]))
        piles = [[0, 1, generator.randrange(2)]]
        sides = 1
        if generator.random() < 0.4:
            piles = [[0, 1, 2]]
            sides = 2
        before = [generator.randrange(3) for _ in range(3)]
        after = [generator.randrange(3) for _ in range(3)]
        changes = sum(
            parts[x] != parts[y] for parts in piles for x, y in zip(before, after, strict=True)
        )
        if not changes:
            continue
        loss = sides * law.rate * changes
        true = oracle.divergence(
            oracle.view(masses, piles, before),
            oracle.view(masses, piles, after),
            Fraction(math.exp(loss * (1 + 1e-12))),
        )
        bound = together_delta(law, changes, sides)
        assert float(true) <= bound * (1 + 1e-12)
        closest = max(closest, float(true) / bound)
    assert closest > 0.6


def test_two_hops_are_no_worse_than_the_honest_one() -> None:
    law, masses = small_law(LN2, 2)
    piles = [[0, 1]]
    for epsilon in (0.0, 0.5, LN2):
        factor = Fraction(math.exp(epsilon))
        first, second = (oracle.view(masses, piles, [x, 0], hops=2) for x in (0, 1))
        assert oracle.divergence(first, second, factor) <= Fraction(
            one_person_delta(law, 1, epsilon)
        )


# What is false: every one of these fails for the formula that looks right.


def test_people_together_are_not_people_times_one_person() -> None:
    law = exact(LN2, 5)
    one = one_person_delta(law, 2, 2 * LN2 * (1 + 1e-12))
    true = 1 - (1 - law.tail(2)) ** 2
    assert true / one == pytest.approx(2.97, abs=0.01)
    assert true <= together_delta(law, 2, 2) <= 1.02 * true
    assert one_person_delta(law, 4, 4 * LN2 * (1 + 1e-12)) / one == pytest.approx(1.98, abs=0.02)


def test_a_composed_rate_breaks_a_linear_promise() -> None:
    law = DummyLaw.geometric(0.03, 500)
    composed = OnePersonDummies(law, lambda distance: 2 * int(distance))
    assert composed.covers(1.0, 1e-6, 30.0, "flat")
    assert not composed.covers(1.0, 1e-6, 30.0, "linear")
    assert composed.delta(1 / 30, 1.0) == pytest.approx(0.0068, rel=0.02)
    assert not LinearDummies(law, 2.0, 2).covers(1.0, 1e-6, 30.0)
    assert LinearDummies(DummyLaw.geometric(1 / 60 - 1e-9, 1100), 2.0, 2).covers(1.0, 1e-6, 30.0)


def test_one_persons_gain_is_not_that_of_people_together() -> None:
    """Thirty people between one pair of parts at epsilon 1: 0.196, where one person has 6.8e-7."""
    masses = ExactLaw(0.03, 500)._masses
    size = len(masses)
    z = np.arange(size)
    ratio_up = np.array([masses[a + 30] / masses[a] if a + 30 < size else 0.0 for a in z])
    ratio_down = np.array([masses[b - 30] / masses[b] if b >= 30 else 0.0 for b in z])
    both = np.outer(masses, masses)
    delta = float((both * np.maximum(0.0, 1 - math.e * np.outer(ratio_up, ratio_down))).sum())
    assert delta == pytest.approx(0.196, abs=0.001)
    assert one_person_delta(exact(0.03, 500), 60, 1.0) < 1e-6


def test_draws_cost_more_than_the_earth_movers_distance() -> None:
    """{a} against {a, b}: exactly 0.916, not 2 rate m EMD = 0.693."""
    assert drawn_epsilon(1, 2 * LN2, [(0.5, 1.0), (0.5, 0.0)], 1.0) == pytest.approx(
        0.916290731874155, rel=1e-13
    )
    masses = oracle.geometric_law(HALF, 6)
    piles = [[0, 1, 2]]
    certain = oracle.view(masses, piles, [0])
    drawn = oracle.mixture([(HALF, certain), (HALF, oracle.view(masses, piles, [1]))])
    inner = [key for key in drawn if all(1 <= count <= 12 for count in key)]
    loss = max(math.log(drawn[key] / certain[key]) for key in inner)
    assert loss == pytest.approx(0.916290731874155, rel=1e-12, abs=0.0)
    assert loss > 2 * LN2 * 0.5 * (1 + 0.3)
    assert drawn_slope(1, 2 * LN2, 1.0, 1.0) * 0.5 >= loss


def test_a_last_short_window_with_its_own_width_breaks_the_theorem() -> None:
    masses = oracle.geometric_law(HALF, 4)
    width, thresholds = 2, 5
    allowed = 1 + (1 / HALF - 1) / width  # e^e1
    steps = {}
    for own_width in (False, True):
        largest = Fraction(0)
        for x in range(thresholds):
            for first, second in ((x, x + 1), (x + 1, x)):
                p = oracle.ramp_view(masses, first, width, thresholds, own_width=own_width)
                q = oracle.ramp_view(masses, second, width, thresholds, own_width=own_width)
                inner = [key for key in p if all(1 <= count <= 8 for count in key)]
                largest = max(largest, *(p[key] / q[key] for key in inner))
        steps[own_width] = largest
    assert steps[False] == allowed
    assert steps[True] > allowed * Fraction(5, 4)


def test_random_ramps_stay_below_the_lemma() -> None:
    law, masses = small_law(LN2, 4)
    width, thresholds = 2, 5
    step = ramp_step_loss(law.rate, width)
    profile = RampDummies(law, width, 1.0, 3)
    for x in range(thresholds + 1):
        for y in range(thresholds + 1):
            if x == y:
                continue
            loss = step * abs(x - y)
            true = oracle.divergence(
                oracle.ramp_view(masses, x, width, thresholds, own_width=False),
                oracle.ramp_view(masses, y, width, thresholds, own_width=False),
                Fraction(math.exp(loss * (1 + 1e-12))),
            )
            assert float(true) <= profile.delta(loss * (1 + 1e-12), float(abs(x - y)))


def test_independent_noise_on_two_parts_costs_twice() -> None:
    """Complementary dummies: one count changes, not two, at the same rate."""
    law = exact(1 / 8, 109)
    assert one_person_delta(law, 1, 1 / 8 * (1 + 1e-12)) < 1e-6
    assert one_person_delta(law, 2, 1 / 8) > 0.01


def test_both_directions_agree_without_symmetry() -> None:
    """Because the parts may be exchanged: true for any law of independent dummies."""
    masses = [Fraction(5, 12), Fraction(4, 12), Fraction(2, 12), Fraction(1, 12)]
    piles = [[0, 1, 2]]
    first, second = (oracle.view(masses, piles, [x]) for x in (0, 1))
    for factor in (Fraction(1), Fraction(3, 2), Fraction(4)):
        assert oracle.divergence(first, second, factor) == oracle.divergence(second, first, factor)
    first, second = (oracle.view(masses, [[0, 1]], [x]) for x in (0, 1))
    assert oracle.divergence(first, second, Fraction(2)) != oracle.divergence(
        second, first, Fraction(2)
    )


# Profiles


def test_graded_profiles_are_upper_bounds_below_their_loss() -> None:
    """People together at a smaller epsilon than the largest loss, against the whole view."""
    law, masses = small_law(LN2, 3)
    profile = LinearDummies(law, 2.0, 2)
    for epsilon in (0.0, 0.4, 1.0, 2.0):
        for moved in (1, 2):
            first = oracle.view(masses, [[0, 1, 2]], [0] * moved)
            second = oracle.view(masses, [[0, 1, 2]], [1] * moved)
            true = oracle.divergence(first, second, Fraction(math.exp(epsilon)))
            assert float(true) <= profile.delta(epsilon, float(moved)) + 1e-15


def test_nothing_is_hidden_without_dummies() -> None:
    law = DummyLaw.geometric(0.5, 0)
    assert one_person_delta(law, 2, 1.0) == 1.0
    assert together_delta(law, 1, 2) == 1.0
    assert extension_delta(law, 1.0, 1) == 1.0
    assert not LinearDummies(law, 2.0, 2).covers(1.0, 1e-6, 1.0)
    assert one_person_delta(law, 0, 0.0) == 0.0


def test_rounds_are_further_piles() -> None:
    law = DummyLaw.geometric(1 / 8 - 1e-9, 105)
    two_rounds = OnePersonDummies(law, lambda _: 4, rounds=2)
    assert two_rounds.delta(1.0, 1.0) == one_person_delta(law, 8, 1.0)
    linear = LinearDummies(law, 2.0, 2, rounds=2)
    assert linear.loss(1.0) == pytest.approx(4 / 8, rel=1e-6, abs=0.0)
    assert linear.ends(1.0) == pytest.approx(2 * together_delta(law, 1, 2), rel=1e-12, abs=0.0)


def test_drawn_items_are_a_profile() -> None:
    law = DummyLaw.geometric(0.02, 900)
    profile = DrawnDummies(law, 2.0, 2, largest=2, parts=3, draws=4)
    assert profile.loss(1.0) == pytest.approx(4 * math.exp(0.04) * 0.04, rel=1e-6, abs=0.0)
    assert 0.0 < profile.ends(0.5) < 1e-5
    assert profile.ends(0.0) == 0.0


@pytest.mark.parametrize("bad", [-1, 1.5, True])
def test_bad_numbers_are_rejected(bad: Any) -> None:
    with pytest.raises(InputError):
        one_person_delta(DummyLaw.geometric(0.5, 3), bad, 1.0)


def test_many_counts_are_computed_by_logarithms_of_gamma_functions() -> None:
    law = exact(0.001, 40)
    few = one_person_delta(law, 256, 0.01)
    more = one_person_delta(law, 257, 0.01)
    assert few < more < few * 1.01 or more == 1.0


def test_dummies_are_drawn_by_the_law_that_is_accounted() -> None:
    """Chi-square of two hundred thousand draws against the weights."""
    table = DyadicTable.bounded_geometric(0.5, 6)
    drawn = table.draw(200_000, Randomness.seeded(11)) + 6
    observed = np.bincount(drawn, minlength=13)
    expected = np.array([float(mass) for mass in oracle.table_law(table.weights)]) * 200_000
    assert float(((observed - expected) ** 2 / expected).sum()) < 40.0
