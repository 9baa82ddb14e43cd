"""Shuffled items under the earth mover's distance: golden values, calibration, attacks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.binary_items import BinaryItemsLower
from tests.oracles.item_channels import Channel, response
from tests.tables import check_all

from metricshuffle.accounting.user_items.item_reports import (
    ItemShuffle,
    ItemWiseProfile,
    calibrate_family,
    calibrate_item_rate,
)
from metricshuffle.accounting.user_items.single_move_bounds import BlanketLines, moves_of
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.randomizers import ClusteredResponse, KaryRandomizedResponse

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden" / "user_level_flow.json").read_text(encoding="utf-8")
)


def shuffle_of(row: dict[str, Any]) -> ItemShuffle:
    return ItemShuffle.of(row["model"], row["users"], row["items"])


@pytest.mark.parametrize("row", GOLDEN["many_moves"])
def test_golden_many_moves(row: dict[str, Any]) -> None:
    shuffle = ItemShuffle(row["items"], row["shuffled"])
    found = ItemWiseProfile(row["item_rate"], shuffle).delta(row["epsilon"], 1.0)
    exact = BinaryItemsLower(row["item_rate"], shuffle).delta(row["epsilon"], 1.0)
    assert exact == pytest.approx(row["response"], rel=1e-3)
    assert exact <= found <= row["at_most"]


@pytest.mark.parametrize(
    "row", GOLDEN["certified"], ids=lambda row: f"{row['model']}-{row['items']}-{row['rate']:g}"
)
def test_certified_item_rates(row: dict[str, Any]) -> None:
    """What was certified elsewhere is certified here, and 2 % more is not."""
    shuffle = shuffle_of(row)
    assert (
        ItemWiseProfile(1.001 * row["item_rate"], shuffle)
        .certificate(row["rate"], row["delta"])
        .kept
    )
    assert (
        not ItemWiseProfile(1.02 * row["item_rate"], shuffle)
        .certificate(row["rate"], row["delta"])
        .kept
    )


@pytest.mark.parametrize(
    "row",
    [
        GOLDEN["certified"][0],
        GOLDEN["certified"][2],
        pytest.param(GOLDEN["certified"][4], marks=pytest.mark.slow),
    ],
)
def test_calibration(row: dict[str, Any]) -> None:
    shuffle = shuffle_of(row)
    found = calibrate_item_rate(shuffle, row["rate"], row["delta"], 4e-4)
    assert found.item_rate >= row["item_rate"]
    assert found.bound == "flow"
    assert found.certified.kept
    assert found.certified.worst[0] <= row["delta"]
    assert ItemWiseProfile(found.item_rate, shuffle).covers(row["rate"], row["delta"], 1.0)
    assert not ItemWiseProfile(1.001 * found.item_rate, shuffle).covers(
        row["rate"], row["delta"], 1.0
    )
    assert found.composition_rate == pytest.approx(row["rate"] / row["items"], rel=1e-12)
    assert found.composition_rate < found.item_rate


@check_all("row", GOLDEN["thresholds"])
def test_an_attack_refutes_what_the_accountant_must_not_certify(row: dict[str, Any]) -> None:
    shuffle = ItemShuffle(row["items"], row["items"])
    for factor, refuted in ((1.0 - 1e-5, False), (1.0 + 1e-5, True)):
        assert (
            BinaryItemsLower(factor * row["item_rate"], shuffle).delta(row["rate"], 1.0)
            > row["delta"]
        ) is refuted
    assert (
        not ItemWiseProfile(row["item_rate"], shuffle).certificate(row["rate"], row["delta"]).kept
    )


@pytest.mark.parametrize("row", GOLDEN["refuted"], ids=lambda row: f"{row['rate']:g}")
def test_large_rates_are_not_certified_by_a_floor(row: dict[str, Any]) -> None:
    shuffle = ItemShuffle(row["items"], row["items"])
    assert not ItemWiseProfile(row["item_rate"], shuffle).certificate(row["rate"], 1e-12).kept
    assert (
        BinaryItemsLower(row["item_rate"], shuffle).delta(row["rate"], 1.0) >= 0.99 * row["exact"]
    )


@pytest.mark.parametrize("rate", [pytest.param(200.0, marks=pytest.mark.slow), 480.0])
def test_good_item_rates_at_large_rates_are_certified(rate: float) -> None:
    shuffle = ItemShuffle(10_000, 10_000)
    found = calibrate_item_rate(shuffle, rate, 1e-12, 0.05)
    assert found.bound == "flow"
    assert found.item_rate > 1.5 * found.composition_rate
    assert (
        BinaryItemsLower(found.item_rate, shuffle).delta(rate, 1.0)
        <= found.certified.worst[0]
        <= 1e-12
    )


@pytest.mark.parametrize(
    ("items", "shuffled", "item_rate"),
    [
        (1000, 1000, 0.05),
        pytest.param(300, 1000, 0.3, marks=pytest.mark.slow),
        (10, 1000, 2.0),
        (1, 50, 3.0),
    ],
)
def test_never_below_binary_response(items: int, shuffled: int, item_rate: float) -> None:
    shuffle = ItemShuffle(items, shuffled)
    profile = ItemWiseProfile(item_rate, shuffle)
    attack = BinaryItemsLower(item_rate, shuffle)
    seen = 0
    for epsilon in (0.0, 0.1, 1.0, 3.0, 8.0):
        for distance in (0.2, 0.5, 1.0):
            lower = attack.delta(epsilon, distance)
            assert lower <= profile.delta(epsilon, distance)
            seen += lower > 1e-12
    assert seen >= 3


def test_own_blankets_of_a_clustered_response() -> None:
    shuffle = ItemShuffle(100, 100)
    moves = moves_of(ClusteredResponse(8, 8, 0.05, 0.4408))
    assert len(moves) == 2
    assert ItemWiseProfile(0.4408, shuffle, moves, "blanket flow").certificate(20.0, 1e-9).kept
    moves = moves_of(ClusteredResponse(8, 8, 0.05, 0.455))
    assert not ItemWiseProfile(0.455, shuffle, moves, "blanket flow").certificate(20.0, 1e-9).kept
    assert not ItemWiseProfile(0.25, shuffle).certificate(20.0, 1e-9).kept  # for any randomizer


@pytest.mark.slow
def test_calibration_of_a_family() -> None:
    shuffle = ItemShuffle.of("central", 10_000, 100)
    found = calibrate_family(
        lambda rate: ClusteredResponse(4, 4, 0.02, rate), shuffle, 10.0, 1e-9, 5e-3
    )
    assert found.bound == "blanket flow"
    assert 3.9 < found.item_rate < 3.95
    assert found.certified.kept
    assert found.certified.worst[0] <= 1e-9
    assert found.item_rate > 1.15 * calibrate_item_rate(shuffle, 10.0, 1e-9).item_rate


@pytest.mark.parametrize(("model", "rate"), [("local", 5.0), ("central", 5.0)])
def test_neither_bound_keeps_more_than_a_family_was_given(model: Any, rate: float) -> None:
    """The result is certified, and a little more is not, for the family or any randomizer."""
    shuffle = ItemShuffle.of(model, 50, 20)
    delta = 1e-6
    found = calibrate_family(lambda x: ClusteredResponse(3, 3, 0.2, x), shuffle, rate, delta)
    for item_rate, kept in ((found.item_rate, True), (found.item_rate * 1.003, False)):
        moves = moves_of(ClusteredResponse(3, 3, 0.2, item_rate))
        own = max(move.rate for move in moves) * (1.0 + 1e-12)
        profiles = [
            ItemWiseProfile(own, shuffle),
            ItemWiseProfile(own, shuffle, moves, "blanket flow"),
        ]
        assert any(profile.certificate(rate, delta).kept for profile in profiles) == kept


def test_a_family_that_gives_away_more_than_it_says_is_refused() -> None:
    with pytest.raises(ConditionError, match="x \\* d private"):
        calibrate_family(
            lambda rate: KaryRandomizedResponse(3, 2.0 * rate), ItemShuffle(4, 4), 1.0, 1e-9
        )


def test_a_family_is_never_worse_than_any_randomizer() -> None:
    shuffle = ItemShuffle(1, 1)
    found = calibrate_family(lambda rate: KaryRandomizedResponse(3, rate), shuffle, 0.5, 1e-9, 2e-2)
    assert found.item_rate == pytest.approx(0.5, rel=1e-6)
    assert found.certified.kept
    assert found.certified.worst[0] <= 1e-9


@check_all("items", [1, 2])
def test_what_a_family_gives_away_was_looked_at(items: int) -> None:
    """Composition allows more than the accountant evaluates, and beyond that this family lies."""
    asked: list[float] = []

    def family(rate: float) -> Channel:
        asked.append(rate)
        return response(2, math.exp(min(rate, 30.0)))

    found = calibrate_family(family, ItemShuffle(items, items), 3000.0, 1e-9, 0.1)
    assert found.item_rate in asked


@pytest.mark.parametrize("model", ["local", "central"])
def test_more_users_and_looser_promises_allow_larger_item_rates(model: Any) -> None:
    rates = [
        calibrate_item_rate(ItemShuffle.of(model, users, 50), 5.0, 1e-6, 1e-2).item_rate
        for users in (10, 1000)
    ]
    assert rates == sorted(rates)
    assert (model == "local") == (rates[0] == rates[-1])
    shuffle = ItemShuffle.of(model, 100, 50)
    looser = [calibrate_item_rate(shuffle, rate, 1e-6, 1e-2).item_rate for rate in (1.0, 5.0, 20.0)]
    assert looser == sorted(looser)
    assert looser[0] < looser[-1]


@pytest.mark.parametrize("diameter", [1e-3, 1000.0])
def test_the_unit_of_distance_does_not_matter(diameter: float) -> None:
    shuffle = ItemShuffle(100, 1000, diameter)
    found = calibrate_item_rate(shuffle, 8.0 / diameter, 1e-8)
    assert found.item_rate * diameter == pytest.approx(
        calibrate_item_rate(ItemShuffle(100, 1000), 8.0, 1e-8).item_rate, rel=1e-4
    )
    profile = ItemWiseProfile(found.item_rate, shuffle)
    assert profile.delta(3.0, 0.4 * diameter) == pytest.approx(
        ItemWiseProfile(found.item_rate * diameter, ItemShuffle(100, 1000)).delta(3.0, 0.4),
        rel=1e-6,
    )


def test_covers_every_real_distance() -> None:
    profile = ItemWiseProfile(2.0, ItemShuffle(50, 20_000))
    epsilon = next(
        rate for rate in np.arange(8.0, 15.0, 0.5).tolist() if profile.covers(rate, 1e-7, 1.0)
    )
    assert epsilon > 8.0
    deltas = [profile.delta(epsilon * w, w) for w in np.linspace(0.02, 1.0, 12)]
    assert max(deltas) <= 1e-7
    inside = max(range(len(deltas)), key=deltas.__getitem__)
    assert 0 < inside < len(deltas) - 1  # the ends alone would not have told
    assert profile.covers(epsilon, 1e-7, 0.3) or profile.delta(epsilon, 0.3) <= 1e-7
    assert profile.covers(epsilon, 1e-7, 1.0, "flat")


def test_profile_answers_at_its_edges() -> None:
    profile = ItemWiseProfile(1.0, ItemShuffle(10, 1000))
    assert profile.pure(1.0) == pytest.approx(10.0)
    assert profile.pure(0.0) == 0.0
    assert profile.delta(10.01, 1.0) == 0.0
    assert profile.delta(0.0, 0.0) == 0.0
    assert profile.delta(1.0, 5.0) == profile.delta(
        1.0, 1.0
    )  # nothing is farther than the diameter
    assert profile.epsilon(0.0, 1.0) == profile.pure(1.0)
    found = profile.epsilon(1e-6, 0.5)
    assert profile.delta(found, 0.5) <= 1e-6 < profile.delta(0.999 * found, 0.5)
    assert found < profile.pure(0.5)
    assert not profile.covers(0.0, 1e-6, 1.0)
    assert profile.covers(0.0, 0.999, 1.0) is (profile.delta(0.0, 1.0) <= 0.999)
    assert profile.covers(10.01, 0.0, 1.0)
    assert not profile.covers(9.0, 0.0, 1.0)
    values = [profile.delta(epsilon, 0.5) for epsilon in (0.0, 0.3, 0.9, 2.0)]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize(
    ("items", "shuffled", "rate", "delta"),
    [
        (1, 1, 1.0, 1e-6),
        (1, 1, 400.0, 1e-6),
        (5, 5, 1e-9, 1e-6),
        (100, 10**4, 3.0, 1e-30),
        (1, 10**9, 1e-9, 1e-9),
        (7, 7, 3000.0, 1e-9),
    ],
)
def test_calibration_at_the_edges(items: int, shuffled: int, rate: float, delta: float) -> None:
    shuffle = ItemShuffle(items, shuffled)
    found = calibrate_item_rate(shuffle, rate, delta, 1e-3)
    assert found.certified.kept
    assert found.item_rate >= found.composition_rate > 0.0
    assert (
        BinaryItemsLower(found.item_rate, shuffle).delta(rate, 1.0) <= delta
        if found.item_rate < 25.0
        else True
    )
    if shuffled == 1:  # one report alone: what a response with p = e^rate gives away at delta
        assert found.item_rate <= rate * (1.0 + 1e-5)


def test_one_item_alone_is_randomized_response() -> None:
    """(e^x - e^rate)/(e^x + 1) = delta, exactly."""
    found = calibrate_item_rate(ItemShuffle(1, 1), 1.0, 0.1)
    assert found.item_rate == pytest.approx(math.log((math.e + 0.1) / 0.9), rel=2e-5)
    assert found.bound == "composition"
    assert found.certified.worst[0] <= 0.1


def test_without_delta_there_is_only_composition() -> None:
    found = calibrate_item_rate(ItemShuffle(100, 10**6), 2.0, 0.0)
    assert found.bound == "composition"
    assert found.item_rate == found.composition_rate <= 0.02
    assert found.certified.kept
    assert found.certified.worst == (0.0, 0.0)


@check_all("wrong", [math.nan, -1.0, 0.0, math.inf, "1", True])
def test_wrong_rates_are_refused(wrong: Any) -> None:
    with pytest.raises(InputError):
        calibrate_item_rate(ItemShuffle(10, 100), wrong, 1e-6)
    with pytest.raises(InputError):
        ItemWiseProfile(wrong, ItemShuffle(10, 100))
    with pytest.raises(InputError):
        ItemWiseProfile(1.0, ItemShuffle(10, 100)).certificate(wrong, 1e-6)


def test_wrong_settings_are_refused() -> None:
    for wrong in (0, -1, 1.5, True, math.nan, 2**60):
        with pytest.raises(InputError):
            ItemShuffle(wrong, 2**52)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got 5 and 3"):
        ItemShuffle(5, 3)
    for diameter in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError):
            ItemShuffle(1, 1, diameter)
    with pytest.raises(InputError, match="local"):
        ItemShuffle.of("shuffled", 3, 4)  # type: ignore[arg-type]
    for users, items in ((0, 3), (3, 0), (1.5, 2), (True, 1)):
        with pytest.raises(InputError):
            ItemShuffle.of("central", users, items)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        calibrate_item_rate(ItemShuffle(10, 100), 1.0, math.nan)
    with pytest.raises(
        ConditionError, match="private"
    ):  # the randomizer gives away more than is claimed
        ItemWiseProfile(0.3, ItemShuffle(10, 100), moves_of(ClusteredResponse(4, 4, 0.02, 0.4)))
    with pytest.raises(ConditionError, match="600"):
        ItemWiseProfile(700.0, ItemShuffle(10, 100))
    with pytest.raises(
        InputError, match="diameter of the shuffle"
    ):  # half as private per unit as it would seem
        ItemWiseProfile(
            0.5, ItemShuffle(10, 100, 2.0), moves_of(ClusteredResponse(4, 4, 0.02, 0.4))
        )
    with pytest.raises(InputError, match="diameters apart"):
        moves_of(Channel(response(3, 2.0).rows, 5.0 * (1.0 - np.eye(3))))
    with pytest.raises(InputError, match="same law"):
        BlanketLines(moves_of(response(3, 1.0)), 5, 1)
