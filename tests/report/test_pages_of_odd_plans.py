"""Pages of unusual plans: regressions found by a review."""

from __future__ import annotations

import json
import math

import numpy as np
from scipy.stats import binom
from tests.catalogue.planned_tasks import planned

from metricshuffle.planning import plan
from metricshuffle.planning.advice import Wishes, on_honest
from metricshuffle.planning.consent import consent
from metricshuffle.planning.pairwise_distances import DistanceSummary
from metricshuffle.planning.plan_text import error_text
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries import Centroid, Histogram, Sum
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.report.answer_export import geojson_text
from metricshuffle.report.assessment_text import assessment, consequence_text
from metricshuffle.report.charts.interval_charts import NamedInterval, bars_chart
from metricshuffle.report.failure_scenarios import ProtocolReview, consequences
from metricshuffle.report.notebook import html
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle.report.sections.epsilon_by_distance import reach
from metricshuffle.report.sections.headline import headline
from metricshuffle.spaces import Grid, Integers, Interval, Places
from metricshuffle.tasks.task import Task

PROTOCOLS = ["polya-shuffle", "geometric-central"]


def test_few_honest_bits_on_the_shorter_axis_certify_no_long_move() -> None:
    """Three bits on the shorter axis cannot move by 30 and say nothing about the longer one."""
    width = 40
    honest = 3
    apart = 30
    flip = 25 / 64
    delta = 1e-3
    bits = (CountResponse(span=width - 1, flip=flip), CountResponse(span=1, flip=flip))
    protocol = Sums(name="randomized-response-shuffle", trusted="shuffler", randomizers=bits)
    query = Centroid(Grid(width, 2, 1.0))
    target = Target(4.0, delta, 3.0)
    promise = protocol.guarantee(query, target, 60, 1)
    alone = protocol.alone(query, target, 1)
    task = Task(
        query=query,
        protocol=protocol,
        users=60,
        honest=60,
        guarantee=promise,
        if_shuffler_colludes=alone,
    )
    # brute force: everybody at the west end, or one of them 30 cells to the east
    longer = honest * (width - 1)
    still = binom.pmf(np.arange(longer + 1), longer, flip)
    moved = np.convolve(
        binom.pmf(np.arange(longer - apart + 1), longer - apart, flip),
        binom.pmf(np.arange(apart + 1), apart, 1 - flip),
    )
    shorter = bits[1].summed_profile(honest).epsilon(delta, 3.0)
    assert (
        float(np.maximum(moved - math.exp(shorter) * still, 0.0).sum()) > delta
    )  # so that this epsilon would be wrong
    assert math.isinf(ProtocolReview(task, protocol, alone).epsilon(honest, float(apart)))


def test_what_no_account_keeps_is_not_said_of_the_noise_alone() -> None:
    """Reports of drawn items are not mixed shares; slightly above, the account certifies it."""
    (half,) = [
        row
        for row in consequences(ReportSubject.of(planned("users' samples")).protocol_review)
        if "50%" in row.situation
    ]
    assert "alone" not in consequence_text(half, 0)
    task = planned("users' samples").task
    promise = task.target.model_copy(update={"epsilon": half.epsilons[0]})
    assert task.protocol.account(task.query, promise, 1000, 1).kept


def test_the_nearest_move_of_a_curators_sum_has_an_epsilon() -> None:
    epsilon = ReportSubject.of(planned("curator's sum")).protocol_review.epsilon(30, 1.0)
    assert 0.1999 < epsilon <= 0.2


def test_distances_of_what_if_are_never_rounded_up() -> None:
    """2,469.96 is not 2,470, nor is the diagonal of a grid 12,350 m that is 12,345.6 m long."""
    made = plan(
        Sum(Integers(0, 123_456, "s")),
        Target(1.0, 0.0, 1234.98),
        10,
        trusted="nobody",
        protocols=["geometric-local"],
    )
    told = [row.situation for row in consequences(ReportSubject.of(made).protocol_review)]
    assert "2 times as far: 2,469.96 s" in told
    assert "from one end to the other: 123,456 s" in told


def test_what_distances_are_measured_between_is_said_wherever_they_are() -> None:
    for kind, between in (
        ("centroid", "true places, along the ground"),
        ("mean of real numbers", "values rounded to steps of 0.0001221 h"),
    ):
        collection = ReportSubject.of(planned(kind))
        assert any(
            f"apart (distance between {between})" in sentence
            for sentence in headline(collection).sentences
        )
        assert any(
            f"apart (distance between {between})" in paragraph
            for paragraph in assessment(collection)
        )


