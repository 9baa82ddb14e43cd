"""Flows in all roles: frames, requests as Python, invented people, audits and typed trips."""

from __future__ import annotations

import numpy as np
import pytest
from tests.catalogue.invented_zones import quad_zones

import metricshuffle as ms
from metricshuffle.auditing.neighbours import distance_between, neighbours_of, words_of
from metricshuffle.cli.shared_options import ReadingOptions
from metricshuffle.cli.submit_command import rows_from_options
from metricshuffle.errors import InputError, InputWarning
from metricshuffle.planning.consent import consent
from metricshuffle.planning.pairwise_distances import summarize_distances
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.web.dry_run import invent_values, with_truth

ZONES = quad_zones(3, 2)
QUERY = ms.Flows(ZONES)
TARGET = ms.Target(8.0, 1e-6, 4000.0)
TRIPS = [("T00", "T01"), ("T00", "T00"), ("T12", "T01"), ("T01", "T02")] * 50


@pytest.fixture(scope="module")
def plan() -> ms.Plan:
    return ms.plan(QUERY, TARGET, 200, protocols=["noisy-vectors"])


def test_frames_and_lists_give_the_same_release(plan: ms.Plan) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TRIPS, columns=["start", "end"])
    frame["where"] = "somewhere"
    listed = plan.run(TRIPS, randomness=ms.Randomness.seeded(1))
    read = plan.run(frame, column=["start", "end"], randomness=ms.Randomness.seeded(1))
    assert read.value["share"] == pytest.approx(listed.value["share"])
    shares = listed.to_frame("pandas")
    assert list(shares.columns[:3]) == ["from", "to", "share"]
    assert len(shares) == 36
    with pytest.raises(InputError, match="flows need two columns"):
        plan.run(frame, column="start")
    with pytest.raises(InputError, match="is not one of the zones"):
        plan.run(frame, column=["start", "where"])
    dropped = pandas.concat([frame, frame.assign(end="elsewhere")])
    with pytest.warns(InputWarning, match="200 rows are not in the 6 zones"):
        again = plan.run(
            dropped, column=["start", "end"], drop_outside=True, randomness=ms.Randomness.seeded(1)
        )
    assert again.reports == 200


def test_saved_plans_and_releases_are_read_again(plan: ms.Plan) -> None:
    assert ms.Plan.from_json(plan.to_json()).task.digest == plan.task.digest
    release = plan.run(TRIPS, randomness=ms.Randomness.seeded(1))
    again = ms.Release.from_json(release.to_json())
    assert again.query == QUERY
    assert again.value["share"] == pytest.approx(release.value["share"])
    assert "T00 to T01" in str(again)


def test_a_request_is_written_as_python() -> None:
    blocked = ms.Zones(**{**ZONES.model_dump(), "blocks": ["a", "a", "b"] * 2})
    for zones in (ZONES, blocked):
        request = PlanRequest(ms.Flows(zones), TARGET, 200, spread="smooth")
        code = request.to_python()
        assert code.startswith("ms.plan(\n    ms.Flows(ms.Zones(")
        query = eval(code.split("\n")[1].strip().rstrip(","), {"ms": ms})  # noqa: S307 - our own code
        assert query == request.query
        with pytest.raises(InputError, match="cannot be described by options"):
            request.to_command()


def test_invented_trips_can_be_tried(plan: ms.Plan) -> None:
    trips = invent_values(QUERY, 200)
    assert trips.shape == (200, 2)
    release = plan.run(trips, randomness=ms.Randomness.seeded(1))
    true = with_truth(release, trips)
    assert np.asarray(true.value["share"]).sum() == pytest.approx(1.0)
    counts = np.bincount(QUERY.inputs(trips, 1.0).numbers[:, 0], minlength=36)
    assert np.asarray(true.value["count"]) == pytest.approx(counts)


def test_audits_move_one_end() -> None:
    task = ms.plan(QUERY, TARGET, 200, protocols=["k-ary-randomized-response"]).task
    pairs = neighbours_of(task, 3)
    assert pairs
    for each in pairs:
        moved = distance_between(QUERY, 1.0, each.first, each.second)
        assert 0.0 < moved <= 4000.0
        assert (each.first[0] == each.second[0]) != (each.first[1] == each.second[1])
        assert words_of(QUERY, each.first) == " to ".join(each.first)
        assert len(each.others or ()) == 2


def test_typed_trips_are_read_like_files() -> None:
    reading = ReadingOptions([], None, None)
    (values,) = rows_from_options(["T00,T12"], QUERY, reading).parts()
    assert np.asarray(values).tolist() == [["T00", "T12"]]
    south, west = ZONES.degrees[1]
    (values,) = rows_from_options([f"{south},{west},{south},{west}"], QUERY, reading).parts()
    assert np.asarray(values).tolist() == [["T01", "T01"]]
    with pytest.raises(InputError, match="a trip is two ids of zones"):
        rows_from_options(["T00"], QUERY, reading)


def test_distances_of_trips_add_up() -> None:
    summary = summarize_distances(QUERY, [("T00", "T00"), ("T12", "T01")])
    expected = QUERY.distance(*QUERY.inputs([("T00", "T00"), ("T12", "T01")], 1.0).numbers[:, 0])
    assert summary.distances == pytest.approx([expected], rel=1e-6)


def test_consent_says_what_a_trip_is(plan: ms.Plan) -> None:
    words = " ".join(str(consent(plan.task)).split())
    assert "a trip: the zone where it starts" in words
    assert "how many people went from each zone to each zone" in words
    assert "together at most 4,000 m apart" in words


def test_a_randomizer_of_your_own_measures_no_blocks() -> None:
    blocked = ms.Zones(**{**ZONES.model_dump(), "blocks": ["a", "a", "b"] * 2})
    response = ms.randomizers.KaryRandomizedResponse(36, 4.0)
    made = ms.plan(
        ms.Flows(blocked), ms.Target(5.0, 1e-6, 4000.0, "flat"), 200, randomizer=response
    )
    release = made.run(TRIPS, randomness=ms.Randomness.seeded(1))
    assert "T00 to T01" in str(release)
    with pytest.raises(InputError, match="were not measured"):
        release.blocks()
