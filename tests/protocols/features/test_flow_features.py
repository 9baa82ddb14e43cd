"""Flows: slopes against all pairs of trips, the promise in exact fractions, coverage, accuracy."""

from __future__ import annotations

import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from tests.catalogue.invented_zones import point_zones, quad_zones
from tests.catalogue.planned_tasks import signed
from tests.oracles.share_coverage import KINDS, LEVEL, Setting, coverage, covered
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.accounting.vectors.zone_slopes import pair_half_distances, product_slope
from metricshuffle.errors import InputError, MetricShuffleError
from metricshuffle.noise.random_rounding import round_quotients
from metricshuffle.numerics.types import Floats
from metricshuffle.planning.candidates import vector_calibration
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.privacy.guarantee import Who
from metricshuffle.protocols.features import Cells, Features, FlowCells, FlowHats, space_of
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.spaces import Space, Zones

RATE = 1.0 / 4000.0


@cache
def blocked(zones: Zones, count: int = 4) -> Zones:
    """The same zones in blocks of neighbours, which are named by their place in the order of x."""
    order = np.argsort(np.argsort(zones.degrees[:, 1], kind="stable"), kind="stable")
    blocks = [f"b{place * count // len(order)}" for place in order]
    return Zones(**{**zones.model_dump(), "blocks": blocks})


@cache
def square(side: int, blocks: int | None = None) -> Zones:
    """Cells of a kilometre, in blocks of a quarter of the side."""
    up, right = np.indices((side, side)).reshape(2, -1)
    names = (
        None
        if blocks is None
        else [f"{a // blocks}{b // blocks}" for a, b in zip(up, right, strict=True)]
    )
    return Zones.of_points(
        [f"z{a:02d}{b:02d}" for a, b in zip(up, right, strict=True)],
        30.0 + up / 110.85,
        -97.0 + right / 96.4,
        unit="km",
        blocks=names,
    )


ZONES = {
    "polygons": quad_zones(),
    "points": point_zones(12),
    "two": Zones.of_points(["a", "b"], [0.0, 0.0], [0.0, 1e-7]),
    "in blocks": blocked(quad_zones()),
    "points in blocks": blocked(point_zones(12), 3),
}


def distances_of(space: Space) -> Floats:
    points = space.domain.points(space.domain.all_values())
    distances = space.metric.pairwise(points, points)
    np.fill_diagonal(distances, np.inf)
    return distances


def changes_of(table: Any, rates: Floats) -> Floats:
    """Loss of every pair of trips, without the code of the features."""
    dense = table.toarray() * rates
    return np.stack([np.abs(dense - row).sum(axis=1) for row in dense])


# Slopes


@check_all("name", ZONES)
def test_no_two_trips_cost_more_than_the_slope(name: str) -> None:
    space = Space.of(ms.Flows(ZONES[name]).pairs)
    features = FlowCells()
    weights = features.weights(space)
    table = features.table(space)
    assert features.validate_table(space) is not None
    generator = np.random.default_rng(2)
    distances = distances_of(space)
    for rates in (weights, generator.uniform(0.1, 1.0, len(weights))):
        assert (changes_of(table, rates) / distances).max() <= features.slope(space, rates)
    assert features.slope(space, weights) == pytest.approx(1.0, abs=1e-12)
    assert (changes_of(table, weights) / distances).max() >= 0.9  # the nearest two trips


@check_all("name, length", [("polygons", 3000.0), ("polygons", 9000.0), ("points", 12_000.0)])
def test_products_of_hats_change_by_no_more_than_the_slope(name: str, length: float) -> None:
    """All pairs of trips: no price for the second end."""
    space = Space.of(ms.Flows(ZONES[name]).pairs)
    hats = FlowHats(length)
    table = hats.validate_table(space)
    top = (780 * 2**12) ** 2
    assert (table.sum(axis=1) == top).all()
    assert int(np.diff(table.indptr).max()) <= 9
    ones = np.ones(table.shape[1])
    largest = (changes_of(table, ones) / distances_of(space)).max()
    assert largest <= hats.slope(space, ones)
    assert hats.slope(space, ones) * length / top == pytest.approx(2.308974, rel=1e-3)
    assert largest * length / top > 1.5


