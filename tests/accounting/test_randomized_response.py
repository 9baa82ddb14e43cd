"""RR-Shuffle: the worst data set by brute force where possible."""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.accounting.sums import flipped_bit_count
from metricshuffle.accounting.sums.flipped_bit_count import (
    RandomizedResponseProfile,
    count_interval,
    local_profile,
    unpermuted_local_delta,
)
from metricshuffle.errors import InputError, NotCertified


def count_law(ones: int, zeros: int, flip: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """One bit after the other: an independent Poisson-binomial."""
    law = np.ones(1)
    for stays in [flip] * ones + [1.0 - flip] * zeros:
        law = np.convolve(law, [stays, 1.0 - stays])
    return law


def brute_force(bits: int, flip: float, epsilon: float, distance: int) -> float:
    """max over T, both directions and every smaller distance."""
    worst = 0.0
    for d in range(1, min(distance, bits) + 1):
        for t in range(bits - d + 1):
            p = count_law(t + d, bits - t - d, flip)
            q = count_law(t, bits - t, flip)
            for a, b in ((p, q), (q, p)):
                worst = max(worst, math.fsum(np.maximum(0.0, a - math.exp(epsilon) * b)))
    return worst


@check_all("bits", [1, 2, 4, 7, 12])
@check_all("flip", [0.01, 0.15, 0.25, 0.45])
def test_small_counts_equal_brute_force(bits: int, flip: float) -> None:
    profile = RandomizedResponseProfile(bits, flip)
    for distance in {1, 2, bits // 2, bits} - {0}:
        for epsilon in (0.0, 0.1, 0.7, 2.0):
            truth = brute_force(bits, flip, epsilon, distance)
            bound = profile.delta(epsilon, distance)
            assert truth - 1e-13 <= bound
            assert bound <= truth * (1.0 + 1e-9) + 1e-13


def exact_worst(bits: int, flip: float, epsilon: float, distance: int) -> mpmath.mpf:
    """Max over T and both directions in integers.

    Numerators over 2^(53 bits) or so, e^epsilon to 600 bits.
    """
    part, whole = flip.as_integer_ratio()

    def law(ones: int) -> list[int]:
        masses = [1]
        for stays in [part] * ones + [whole - part] * (bits - ones):
            masses = [
                stays * a + (whole - stays) * b
                for a, b in zip([*masses, 0], [0, *masses], strict=True)
            ]
        return masses

    with mpmath.workprec(700):
        growth = int(mpmath.exp(mpmath.mpf(epsilon)) * 2**600)
        pairs = [(law(t + distance), law(t)) for t in range(bits - distance + 1)]
        sticks = [
            sum(max(0, (a << 600) - growth * b) for a, b in zip(p, q, strict=True))
            for x, y in pairs
            for p, q in ((x, y), (y, x))
        ]
        return mpmath.mpf(max(sticks)) / (whole**bits << 600)


@pytest.mark.parametrize("seed", range(12))
def test_every_route_is_at_least_the_exact_worst(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """One by one, in blocks, with far laws and in chunks, without any tolerance."""
    rng = np.random.default_rng(seed)
    bits = int(rng.integers(2, 10))
    flip = float(
        [0.5 - 10.0 ** -rng.uniform(1, 15), 10.0 ** -rng.uniform(1, 11), rng.uniform(0.01, 0.49)][
            seed % 3
        ]
    )
    distance = int(rng.integers(1, bits + 1))
    profile = RandomizedResponseProfile(bits, flip, most_blocks=int(rng.integers(1, 4)))
    for share in (0.0, 0.3 * rng.random(), 1.0 - 1e-9):
        rate = share * profile.pure(distance) / distance
        truth = exact_worst(bits, flip, rate * distance, distance)
        assert profile.delta(rate * distance, distance) >= truth
        with monkeypatch.context() as patch:
            patch.setattr(flipped_bit_count, "MAX_EXACT_DATA_SETS", 1)
            patch.setattr(flipped_bit_count, "MAX_SINGLE_BITS", seed % 2)
            profile._laws.clear()
            assert profile.delta(rate * distance, distance) >= truth
            profile._laws.clear()
            assert profile._chunk(rate, 1, distance)[-1] >= truth
            smaller = int(rng.integers(1, distance + 1))
            assert profile._chunk(rate, 1, distance)[smaller - 1] >= exact_worst(
                bits, flip, rate * smaller, smaller
            )


def test_no_ones_at_all_is_not_the_worst_data_set() -> None:
    p = count_law(1, 3, 0.25)
    q = count_law(0, 4, 0.25)
    assert math.fsum(np.maximum(0.0, p - q)) == 27 / 128
    assert RandomizedResponseProfile(4, 0.25).delta(0.0, 1) == pytest.approx(33 / 128, rel=1e-12)


@pytest.mark.parametrize(
    ("bits", "flip", "delta", "distance", "at_no_ones", "known"),
    [
        (50, 0.15, 0.01, 1, 0.52214, 0.52504),
        (5000, 0.05, 1e-4, 1, 0.159574, 0.159627),
        (400, 0.4, 1e-6, 5, 0.415967, 0.416158),
    ],
)
def test_known_epsilons_are_not_undercut(
    bits: int, flip: float, delta: float, distance: int, at_no_ones: float, known: float
) -> None:
    found = RandomizedResponseProfile(bits, flip).epsilon(delta, distance)
    assert at_no_ones < known
    assert known - 1e-5 < found < known * 1.002


@pytest.mark.parametrize(
    ("bits", "flip", "lower"),
    [(20_000, 0.05, 0.0700), (20_000, 0.25, 0.0153), (50_000, 0.01, 0.1139)],
)
def test_lower_bounds_at_no_ones(bits: int, flip: float, lower: float) -> None:
    found = RandomizedResponseProfile(bits, flip).epsilon(1e-4, 1)
    assert lower - 5e-5 < found < lower * 1.02


def test_the_published_theorem_fails_from_distance_559() -> None:
    """m = 20000, p = 0.1: it claims 0.4339 per step at delta 1e-4.

    At d = 558 the data set without ones still agrees.
    """
    claimed = 0.433916373117
    assert RandomizedResponseProfile(20_000, 0.05).delta(claimed * 559, 559) > 1.036e-4 * (1 - 1e-3)


@pytest.mark.parametrize(
    ("bits", "flip", "distance", "epsilon"),
    [(700, 0.1, 1, 0.5), (700, 0.05, 100, 20.0), (1500, 0.3, 7, 0.8), (60_000, 0.05, 1, 0.05)],
)
def test_blocks_stay_close_to_the_worst_data_set(
    bits: int, flip: float, distance: int, epsilon: float
) -> None:
    profile = RandomizedResponseProfile(bits, flip)
    bound = profile.delta(epsilon, distance)
    largest = (bits - distance) // 2
    few = {0, 1, 2, 3, 5, 8, 13, 21, 34, 55, largest}
    singles = range(largest + 1) if bits < 1000 else few | set(range(0, largest, largest // 40))
    worst = max(profile._pair(distance, t, t).delta(epsilon) for t in singles)
    assert worst * (1.0 - 1e-9) <= bound <= 1.05 * worst


@check_all("blocks", [1, 3, 20])
def test_every_block_dominates_its_data_sets(blocks: int) -> None:
    profile = RandomizedResponseProfile(60, 0.2)
    for distance in (1, 4):
        largest = 60 - distance
        edges = np.linspace(0, largest + 1, blocks + 1).astype(int)
        for first, last in zip(edges[:-1], edges[1:] - 1, strict=True):
            bound = profile._pair(distance, int(first), int(last)).delta(0.3)
            inside = [
                profile._pair(distance, t, t).delta(0.3) for t in range(int(first), int(last) + 1)
            ]
            assert max(inside) <= bound * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("bits", "flip", "distance"), [(50, 0.1, 30), (3000, 0.05, 40), (20_000, 0.05, 150)]
)
def test_all_distances_at_once(bits: int, flip: float, distance: int) -> None:
    profile = RandomizedResponseProfile(bits, flip)
    rate = 0.7 * profile.epsilon(1e-4, distance) / distance
    deltas = profile.deltas(rate, distance)
    assert len(deltas) == distance
    for d in {1, 2, distance // 2, distance}:
        single = profile.delta(rate * d, d)
        exact = max(profile._pair(d, t, t).delta(rate * d) for t in (0, 1, 5, (bits - d) // 2))
        assert exact * (1.0 - 1e-9) <= deltas[d - 1] <= 1.15 * single


@pytest.mark.parametrize("bits", [66, 67, 90])
def test_bits_set_aside_only_add_to_a_curve(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        flipped_bit_count, "MANY_BITS", 1
    )  # as of very many bits, where it costs nothing
    epsilons = np.array([0.0, 0.2, 1.0])
    for distance in (1, 2, 5):
        true = [brute_force(bits, 0.2, float(epsilon), distance) for epsilon in epsilons]
        bound = RandomizedResponseProfile(bits, 0.2).curve(epsilons, distance)
        assert (true <= bound * (1.0 + 1e-12)).all()


def test_bits_set_aside_make_no_difference_to_very_many() -> None:
    profile = RandomizedResponseProfile(flipped_bit_count.MANY_BITS, 0.05, most_blocks=16)
    epsilons = np.array([0.01, 0.05, 0.1])
    for distance in (1, 7, 64):
        single = [profile.delta(float(epsilon), distance) for epsilon in epsilons]
        assert profile.curve(epsilons, distance) == pytest.approx(single, rel=2e-3)
    assert len(profile._others) == 16, "other distances share the laws of the others"


def test_delta_falls_in_epsilon_and_rises_in_distance() -> None:
    profile = RandomizedResponseProfile(5000, 0.05)
    falling = [profile.delta(epsilon, 3) for epsilon in np.linspace(0.0, 3.0, 31)]
    assert all(a >= b for a, b in pairwise(falling))
    assert falling[0] > falling[10] > falling[20] > 0.0
    rising = [profile.delta(0.5, distance) for distance in (0, 0.9, 1, 2, 3, 10, 64, 65, 200)]
    assert rising[:2] == [0.0, 0.0]
    assert all(a <= b for a, b in pairwise(rising))


def test_pure_epsilon_is_attained_and_never_exceeded() -> None:
    profile = RandomizedResponseProfile(6, 0.2)
    assert profile.pure(2) == pytest.approx(2 * math.log(4.0), rel=1e-12)
    assert profile.delta(profile.pure(2), 2) == 0.0
    assert profile.delta(profile.pure(2) - 1e-6, 2) > 0.0
    assert profile.pure(100) == profile.pure(6)
    assert profile.epsilon(0.0, 3) == profile.pure(3)


def test_near_and_far_routes_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = RandomizedResponseProfile(2000, 0.05)
    near = profile._near(40, 100, 150, 40)
    far = profile._far(40, 100, 150)
    for epsilon in (0.5, 5.0):
        assert near.delta(epsilon) == pytest.approx(far.delta(epsilon), rel=1e-8)
    assert profile._pair(40, 100, 150) is profile._pair(40, 100, 150)
    monkeypatch.setattr(flipped_bit_count, "CACHE_CELLS", 0)
    profile._pair(40, 100, 151)
    assert len(profile._laws) == 1


def test_huge_epsilon_and_tiny_flips_do_not_overflow() -> None:
    profile = RandomizedResponseProfile(10_000, 1e-9)
    assert 0.0 <= profile.delta(600.0, 40) <= 1.0
    assert profile.delta(1e5, 10_000) <= 1.0


def test_many_bits_work_or_are_refused_in_words() -> None:
    assert 0.0 < RandomizedResponseProfile(10**9, 0.001).delta(0.001, 1) < 1.0
    with pytest.raises(NotCertified, match="cells"):
        RandomizedResponseProfile(10**15, 0.25).delta(0.001, 1)


def _published_rr_epsilon(rate: float, delta: float) -> float:
    return math.sqrt(32 * math.log(4 / delta) / (rate - math.sqrt(2 * rate * math.log(2 / delta))))


@pytest.mark.parametrize(
    ("users", "at_delta", "pure", "claimed", "delta_at_claim", "permuted"),
    [
        (30, 0.7061, 0.7211, 0.579, 0.0889, 0.0),
        (50, 1.3971, 1.4097, 0.765, 0.3821, 0.0236),
        (100, 2.2069, 2.2180, 1.128, 0.5986, 0.0744),
    ],
)
def test_visible_positions_break_the_published_local_claim(
    users: int, at_delta: float, pure: float, claimed: float, delta_at_claim: float, permuted: float
) -> None:
    """k = 1000 bits each; p = lambda/(n k), published lambda for epsilon 0.1 at delta 0.01."""
    low = 14 * math.log(400.0)
    high = 1e6
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _published_rr_epsilon(middle, 0.01) > 0.1 else (low, middle)
    flip = 0.5 * high / (users * 1000)
    client = local_profile(1000, flip)
    assert client.pure(1) == pytest.approx(pure, abs=6e-5)
    assert unpermuted_local_delta(flip, client.pure(1)) == 0.0
    assert (
        unpermuted_local_delta(flip, at_delta - 1e-4)
        > 0.01
        > unpermuted_local_delta(flip, at_delta + 1e-4)
    )
    assert unpermuted_local_delta(flip, claimed) == pytest.approx(delta_at_claim, abs=6e-4)
    # after a secret permutation only the count is left
    assert permuted - 5e-5 <= client.epsilon(0.01, 1) <= permuted + 0.01


@pytest.mark.parametrize("flip", [0.05, 0.3])
def test_interval_covers_whatever_the_data(flip: float) -> None:
    bits = 30
    level = 0.9
    intervals = [count_interval(count, bits, flip, level) for count in range(bits + 1)]
    assert intervals[0][0] == 0
    assert intervals[bits][1] == bits
    for ones in range(bits + 1):
        law = count_law(ones, bits - ones, flip)
        covered = math.fsum(
            law[count] for count, (low, high) in enumerate(intervals) if low <= ones <= high
        )
        assert covered >= level
    for count, (low, high) in enumerate(intervals):
        laws = [count_law(ones, bits - ones, flip) for ones in range(bits + 1)]
        kept = [
            ones
            for ones, law in enumerate(laws)
            if min(math.fsum(law[: count + 1]), math.fsum(law[count:])) > 0.5 * (1 - level)
        ]
        # a count no T makes plausible leaves the nearest end
        assert (low, high) == (
            (kept[0], kept[-1]) if kept else (0, 0) if count < bits / 2 else (bits, bits)
        )


def test_interval_of_many_bits_has_the_normal_width() -> None:
    low, high = count_interval(320_000, 10**6, 0.05, 0.95)
    sd = math.sqrt(10**6 * 0.05 * 0.95) / 0.9
    assert low < 300_000 < high
    assert high - low == pytest.approx(2 * 1.959964 * sd, rel=0.01)


def test_wrong_inputs_are_sentences() -> None:
    for bits, flip in ((0, 0.1), (True, 0.1), (10, 0.5), (10, 0.0), (10, math.nan)):
        with pytest.raises(InputError, match=r"bits|flip"):
            RandomizedResponseProfile(bits, flip)
    profile = RandomizedResponseProfile(10, 0.1)
    for epsilon, distance in ((-1.0, 1.0), (math.nan, 1.0), (1.0, -1.0), (1.0, math.inf)):
        with pytest.raises(InputError, match=r"epsilon|distance"):
            profile.delta(epsilon, distance)
    for count, level in ((-1, 0.9), (11, 0.9), (5, 1.0), (5, math.nan)):
        with pytest.raises(InputError, match=r"count|level"):
            count_interval(count, 10, 0.1, level)


@pytest.mark.parametrize(
    ("bits", "flip", "distance", "epsilon"),
    [(40, 0.2, 3, 0.5), (5000, 0.1, 5, 0.4), (200_000, 0.05, 50, 1.0)],
)
def test_the_fewest_ones_are_a_part_of_all_data_sets(
    bits: int, flip: float, distance: int, epsilon: float
) -> None:
    whole = RandomizedResponseProfile(bits, flip)
    part = whole.fewest_ones()
    assert part.bound != whole.bound
    grid = np.linspace(0.0, 2.0 * epsilon, 9)
    for fewer, every in (
        (part.delta(epsilon, distance), whole.delta(epsilon, distance)),
        (part.curve(grid, distance), whole.curve(grid, distance)),
        (part.curves(grid, distance), whole.curves(grid, distance)),
    ):
        assert np.all(np.asarray(fewer) <= np.asarray(every))
    # What a search needs: hardly less, where the worst data set is not among them.
    assert part.delta(epsilon, distance) >= 0.9 * whole.delta(epsilon, distance)


@pytest.mark.parametrize(
    ("bits", "flip", "distance"),
    [(40, 0.2, 3), (300, 0.05, 20), (2_000, 0.3, 100), (900, 0.45, 70)],
)
def test_what_no_ones_at_all_certainly_give_away(bits: int, flip: float, distance: int) -> None:
    """A lower bound within a millionth of the two laws, falling in the flip probability."""
    profile = RandomizedResponseProfile(bits, flip)
    for epsilon in (0.1, 0.5, 2.0):
        p = count_law(distance, bits - distance, flip)
        q = count_law(0, bits, flip)
        exact = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
        below = profile.delta_below(epsilon, distance)
        assert exact * (1.0 - 1e-6) - 1e-12 <= below <= exact * (1.0 + 1e-12) + 1e-15
        assert below <= profile.delta(epsilon, distance)
        assert RandomizedResponseProfile(bits, flip * 1.05).delta_below(epsilon, distance) <= below
