"""Pairs of zones: codes, distances, and sentences about trips that are none."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.catalogue.invented_zones import SIDE, SOUTH, WEST, point_zones, quad_zones
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.errors import DomainError, InputError
from metricshuffle.queries.query import Query
from metricshuffle.spaces import ChordSum, Space, ZonePairs, Zones

ZONES = quad_zones()
PAIRS = ZonePairs(ZONES)


def test_codes_go_by_start_then_end() -> None:
    codes = PAIRS.validated([("T00", "T00"), ("T00", "T01"), ("T23", "T01")])
    assert codes.tolist() == [0, 1, 11 * 12 + 1]
    assert PAIRS.names(11 * 12 + 1) == ("T23", "T01")
    assert [PAIRS.names(code) for code in PAIRS.all_values()[:2]] == [("T00",) * 2, ("T00", "T01")]
    assert PAIRS.size == 144
    assert PAIRS.validated(np.empty((0, 2), dtype=object)).tolist() == []


def test_four_degrees_are_two_places() -> None:
    first, second = ZONES.degrees[[2, 7]]
    trip = [*first, *second]
    assert PAIRS.validated([trip]).tolist() == PAIRS.validated([("T02", "T13")]).tolist()
    outside = [[SOUTH - SIDE, WEST, *second]]
    with pytest.raises(DomainError, match="lies outside all zones"):
        PAIRS.validated(outside)
    assert PAIRS.names(int(PAIRS.clamped(outside)[0])) == ("T00", "T13")


def test_distances_add_up_over_both_ends() -> None:
    space = Space.of(PAIRS)
    assert isinstance(space.metric, ChordSum)
    one_end = Space.of(ZONES)
    assert space.distance(("T00", "T01"), ("T23", "T01")) == one_end.distance("T00", "T23")
    assert space.distance(("T00", "T01"), ("T23", "T11")) == pytest.approx(
        one_end.distance("T00", "T23") + one_end.distance("T01", "T11")
    )
    assert space.distance(("T00", "T00"), ("T00", "T00")) == 0.0
    points = PAIRS.points(PAIRS.all_values())
    table = space.metric.pairwise(points, points)
    assert float(table.max()) <= PAIRS.diameter <= 1.001 * float(table.max())
    np.fill_diagonal(table, np.inf)
    assert (PAIRS.nearest <= table.min(axis=1)).all()
    assert PAIRS.nearest == pytest.approx(table.min(axis=1), rel=1e-9)


def test_blocks_add_up_the_pairs_of_their_zones() -> None:
    zones = Zones.of_points(
        ["a", "b", "c"], [30.0, 30.1, 30.2], [10.0, 10.0, 10.0], blocks=["x", "y", "x"]
    )
    pairs = ZonePairs(zones)
    assert zones.block_codes.tolist() == [0, 1, 0]
    assert pairs.block_codes.tolist() == [0, 1, 0, 2, 3, 2, 0, 1, 0]
    shares = np.arange(9.0)
    added = np.bincount(pairs.block_codes, shares)
    assert pairs.between_blocks(shares) == pytest.approx(added)
    assert pairs.between_blocks(np.stack([shares, 2 * shares]))[1] == pytest.approx(2 * added)
    assert pairs.between_blocks(shares).sum() == pytest.approx(36.0)


@check_all(
    "trips, message",
    [
        ([("T00", "T99")], "'T99' is not the id of a zone"),
        ([("?", "!"), ("T00", "T00")], r"row 0 .*'\?' is not the id of a zone"),
        ([("T00",)], "a trip is a pair of ids of zones"),
        (["T00", "T01"], "a trip is a pair of ids of zones"),
        ([(30.1, -97.9, 30.2)], "or four degrees"),
        ([("T00", "T01"), ("T00",)], "a trip is a pair"),
        ([(95.0, 0.0, 30.0, 0.0)], "latitude within"),
    ],
)
def test_trips_that_are_none(trips: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PAIRS.validated(trips)


def test_a_row_that_is_wrong_at_both_ends_is_named_once() -> None:
    with pytest.raises(DomainError) as caught:
        PAIRS.validated([("T00", "T01"), ("?", "!"), ("T00", "!")])
    assert caught.value.where is not None
    assert caught.value.where.rows == [1, 2]


def test_too_many_zones_are_refused_at_once() -> None:
    with pytest.raises(InputError, match="at most 256 zones, got 257, which are 66,049 pairs"):
        ms.Flows(point_zones(257))
    assert ms.Flows(point_zones(256)).cells == 65536
    with pytest.raises(InputError, match="needs Zones"):
        ms.Flows(ms.Grid(4, 4))  # type: ignore[arg-type]


def test_blocks_are_named_for_every_zone() -> None:
    places = (["a", "b"], [30.0, 31.0], [10.0, 10.0])
    for blocks in (["x", ""], ["x", "x"]):
        with pytest.raises(InputError, match="block of every zone, and at least two"):
            Zones.of_points(*places, blocks=blocks)
    with pytest.raises(InputError, match="a block if others have one"):
        Zones.of_points(*places, blocks=["x"])


def test_json_both_ways() -> None:
    blocked = Zones.of_points(["b", "a"], [30.0, 31.0], [10.0, 10.0], blocks=["x", "y"])
    assert blocked.blocks == ("y", "x")  # sorted with the ids
    for zones in (ZONES, blocked):
        query = ms.Flows(zones)
        _ = query.pairs.nearest, query.pairs.block_codes  # cached numbers are no part of it
        again = Query.of_kind(json.loads(query.model_dump_json()))
        assert isinstance(again, ms.Flows)
        assert again == query
        assert hash(again.domain) == hash(query.domain)
        assert ms.Flows(zones).domain == again.domain
    assert "blocks" not in ZONES.model_dump()  # tasks from before blocks keep their digest
    assert ms.Flows(blocked) != ms.Flows(
        Zones.of_points(["b", "a"], [30.0, 31.0], [10.0, 10.0], blocks=["y", "x"])
    )


def test_the_query_says_what_a_move_costs() -> None:
    query = ms.Flows(ZONES)
    words = " ".join(query.remarks())
    assert "moving both ends by d as much as 2 d" in words
    assert "Inside a zone nothing can be seen" in words
    assert "A move of one of a trip's ends by d into another zone" in words
    assert query.label(1) == "T00 to T01"
    assert query.distance(0, 1) == Space.of(ZONES).distance("T00", "T01")
    assert query.diameter == 2.0 * ZONES.diameter
    with pytest.raises(InputError, match="must lie between the nearest two zones"):
        query.check_distance(0.5 * float(ZONES.nearest.min()))
