"""Users with a single item among clones, against enumeration and a fine grid of distances."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles.multiset_laws import divergence, multiset_law, private_distances
from tests.tables import check_all

from metricshuffle.accounting.user_items.item_reports import (
    ItemShuffle,
    ItemWiseProfile,
    calibrate_family,
    calibrate_item_rate,
)
from metricshuffle.accounting.user_items.single_item import every_distance, one_move
from metricshuffle.accounting.user_items.single_move_bounds import moves_of
from metricshuffle.randomizers import ClusteredResponse, KaryRandomizedResponse

Floats = NDArray[np.float64]


def channel_on_a_line(
    generator: np.random.Generator, points: int, rate: float
) -> tuple[Floats, Floats]:
    """Random laws and distances on [0, 1], scaled so that the laws are just rate * d private."""
    places = np.sort(generator.random(points))
    places = (places - places[0]) / (places[-1] - places[0])
    rows = np.exp(rate * np.outer(places, generator.uniform(-1.0, 1.0, 3)))
    rows /= rows.sum(axis=1, keepdims=True)
    distances = np.abs(places[:, None] - places)
    return rows, distances


@check_all("seed", range(12))
def test_never_below_what_reports_tell(seed: int) -> None:
    """Every pair, all the others may hold, several epsilons."""
    generator = np.random.default_rng(seed)
    rows, distances = channel_on_a_line(generator, 3, float(generator.choice([1.0, 3.0])))
    apart = np.where(distances > 0.0, distances, np.inf)
    rate = float((private_distances(rows) / apart).max()) * (1.0 + 1e-12)
    others = int(generator.integers(0, 4))
    profile = ItemWiseProfile(rate, ItemShuffle(1, others + 1))
    seen = 0
    for a, b in itertools.permutations(range(3), 2):
        for held in itertools.combinations_with_replacement(range(3), others):
            laws = [multiset_law([rows[value] for value in (one, *held)]) for one in (a, b)]
            for share in (0.0, 0.3, 0.8):
                epsilon = share * rate * distances[a, b]
                assert (
                    divergence(laws[0], laws[1], epsilon)
                    <= profile.delta(epsilon, distances[a, b]) * (1.0 + 1e-9) + 1e-15
                )
                seen += 1
    assert seen >= 18


@pytest.mark.parametrize(
    ("total", "shuffled", "rate"),
    [(3.0, 1000, 1.0), (6.0, 1000, 2.5), (2.0, 30, 0.5), (8.0, 10**6, 3.0)],
)
def test_every_distance_is_what_a_fine_grid_says(total: float, shuffled: int, rate: float) -> None:
    """Accepted just above the largest delta of the grid, rejected just below."""
    largest = max(
        one_move(total, shuffled, rate * w, w) for w in np.linspace(0.002, 1.0, 500).tolist()
    )
    assert 0.0 < largest < 1.0
    kept, checks = every_distance(total, shuffled, rate, 1.01 * largest, 1.0)
    assert kept
    assert len(checks) < 100
    assert max(found for *_, found in checks) <= 1.01 * largest
    assert not every_distance(total, shuffled, rate, 0.9999 * largest, 1.0)[0]


def test_a_single_item_is_amplified_as_any_report_is() -> None:
    """A thousand users with one item: composition allows a third of the rate.

    The certificate is that of the profile.
    """
    shuffle = ItemShuffle(1, 1000)
    found = calibrate_item_rate(shuffle, 1.0, 1e-6, 1e-3)
    assert found.item_rate > 2.5 * found.composition_rate
    assert found.certified.kept
    profile = ItemWiseProfile(found.item_rate, shuffle)
    assert max(profile.delta(w, w) for w in np.linspace(0.01, 1.0, 100).tolist()) <= 1e-6
    assert not ItemWiseProfile(1.01 * found.item_rate, shuffle).covers(1.0, 1e-6, 1.0)


def test_own_laws_of_a_single_item_need_only_their_distances() -> None:
    shuffle = ItemShuffle(1, 1000)
    own = calibrate_family(lambda rate: KaryRandomizedResponse(8, rate), shuffle, 1.0, 1e-6, 1e-2)
    assert own.item_rate > 1.2 * calibrate_item_rate(shuffle, 1.0, 1e-6, 1e-2).item_rate
    moves = moves_of(ClusteredResponse(3, 3, 0.25, 2.0))
    profile = ItemWiseProfile(2.0, shuffle, moves, "blanket flow")
    assert [at for at, *_ in profile.certificate(1.0, 1e-6).ends] == [0.25, 1.0]
    assert profile.delta(0.1, 0.2) == 0.0  # no two points are that near


@pytest.mark.parametrize("items", [1, 10])
def test_a_flat_promise_needs_only_its_own_distance(items: int) -> None:
    """Privacy at the diameter allows a larger item rate than the linear guarantee."""
    shuffle = ItemShuffle(items, 1000 * items, 2.0)
    linear = calibrate_item_rate(shuffle, 1.0, 1e-6, 1e-3)
    flat = calibrate_item_rate(shuffle, 1.0, 1e-6, 1e-3, flat_up_to=2.0)
    assert flat.item_rate > 1.05 * linear.item_rate
    profile = ItemWiseProfile(flat.item_rate, shuffle)
    assert profile.covers(2.0, 1e-6, 2.0, "flat")
    assert profile.delta(2.0, 2.0) <= 1e-6
    assert not profile.covers(2.0, 1e-6, 2.0)