def test_the_slope_of_products_is_that_of_one_end() -> None:
    """Golden, 2.30940: equilateral triangles of side 1, 40,000 pairs of trips in the plane."""
    generator = np.random.default_rng(6)
    basis = np.array([[1.0, 0.0], [0.5, math.sqrt(0.75)]])

    def hats(points: Floats) -> Floats:
        """Barycentric coordinates of each point on the corners of a lattice of 5 x 5."""
        along = points @ np.linalg.inv(basis)
        low = np.floor(along)
        a, b = (along - low).T
        upper = a + b > 1.0
        table = np.zeros((len(points), 6, 6))
        rows = np.arange(len(points))
        i, j = low.astype(int).T
        table[rows, i + upper, j + upper] = np.where(upper, a + b - 1.0, 1.0 - a - b)
        table[rows, i + 1, j] += np.where(upper, 1.0 - b, a)
        table[rows, i, j + 1] += np.where(upper, 1.0 - a, b)
        return table.reshape(len(points), -1)

    worst = 0.0
    for _ in range(20):
        trips = generator.uniform(0.0, 4.0, (2, 2000, 2)) @ basis
        moves = generator.normal(0.0, 1.0, (2, 2000, 2)) * 10.0 ** generator.uniform(
            -3, 0, (2, 2000, 1)
        )
        moved = (
            np.clip(trips @ np.linalg.inv(basis) + moves @ np.linalg.inv(basis), 0.0, 4.0) @ basis
        )
        first, second = (
            np.einsum("ne,nf->nef", hats(ends[0]), hats(ends[1])) for ends in (trips, moved)
        )
        apart = np.linalg.norm(trips - moved, axis=2).sum(axis=0)
        worst = max(worst, float((np.abs(first - second).sum(axis=(1, 2)) / apart).max()))
    assert worst <= 4.0 / math.sqrt(3.0) * (1.0 + 1e-9)
    assert worst == pytest.approx(2.30940, abs=2e-3)
    # Attained: the end of a trip moves along a height of its triangle.
    ends = np.array([[1.5, 0.2], [1.5, 0.3]])
    start = hats(np.array([[2.1, 0.5]]))[0]
    first, second = (np.outer(start, end) for end in hats(ends))
    assert np.abs(first - second).sum() / 0.1 == pytest.approx(2.3094010768, rel=1e-9)
    assert product_slope(4.0 / math.sqrt(3.0), 1) == pytest.approx(2.3094010768, rel=1e-10)


def test_the_theorems_refuse_what_they_do_not_cover() -> None:
    for wrong in ((0.0, 5), (math.nan, 5), (1.0, 0)):
        with pytest.raises(InputError, match="sum > 0"):
            product_slope(*wrong)
    assert pair_half_distances(np.array([1.0, 3.0, 2.0])).reshape(3, 3).tolist() == [
        [1.0, 1.0, 1.0],
        [1.0, 3.0, 2.0],
        [1.0, 2.0, 2.0],
    ]
    for features in (FlowCells(), FlowHats(1000.0)):
        with pytest.raises(InputError, match="are for pairs of zones"):
            features.table(Space.of(quad_zones()))
    with pytest.raises(InputError, match="merge zones, or name few blocks"):
        FlowCells().table(Space.of(ms.Flows(point_zones(65)).pairs))
    with pytest.raises(InputError, match="use longer triangles"):
        FlowHats(100.0).table(Space.of(ms.Flows(point_zones(65)).pairs))


@check_all("name", ["polygons", "in blocks"])
def test_one_move_dominates_all_within_the_distance(name: str) -> None:
    space = Space.of(ms.Flows(ZONES[name]).pairs)
    features = FlowCells()
    rates = features.weights(space)
    table = features.table(space).toarray()
    distances = distances_of(space)
    for distance in (0.0, *np.quantile(distances[np.isfinite(distances)], [0.0, 0.01, 1.0])):
        moves = list(features.moves(space, rates, distance))
        pairs = np.argwhere(distances <= distance)
        costs = [(np.abs(table[a] - table[b]) * rates).sum() for a, b in pairs[::7]]
        allowed = sum(float((move.rates * move.sizes * move.counts).sum()) for move in moves)
        assert max(costs, default=0.0) <= allowed * (1.0 + 1e-12)
    assert not list(features.moves(space, rates, 0.0))


