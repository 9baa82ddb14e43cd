"""Certificate of a sum's law at every point, against exact integers and convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.oracles.integer_power import dyadic_geometric, log_masses
from tests.tables import check_all

from metricshuffle.errors import InputError, NotCertified
from metricshuffle.noise import _exponential_tilting, convolution
from metricshuffle.noise.convolution import CertifiedRange, Group, covering_range, sum_law

GEOMETRIC_1 = dyadic_geometric(Fraction(1), 15)
GEOMETRIC_HALF = dyadic_geometric(Fraction(1, 2), 29)


def table(weights: Sequence[int], copies: int, *, symmetric: bool = True) -> Group:
    radius = len(weights) // 2
    return Group(
        copies, -radius, np.array([weight / sum(weights) for weight in weights]), symmetric
    )


def whole(group: Group) -> tuple[int, int]:
    return group.copies * group.start, group.copies * (group.start + len(group.masses) - 1)


def stitched(
    monkeypatch: pytest.MonkeyPatch, groups: Sequence[Group], low: int, high: int
) -> CertifiedRange:
    """The law by FFT, however small the sum is."""
    with monkeypatch.context() as patch:
        patch.setattr(convolution, "MAX_DIRECT_CELLS", 0)
        return sum_law(groups, low, high)


def direct(
    monkeypatch: pytest.MonkeyPatch, groups: Sequence[Group], low: int, high: int
) -> CertifiedRange:
    with monkeypatch.context() as patch:
        patch.setattr(convolution, "MAX_DIRECT_CELLS", 10**7)
        return sum_law(groups, low, high)


def assert_certified(
    law: CertifiedRange, truth: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> None:
    known = np.isfinite(law.log_mass)
    assert np.isfinite(truth[known]).all(), "a mass was claimed where there is none"
    off = np.abs(law.log_mass[known] - truth[known]) - 4e-16 * np.abs(truth[known])
    assert (off <= law.log_error[known]).all()
    assert math.fsum(np.exp(truth[~known])) <= law.outside


@pytest.mark.parametrize(
    ("weights", "copies"),
    [
        (GEOMETRIC_1, 1),
        (GEOMETRIC_1, 2),
        (GEOMETRIC_HALF, 5),
        (GEOMETRIC_HALF, 20),
        (GEOMETRIC_1, 50),
    ],
    ids=["1", "2", "5", "20", "50"],
)
def test_every_point_against_exact_integers(
    monkeypatch: pytest.MonkeyPatch, weights: list[int], copies: int
) -> None:
    group = table(weights, copies)
    truth = log_masses(weights, copies)
    assert_certified(stitched(monkeypatch, [group], *whole(group)), truth)
    law = direct(monkeypatch, [group], *whole(group))
    assert_certified(law, truth)
    # nothing is missing that a double can hold, not even the last points of the support
    assert np.isfinite(law.log_mass[truth > math.log(1e-279)]).all()
    assert law.outside < 1e-270
    assert law.log_error.max() < 1e-11


@pytest.mark.parametrize(
    ("weights", "copies"),
    [
        ([2**64 - 2**20 - 1, 2**20, 1], 40),
        ([1, 2, 3, 0, 0, 2**64 - 6], 30),
        ([2**60, 0, 2**63, 0, 2**64 - 2**60 - 2**63], 40),
    ],
    ids=["skewed", "gap", "sublattice"],
)
def test_awkward_laws_against_exact_integers(
    monkeypatch: pytest.MonkeyPatch, weights: list[int], copies: int
) -> None:
    group = table(weights, copies, symmetric=False)
    truth = log_masses(weights, copies)
    for law in (
        stitched(monkeypatch, [group], *whole(group)),
        direct(monkeypatch, [group], *whole(group)),
    ):
        assert_certified(law, truth)
        assert (
            law.outside < 1e-11
        )  # impossible points between possible ones count as holes in the FFT


@pytest.mark.parametrize("by_fft", [False, True])
@pytest.mark.parametrize(
    ("weights", "copies", "epsilon", "shift", "golden"),
    [
        (GEOMETRIC_1, 50, 0.2, 1, 0.00104056374394),
        (GEOMETRIC_1, 50, 20.0, 50, 0.0107024346326),
        (GEOMETRIC_HALF, 20, 20.0, 50, 1.53593411542e-15),
    ],
)
def test_golden_hockey_sticks(
    monkeypatch: pytest.MonkeyPatch,
    by_fft: bool,
    weights: list[int],
    copies: int,
    epsilon: float,
    shift: int,
    golden: float,
) -> None:
    group = table(weights, copies)
    law = (stitched if by_fft else direct)(monkeypatch, [group], *covering_range([group], -150.0))
    assert law.hockey_stick(epsilon, shift) == pytest.approx(golden, rel=2e-9)
    assert law.hockey_stick(epsilon, -shift) == pytest.approx(golden, rel=2e-9)


def test_nearly_a_sublattice() -> None:
    """Weights 1/4, 2^-60, 1/2, 2^-60, 1/4: odd sums are rare, so one step is nearly visible."""
    group = Group(10_000, -2, np.array([0.25, 2.0**-60, 0.5, 2.0**-60, 0.25]), True)
    law = sum_law([group], *covering_range([group]))
    odd = (np.arange(law.start, law.stop) % 2).astype(bool)
    assert np.exp(law.log_mass[odd] + law.log_error[odd]).sum() <= 1e-12  # the truth is 1.7e-14
    assert np.exp(law.log_mass[~odd]).sum() == pytest.approx(1.0, rel=1e-9)
    assert 2e4 * 2.0**-60 < law.outside < 1e-11
    assert law.hockey_stick(1.0, 1) > 1.0 - 1e-9


def _random_group(rng: np.random.Generator) -> Group:
    size = int(rng.integers(2, 12))
    kind = int(rng.integers(0, 6))
    masses = rng.random(size) ** int(rng.integers(1, 20))
    if kind == 1:
        masses = np.exp(-40.0 * rng.random(size))
    elif kind == 2:
        masses[1::2] *= 2.0**-60
    elif kind == 3:
        masses[1::2] = 0.0
    elif kind == 4:
        masses = 1e-9 * rng.random(size)
        masses[int(rng.integers(0, size))] = 1.0
    elif kind == 5:
        side = np.exp(-3.0 * rng.random() * np.arange(size))
        masses = np.concatenate([side[:0:-1], side])
    return Group(
        int(rng.integers(1, 200)), int(rng.integers(-5, 5)), masses / masses.sum(), kind == 5
    )


@pytest.mark.parametrize("seed", range(16))
def test_stitching_agrees_with_direct_convolution(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    groups = [_random_group(rng) for _ in range(int(rng.integers(1, 4)))]
    low = sum(whole(g)[0] for g in groups)
    high = sum(whole(g)[1] for g in groups)
    if seed % 2:
        low, high = covering_range(groups, -100.0 * float(rng.random()) - 1.0)
    fast = stitched(monkeypatch, groups, low, high)
    slow = direct(monkeypatch, groups, low, high)
    both = np.isfinite(fast.log_mass) & np.isfinite(slow.log_mass)
    assert (
        np.abs(fast.log_mass[both] - slow.log_mass[both])
        <= fast.log_error[both] + slow.log_error[both]
    ).all()
    missing = np.isfinite(slow.log_mass) & ~both
    assert (
        math.fsum(np.exp(slow.log_mass[missing])) + slow.outside * (1.0 - 1e-9)
        <= fast.outside + 1e-270
    )
    invented = np.isfinite(fast.log_mass) & ~both
    assert (np.exp(fast.log_mass[invented]) < 1e-279).all()


@check_all(("copies", "chance"), [(10**6, 1e-6), (10**6, 0.05), (10**9, 0.3), (10**12, 1e-9)])
def test_binomials_of_many_copies(copies: int, chance: float) -> None:
    group = Group(copies, 0, np.array([1.0 - chance, chance]), relative_error=0.0)
    law = sum_law([group], *covering_range([group]))
    assert law.outside <= math.exp(-80.0)
    with mpmath.workdps(40):
        p = mpmath.mpf(chance)
        for i in np.unique(np.linspace(0, len(law.log_mass) - 1, 40).astype(int)):
            k = law.start + int(i)
            truth = (
                mpmath.loggamma(copies + 1)
                - mpmath.loggamma(k + 1)
                - mpmath.loggamma(copies - k + 1)
            )
            truth += k * mpmath.log(p) + (copies - k) * mpmath.log1p(-p)
            assert abs(truth - float(law.log_mass[i])) <= law.log_error[i] < 1e-7


def test_a_million_users_of_a_table_are_certified_tightly() -> None:
    group = table(dyadic_geometric(Fraction(1), 60), 10**6)
    low, high = covering_range([group])
    law = sum_law([group], low, high)
    assert -low == high
    assert np.array_equal(law.log_mass, law.log_mass[::-1])
    assert law.log_error.max() < 2e-10
    assert law.outside <= math.exp(-80.0)
    # total epsilon at distance 10 and delta 1e-6 of the untruncated law (c = 60 cuts less than
    # 1e-25 off)
    assert law.hockey_stick(0.02421783842, 10) == pytest.approx(1e-6, rel=1e-7)


def test_light_shares_take_the_other_route_to_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """n times the off-centre mass is O(1): phi decays slowly, and log phi may come from one FFT."""
    steps = np.arange(1, 401)
    side = np.exp(-0.1 * steps) / (steps * 1e5)
    masses = np.concatenate([side[::-1], [1.0 - 2.0 * math.fsum(side)], side])
    group = Group(10**5, -400, masses, True)
    one_by_one = sum_law([group], -500, 500)
    monkeypatch.setattr(_exponential_tilting, "MAX_DIRECT_PRODUCTS", 0)
    by_fft = sum_law([group], -500, 500)
    assert not np.array_equal(by_fft.log_mass, one_by_one.log_mass)
    assert (
        np.abs(by_fft.log_mass - one_by_one.log_mass) <= by_fft.log_error + one_by_one.log_error
    ).all()
    assert by_fft.log_error.max() < 1e-8


def test_covering_range_is_not_wider_than_it_needs_to_be() -> None:
    group = Group(10**6, 0, np.array([0.5, 0.5]))
    low, high = covering_range([group], -80.0)
    deviations = (high - 500_000) / 500.0
    assert math.sqrt(2 * 80) < deviations < 1.02 * math.sqrt(2 * (80 + math.log(2)))
    assert low == 10**6 - high
    assert covering_range([Group(3, 2, np.array([0.5, 0.5]))], -80.0) == (6, 9)
    assert covering_range([Group(3, 2, np.array([1.0]))]) == (6, 6)


def test_points_off_the_support_are_impossible_and_not_holes() -> None:
    law = sum_law([Group(2, 0, np.array([0.5, 0.5])), Group(0, 7, np.array([0.5, 0.5]))], -3, 5)
    assert np.exp(law.log_mass) == pytest.approx([0, 0, 0, 0.25, 0.5, 0.25, 0, 0, 0])
    assert law.outside == 0.0
    assert law.hockey_stick(0.0, 100) == pytest.approx(1.0)


def test_what_lies_outside_a_short_range_is_counted() -> None:
    for copies in (40, 40_000):
        group = Group(copies, 0, np.array([0.5, 0.5]))
        law = sum_law([group], copies // 2 - 2, copies // 2 + 2)
        assert 1.0 - np.exp(law.log_mass).sum() <= law.outside <= 1.0


def test_one_draw_of_a_wide_flat_law_is_itself() -> None:
    side = np.exp(-1e-4 * np.arange(30_001))
    masses = np.concatenate([side[:0:-1], side])
    masses /= masses.sum()
    law = sum_law([Group(1, -30_000, masses, True), Group(5, 1, np.ones(1))], -30_000, 40_000)
    assert np.exp(law.log_mass[5:60_006]) == pytest.approx(masses, rel=1e-12)
    assert law.outside == 0.0
    assert law.log_error.max() < 1e-11


def test_a_few_draws_of_a_wide_flat_law_have_no_holes() -> None:
    group = Group(2, -3000, np.full(6001, 1.0 / 6001.0), True)
    law = sum_law([group], -6000, 6000)
    assert np.exp(law.log_mass) == pytest.approx(
        (6001.0 - np.abs(np.arange(-6000, 6001))) / 6001.0**2, rel=1e-11
    )
    assert law.log_error.max() < 1e-10


def test_a_range_beside_the_support_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(10, 0, np.array([0.5, 0.5]))
    for low, high in ((13, 17), (-8, -4), (11, 11)):
        for law in (
            stitched(monkeypatch, [group], low, high),
            direct(monkeypatch, [group], low, high),
        ):
            assert (law.start, law.stop) == (low, high + 1)
            assert np.isneginf(law.log_mass).all()
            assert law.outside == pytest.approx(1.0)


def test_what_is_missing_is_counted_even_where_its_mass_underflows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Group(
        3, 0, np.array([1.0, 1e-150])
    )  # P(S = 3) = 1e-450 is no double, but it is not nothing
    for law in (stitched(monkeypatch, [group], 0, 2), direct(monkeypatch, [group], 0, 2)):
        assert 0.0 < law.outside < 1e-270


def test_masses_known_too_poorly_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pivot is 1e-3 within 9e-4, the rest of 999 masses with relative error 9e-4."""
    group = Group(1, 0, np.full(1000, 1e-3), relative_error=9e-4)
    with pytest.raises(NotCertified, match="more digits"):
        direct(monkeypatch, [group], 0, 999)
    with pytest.raises(NotCertified, match="more digits"):
        stitched(monkeypatch, [group], 0, 999)