def test_a_number_that_is_zero_or_one_is_no_label() -> None:
    made = plan(
        Sum(Integers(0, 1)),
        Target(1.0, 0.0, 1.0),
        10,
        trusted="nobody",
        protocols=["geometric-local"],
    )
    assert "label" not in consequences(ReportSubject.of(made).protocol_review)[0].situation


def test_what_costs_nothing_nearby_does_not_hide_all_values_alike() -> None:
    """At a large delta near moves have epsilon 0 and are not drawn, which leaves one dot."""
    made = plan(
        Sum(Integers(0, 4)),
        Target(1.0, 0.4, 4.0),
        10,
        trusted="curator",
        protocols=["geometric-central"],
    )
    chapter = reach(ReportSubject.of(made))
    assert chapter is not None
    assert len(chapter.numbers.rows) == 1
    assert "alike" not in chapter.sentence


def test_where_noise_may_be_none_no_number_on_paper_comforts_anybody() -> None:
    """One vector's epsilon is finite, but one person's share of noise is mostly zero."""
    task = planned("vectors of a map").task
    assert math.isfinite(task.if_shuffler_colludes.epsilon)
    assert "Then next to nothing hides your answer." in consent(task).text
    assert "in effect no protection" in html(task)


def test_shares_of_pairs_are_never_rounded_up_nor_their_distances_down() -> None:
    spread = DistanceSummary(
        Sum(Integers(0, 10**6)), 448, np.sort([*np.full(99_999, 1.0), 900_000.0]), all_pairs=False
    )
    assert "99.99 % of the pairs are at most 5 apart" in spread.sentences(5.0)[1]
    close = DistanceSummary(Sum(Interval(0.0, 10.0)), 2, np.array([1.23442]), all_pairs=True)
    assert "a quarter of the pairs at most 1.23442, " in close.sentences()[0]


def test_long_and_similar_names_keep_rows_of_their_own() -> None:
    bars = [
        NamedInterval("x" * 9_000 + middle + "y" * 20, 1.0, 0.5, 1.5, "1 %") for middle in "abc"
    ]
    rows = bars_chart(bars, "share", level="95 %")["layer"][0]["data"]["values"]
    assert len({row["name"] for row in rows}) == len(rows) == 3
    assert max(len(row["name"]) for row in rows) < 70


def test_neighbouring_numbers_have_different_names() -> None:
    line = Histogram(Integers(1_000_000, 1_000_009))
    assert len({line.label(code) for code in range(line.cells)}) == line.cells
    fine = Histogram(Interval(20_000.0, 20_001.0), 0.125)
    assert len({fine.label(code) for code in range(fine.cells)}) == fine.cells


def test_places_at_the_antimeridian_stay_together() -> None:
    """179.99 to 180.01 degrees is not -179.99 to 179.99, which is nearly the whole world."""
    for box, place in (
        ((-17.0, 179.9, -16.9, 180.0), (-16.95, 180.0)),
        ((51.8, -180.0, 51.9, -179.9), (51.85, -180.0)),
    ):
        made = plan(Centroid(Places(*box)), Target(0.05, 0.0, 2000.0), 20, trusted="curator")
        release = made.run([place] * 20)
        point, rectangle = (
            feature["geometry"]["coordinates"]
            for feature in json.loads(geojson_text(release))["features"]
        )
        west = min(place[0] for place in rectangle[0])
        east = max(place[0] for place in rectangle[0])
        assert west <= point[0] <= east < west + 2.0
        assert release.value[1] == point[0]
    grid = Grid.from_box(-17.0, 179.8, -16.9, 180.0, 1000.0)
    _, longitudes = grid.places(grid.all_values())
    assert np.all(np.diff(longitudes.reshape(grid.height, grid.width)) > 0.0)


def test_what_fewer_honest_people_cost_is_what_the_plan_with_fewer_costs() -> None:
    """The curator does not depend on honest people, so it is chosen when they are few."""
    query = Sum(Integers(0, 20))
    target = Target(0.5, 1e-9, 1.0)
    made, fewer = (
        plan(query, target, 10, honest, trusted="curator", protocols=PROTOCOLS)
        for honest in (None, "90%")
    )
    assert (made.choice.trusted, fewer.choice.trusted) == ("shuffler", "curator")
    (said,) = on_honest(made, Wishes())
    assert (
        "the expected error would then be "
        f"{error_text(query, fewer.choice.expected_error)} instead of" in said
    )


def test_some_who_are_not_counted_on_are_not_everybody() -> None:
    made = plan(
        Sum(Integers(0, 5)),
        Target(1.0, 1e-6, 2.0),
        250,
        249,
        encoding="modular",
        protocols=["polya-shuffle"],
    )
    assert consequences(ReportSubject.of(made).protocol_review)[0].situation.startswith(
        "99% honest"
    )