# The whole promise


def calibrated(query: ms.Flows, features: Features, people: int, trusted: Who) -> NoisyVectors:
    setting = PlanRequest(query, ms.Target(1.0, 1e-6, 4000.0), people).setting
    return vector_calibration._protocol(setting, trusted, features, 0.5)


@check_all("features", [FlowCells(), FlowHats(9000.0)])
def test_the_promise_of_two_people_in_exact_fractions(features: Features) -> None:
    check_promise_of_two(features, 11)


@pytest.mark.thorough
@pytest.mark.parametrize("features", [FlowCells(), FlowHats(6000.0), FlowHats(9000.0)], ids=str)
def test_the_promise_of_two_people_for_all_trips(features: Features) -> None:
    check_promise_of_two(features, 1)


def check_promise_of_two(features: Features, every: int) -> None:
    """Sums of two people who may both move: every ratio of likelihoods against e^(rate distance).

    Laws are fractions: e^-rate is a decimal of 60 digits, rounded down, which overstates ratios.
    All coordinates are independent, so the largest ratio is the product of the largest ones.
    """
    zones = Zones.of_points(["a", "b", "c"], [30.0, 30.03, 30.02], [-97.0, -97.0, -96.95])
    query = ms.Flows(zones)
    space = space_of(query)
    made = calibrated(query, features, 2, "aggregator")
    assert (made.rounding == "random") == features.fine
    assert made.sharers == 2  # two shares of shape 1/2: discrete Laplace noise in total
    ratio = Fraction(made.units, made.divisor)
    values = [[ratio * int(number) for number in row] for row in features.table(space).toarray()]
    with localcontext() as context:
        context.prec = 60
        falls = [
            Fraction((-Decimal(rate.numerator) / Decimal(rate.denominator)).exp())
            * (1 - Fraction(1, 10**55))
            for rate in made._exact_rates(space)
        ]
    distances = distances_of(space)
    np.fill_diagonal(distances, 0.0)

    def law(
        parts: tuple[Fraction, Fraction], fall: Fraction, low: int, high: int
    ) -> list[Fraction]:
        """Likelihoods, up to a constant, of two values rounded at random, plus noise."""
        chances = {0: Fraction(1)}
        for value in parts:
            whole = math.floor(value)
            after: dict[int, Fraction] = {}
            for at, chance in chances.items():
                for up, part in ((0, 1 - value + whole), (1, value - whole)):
                    after[at + whole + up] = after.get(at + whole + up, Fraction(0)) + chance * part
            chances = after
        return [
            sum((chance * fall ** abs(z - at) for at, chance in chances.items()), Fraction(0))
            for z in range(low, high + 1)
        ]

    largest = 0.0
    generator = np.random.default_rng(3)
    for first, second in [(a, b) for a in range(9) for b in range(9) if a != b][::every]:
        other, moved = generator.integers(9, size=2).tolist()
        for before, after in (((first, other), (second, other)), ((first, other), (second, moved))):
            loss = Fraction(1)
            for e, fall in enumerate(falls):
                one, two = (tuple(values[code][e] for code in codes) for codes in (before, after))
                if sorted(one) == sorted(two):
                    continue
                low = math.floor(min(sum(one), sum(two))) - 1
                high = math.ceil(max(sum(one), sum(two))) + 1
                laws = [law(parts, fall, low, high) for parts in (one, two)]  # type: ignore[arg-type]
                loss *= max(x / y for x, y in zip(*laws, strict=True))
            apart = distances[first, second] + distances[other, after[1]]
            spent = math.log(loss.numerator) - math.log(loss.denominator)
            assert spent <= RATE * apart
            largest = max(largest, spent / (RATE * apart))
    assert largest > 0.6


