"""Large move of one person: exact divergence, golden values, and who is not protected."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import noisy_vectors as oracle
from tests.oracles.far_moves import large_move_delta, large_move_epsilon
from tests.tables import check_all

from metricshuffle.accounting.composition.pure_responses import ComposedResponses
from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.split_and_mix import SplitAndMix
from metricshuffle.accounting.vectors import large_moves
from metricshuffle.accounting.vectors.encoding_terms import mixing_term
from metricshuffle.accounting.vectors.feature_changes import FeatureChanges, ideal_loss
from metricshuffle.accounting.vectors.large_moves import LargeMoves
from metricshuffle.errors import InputError
from metricshuffle.noise.polya import Geometric
from metricshuffle.privacy.profile import PureProfile, PureUpTo


def changes(*parts: tuple[float, int, int]) -> FeatureChanges:
    rates, sizes, counts = zip(*parts, strict=True)
    return FeatureChanges(
        np.array(rates, dtype=np.float64),
        np.array(sizes, dtype=np.int64),
        np.array(counts, dtype=np.int64),
    )


def coordinates(move: FeatureChanges) -> list[tuple[float, int]]:
    parts = zip(move.rates.tolist(), move.sizes.tolist(), move.counts.tolist(), strict=True)
    return [(rate, size) for rate, size, count in parts for _ in range(count) if size]


def test_golden_values() -> None:
    assert large_move_delta(changes((0.5, 1, 3)), 0.7) == pytest.approx(0.1328082883346, rel=1e-12)
    assert large_move_epsilon(changes((0.01, 1, 100)), 1e-6) == pytest.approx(
        0.3922639430935, rel=1e-12
    )
    assert large_move_epsilon(changes((10 / 999, 1, 999)), 1e-6) == pytest.approx(
        1.366214199759, rel=1e-12
    )


def test_one_coordinate_by_many_is_worse_than_many_by_one() -> None:
    """Sixty-three people who cross one threshold change one coordinate by 63."""
    together = changes((10 / 63, 63, 1))
    alone = changes((10 / 63, 1, 63))
    assert ideal_loss(together) == pytest.approx(ideal_loss(alone)) == pytest.approx(10.0)
    assert large_move_epsilon(together, 1e-6) == pytest.approx(9.9999982, abs=1e-7)
    assert large_move_epsilon(alone, 1e-6) == pytest.approx(6.1280, abs=1e-4)


@check_all(
    "move",
    [
        changes((0.5, 1, 3)),
        changes((0.3, 4, 2), (0.3, 1, 5)),
        changes((2.0, 3, 2)),
        changes((0.01, 1, 40)),
        changes((30.0, 2, 2)),
        changes((0.2, 1, 6), (0.2, 2, 3), (0.2, 7, 1)),
        changes((0.7, 0, 4), (0.7, 5, 1)),
        changes((0.4, 9, 1)),
    ],
)
def test_equal_rates_to_the_last_digits(move: FeatureChanges) -> None:
    pure = ideal_loss(move)
    for share in (0.0, 0.1, 0.35, 0.6, 0.9, 0.999):
        truth = oracle.large_move_delta(coordinates(move), share * pure)
        found = large_move_delta(move, share * pure)
        assert truth <= found <= truth * (1 + mpmath.mpf(10) ** -11) + mpmath.mpf(10) ** -130
    assert large_move_delta(move, pure) == 0.0 < large_move_delta(move, 0.999999 * pure)


@pytest.mark.parametrize(
    "move",
    [
        changes((0.5, 1, 2), (0.3, 2, 2)),
        changes((1.0, 1, 1), (0.01, 3, 2)),
        changes((0.05, 1, 5), (0.07, 1, 5), (0.2, 3, 1)),
        changes((4.0, 2, 1), (0.9, 4, 2)),
        changes((0.3, 1, 8), (0.1, 1, 8), (0.2, 2, 2)),
    ],
)
def test_different_rates_never_below_the_truth(move: FeatureChanges) -> None:
    pure = ideal_loss(move)
    for share in (0.0, 0.2, 0.5, 0.8):
        truth = oracle.large_move_delta(coordinates(move), share * pure)
        found = large_move_delta(move, share * pure)
        assert truth <= found <= truth * 1.002
    assert large_move_delta(move, pure) == 0.0


def test_the_grid_serves_where_the_lattice_would_be_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    move = changes((0.02, 3, 40), (0.02, 1, 30))
    exact = [large_move_delta(move, epsilon) for epsilon in (0.0, 1.0, 2.0)]
    monkeypatch.setattr(large_moves, "MAX_CELLS", 10)
    for epsilon, truth in zip((0.0, 1.0, 2.0), exact, strict=True):
        assert truth * (1 - 1e-10) <= large_move_delta(move, epsilon) <= truth * 1.001


def test_many_different_rates_are_raised_to_fewer() -> None:
    rng = np.random.default_rng(7)
    rates = np.sort(rng.uniform(0.01, 0.05, 120))
    ones = np.ones(120, dtype=np.int64)
    epsilon = large_move_epsilon(FeatureChanges(rates, ones, ones), 1e-6)
    merged = large_moves._merged({(rate, 1): 1 for rate in rates.tolist()})
    assert len(merged) <= large_moves.MAX_PARTS
    assert sum(merged.values()) == 120
    # Never below the same with the rates lowered to fewer bits, and not far above it.
    lowered = np.ldexp(np.floor(np.ldexp(rates, 9)), -9)
    assert large_move_epsilon(FeatureChanges(lowered, ones, ones), 1e-6) <= epsilon
    assert epsilon <= 1.05 * large_move_epsilon(
        FeatureChanges(np.full(120, math.sqrt(np.mean(rates**2))), ones, ones), 1e-6
    )


def test_the_same_as_what_was_here_before() -> None:
    """Size 1: randomized responses composed; one coordinate: additive geometric noise."""
    for epsilon in (0.0, 0.5, 1.5):
        assert large_move_delta(changes((0.1, 1, 30)), epsilon) == pytest.approx(
            ComposedResponses(0.1, 30).delta(epsilon, 1.0), rel=1e-10
        )
        assert large_move_delta(changes((0.2, 12, 1)), epsilon) == pytest.approx(
            AdditiveNoise(Geometric(0.2)).delta(epsilon, 12.0), rel=1e-9
        )


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(0.01, 2.0),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    which=st.integers(0, 5),
    share=st.floats(0.0, 1.1),
)
def test_larger_changes_are_hidden_less(
    rate: float, sizes: list[int], which: int, share: float
) -> None:
    here = np.array(sizes, dtype=np.int64)
    larger = here.copy()
    larger[which % len(sizes)] += 1
    rates = np.full(len(sizes), rate)
    ones = np.ones(len(sizes), dtype=np.int64)
    one = FeatureChanges(rates, here, ones)
    epsilon = share * ideal_loss(one)
    delta = large_move_delta(one, epsilon)
    assert delta <= large_move_delta(FeatureChanges(rates, larger, ones), epsilon) * (1 + 1e-11)
    assert delta <= large_move_delta(FeatureChanges(1.01 * rates, here, ones), epsilon) * (
        1 + 1e-11
    )
    assert delta <= large_move_delta(
        FeatureChanges(np.append(rates, rate), np.append(here, 1), np.append(ones, 1)), epsilon
    ) * (1 + 1e-11)
    assert (
        delta <= PureProfile(max(ideal_loss(one), 1e-9)).delta(epsilon, 1.0) * (1 + 1e-11) + 1e-130
    )


def test_equal_and_grid_agree_on_shuffled_parts() -> None:
    """The order of the parts, and one part written as several, make no difference."""
    one = large_move_delta(changes((0.1, 2, 10), (0.1, 1, 4)), 0.8)
    assert large_move_delta(
        changes((0.1, 1, 3), (0.1, 2, 5), (0.1, 1, 1), (0.1, 2, 5)), 0.8
    ) == pytest.approx(one, rel=1e-13)


def thresholds(distance: float) -> list[FeatureChanges]:
    return [changes((0.1, 1, min(math.floor(distance), 63)))]


def test_the_profile_of_far_moves() -> None:
    profile = LargeMoves(thresholds)
    assert profile.pure(0.5) == 0.0 == profile.delta(0.0, 0.5)
    assert profile.pure(20.0) == pytest.approx(2.0)
    assert profile.delta(1.0, 20.0) == large_move_delta(thresholds(20.0)[0], 1.0)
    assert profile.epsilon(1e-6, 40.0) == large_move_epsilon(thresholds(40.0)[0], 1e-6)
    assert profile.epsilon(0.0, 40.0) == profile.pure(40.0)
    assert profile.covers(2.0, 0.0, 20.0, "flat")
    assert not profile.covers(2.0, 0.0, 20.0)
    assert profile.covers(profile.epsilon(1e-6, 30.0), 1e-6, 30.0, "flat")
    assert not profile.covers(0.99 * profile.epsilon(1e-6, 30.0), 1e-6, 30.0, "flat")
    # the worst of several moves
    several = LargeMoves(
        lambda _: [changes((0.1, 1, 9)), changes((0.1, 9, 1)), changes((0.1, 3, 3))]
    )
    assert several.delta(0.5, 1.0) == large_move_delta(changes((0.1, 9, 1)), 0.5)
    assert LargeMoves(lambda _: []).delta(0.0, 1.0) == 0.0


def test_rounds_are_further_coordinates() -> None:
    profile = LargeMoves(thresholds, rounds=3)
    assert profile.delta(1.0, 20.0) == large_move_delta(changes((0.1, 1, 60)), 1.0)
    assert profile.pure(20.0) == pytest.approx(6.0)
    with pytest.raises(InputError, match="rounds"):
        LargeMoves(thresholds, rounds=0)


def test_shares_add_their_term() -> None:
    profile = SplitAndMix(LargeMoves(thresholds), 40.0, 8)
    term = mixing_term(1.0, 40.0, 8)
    assert profile.delta(1.0, 30.0) == pytest.approx(
        large_move_delta(thresholds(30.0)[0], 1.0) + term, rel=1e-13
    )
    epsilon = profile.epsilon(1e-6, 60.0)
    assert large_move_epsilon(thresholds(60.0)[0], 1e-6) < epsilon < ideal_loss(thresholds(60.0)[0])
    assert profile.delta(epsilon, 60.0) <= 1e-6
    assert profile.covers(epsilon, 1e-6, 60.0, "flat")
    # people together, ideal and flat
    flat = SplitAndMix(PureUpTo(ideal_loss(thresholds(60.0)[0]), 60.0), 40.0, 8)
    assert flat.covers(6.01, 1e-6, 60.0, "flat")
    assert not flat.covers(5.9, 1e-6, 60.0, "flat")


def test_what_is_no_number_is_refused() -> None:
    for epsilon in (math.nan, -1.0):
        with pytest.raises(InputError):
            large_move_delta(changes((0.1, 1, 1)), epsilon)
    assert large_move_delta(changes((0.1, 1, 1)), math.inf) == 0.0
    assert large_move_delta(changes((0.1, 0, 5)), 0.0) == 0.0