def test_the_pivot_takes_up_the_errors_of_the_other_masses(monkeypatch: pytest.MonkeyPatch) -> None:
    """All masses are off by 1e-6 in one direction, so the pivot is off by much more."""
    given = np.array([0.3, 0.36, 0.34])
    copies = 12
    for sign in (-1.0, 1.0):
        true = given * (1.0 + sign * 0.999e-6)
        true[1] = 1.0 - true[0] - true[2]
        power = np.ones(1)
        for _ in range(copies):
            power = np.convolve(power, true)
        group = Group(copies, 0, given, relative_error=1e-6)
        for law in (
            stitched(monkeypatch, [group], 0, 2 * copies),
            direct(monkeypatch, [group], 0, 2 * copies),
        ):
            assert_certified(law, np.log(power))
            assert np.median(law.log_error) < 1e-4


@check_all("lam", [0.02, 3.0, 40.0])
def test_rare_events_among_many_copies_against_the_power_recurrence(lam: float) -> None:
    """A = sum a_i x^i, B = A^n: k a_0 b_k = sum_i (i (n + 1) - k) a_i b_{k-i}, to 60 digits."""
    copies = 10**11
    masses = np.array([0.0, 0.7, 0.0, 0.3, 1e-9]) * lam / copies
    masses[0] = 1.0 - masses.sum()
    group = Group(copies, 0, masses, relative_error=0.0)
    law = sum_law([group], *covering_range([group], -100.0))
    with mpmath.workdps(60):
        a = [mpmath.mpf(mass) for mass in masses.tolist()]
        a[0] = 1 - mpmath.fsum(a[1:])
        b = [a[0] ** copies]
        for k in range(1, law.stop + 40):
            b.append(
                mpmath.fsum(
                    (i * (copies + 1) - k) * a[i] * b[k - i] for i in range(1, min(k, 4) + 1)
                )
                / (k * a[0])
            )
        for z, log_mass, error in zip(
            range(law.start, law.stop), law.log_mass.tolist(), law.log_error.tolist(), strict=True
        ):
            assert log_mass == -math.inf or abs(mpmath.log(b[z]) - log_mass) <= error
        kept = [z for z in range(law.start, law.stop) if law.log_mass[z - law.start] > -math.inf]
        assert mpmath.fsum(b) - mpmath.fsum(b[z] for z in kept) <= law.outside


@check_all(
    ("change", "message"),
    [
        ({"copies": -1}, "copies"),
        ({"copies": True}, "copies"),
        ({"masses": np.array([0.5, 0.4])}, "sum to 1"),
        ({"masses": np.array([1.5, -0.5])}, ">= 0"),
        ({"masses": np.array([math.nan, 1.0])}, "finite"),
        ({"symmetric": True}, "symmetric"),
        ({"relative_error": 0.5}, "relative_error"),
    ],
)
def test_groups_are_checked(change: dict[str, object], message: str) -> None:
    good: dict[str, object] = {"copies": 2, "start": 0, "masses": np.array([0.5, 0.5])}
    with pytest.raises(InputError, match=message):
        Group(**(good | change))  # type: ignore[arg-type]


def test_too_many_cells_are_refused_in_words() -> None:
    group = Group(10**15, 0, np.array([0.5, 0.5]))
    with pytest.raises(NotCertified, match="cells"):
        sum_law([group], *covering_range([group]))
    with pytest.raises(NotCertified, match="FFT"):
        sum_law([group], 5 * 10**14, 5 * 10**14 + 10)
    with pytest.raises(InputError, match="low"):
        sum_law([group], 1, 0)
