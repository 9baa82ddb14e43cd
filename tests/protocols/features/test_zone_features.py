"""Zones one by one and hats: slopes against all pairs, planned errors, coverage, and time."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from tests.catalogue.invented_zones import point_zones, quad_zones
from tests.oracles.share_coverage import KINDS, LEVEL, Setting, coverage, covered
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.accounting.vectors.feature_changes import ideal_loss
from metricshuffle.accounting.vectors.zone_slopes import barycentric_slope, single_zone_slope
from metricshuffle.errors import InputError
from metricshuffle.noise.random_rounding import round_quotients
from metricshuffle.numerics.types import Floats
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.protocols.features import Cells, Features, ZoneCells, ZoneHats, space_of
from metricshuffle.protocols.features.zone_features import HAT_TOP, MAX_RATES
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.simulation.share_errors import EVENLY_SPREAD, share_errors
from metricshuffle.spaces import Haversine, Space, Zones

ZONES = {
    "polygons": quad_zones(),
    "points": point_zones(300),
    "two": Zones.of_points(["a", "b"], [0.0, 0.0], [0.0, 1e-7]),
    "a line of pairs": Zones.of_points(
        [f"p{code}" for code in range(20)],
        [0.01 * (code // 2) for code in range(20)],
        [1e-6 * (code % 2) for code in range(20)],
    ),
    "across the antimeridian": Zones.of_points(
        ["a", "b", "c"], [10.0, 10.1, 10.2], [179.99, -179.99, 179.9]
    ),
}


@check_all("name", ZONES)
def test_no_pair_costs_more_than_the_slope(name: str) -> None:
    """All pairs, for the planned rates and for arbitrary ones; the planned ones cost nearly 1."""
    space = Space.of(ZONES[name])
    features = ZoneCells()
    weights = features.weights(space)
    generator = np.random.default_rng(2)
    distances = space.metric.pairwise(ZONES[name].degrees, ZONES[name].degrees)
    np.fill_diagonal(distances, np.inf)
    for rates in (weights, generator.uniform(0.1, 1.0, len(weights)), 1e-4 * weights**0.5):
        losses = np.add.outer(rates, rates) / distances
        assert losses.max() <= features.slope(space, rates)
    assert features.slope(space, weights) == pytest.approx(1.0, abs=1e-12)
    closest = (np.add.outer(weights, weights) / distances).max()
    assert closest >= 0.98  # the nearest two zones


def test_few_rates_that_lose_little() -> None:
    zones = point_zones(5000)
    weights = ZoneCells().weights(Space.of(zones))
    assert len(np.unique(weights)) <= MAX_RATES
    assert (weights <= 0.5 * zones.nearest).all()
    assert (weights >= 0.5 * zones.nearest * (1.0 - 1 / 8)).all()


@check_all("name", ZONES)
def test_one_move_dominates_all_within_the_distance(name: str) -> None:
    space = Space.of(ZONES[name])
    features = ZoneCells()
    rates = features.weights(space)
    distances = space.metric.pairwise(ZONES[name].degrees, ZONES[name].degrees)
    np.fill_diagonal(distances, np.inf)
    for distance in (0.0, *np.quantile(distances[np.isfinite(distances)], [0.0, 0.1, 0.5, 1.0])):
        within = np.argwhere(distances <= distance)
        pairs = np.sort(rates[within], axis=1)
        moves = list(features.moves(space, rates, distance))
        assert len(moves) == (len(pairs) > 0)
        for move in moves:
            low, high = np.sort(np.repeat(move.rates, move.counts))
            assert (pairs <= (low, high)).all()
            assert ideal_loss(move) >= pairs.sum(axis=1).max()


def test_they_are_for_zones_only() -> None:
    labels = Space(ms.Categories(list("abc")))
    assert not list(ZoneCells.offered(labels, 100, 1.0))
    assert not list(Cells.offered(Space.of(quad_zones()), 100, 1.0))
    assert not list(ZoneCells.offered(Space(quad_zones(), Haversine("m")), 100, 1.0))
    for space in (labels, Space(quad_zones(), Haversine("m"))):
        with pytest.raises(InputError, match="are for zones"):
            ZoneCells().table(space)
    with pytest.raises(InputError, match="must be a number >= 0"):
        list(ZoneCells().moves(Space.of(quad_zones()), np.ones(12), math.nan))
    assert Features.of_kind({"kind": "zone-cells"}) == ZoneCells()


def vectors(plan: ms.Plan) -> NoisyVectors:
    assert isinstance(plan.protocol, NoisyVectors)
    return plan.protocol


def test_planned_and_measured_errors() -> None:
    """Releases by the samplers: the mean error of an even population is the planned one."""
    query = ms.Histogram(quad_zones())
    people = 3000
    made = ms.plan(query, ms.Target(1.0, 1e-6, 4000.0), people, protocols=["noisy-vectors"])
    assert made.choice.protocol == "noisy-vectors"
    assert isinstance(vectors(made).features, ZoneCells)
    planned = share_errors(made.protocol, query, people).means[EVENLY_SPREAD]
    generator = np.random.default_rng(3)
    errors = []
    for seed in range(12):
        codes = generator.integers(12, size=people)
        release = made.run(
            [quad_zones().ids[code] for code in codes], randomness=ms.Randomness.seeded(seed)
        )
        truth = np.bincount(codes, minlength=12) / people
        errors.append(np.abs(np.asarray(release.value["share"]) - truth).mean())
    assert np.mean(errors) == pytest.approx(planned, rel=0.35)


def test_the_promise_is_that_of_the_noise() -> None:
    """Rates of the protocol, per metre: loss of every pair against the target."""
    for zones in (quad_zones(), point_zones(300)):
        query = ms.Histogram(zones)
        made = ms.plan(query, ms.Target(1.0, 1e-6, 4000.0), 10_000, protocols=["noisy-vectors"])
        space = space_of(query)
        rates = vectors(made).rates(space)
        distances = space.metric.pairwise(zones.degrees, zones.degrees)
        np.fill_diagonal(distances, np.inf)
        losses = np.add.outer(rates, rates) / distances * 4000.0
        assert 0.95 < losses.max() <= 1.0
        assert "Inside a zone nothing can be seen" in " ".join(query.remarks())
    assert f"{2 * (quad_zones().radius or 0.0):,.0f} m" in ms.Histogram(quad_zones()).remarks()[0]


def test_flat_targets_have_the_same_noise_for_all_zones() -> None:
    made = ms.plan(
        ms.Histogram(point_zones(60)),
        ms.Target(1.0, 1e-6, 20_000.0, "flat"),
        5000,
        protocols=["noisy-vectors"],
    )
    assert vectors(made).features == Cells()


def test_five_thousand_zones_are_planned_in_time() -> None:
    zones = point_zones(5000)
    ms.plan(ms.Histogram(point_zones(60)), ms.Target(1.0, 1e-6, 20_000.0), 100_000)  # warm
    start = time.process_time()
    made = ms.plan(ms.Histogram(zones), ms.Target(1.0, 1e-6, 20_000.0), 100_000)
    assert time.process_time() - start < 3.0
    assert isinstance(vectors(made).features, ZoneHats)
    assert vectors(made).coordinates < 500


# Hats


@check_all("length", [300.0, 2000.0, 7000.0, 50_000.0])
def test_hats_of_no_pair_change_by_more_than_the_slope(length: float) -> None:
    """All pairs of points, of a dense city and of a country; and pairs a centimetre apart."""
    generator = np.random.default_rng(8)
    country = Zones.of_points(
        [f"c{code:03d}" for code in range(200)],
        generator.uniform(35.0, 60.0, 200),
        generator.uniform(-5.0, 40.0, 200),
        unit="km",
    )
    close = generator.uniform((30.1, -98.0), (30.4, -97.6), (100, 2))
    directions = generator.normal(0.0, 3e-6, (100, 2))
    pairs = Zones.of_points(
        [f"p{code:03d}" for code in range(200)],
        np.concatenate([close, close + directions])[:, 0],
        np.concatenate([close, close + directions])[:, 1],
    )
    for zones in (point_zones(300), pairs, country, quad_zones()):
        hats = ZoneHats(length / (1000.0 if zones.unit == "km" else 1.0))
        space = Space.of(zones)
        table = hats.table(space).toarray()
        assert (table.sum(axis=1) == HAT_TOP).all()
        assert ((table > 0).sum(axis=1) <= 3).all()
        changes = np.abs(table[:, None, :] - table[None, :, :]).sum(axis=2).astype(np.float64)
        distances = space.metric.pairwise(zones.degrees, zones.degrees)
        np.fill_diagonal(distances, np.inf)
        assert (changes / distances).max() <= hats.slope(space, np.ones(table.shape[1]))


def test_the_slope_of_hats_is_that_of_the_least_height() -> None:
    """Golden: 2 sqrt(901)/26 per side; attained across a side of a triangle."""
    grain = ZoneHats(3000.0).grain
    # Points along the gradient of a hat, within one triangle.
    latitudes = np.array([0.0, 0.0, 1e-3])
    longitudes = np.array([0.0, 1e-3, 0.0])
    zones = Zones.of_points(["a", "b", "c"], latitudes, longitudes)
    space = Space.of(zones)
    hats = ZoneHats(3000.0)
    slope = hats.slope(space, np.ones(hats.table(space).shape[1])) / HAT_TOP * 3000.0
    assert slope == pytest.approx(60.0 * math.sqrt(901.0) / 780.0, rel=1e-5)
    assert 60.0 * math.sqrt(901.0) / 780.0 == pytest.approx(2.308974003046713, rel=1e-14)
    equilateral = 4.0 / math.sqrt(3.0) * math.sqrt(math.sqrt(3.0) / 2.0 * 900.0 / 780.0)
    assert 1.0 <= 60.0 * math.sqrt(901.0) / 780.0 / equilateral <= 1.0003
    assert grain == pytest.approx(9.5367e-5, rel=1e-4)
    table = hats.table(space).toarray() / HAT_TOP
    moved = np.abs(table[0] - table[1]).sum() / space.distance("a", "b") * 3000.0
    assert moved == pytest.approx(2.0, abs=1e-3)  # along a side, of length 1


def test_the_theorems_refuse_points_at_one_place() -> None:
    assert single_zone_slope(np.array([1.0, 3.0]), np.array([2.0, 2.0])) == pytest.approx(1.5)
    with pytest.raises(InputError, match="merge them"):
        single_zone_slope(np.ones(2), np.array([1.0, 0.0]))
    for wrong in ((1.0, 0.0, 1.0), (1.0, 1.0, 2e7), (1.0, math.nan, 1.0), (0.0, 1.0, 1.0)):
        with pytest.raises(InputError, match="hats need points"):
            barycentric_slope(*wrong)


def test_hats_rounded_at_random_keep_the_promise() -> None:
    """Exact laws of three independent roundings with discrete Laplace noise, all pairs of zones."""
    zones = quad_zones()
    query = ms.Histogram(zones)
    space = space_of(query)
    setting = PlanRequest(query, ms.Target(3.0, 1e-6, 4000.0), 40, spread="smooth").setting
    hats = ZoneHats(5000.0)
    made = rounded_protocol(setting, hats)
    assert made.rounding == "random"
    rates = made.rates(space)
    values = hats.table(space).toarray() * made.units / made.divisor
    low = np.arange(-200, math.ceil(values.max()) + 201)

    def log_law(value: float, rate: float) -> Floats:
        whole = math.floor(value)
        part = value - whole
        law = (1.0 - part) * np.exp(-rate * np.abs(low - whole))
        return np.asarray(np.log(law + part * np.exp(-rate * np.abs(low - whole - 1))))

    logs = [[log_law(value, rates[e]) for e, value in enumerate(row)] for row in values]
    distances = space.metric.pairwise(zones.degrees, zones.degrees)
    largest = 0.0
    for a in range(12):
        for b in range(a):
            loss = sum(np.abs(x - y).max() for x, y in zip(logs[a], logs[b], strict=True))
            largest = max(largest, loss / (3.0 / 4000.0 * distances[a, b]))
    assert 0.5 < largest <= 1.0


def rounded_protocol(setting: object, hats: ZoneHats) -> NoisyVectors:
    from metricshuffle.planning.candidates import vector_calibration

    return vector_calibration._protocol(setting, "aggregator", hats, 0.5)  # type: ignore[arg-type]


def test_hats_are_chosen_for_smooth_people_and_few_of_them() -> None:
    query = ms.Histogram(point_zones(300))
    target = ms.Target(1.0, 1e-6, 4000.0)
    smooth = ms.plan(query, target, 2000, spread="smooth", protocols=["noisy-vectors"])
    assert isinstance(vectors(smooth).features, ZoneHats)
    smooth.task.verify()
    spiky = ms.plan(query, target, 10**6, spread="spiky", protocols=["noisy-vectors"])
    assert vectors(spiky).features == ZoneCells()
    with pytest.raises(InputError, match="less than 179 degrees"):
        ZoneHats(1000.0).table(Space.of(ZONES["across the antimeridian"]))
    assert not list(ZoneHats.offered(Space.of(ZONES["across the antimeridian"]), 100, 1e-3))
    with pytest.raises(InputError, match="too small"):
        ZoneHats(1e-9).table(Space.of(quad_zones()))


def test_a_release_of_hats_starts_from_public_weights() -> None:
    """People spread like residents within a triangle are found only by the weights."""
    plain = point_zones(300)
    generator = np.random.default_rng(5)
    weights = generator.lognormal(0.0, 1.0, 300)
    latitudes, longitudes = plain.degrees.T
    weighted = Zones.of_points(plain.ids, latitudes, longitudes, weights)
    people = 3000
    values = generator.choice(np.array(plain.ids), people, p=weights / weights.sum()).tolist()
    truth = np.bincount(plain.validated(values), minlength=300) / people
    errors = {}
    for name, zones in (("even", plain), ("residents", weighted)):
        made = ms.plan(
            ms.Histogram(zones),
            ms.Target(1.0, 1e-6, 4000.0),
            people,
            spread="smooth",
            protocols=["noisy-vectors"],
        )
        assert isinstance(vectors(made).features, ZoneHats)
        release = made.run(values, randomness=ms.Randomness.seeded(1))
        shares = np.asarray(release.value["share"])
        assert shares.min() >= 0.0
        assert shares.sum() == pytest.approx(1.0)
        errors[name] = 0.5 * np.abs(shares - truth).sum()
        assert (truth <= np.asarray(release.value["at_most_95"])).mean() > 0.9
        assert release.estimate.nearby is not None
        assert "within about" in release.estimate.nearby.words
    assert errors["residents"] < 0.6 * errors["even"]


@check_all("kind", KINDS)
def test_bounds_of_hats_hold(kind: str) -> None:
    rows = hat_coverage(kind, 40)
    assert rows["at most"] >= 0.93
    assert rows["nearby"] >= 0.9


def hat_coverage(kind: str, runs: int) -> dict[str, float]:
    """Coverage over releases whose hats are rounded and noised by the protocol's own samplers."""
    query = ms.Histogram(point_zones(120))
    people = 1000
    setting = PlanRequest(query, ms.Target(1.0, 1e-6, 4000.0), people).setting
    features = ZoneHats(12_000.0)
    made = rounded_protocol(setting, features)
    shown = Setting("hats", query, features, 1 / 4000.0, people)
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
        sums = rounded.sum(axis=0)
        noise = generator.geometric(failing) - generator.geometric(failing)
        means.append((sums + noise) / made.noise(space, people).count)
    return covered(shown, shown.truth(values, sizes), np.stack(means))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_of_hats_hold_in_many_releases(kind: str) -> None:
    runs = 200
    rows = hat_coverage(kind, runs)
    spread = math.sqrt(LEVEL * (1.0 - LEVEL) / runs)
    for name in ("at most", "nearby"):
        assert rows[name] >= 0.93
        assert rows[f"{name}, worst"] >= LEVEL - 5.0 * spread
        assert rows[f"{name}, all"] >= LEVEL - 3.0 * spread