@pytest.mark.thorough
@pytest.mark.parametrize("zones", [quad_zones(), blocked(quad_zones())], ids=["zones", "blocks"])
def test_a_damaged_task_is_refused(zones: Zones) -> None:
    made = ms.plan(ms.Flows(zones), ms.Target(1.0, 1e-6, 4000.0), 500, protocols=["noisy-vectors"])
    task = made.task
    task.verify()
    content = json.loads(task.to_json())
    assert signed(content) == task.to_json()
    protocol = content["protocol"]
    latitudes = content["query"]["domain"]["zones"]["latitudes"]
    mutants: list[tuple[str, object]] = [
        ("protocol.factor", 1.001 * protocol["factor"]),
        ("protocol.sharers", 2 * protocol["sharers"]),
        ("protocol.coordinates", protocol["coordinates"] - 1),
        ("protocol.features", {"kind": "flow-hats", "length": 4000.0}),
        ("protocol.features", {"kind": "zone-cells"}),
        ("query.domain.zones.latitudes", [(at + 9 * latitudes[0]) // 10 for at in latitudes]),
        ("query.domain", content["query"]["domain"]["zones"]),
        ("query.kind", "histogram"),
    ]
    if zones.blocks is not None:
        mutants.append(("query.domain.zones.blocks", None))
    for path, value in mutants:
        copy: Any = json.loads(task.to_json())
        *steps, last = path.split(".")
        place = copy
        for step in steps:
            place = place[step]
        place[last] = value
        with pytest.raises((MetricShuffleError, ValidationError)):
            ms.Task.from_json(signed(copy)).verify()


# Intervals


@check_all("kind", KINDS)
def test_intervals_of_blocks_and_pairs_cover(kind: str) -> None:
    query = ms.Flows(blocked(quad_zones()))
    rows = coverage(Setting("blocks", query, FlowCells(), RATE), kind, 40)
    assert rows["nearby"] >= 0.91
    assert rows["at most"] >= 0.93
    rows = coverage(Setting("pairs", ms.Flows(quad_zones()), FlowCells(), RATE), kind, 40)
    assert rows["interval"] >= 0.91


@check_all("kind", KINDS)
def test_bounds_of_hats_hold(kind: str) -> None:
    rows = hat_coverage(kind, 20)
    assert rows["at most"] >= 0.93
    assert rows["nearby"] >= 0.9


def hat_coverage(kind: str, runs: int) -> dict[str, float]:
    """Coverage over releases whose products are rounded and noised by the protocol's samplers."""
    query = ms.Flows(quad_zones())
    people = 1000
    features = FlowHats(9000.0)
    made = calibrated(query, features, people, "aggregator")
    shown = Setting("hats", query, features, RATE, people)
    vars(shown)["protocol"] = made
    generator = np.random.default_rng(4)
    values, sizes = shown.held(kind, generator)
    space = space_of(query)
    randomness = ms.Randomness.seeded(3)
    failing = -np.expm1(-made.rates(space))
    means = []
    for _ in range(runs):
        rounded = round_quotients(
            made._features_of(values, None, space),
            np.full(people, made.divisor),
            made.units,
            randomness,
        )
        noise = generator.geometric(failing) - generator.geometric(failing)
        means.append((rounded.sum(axis=0) + noise) / made.noise(space, people).count)
    return covered(shown, shown.truth(values, sizes), np.stack(means))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["blocks", "hats"])
def test_bounds_hold_in_many_releases(what: str, kind: str) -> None:
    runs = 200
    setting = Setting("blocks", ms.Flows(square(16, 4)), FlowCells(), 0.25, 10_000)
    rows = coverage(setting, kind, runs) if what == "blocks" else hat_coverage(kind, runs)
    spread = math.sqrt(LEVEL * (1.0 - LEVEL) / runs)
    for name in ("nearby", "at most"):
        assert rows[name] >= 0.93
        assert rows[f"{name}, worst"] >= LEVEL - 5.0 * spread
        assert rows[f"{name}, all"] >= LEVEL - 3.0 * spread


@check_all("features", [FlowCells(), FlowHats(3000.0), FlowHats(9000.0)])
def test_without_noise_no_bound_is_below_a_share(features: Features) -> None:
    """Any trips: also all in one pair, where the bound of hats is attained up to its rounding."""
    zones = blocked(quad_zones()) if isinstance(features, FlowCells) else quad_zones()
    space = Space.of(ms.Flows(zones).pairs)
    generator = np.random.default_rng(9)
    readings = features.bounds(space)
    single = np.eye(144)[generator.integers(144, size=5)]
    for shares in (*generator.dirichlet(np.full(144, 0.05), 20), *single):
        values = readings.values(shares @ features.table(space))
        points = readings.points
        least = np.minimum.reduceat(values[points.indices], points.indptr[:-1])
        assert (least >= shares * (1.0 - 1e-12)).all()
    at = int(np.argmax(shares))
    assert least[at] <= 1.04


# Plans and releases


def test_what_cannot_be_counted_is_refused_early() -> None:
    """More than 64 blocks, and more than 64 zones on both sides of the antimeridian."""
    target = ms.Target(1.0, 1e-6, 60_000.0)
    around = Zones.of_points(
        [f"z{code:02d}" for code in range(70)],
        np.linspace(10.0, 12.0, 70),
        [179.9 if code % 2 else -179.9 for code in range(70)],
    )
    many = Zones(**{**point_zones(70).model_dump(), "blocks": [str(code) for code in range(70)]})
    for zones in (around, many):
        with pytest.raises(MetricShuffleError, match=r"4,900 coordinates.*merge zones"):
            ms.plan(ms.Flows(zones), target, 1000, protocols=["noisy-vectors"])


def test_zones_along_a_line_have_hats() -> None:
    line = Zones.of_points(
        [f"z{code:02d}" for code in range(70)], np.linspace(30.0, 31.0, 70), np.full(70, 10.0)
    )
    space = Space.of(ms.Flows(line).pairs)
    assert not list(FlowCells.offered(space, 1000, RATE))
    for hats in FlowHats.offered(space, 1000, RATE):
        assert 9 < hats.table(space).shape[1] <= 4096
    assert len(list(FlowHats.offered(space, 1000, RATE))) == 2


def test_flows_between_blocks_have_their_own_table() -> None:
    zones = blocked(quad_zones())
    query = ms.Flows(zones)
    made = ms.plan(query, ms.Target(4.0, 1e-6, 4000.0), 800)
    assert "between blocks" in query.measure
    generator = np.random.default_rng(5)
    codes = generator.integers(12, size=(800, 2)) // np.array([1, 4])
    trips = np.array(zones.ids, dtype=object)[codes]
    release = made.run(trips, randomness=ms.Randomness.seeded(1))
    flows = release.blocks()
    assert flows["from"][:5] == ["b0", "b0", "b0", "b0", "b1"]
    codes_of_trips = query.inputs(trips, 1.0).numbers[:, 0]
    truth = np.bincount(query.pairs.block_codes[codes_of_trips], minlength=16)
    low, high = np.array(flows["interval_95"]).T
    together = np.array(release.blocks(simultaneous=True)["interval_95"])
    assert (together[:, 0] <= truth / 800).all()
    assert (truth / 800 <= together[:, 1]).all()
    assert (high - low < 0.2).all()
    assert (together[:, 1] - together[:, 0] >= high - low).all()
    assert np.abs(np.asarray(flows["count"]) - truth).max() < 60
    assert "b0 to b" in str(release)
    shares = np.asarray(release.value["share"])
    assert shares.sum() == pytest.approx(1.0)
    assert zones.blocks is not None
    assert release.value["from_block"][0] == zones.blocks[0]
    with pytest.raises(InputError, match="smoothed"):
        release.interval(0.95)
    again = ms.Release.from_json(release.to_json())
    assert again.blocks()["share"] == pytest.approx(flows["share"])
    pairs = ms.plan(ms.Flows(quad_zones()), ms.Target(4.0, 1e-6, 4000.0), 800)
    with pytest.raises(InputError, match="have no blocks"):
        pairs.run(trips, randomness=ms.Randomness.seeded(1)).blocks()
    counts = ms.plan(ms.Histogram(quad_zones()), ms.Target(4.0, 1e-6, 4000.0), 800)
    with pytest.raises(InputError, match="a zones has no blocks"):
        counts.run(trips[:, 0].tolist(), randomness=ms.Randomness.seeded(1)).blocks()


def test_trips_within_a_zone_are_counted_like_all_others() -> None:
    zones = quad_zones(3, 2)
    made = ms.plan(ms.Flows(zones), ms.Target(8.0, 1e-6, 3500.0), 1000, protocols=["noisy-vectors"])
    trips = [("T01", "T01")] * 700 + [("T01", "T02")] * 300
    release = made.run(trips, randomness=ms.Randomness.seeded(2))
    table = release.value
    shares = dict(zip(zip(table["from"], table["to"], strict=True), table["share"], strict=True))
    assert shares["T01", "T01"] == pytest.approx(0.7, abs=0.06)
    assert shares["T01", "T02"] == pytest.approx(0.3, abs=0.06)


def test_flat_targets_have_the_same_noise_for_all_pairs() -> None:
    made = ms.plan(
        ms.Flows(quad_zones()),
        ms.Target(1.0, 1e-6, 20_000.0, "flat"),
        2000,
        protocols=["noisy-vectors"],
    )
    assert isinstance(made.protocol, NoisyVectors)
    assert made.protocol.features == Cells()
    made.task.verify()


def test_public_weights_are_where_smoothed_flows_begin() -> None:
    zones = blocked(quad_zones())
    weights = np.array(zones.weights)
    space = Space.of(ms.Flows(zones).pairs)
    truth = np.outer(weights, weights).ravel() / weights.sum() ** 2
    features = FlowCells()
    means = truth @ features.table(space)
    fitted = features.shares(space, means, np.full(len(means), 1e-4))
    assert np.abs(fitted - truth).sum() < 0.02
    even = Zones(**{**zones.model_dump(), "weights": None})
    plain = features.shares(Space.of(ms.Flows(even).pairs), means, np.full(len(means), 1e-4))
    assert np.abs(plain - truth).sum() > 0.2


def gravity(side: int) -> Floats:
    """Shares of trips from homes to jobs, falling with their distance."""
    cells = np.indices((side, side)).reshape(2, -1).T

    def bumps(rows: tuple[tuple[float, float, float, float], ...]) -> Floats:
        squares = [((cells - np.array([y, x]) * side) ** 2).sum(axis=1) for _, y, x, _ in rows]
        return np.asarray(
            np.sum(
                [
                    size * np.exp(-square / (2.0 * (wide * side) ** 2))
                    for (size, _, _, wide), square in zip(rows, squares, strict=True)
                ],
                axis=0,
            )
        )

    homes = bumps(((1.0, 0.3, 0.3, 0.12), (0.7, 0.7, 0.6, 0.15), (0.2, 0.5, 0.5, 0.4)))
    jobs = bumps(((1.0, 0.5, 0.45, 0.06), (0.4, 0.75, 0.7, 0.1), (0.1, 0.5, 0.5, 0.4)))
    apart = np.abs(cells[:, None] - cells[None]).sum(axis=-1)
    table = homes[:, None] * jobs * np.exp(-apart / (0.25 * side))
    return np.asarray(table.ravel() / table.sum())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("side", "spread", "pairs", "blocks"),
    [(8, "spiky", 0.353, 0.184), (16, "any", 0.575, 0.171)],
    ids=["64 zones by cells", "256 zones by hats"],
)
def test_accuracy_on_a_gravity_model(side: int, spread: Any, pairs: float, blocks: float) -> None:
    """Total variation over pairs and over 16 x 16 blocks, of 10,000 people, near the design's."""
    people = 10_000
    query = ms.Flows(square(side))
    made = ms.plan(
        query,
        ms.Target(1.0, 1e-6, side / 4.0),
        people,
        spread=spread,
        protocols=["noisy-vectors"],
        trusted="curator",
    )
    assert isinstance(made.protocol, NoisyVectors)
    assert isinstance(made.protocol.features, FlowCells if side == 8 else FlowHats)
    generator = np.random.default_rng(7)
    counts = generator.multinomial(people, gravity(side))
    codes = np.repeat(np.arange(len(counts)), counts)
    ids = np.array(query.pairs.zones.ids, dtype=object)
    trips = np.column_stack([ids[codes // len(ids)], ids[codes % len(ids)]])
    release = made.run(trips, randomness=ms.Randomness.seeded(1))
    off = np.asarray(release.value["share"]) - counts / people
    coarse = ms.Flows(square(side, side // 4)).pairs.between_blocks(off)
    assert 0.5 * np.abs(off).sum() < 1.1 * pairs
    assert 0.5 * np.abs(coarse).sum() < 1.1 * blocks
