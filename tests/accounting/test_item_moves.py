"""One move among shuffled items, against brute force: golden values, clones, blankets."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.item_channels import Channel, response
from tests.oracles.multiset_laws import divergence, multiset_law, private_distances
from tests.tables import check_all

from metricshuffle.accounting.shuffling.blanket_bound import delta_bracket
from metricshuffle.accounting.shuffling.blanket_bound import delta_upper as blanket_delta
from metricshuffle.accounting.shuffling.clone_bound import ClonePair
from metricshuffle.accounting.shuffling.clone_bound import delta_upper as clone_delta
from metricshuffle.accounting.user_items.item_reports import ItemShuffle, ItemWiseProfile
from metricshuffle.accounting.user_items.single_move_bounds import (
    BlanketLines,
    CloneLines,
    moves_of,
)
from metricshuffle.errors import ConditionError
from metricshuffle.randomizers import LaplaceOnInterval, WitchHat

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden" / "user_level_flow.json").read_text(encoding="utf-8")
)


@check_all("row", GOLDEN["given_clones"])
def test_golden_given_the_clones(row: dict[str, Any]) -> None:
    from metricshuffle.accounting.shuffling import _clone_kernels as kernels

    e = math.exp(row["epsilon"])
    p = (1.0 - row["beta"]) / row["beta"]
    least, most = kernels.one_count(
        float(row["clones"]), (p - e) / (p + 1.0), e - 1.0, (p - e) / (p * e - 1.0), 0.5, 0.5, 1e-15
    )
    assert least * (1.0 - 1e-11) <= row["value"] <= most * (1.0 + 1e-11)
    assert most == pytest.approx(row["value"], rel=1e-11)


@check_all("row", GOLDEN["one_move"])
def test_golden_one_move(row: dict[str, Any]) -> None:
    total = row["total"]
    local = row["total"] * row["distance"]
    log_q = total + math.log1p(math.tanh(0.5 * local))
    assert clone_delta(
        ClonePair(local, log_q, log_q), row["shuffled"], row["epsilon"]
    ) == pytest.approx(row["value"], rel=1e-9)
    if row["distance"] == 1.0:
        largest = math.tanh(0.5 * total)
        intercept = CloneLines(total, row["shuffled"], 1).intercept(
            math.expm1(row["epsilon"]) / largest
        )
        assert intercept * largest == pytest.approx(row["value"], rel=1e-9)


@pytest.mark.parametrize("row", GOLDEN["blanket"])
def test_golden_blanket(row: dict[str, Any]) -> None:
    channel = response(row["values"], row["ratio"])
    epsilon = math.log(row["growth"])
    assert blanket_delta(channel.blanket(0, 1), row["shuffled"], epsilon) == pytest.approx(
        row["value"], rel=1e-9
    )
    lines = BlanketLines(moves_of(channel), row["shuffled"], 1)
    one = lines.delta(lines.clock.time(1.0), epsilon)
    assert (
        row["value"] * (1.0 - 1e-9) <= one <= 3.0 * row["value"]
    )  # a flow is more than one step of it


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))]
)
def test_never_below_brute_force(seed: int) -> None:
    """Three points on a line, up to 8 items, any moves; black box and blanket, both directions.

    Also with all others at x.
    """
    rng = np.random.default_rng(seed)
    places = np.array([0.0, rng.uniform(0.1, 0.9), 1.0])
    distances = np.abs(places[:, None] - places[None])
    rows = (
        np.exp(-rng.uniform(0.3, 3.0) * distances / 2.0)
        if seed % 2
        else rng.dirichlet(np.full(3, 3.0), 3) * 0.7 + 0.1
    )
    rows /= rows.sum(axis=1, keepdims=True)
    count = int(rng.integers(2, 9))
    items = int(rng.integers(1, count + 1))
    before = rng.integers(0, 3, count) if seed % 3 else np.full(count, rng.integers(0, 3))
    after = before.copy()
    after[:items] = (before[:items] + rng.integers(1, 3, items)) % 3
    moved = distances[before, after].sum() / items  # the earth mover's distance is at most this
    shuffle = ItemShuffle(items, count)
    channel = Channel(rows, distances)
    off = ~np.eye(3, dtype=bool)
    rate = float((private_distances(rows)[off] / distances[off]).max()) * (1.0 + 1e-12)
    one = multiset_law([rows[x] for x in before])
    other = multiset_law([rows[x] for x in after])
    lines = BlanketLines(moves_of(channel), count, items)
    black_box = CloneLines(rate, count, items)
    profile = ItemWiseProfile(rate, shuffle)
    matched = np.tanh(0.5 * rate * distances[before, after]).sum()
    for epsilon in (0.0, 0.3, 0.9, 2.0):
        exact = divergence(one, other, epsilon)
        assert exact <= profile.delta(epsilon, moved) * (1.0 + 1e-9)
        assert exact <= black_box.delta(float(matched), epsilon) * (1.0 + 1e-9)
        assert exact <= lines.delta(lines.clock.time(moved), epsilon) * (1.0 + 1e-9) + 1e-15


@pytest.mark.parametrize("seed", range(6))
def test_lines_are_those_of_the_worst_move(seed: int) -> None:
    """Never below any move's bracket, and no higher than the worst move evaluated precisely."""
    rng = np.random.default_rng(seed)
    places = np.array([0.0, *np.sort(rng.uniform(0.05, 0.95, 2)), 1.0])
    rows = rng.dirichlet(np.full(4, 2.0), 4) * 0.7 + 0.1 * rng.uniform()
    channel = Channel(
        rows / rows.sum(axis=1, keepdims=True), np.abs(places[:, None] - places[None])
    )
    users = int(rng.integers(20, 400))
    lines = BlanketLines(moves_of(channel), users, 5)
    worst = set()
    for slope in (0.0, *np.geomspace(1e-3, 1.0, 7) * min(lines.pure, 5.0)):
        found = [
            delta_bracket(move.law, users, math.log1p(slope * move.share), relative=2e-3)
            for move in lines.moves
        ]
        closely = [
            (one.upper / move.share, index)
            for index, (one, move) in enumerate(zip(found, lines.moves, strict=True))
        ]
        worst.add(max(closely)[1])
        intercept = lines.intercept(float(slope))
        assert all(
            one.lower / move.share <= intercept
            for one, move in zip(found, lines.moves, strict=True)
        )
        assert intercept <= max(closely)[0] * (1.0 + 1e-9)
    assert worst != {0} or seed != 1  # the farthest move is not always the worst