@check_all("kind", KINDS)
def test_intervals_cover(kind: str) -> None:
    setting = Setting("zones", ms.Histogram(quad_zones()), ZoneCells(), 1 / 4000.0)
    assert coverage(setting, kind, 40)["interval"] >= 0.91


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zones", [quad_zones(7, 6), point_zones(300)], ids=["polygons", "points"])
def test_intervals_cover_in_many_releases(zones: Zones, kind: str) -> None:
    setting = Setting("zones", ms.Histogram(zones), ZoneCells(), 1 / 4000.0)
    runs = 200
    rows = coverage(setting, kind, runs)
    spread = math.sqrt(LEVEL * (1.0 - LEVEL) / runs)
    assert 0.93 <= rows["interval"] <= 0.999
    assert rows["interval, worst"] >= LEVEL - 5.0 * spread
    assert rows["interval, all"] >= LEVEL - 3.0 * spread


def test_thousands_of_zones_are_planned_with_hats_in_little_time() -> None:
    """5,000 zones of 50 km: hats need a tenth of the messages of zones one by one."""
    generator = np.random.default_rng(5)
    size = 5000
    zones = Zones.of_points(
        [f"z{place:04}" for place in range(size)],
        30.0 + generator.uniform(0.0, 0.45, size),
        -98.0 + generator.uniform(0.0, 0.52, size),
        generator.lognormal(5.0, 1.0, size),
    )
    start = time.process_time()
    plan = ms.plan(ms.Histogram(zones), ms.Target(1, 1e-6, 2000), 10_000, spread="smooth")
    assert time.process_time() - start < 3.0 * 2.0  # twice the limit, as other work runs beside it
    protocol = plan.task.protocol
    assert isinstance(protocol, NoisyVectors)
    assert isinstance(protocol.features, ZoneHats)
    # zones one by one: 0.00028, and 2,124,240 bits
    assert plan.choice.expected_error < 1.2e-4
    assert plan.choice.bits_per_user < 300_000
