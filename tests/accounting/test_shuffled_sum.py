"""Profiles of noisy sums: printed values, 50-digit lower bounds, wrappers by brute force."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from tests.oracles import sgdl
from tests.oracles.law_moments import mean_absolute
from tests.tables import check_all

from metricshuffle.accounting.sums.additive_noise import (
    AdditiveNoise,
    Clamped,
    QuantisedProfile,
    coarse_slope,
    shift_delta,
)
from metricshuffle.accounting.sums.planar_noise import planar_shift_delta
from metricshuffle.errors import InputError
from metricshuffle.noise.polya import Geometric, Polya
from metricshuffle.noise.symmetric_pmf import SymmetricLaw
from metricshuffle.privacy.profile import Shape

SHAPES: tuple[Shape, ...] = ("linear", "flat")
GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden" / "sums.json").read_text(encoding="utf-8")
)


def polya(shape: Fraction | float | str, rate: float) -> AdditiveNoise:
    return AdditiveNoise(Polya(Fraction(shape), rate))


# Printed values


@check_all("row", GOLDEN["deltas"])
def test_golden_deltas(row: dict[str, Any]) -> None:
    assert polya(row["shape"], row["rate"]).delta(row["epsilon"], row["distance"]) == pytest.approx(
        row["value"], rel=1e-9
    )


@check_all("row", GOLDEN["epsilons"])
def test_golden_epsilons(row: dict[str, Any]) -> None:
    assert polya(row["shape"], row["rate"]).epsilon(row["delta"], row["distance"]) == pytest.approx(
        row["value"], rel=1e-9
    )


@check_all("row", GOLDEN["slopes"])
def test_table_of_exact_slopes(row: dict[str, Any]) -> None:
    profile = polya(row["users"], row["rate"])
    found = [profile.epsilon(5e-5, distance) / distance for distance in GOLDEN["slope_distances"]]
    assert found == pytest.approx(row["slopes"], abs=5.1e-6)
    assert found == sorted(found)
    first = row["first_false"]
    assert profile.epsilon(5e-5, first) > row["published"] * first
    assert profile.epsilon(5e-5, first - 1) <= row["published"] * (first - 1)


@check_all("row", GOLDEN["calibrated_rates"])
def test_calibrated_rates_pass_just_below_and_fail_just_above(row: dict[str, Any]) -> None:
    def kept(rate: float) -> bool:
        return polya(row["shape"], rate).covers(row["epsilon"], row["delta"], row["distance"])

    assert kept(row["value"] * (1 - 1e-9))
    assert not kept(row["value"] * (1 + 1e-9))
    assert not kept(row["value"] * 1.001)


@check_all("row", GOLDEN["family"])
def test_design_family_between_polya_and_geometric_shares(row: dict[str, Any]) -> None:
    share = Polya(Fraction(row["shape"], 1000), row["rate"])
    assert mean_absolute(share.summed(1000).law(-60.0)) == pytest.approx(
        row["mean_absolute"], abs=0.0051
    )
    assert share.pure(1) == pytest.approx(row["local_1"], abs=5.2e-4)
    assert share.pure(10) / 10 == pytest.approx(row["local_10"], abs=5.2e-4)


# The truth, from below


@pytest.mark.parametrize(
    ("epsilon", "distance", "printed"), [(0.5, 1, 0.01402), (1.5, 10, 0.12476)]
)
def test_noise_that_is_not_log_concave_is_not_summed_over_a_half_line(
    epsilon: float, distance: int, printed: float
) -> None:
    found = polya(Fraction(1, 2), 0.1).delta(epsilon, distance)
    truth = sgdl.delta(sgdl.masses(0.5, 0.1, 600), epsilon, distance)
    assert found == pytest.approx(printed, abs=5.1e-6)
    assert truth <= found <= truth * (1 + 1e-9)


def sandwiched(
    shape: float, rate: float, distances: list[int], fractions: list[float], radius: int
) -> Iterator[tuple[mpf, float]]:
    law = sgdl.masses(shape, rate, radius)
    profile = polya(shape, rate)
    for distance, fraction in itertools.product(distances, fractions):
        epsilon = fraction * profile.pure(distance)
        yield sgdl.delta(law, epsilon, distance), profile.delta(epsilon, distance)


@pytest.mark.parametrize(
    ("shape", "rate", "radius"),
    [
        (1.0, 0.5, 200),
        (4.0, 1.0, 130),
        (150.0, 2.0, 130),
        (1e-9, 1.0, 90),
        (math.nextafter(1.0, 0.0), 0.7, 150),
        (math.nextafter(1.0, 2.0), 0.7, 150),
        (0.37, 3.0, 60),
        (2.5, 50.0, 20),
    ],
)
def test_delta_is_never_below_the_truth_and_hardly_above(
    shape: float, rate: float, radius: int
) -> None:
    for truth, found in sandwiched(shape, rate, [1, 2, 9], [0.0, 0.11, 0.5], radius):
        assert truth <= found
        if truth > 1e-25:
            assert found <= truth * (1 + 1e-9)


@pytest.mark.slow
def test_delta_is_never_below_the_truth_for_random_laws() -> None:
    rng = random.Random(17)
    for _ in range(200):
        shape = math.exp(rng.uniform(math.log(1e-9), math.log(1000)))
        rate = math.exp(rng.uniform(math.log(0.1), math.log(50)))
        deviation = math.sqrt(Polya(Fraction(shape), rate).variance())
        if deviation < 60:
            distances = [1, rng.randint(2, 10 + int(5 * deviation))]
            fractions = [0.0, rng.random(), rng.random() ** 3, 1 - 10 ** rng.uniform(-12, -1)]
            for truth, found in sandwiched(
                shape,
                rate,
                distances,
                fractions,
                int(15 * deviation + 60 / rate) + 2 * distances[1] + 20,
            ):
                assert truth <= found


def test_large_windows_are_exact_too() -> None:
    # More than 256 cells between threshold and shifted threshold: the difference of two tails.
    for truth, found in sandwiched(2.0, 0.02, [300, 700], [0.0, 0.3], 2600):
        assert truth <= found <= truth * (1 + 1e-9)


@pytest.mark.parametrize(
    ("shape", "rate", "epsilon", "distance"),
    [(1, 10.0, 722.7181004063311, 75), (1, 1.0, 740.0, 744), (1, 1.0, 1500.0, 1507)],
)
def test_where_the_shifted_masses_underflow(
    shape: int, rate: float, epsilon: float, distance: int
) -> None:
    with mpmath.workdps(50):
        p = mpmath.exp(-mpf(rate))
        law = [(1 - p) / (1 + p) * p**z for z in range(distance + 120)]
        truth = sgdl.delta(law, epsilon, distance)
    found = polya(shape, rate).delta(epsilon, distance)
    assert truth <= found <= truth * (1 + 1e-9)


def test_epsilon_beyond_seven_hundred_for_convex_noise() -> None:
    law = sgdl.masses(0.9, 2.0, 600)
    truth = sgdl.delta(law, 790.0, 396)
    found = polya(0.9, 2.0).delta(790.0, 396)
    assert 0.01 < truth <= found <= truth * (1 + 1e-9)


def test_epsilon_is_never_below_the_truth() -> None:
    for shape, rate, delta, distance in [
        (30.0, 1.0, 1e-6, 3),
        (0.4, 1.5, 0.01, 2),
        (1.0, 0.5, 1e-12, 4),
    ]:
        found = polya(shape, rate).epsilon(delta, distance)
        law = sgdl.masses(shape, rate, 150)
        assert (
            sgdl.delta(law, found * (1 - 1e-8), distance)
            > delta
            >= sgdl.delta(law, found, distance)
        )


def test_tiny_deltas_are_found_in_deeper_tables() -> None:
    law = sgdl.masses(20.0, 1.0, 420)
    profile = polya(20, 1.0)
    for epsilon in (15.0, 18.0, 18.5):
        truth = sgdl.delta(law, epsilon, 20)
        found = profile.delta(epsilon, 20)
        assert truth <= found <= truth * (1 + 1e-6)
    assert truth < 1e-80


# Corners


@check_all("users", [1, 2, 3, 4])
def test_a_handful_of_users(users: int) -> None:
    found = polya(users, 0.5).epsilon(1e-6, 1)
    assert 0.3 < found <= math.nextafter(0.5, 1.0)
    assert found == pytest.approx(0.5, rel=1e-5) or users > 1


def test_distances_are_whole_steps() -> None:
    profile = polya(10, 0.5)
    assert profile.delta(0.1, 0.0) == 0.0
    assert profile.delta(0.1, 0.99) == 0.0
    assert profile.delta(0.1, 3.99) == profile.delta(0.1, 3)
    assert profile.pure(2.5) == profile.pure(2)


def test_nothing_that_is_not_a_number_is_small() -> None:
    profile = polya(10, 0.5)
    for wrong in (math.nan, -1.0):
        with pytest.raises(InputError, match="epsilon"):
            profile.delta(wrong, 1)
        for shape in SHAPES:
            with pytest.raises(InputError, match="epsilon"):
                profile.covers(wrong, 1e-6, 5, shape)
        with pytest.raises(InputError, match="distance"):
            profile.delta(1.0, wrong)
    with pytest.raises(InputError, match="below"):
        profile.epsilon(1e-300, 1)
    assert not profile.covers(0.1, math.nan, 1)
    assert not profile.covers(0.49, 1e-300, 1)


def test_an_honest_fraction_below_one_raises_the_epsilon_of_polya_shares() -> None:
    share = Polya(Fraction(1, 10), 0.1)
    found = [AdditiveNoise(share.summed(honest)).epsilon(0.0, 1) for honest in (10, 9, 5)]
    assert found == pytest.approx([0.1, 0.1458574, 0.6060], rel=1e-4)
    assert found == sorted(found)
    # Shares sized for the honest minimum keep it: more shape is more noise.
    assert AdditiveNoise(Polya(Fraction(1, 9), 0.1).summed(10)).epsilon(0.0, 1) <= 0.1 * (1 + 1e-15)


# Wrappers


@dataclass(frozen=True)
class BoundedNoise:
    """The sum of `count` draws from given masses on -c..c, convolved in plain floats."""

    masses: tuple[float, ...]
    count: int
    log_concave: bool = False

    def pure(self, distance: int) -> float:
        return 0.0 if distance == 0 else math.inf

    def full(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        one = np.array([*self.masses[:0:-1], *self.masses])
        total = one
        for _ in range(self.count - 1):
            total = np.convolve(total, one)
        return total

    def law(self, log_tail: float, reach: int = 0) -> SymmetricLaw:
        whole = self.full()
        log_mass = np.log(whole[len(whole) // 2 :])
        return SymmetricLaw(log_mass, np.full(len(log_mass), 1e-13), 0.0, self.log_concave, False)


def truncated_geometric(rate: float, radius: int) -> tuple[float, ...]:
    weights = np.exp(-rate * np.arange(radius + 1))
    return tuple(weights / (2 * weights.sum() - 1))


def brute(left: dict[Any, float], right: dict[Any, float], epsilon: float) -> float:
    return math.fsum(
        max(0.0, mass - math.exp(epsilon) * right.get(key, 0.0)) for key, mass in left.items()
    )


def test_bounded_noise_has_no_pure_epsilon_and_both_summations_agree() -> None:
    masses = truncated_geometric(0.7, 4)
    concave, any_law = (AdditiveNoise(BoundedNoise(masses, 3, flag)) for flag in (True, False))
    whole = BoundedNoise(masses, 3).full()
    law = {z - 12: float(mass) for z, mass in enumerate(whole)}
    for epsilon, steps in itertools.product((0.0, 0.3, 2.0, 40.0, 600.0, math.inf), (1, 3, 30)):
        truth = brute(law, {z + steps: mass for z, mass in law.items()}, min(epsilon, 700.0))
        for profile in (concave, any_law):
            assert (
                truth * (1 - 1e-13) <= profile.delta(epsilon, steps) <= truth * (1 + 1e-9) + 1e-280
            )
    assert concave.epsilon(0.0, 1) == math.inf
    assert concave.epsilon(1e-30, 1) == math.inf


def clamped_law(inputs: tuple[int, ...], rate: float, top: int, radius: int) -> dict[int, float]:
    """Exact law of sum clamp(x_i + N_i, -radius, top + radius), N_i discrete Laplace."""
    p = math.exp(-rate)
    total = {0: 1.0}
    for x in inputs:
        one: dict[int, float] = {}
        for z in range(-200, 201):
            y = min(max(x + z, -radius), top + radius)
            one[y] = one.get(y, 0.0) + (1 - p) / (1 + p) * p ** abs(z)
        joined: dict[int, float] = {}
        for (a, pa), (b, pb) in itertools.product(total.items(), one.items()):
            joined[a + b] = joined.get(a + b, 0.0) + pa * pb
        total = joined
    return total


@pytest.mark.parametrize("log_concave", [True, False])
def test_the_mass_outside_of_a_table_is_added(log_concave: bool) -> None:
    rate = 0.5
    radius = 6
    p = math.exp(-rate)
    beyond = 2 * p ** (radius + 1) / (1 + p)
    log_mass = math.log((1 - p) / (1 + p)) - rate * np.arange(radius + 1, dtype=np.float64)
    law = SymmetricLaw(log_mass, np.full(radius + 1, 1e-14), beyond, log_concave, False)
    for epsilon, steps in [(0.0, 1), (0.4, 1), (0.0, 40), (3.0, 40)]:
        truth = sgdl.delta(
            [mpf((1 - p) / (1 + p)) * mpf(p) ** z for z in range(200)], epsilon, steps
        )
        assert truth <= shift_delta(law, epsilon, steps) <= truth + 2 * beyond
    if log_concave:
        truth = sgdl.planar_delta(
            [mpf((1 - p) / (1 + p)) * mpf(p) ** z for z in range(60)], 0.0, 20, 20
        )
        assert truth <= planar_shift_delta(law, 0.0, 20, 20)


def test_clamping_never_leaks_more_than_stated() -> None:
    rate = 0.6
    top = 2
    radius = 3
    p = math.exp(-rate)
    beyond = 2 * p ** (radius + 1) / (1 + p)
    truncated = AdditiveNoise(BoundedNoise(truncated_geometric(rate, radius), 2, True))
    profile = Clamped(truncated, 1 - (1 - beyond) ** 2)
    laws = {
        x: clamped_law(x, rate, top, radius) for x in itertools.product(range(top + 1), repeat=2)
    }
    for (x, left), (y, right) in itertools.product(laws.items(), repeat=2):
        distance = abs(x[0] - y[0]) + abs(x[1] - y[1])
        for epsilon in (0.0, 0.4, 1.0, 3.0):
            assert brute(left, right, epsilon) <= profile.delta(epsilon, distance) + 1e-13
    assert profile.delta(1.0, 0) == 0.0
    assert profile.pure(1) == math.inf
    # Nothing below the chance of clamping can be promised, however large epsilon is; above it
    # something can.
    assert not profile.covers(500.0, profile.clamp_probability, 1)
    level = profile.delta(1.0, 2)
    assert profile.covers(1.0, level * (1 + 1e-9), 2, "flat")
    assert not profile.covers(1.0, level * (1 - 1e-9), 2, "flat")


def rounded_law(x: int, granularity: int, law: list[Any]) -> dict[int, Any]:
    """Exact law of floor(x/Q + U) + Z."""
    radius = len(law) - 1
    cell, rest = divmod(x, granularity)
    up = mpf(rest) / granularity
    value = {cell + z: (1 - up) * law[abs(z)] for z in range(-radius, radius + 1)}
    for z in range(-radius, radius + 1):
        value[cell + 1 + z] = value.get(cell + 1 + z, mpf(0)) + up * law[abs(z)]
    return value


def test_rounding_first_for_one_mover_at_every_residue() -> None:
    granularity = 5
    shape = 6.0
    rate = 0.8
    law = sgdl.masses(shape, rate, 70)
    profile = QuantisedProfile(polya(shape, rate), granularity)
    for distance, epsilon in itertools.product((1, 4, 5, 7, 11), (0.0, 0.2, 1.1)):
        found = profile.delta(epsilon, distance)
        for x in range(granularity):
            here = rounded_law(x, granularity, law)
            there = rounded_law(x + distance, granularity, law)
            factor = mpmath.exp(mpf(epsilon))
            truths = [
                mpmath.fsum(max(mpf(0), a[z] - factor * b[z]) for z in range(-50, 60))
                for a, b in ((here, there), (there, here))
            ]
            assert max(truths) <= found
            if x == 0 and distance % granularity == 0:
                assert found <= max(truths) * (1 + 1e-9)


@check_all("granularity", [4, 10, 50])
def test_the_slope_of_coarse_noise_hides_every_residue_and_is_tight(granularity: int) -> None:
    epsilon = 0.1
    slope = coarse_slope(epsilon, granularity)
    profile = QuantisedProfile(AdditiveNoise(Geometric(slope)), granularity)
    worst = max(profile.pure(distance) / distance for distance in range(1, 3 * granularity + 1))
    assert worst == pytest.approx(epsilon, rel=1e-12)
    assert profile.covers(epsilon * 3 * granularity, 0.0, 3 * granularity)
    assert not QuantisedProfile(AdditiveNoise(Geometric(slope * 1.001)), granularity).covers(
        epsilon * granularity, 0.0, granularity
    )
    # By brute force: the largest log ratio over outputs and residues.
    with mpmath.workdps(40):
        p = mpmath.exp(-mpf(slope))
        law = [p**z for z in range(12)]
        for x, distance in itertools.product(
            (0, 1, granularity // 2, granularity - 1),
            (1, 2, granularity - 1, granularity, granularity + 1),
        ):
            here = rounded_law(x, granularity, law)
            there = rounded_law(x + distance, granularity, law)
            largest = max(abs(mpmath.log(here[z] / there[z])) for z in range(-8, 9))
            assert largest <= profile.pure(distance)
            assert largest <= mpf(epsilon) * distance


@check_all("row", GOLDEN["coarse_slopes"])
def test_golden_coarse_slopes(row: dict[str, Any]) -> None:
    assert coarse_slope(row["epsilon"], row["granularity"]) == pytest.approx(row["value"], rel=1e-9)


@check_all(("granularity", "leak"), [(10, 0.1586), (50, 1.373)])
def test_granularity_times_epsilon_would_leak(granularity: int, leak: float) -> None:
    naive = QuantisedProfile(AdditiveNoise(Geometric(0.1 * granularity)), granularity)
    assert naive.pure(1) == pytest.approx(leak, abs=5.1e-4)
    assert not naive.covers(0.1 * granularity, 0.0, granularity)


def test_rounding_first_protects_one_person_not_ten() -> None:
    """Ten people moving by one step each are not hidden by the profile at distance ten."""
    law = sgdl.masses(30.0, 0.5, 120)
    moved = {
        z: mpmath.fsum(
            mpf(math.comb(10, k)) * 9 ** (10 - k) / mpf(10) ** 10 * law[abs(z - k)]
            for k in range(11)
        )
        for z in range(-90, 91)
    }
    truth = mpmath.fsum(
        max(mpf(0), mass - mpmath.exp(mpf(0.2)) * law[abs(z)]) for z, mass in moved.items()
    )
    found = QuantisedProfile(polya(30, 0.5), 10).delta(0.2, 10)
    assert float(truth) == pytest.approx(1.84e-5, rel=3e-3)
    assert found == pytest.approx(4.6e-6, rel=3e-3)


def test_quantised_corners() -> None:
    assert QuantisedProfile(AdditiveNoise(Geometric(1000.0)), 10).pure(13) >= 2000.0
    bounded = QuantisedProfile(
        AdditiveNoise(BoundedNoise(truncated_geometric(0.7, 4), 3, True)), 10
    )
    for distance in (3, 13):
        assert (
            0.0
            < bounded.delta(math.inf, distance)
            == bounded.delta(800.0, distance)
            <= bounded.delta(690.0, distance)
        )
    assert QuantisedProfile(AdditiveNoise(Geometric(90.0)), 10).delta(800.0, 3) == 0.0
    plain = polya(10, 0.5)
    assert QuantisedProfile(plain, 1).delta(0.2, 3) == pytest.approx(plain.delta(0.2, 3), rel=1e-14)
    for wrong in (0, -1, 2.5):
        with pytest.raises(InputError, match="granularity"):
            QuantisedProfile(plain, wrong)  # type: ignore[arg-type]
