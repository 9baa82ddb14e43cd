"""Pure mechanisms on drawn items: golden values, and the worst mechanism by linear program."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.draw_laws import (
    Counts,
    Floats,
    counts_of,
    earth_mover,
    law_with_replacement,
    law_without_replacement,
    random_metric,
    sample_distances,
    worst_loss,
)
from tests.oracles.multiset_laws import divergence, multiset_law, private_distances
from tests.tables import check_all

from metricshuffle.accounting.user_items.item_reports import ItemShuffle, ItemWiseProfile
from metricshuffle.accounting.user_items.move_composition import concave_weight
from metricshuffle.accounting.user_items.subsampled_items import (
    SubsampledProfile,
    draw_rate,
    drawn_loss,
    report_loss,
)
from metricshuffle.errors import InputError
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.privacy.profile import PureProfile

TWO_POINTS = np.array([[0.0, 1.0], [1.0, 0.0]])


@check_all(
    ("cost", "samples", "mean", "golden", "simple"),
    [
        (10.0, 100, 0.1, 1.06161170503, 1.09910852989),
        (4.0, 10, 0.25, 1.17356346558, 1.39050793712),
        (1.0, 1, 0.5, 0.620114506958, 0.858297533372),
    ],
)
def test_golden_losses(
    cost: float, samples: int, mean: float, golden: float, simple: float
) -> None:
    loss = drawn_loss(cost, samples, mean)
    assert golden - 1e-11 <= loss <= golden + 1e-8
    assert SubsampledProfile(PureProfile(cost), samples).pure(mean) == pytest.approx(
        loss, abs=1e-12
    )
    each = cost / samples
    assert samples * math.log1p(each * mean * math.exp(each)) == pytest.approx(simple, rel=1e-11)
    assert loss <= simple <= cost * math.exp(each) * mean
    # the profile is in the unit of the diameter
    assert SubsampledProfile(PureProfile(cost / 7.0), samples, 7.0).pure(
        7.0 * mean
    ) == pytest.approx(loss, rel=1e-9)


@check_all(
    ("samples", "target", "golden"),
    [(100, 10.0, 9.12765271609), (20, 10.0, 7.03467422498), (10, 4.0, 2.97167750673)],
)
def test_golden_rates_of_linear_targets(samples: int, target: float, golden: float) -> None:
    """The largest rate x with x e^(x/S) = target, and a target of delta 0 at that rate."""
    assert draw_rate(golden, samples, 1.0) == pytest.approx(target, rel=1e-11)
    for shrunk, kept in ((1.0 - 1e-11, True), (1.0 + 1e-11, False)):
        profile = SubsampledProfile(PureProfile(golden * shrunk), samples)
        assert profile.covers(target, 0.0, 1.0) is kept
        assert profile.covers(target / 50.0, 0.0, 0.02) is kept


def test_limits_near_distance_0() -> None:
    assert report_loss(0.1, 1e-6) / (0.1 * 1e-6) == pytest.approx(1.10501, abs=1e-5)
    assert report_loss(0.1, 1e-12) / (0.1 * 1e-12) == pytest.approx(1.1051709, abs=1e-7)
    assert report_loss(2.0 * math.log(2.0), 0.5) == pytest.approx(math.log(2.5), rel=1e-9)


@settings(deadline=None, max_examples=100)
@given(st.floats(1e-6, 600.0), st.floats(-200.0, 0.0))
def test_no_bound_is_below_the_gain_of_a_line(total: float, exponent: float) -> None:
    """In 500 digits: most items at 0, the others at 1 - l or 1, for many lengths l of a move."""
    mean = 10.0**exponent
    bound = mpmath.mpf(report_loss(total, mean))
    with mpmath.workdps(500):
        for part in (0.0, 1e-6, 1e-3, 0.1, 0.5, 0.9, 0.99, 0.999999):
            move = mpmath.mpf(mean) ** (1 - mpmath.mpf(part))
            share = mpmath.mpf(mean) / move
            raised = 1 - share + share * mpmath.exp(total)
            lowered = 1 - share + share * mpmath.exp(total * (1 - move))
            assert mpmath.log(raised / lowered) * (1 - mpmath.mpf("1e-40")) <= bound


def test_extreme_numbers_are_neither_errors_nor_0() -> None:
    assert report_loss(1e5, 0.5) == 1e5
    assert 0.0 < report_loss(0.1, 1e-300) < 1e-289
    assert drawn_loss(1e6, 2, 0.5) == 1e6
    assert draw_rate(1e6, 2, 1.0) == math.inf
    assert SubsampledProfile(PureProfile(1e6), 2).pure(0.3) == pytest.approx(1e6, rel=1e-12)
    assert not SubsampledProfile(PureProfile(1e6), 2).covers(1e6, 0.0, 1.0)


@check_all(
    ("rate", "samples", "epsilon"),
    [
        (9.0, 100, 9.0 * math.exp(0.09)),
        (2.0, 1, 2.0 * math.exp(2.0)),
        (0.5, 4, 0.5 * math.exp(1 / 8)),
    ],
)
def test_a_linear_target_without_delta_is_kept_at_its_slope_and_refused_above(
    rate: float, samples: int, epsilon: float
) -> None:
    profile = SubsampledProfile(PureProfile(rate), samples)
    assert profile.covers(epsilon * (1.0 + 1e-12), 0.0, 1.0)
    assert profile.covers(epsilon * (1.0 + 1e-12), 1e-9, 1.0)
    assert not profile.covers(epsilon * (1.0 - 1e-12), 0.0, 1.0)
    assert not profile.covers(rate, 0.0, 1.0)  # the loss of the mean distance would pass
    # at the diameter the loss is no more than the mechanism's own
    assert profile.covers(rate * (1.0 + 1e-12), 0.0, 1.0, "flat")


def test_item_reports_are_pure_mechanisms() -> None:
    """Reports of rate 0.2 each about 5 drawn items: a mechanism of rate 1, shuffled or not."""
    shuffle = ItemShuffle(5, 500)
    profile = SubsampledProfile(ItemWiseProfile(0.2, shuffle), 5)
    assert profile.pure(0.1) == pytest.approx(drawn_loss(1.0, 5, 0.1), rel=1e-9)
    slope = math.exp(0.2)
    assert profile.covers(slope * (1.0 + 1e-12), 0.0, 1.0)
    assert not profile.covers(slope * (1.0 - 1e-12), 0.0, 1.0)
    assert profile.covers(0.5 * slope, 1e-2, 1.0)  # with a delta, shuffling hides more


def test_delta_is_never_above_that_of_the_pure_loss() -> None:
    profile = SubsampledProfile(PureProfile(4.0), 10)
    for mean in (1e-4, 0.01, 0.25, 0.9):
        loss = profile.pure(mean)
        assert profile.delta(loss, mean) == 0.0
        for part in (0.0, 0.5, 0.99):
            assert profile.delta(part * loss, mean) <= PureProfile(1.0).delta(part * loss, loss)


@check_all(("total", "reach"), [(0.05, 0.1), (1.0, 1.0), (1.0, 0.02), (4.0, 0.3), (9.0, 1.0)])
def test_the_concave_weight_is_above_the_loss_everywhere(total: float, reach: float) -> None:
    def weight(mean: float) -> float:
        return math.tanh(0.5 * report_loss(total, mean))

    clock = concave_weight(3, weight, 0.5 * total * math.exp(total), reach)
    for mean in np.geomspace(1e-9, 1.0, 400) * reach:
        exact = 3.0 * weight(float(mean))
        assert exact * (1.0 - 1e-8) <= clock.time(float(mean)) <= 1.06 * exact


@check_all(
    ("samples", "shuffled", "epsilon", "delta", "distance"),
    [(2, 2, 1.0, 1e-6, 0.1), (4, 400, 1.0, 1e-6, 0.1), (1, 100, 2.0, 1e-4, 0.5)],
)
def test_linear_targets_of_shuffled_draws_are_kept_at_every_distance(
    samples: int, shuffled: int, epsilon: float, delta: float, distance: float
) -> None:
    """The largest rate that is certified keeps the target by the profile, at 60 distances."""

    def profile(rate: float) -> SubsampledProfile:
        return SubsampledProfile(ItemWiseProfile(rate, ItemShuffle(samples, shuffled)), samples)

    rate = last_certified(
        lambda rate: profile(rate).covers(epsilon, delta, distance), 20.0, 1e-3, relative=1e-3
    )
    assert rate > 1e-3
    # not below the rate that needs no delta
    assert draw_rate(samples * rate, samples, 1.0) > 0.999 * epsilon / distance
    for mean in np.geomspace(1e-4, 1.0, 60) * distance:
        assert profile(rate).delta(epsilon * mean / distance, float(mean)) <= delta


@check_all("seed", range(6))
def test_linear_targets_are_true_of_all_reports(seed: int) -> None:
    """Exact laws of the reports of two users who draw two items each, on a line of three points."""
    generator = np.random.default_rng(seed)
    places = np.array([0.0, generator.uniform(0.1, 0.9), 1.0])
    rows = np.exp(2.0 * np.outer(places, generator.uniform(-1.0, 1.0, 3)))
    rows /= rows.sum(axis=1, keepdims=True)
    apart = np.abs(places[:, None] - places)
    rate = float((private_distances(rows) / (apart + np.eye(3))).max()) * (1.0 + 1e-12)
    profile = SubsampledProfile(ItemWiseProfile(rate, ItemShuffle(2, 4)), 2)
    delta = 0.01
    epsilon = last_certified(lambda e: profile.covers(e, delta, 1.0), 0.0, 50.0, relative=1e-3)
    for _ in range(6):
        users = [random_users(generator, int(generator.integers(1, 5)), 3) for _ in range(3)]
        w = earth_mover(users[0], users[1], apart)
        laws = [np.array(user) / sum(user) @ rows for user in users]
        views = [multiset_law([law] * 2 + [laws[2]] * 2) for law in laws[:2]]
        assert divergence(views[0], views[1], epsilon * w) <= delta


# --- against the worst mechanism ---


def excess(
    users: list[tuple[Counts, Counts]], samples: int, rate: float, distances: Floats, public: bool
) -> tuple[float, float]:
    """Largest worst loss over bound, and over rate * w (which is no bound)."""
    draw = law_without_replacement if public else law_with_replacement
    apart = sample_distances(samples, distances)
    largest = (0.0, 0.0)
    for one, other in users:
        w = earth_mover(one, other, distances)
        loss = worst_loss(draw(one, samples), draw(other, samples), rate, apart)
        if w < 1e-12:
            assert loss < 1e-9
            continue
        profile = SubsampledProfile(
            PureProfile(rate), samples, public_items=sum(one) if public else None
        )
        largest = (
            max(largest[0], loss / profile.pure(w)),
            max(largest[1], loss / (rate * w)),
        )
    return largest


def random_users(generator: np.random.Generator, size: int, points: int) -> Counts:
    return tuple(generator.multinomial(size, generator.dirichlet(np.full(points, 0.5))).tolist())


def attack(seed: int, public: bool, pairs: int) -> tuple[float, float]:
    generator = np.random.default_rng(seed)
    points = int(generator.integers(2, 4))
    samples = int(generator.integers(1, 5 if points == 2 else 4))
    rate = float(generator.choice([0.3, 1.0, 3.0, 6.0]))
    sizes = generator.integers(samples if public else 1, 11, (pairs, 2))
    users = [
        (
            random_users(generator, int(first), points),
            random_users(generator, int(first if public else second), points),
        )
        for first, second in sizes
    ]
    return excess(users, samples, rate, random_metric(generator, points), public)


@check_all("public", [False, True])
def test_the_worst_mechanism_has_no_more_loss(public: bool) -> None:
    results = np.array([attack(seed, public, 6) for seed in range(12)])
    assert results[:, 0].max() <= 1.0 + 1e-7
    assert results[:, 1].max() > 1.2  # rate * w is no bound


@pytest.mark.thorough
@pytest.mark.parametrize("public", [False, True])
def test_the_worst_mechanism_has_no_more_loss_many_times(public: bool) -> None:
    results = np.array([attack(seed, public, 12) for seed in range(1000, 1060)])
    assert results[:, 0].max() <= 1.0 + 1e-7


def test_the_loss_with_replacement_is_attained() -> None:
    """{0, .., 0, 1} and {0, .., 0}: one draw, two points, the worst mechanism."""
    largest = excess([((1, 1), (2, 0))], 1, 2.0 * math.log(2.0), TWO_POINTS, False)
    assert largest[0] == pytest.approx(1.0, abs=1e-6)


def test_draws_without_replacement_need_one_number_of_items() -> None:
    """{a, b} and {a, a, b, b} are at distance 0, and differ by ln((e^3 + 2)/3)."""
    one = law_without_replacement((1, 1), 2)
    other = law_without_replacement((2, 2), 2)
    assert earth_mover((1, 1), (2, 2), TWO_POINTS) == 0.0
    loss = worst_loss(other, one, 6.0, sample_distances(2, TWO_POINTS))
    assert loss == pytest.approx(math.log((math.exp(3.0) + 2.0) / 3.0), rel=1e-9)
    assert loss == pytest.approx(1.99631066775, rel=1e-11)
    with pytest.raises(InputError, match="public number of items that everybody holds"):
        SubsampledProfile(PureProfile(6.0), 3, public_items=2)
    # with replacement both draw from the same law
    assert law_with_replacement((1, 1), 2) == pytest.approx(law_with_replacement((2, 2), 2))


def test_the_first_items_have_no_bound() -> None:
    """{a, b} and {a, a, b, b} in order: the first two are a, b and a, a, at distance 1/2."""
    apart = sample_distances(2, TWO_POINTS)
    drawn = counts_of(2, 2)
    kept = [np.eye(len(drawn))[drawn.index(items)] for items in ((1, 1), (2, 0))]
    assert worst_loss(kept[1], kept[0], 6.0, apart) == pytest.approx(3.0, rel=1e-9)


def test_everything_drawn_is_the_mechanism_itself() -> None:
    profile = SubsampledProfile(PureProfile(3.0), 4, public_items=4)
    assert profile.pure(0.2) == pytest.approx(0.6, rel=1e-12)
    assert profile.covers(3.0 * (1.0 + 1e-12), 0.0, 1.0)
    more = SubsampledProfile(PureProfile(3.0), 4, public_items=5)
    assert more.pure(0.2) == pytest.approx(0.6 * math.exp(0.75), rel=1e-12)
    assert not more.covers(3.0 * (1.0 + 1e-12), 0.0, 1.0)


def test_reports_without_replacement_have_no_independent_draws() -> None:
    """Bound (c) is about independent draws, so shuffled reports have (a), (b) and (d) only."""
    reports = ItemWiseProfile(0.5, ItemShuffle(3, 3000))
    free = SubsampledProfile(reports, 3)
    public = SubsampledProfile(reports, 3, public_items=9)
    assert free.delta(0.05, 0.05) < public.delta(0.05, 0.05) <= public.delta(0.01, 0.05)


@check_all(
    ("rate", "samples", "diameter", "items"),
    [(0.0, 2, 1.0, None), (1.0, 0, 1.0, None), (1.0, 2, math.nan, None), (1.0, 3, 1.0, 2)],
)
def test_wrong_numbers_are_refused(
    rate: float, samples: int, diameter: float, items: int | None
) -> None:
    with pytest.raises(InputError):
        draw_rate(rate, samples, diameter, items=items)