@pytest.mark.parametrize(
    ("values", "ratio", "items", "epsilon", "exact"),
    [
        (3, math.e, 8, math.log(2.664), 2.403e-4),
        (4, 3.0, 2, math.log(2.4), 0.05),
        (10, 1.10049, 5, 0.0823497, 2.0446e-7),
    ],
)
def test_reports_that_say_nothing_do_not_hide(
    values: int, ratio: float, items: int, epsilon: float, exact: float
) -> None:
    """k-RR with the others at x: pairs that merge third values came out below this."""
    channel = response(values, ratio)
    x = channel.rows[0]
    y = channel.rows[1]
    merged = [
        np.array([law[0], law[1], law[2:].sum()]) for law in (x, y)
    ]  # the third values look alike to all of them
    true = divergence(
        multiset_law([merged[0]] * items),
        multiset_law([merged[1], *[merged[0]] * (items - 1)]),
        epsilon,
    )
    assert true == pytest.approx(exact, rel=1e-2)
    lines = BlanketLines(moves_of(channel), items, 1)
    assert lines.delta(lines.clock.time(1.0), epsilon) >= true * (1.0 - 1e-9)
    assert ItemWiseProfile(math.log(ratio) * (1.0 + 1e-12), ItemShuffle(1, items)).delta(
        epsilon, 1.0
    ) >= true * (1.0 - 1e-9)


@check_all("randomizer", [LaplaceOnInterval(0.0, 1.0, 2.2, 8), WitchHat(0.5, 2.0, 2.2, 4)])
def test_real_values_between_grid_points_are_not_taken_for_grid_points(randomizer: Any) -> None:
    """Half a step reveals more than half of a step, so pairs of grid points do not bound it."""
    rows = randomizer.rows()
    step = randomizer.distance(0, 1)
    between = 0.5 * (rows[0] + rows[1])
    whole = np.abs(np.log(rows[1] / rows[0])).max()
    half = np.abs(np.log(between / rows[0])).max()
    assert half / (0.5 * step) > 1.05 * whole / step
    with pytest.raises(ConditionError, match="between"):
        moves_of(randomizer)
