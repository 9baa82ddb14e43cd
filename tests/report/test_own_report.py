"""Report of a plan and release: every query and trust, with the numbers of the files."""

from __future__ import annotations

import math
import re
from functools import cache

import numpy as np
import pytest
from tests.catalogue.planned_tasks import KINDS, MADE, load_task, planned, values_of
from tests.report.parsed_page import ParsedPage

import metricshuffle as ms
from metricshuffle.citations import PAPERS, STATEMENTS
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon
from metricshuffle.planning.plan_text import expected_error_text
from metricshuffle.privacy.target import Target
from metricshuffle.report.charts.plan_charts import DOT_SIZE, candidates_chart
from metricshuffle.report.failure_scenarios import ProtocolReview, consequences
from metricshuffle.report.method_text import describe_methods, find_method
from metricshuffle.report.report_page import report
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle.report.sections.epsilon_by_distance import measure_reach
from metricshuffle.report.sections.headline import headline, two_digits
from metricshuffle.tasks.release import Release, measured

pytestmark = pytest.mark.thorough

# One of each question, trust and kind of protocol; the others take as long again.
ORDINARY = (
    "unary sum",
    "aggregated sum",
    "local sum",
    "witch hat",
    "centroid",
    "labels",
    "map",
    "vectors of a line",
    "vectors of a map",
    "users' vectors",
    "users' items",
    "users' mean",
    "curator's histogram",
)
EVERY = [kind if kind in ORDINARY else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
HOSTILE = '<script>alert("x")</script>'


@cache
def released(kind: str) -> Release:
    return planned(kind).run(values_of(kind))


@cache
def collection_of(kind: str) -> ReportSubject:
    """What was recomputed for one test serves the next."""
    return ReportSubject.of(planned(kind), released(kind))


@pytest.mark.parametrize("kind", EVERY)
def test_every_kind_has_a_page(kind: str) -> None:
    page = ParsedPage(report(collection_of(kind)))
    plan = planned(kind)
    release = released(kind)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert all(target.startswith("#") and target[1:] in page.ids for target in page.targets)
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", page.html)
    assert len(page.html) < 400_000
    for told in (
        str(plan.guarantee),
        plan.digest,
        f"{plan.users:,} people",
        f"{release.reports:,} of them reported",
        ms.__version__,
    ):
        assert told in page.text
    if plan.choice.trusted != "nobody":
        assert str(plan.if_shuffler_colludes) in page.text
    assert "whoever ran it saw the raw values" in page.text  # run on one machine
    for candidate in plan.candidates:
        assert expected_error_text(plan.query, candidate.expected_error) in page.text
    if release.warning:
        assert release.warning in page.text
    assert not re.search(r"\b(nan|None|inf)\b", page.text)


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_at_the_top_are_those_of_the_plan(kind: str) -> None:
    plan = planned(kind)
    error, honest, colluding, liar = headline(ReportSubject.of(plan)).numbers
    assert f"{error.number} {error.unit}".rstrip() == expected_error_text(
        plan.query, plan.choice.expected_error
    )
    assert honest.number == format_epsilon(plan.guarantee.epsilon)
    for number, guarantee in ((honest, plan.guarantee), (colluding, plan.if_shuffler_colludes)):
        if number.number == format_epsilon(guarantee.epsilon):  # an epsilon never stands alone
            assert f"delta {format_delta(guarantee.delta)}" in number.beside
            assert (
                format_distance(guarantee.distance) in number.beside
                or "any two labels" in number.beside
            )
    shown = plan.protocol.damage(plan.query, plan.users).text(plan.query)
    assert f"{liar.number} {liar.unit}".rstrip() == shown
    if plan.choice.trusted == "nobody":
        assert colluding.number == "the same"
    elif plan.choice.trusted == "curator":
        assert colluding.number.startswith("raw ")
    elif not plan.protocol.hides_alone(plan.query):
        assert colluding.number == "in effect no protection"
        assert format_epsilon(plan.if_shuffler_colludes.epsilon) in colluding.beside
    else:
        assert colluding.number == format_epsilon(plan.if_shuffler_colludes.epsilon)


@pytest.mark.parametrize("kind", ["unary sum", "centroid", "labels"])
def test_the_first_number_of_a_release_is_its_interval(kind: str) -> None:
    release = released(kind)
    error = headline(ReportSubject.of(planned(kind), release)).numbers[0]
    if kind == "labels":
        halves = sorted(50.0 * (high - low) for low, high in release.interval(0.95))
        assert error.number == f"± {two_digits(halves[1])}"
        assert error.unit == "%"
        assert f"± {two_digits(halves[-1])} %" in error.beside
    elif kind == "centroid":
        assert release.plane is not None
        low, high = np.asarray(release.plane.interval)[0]
        assert error.number == f"± {measured((high - low) / 2, 0)}"
        assert error.unit == "m"
    else:
        low, high = release.interval(0.95)
        assert error.number == f"± {measured(high - release.value, release.decimals)}"
        assert (
            f"{measured(low, release.decimals)} to {measured(high, release.decimals)} kcal"
            in error.beside
        )


def test_a_task_and_a_release_alone_are_enough() -> None:
    plan = planned("vectors of a line")
    from_task = headline(ReportSubject.of(plan.task)).numbers
    assert (
        from_task == headline(ReportSubject.of(plan)).numbers
    )  # the error, too, though a task does not hold it
    alone = ParsedPage(report(ReportSubject.of(released("vectors of a line"))))
    assert "Choosing a protocol" not in alone.text  # only a plan knows the others
    assert "answer" in alone.ids
    assert "Methods, to cite" in alone.text
    without = ParsedPage(report(ReportSubject.of(plan.task)))
    assert "answer" not in without.ids


def test_rounds_are_told() -> None:
    plan = planned("two rounds")
    release = plan.run(values_of("two rounds"), round=2)
    page = ParsedPage(report(ReportSubject.of(plan, release)))
    assert "in round 2 of 2" in page.text
    assert "over all 2 rounds" in page.text


def test_a_seeded_release_is_called_unsafe() -> None:
    plan = planned("unary sum")
    release = plan.run(values_of("unary sum"), ms.Randomness.seeded(1))
    assert "UNSAFE" in ParsedPage(report(ReportSubject.of(plan, release))).text


def test_labels_and_units_are_escaped() -> None:
    labels = ms.plan(
        ms.Histogram(ms.Categories(["tea", HOSTILE])),
        Target(1, 0, 1),
        40,
        trusted="nobody",
        protocols=["k-ary-randomized-response"],
    )
    for plan, values in ((labels, ["tea", HOSTILE] * 20), (hostile_sum(), [1, 2] * 20)):
        page = ParsedPage(report(ReportSubject.of(plan, plan.run(values))))
        assert "<script>alert" not in page.html
        assert HOSTILE in page.text
        assert any(HOSTILE in text for text in page.texts["desc"])
        assert not re.search(r"&amp;(lt|gt|amp|quot|#\d+);", page.html)


def hostile_sum() -> ms.Plan:
    return ms.plan(ms.Sum(ms.Integers(0, 5, HOSTILE)), Target(1, 0, 2), 40, trusted="nobody")


def test_a_release_of_another_plan_is_refused() -> None:
    with pytest.raises(InputError, match="belongs to another plan"):
        ReportSubject.of(planned("local sum"), released("unary sum"))
    with pytest.raises(InputError, match="one release"):
        ReportSubject.of(released("local sum"), released("local sum"))


@pytest.mark.parametrize("kind", EVERY)
def test_what_is_left_is_kept_by_the_protocol(kind: str) -> None:
    """Every epsilon of the table is certified by the protocol's own account.

    None is smaller than guaranteed.
    """
    plan = planned(kind)
    rows = consequences(collection_of(kind).protocol_review)
    assert rows[0].planned
    assert rows[0].epsilons[0] <= plan.target.epsilon * (1 + 1e-9)
    colluding = [row for row in rows if row.group.endswith("colludes")]
    assert [row.epsilons for row in colluding] == [(plan.choice.local_epsilon,)] * (
        plan.choice.trusted != "nobody"
    )
    farther = [row.epsilons[0] for row in rows if row.group == "Someone moves farther"]
    assert farther == sorted(farther)  # (nothing certified is infinite)
    fewer = [row.epsilons[0] for row in rows if row.group == "Users drop out or collude"]
    assert fewer == sorted(fewer)
    assert (not fewer) or plan.choice.trusted in ("shuffler", "aggregator")


@pytest.mark.parametrize("kind", ["labels", "line", "witch hat", "users' items"])
def test_an_epsilon_is_the_least_that_is_certified(kind: str) -> None:
    task = load_task(kind)
    epsilon = ProtocolReview(task, task.protocol, task.if_shuffler_colludes).epsilon(
        task.honest, task.query.diameter
    )
    flat = Target(epsilon, task.guarantee.delta, task.query.diameter, "flat")
    assert task.protocol.account(task.query, flat, task.honest, task.rounds).kept
    less = flat.model_copy(update={"epsilon": epsilon * 0.99})
    assert not task.protocol.account(task.query, less, task.honest, task.rounds).kept


@pytest.mark.parametrize("kind", EVERY)
def test_nearer_moves_keep_the_promise(kind: str) -> None:
    """What the curve shows is nowhere above what was promised, and rises with the distance."""
    collection = collection_of(kind)
    target = planned(kind).target
    curve = measure_reach(collection).published
    assert any(distance == target.distance for distance, _ in curve)
    assert [epsilon for _, epsilon in curve] == sorted(epsilon for _, epsilon in curve)
    for distance, epsilon in curve:
        if distance <= target.distance:
            share = distance / target.distance if collection.facts.in_proportion else 1.0
            assert epsilon <= target.epsilon * share * (1 + 1e-9)


def test_several_rounds_of_reports_add_up() -> None:
    """Frequencies account for one round; the epsilon that is told is that of all."""
    plan = ms.plan(
        ms.Histogram(ms.Categories(["a", "b"])), Target(1, 0, 1), 40, rounds=3, trusted="nobody"
    )
    epsilon = ProtocolReview.of(plan, plan.choice).epsilon(plan.honest, 1.0)
    assert epsilon == pytest.approx(plan.guarantee.epsilon, rel=1e-3)
    assert epsilon >= 3 * plan.protocol.randomizer.local_epsilon() * (1 - 1e-12)  # type: ignore[attr-defined]


def test_every_kind_cites_papers_and_statements() -> None:
    for kind in KINDS:
        task = load_task(kind)
        method = find_method(load_task(kind))
        assert set(method.papers) <= set(PAPERS) - {"metricshuffle"}
        assert set(method.statements) <= set(STATEMENTS.values())
        text = " ".join(describe_methods(task, 12))
        for told in (
            task.protocol.name,
            ms.__version__,
            task.digest[:16],
            str(task.guarantee),
            "12 reports",
            "[1]",
        ):
            assert told in text
        assert all(f"“{statement.label}”" in text for statement in method.ours)
        assert {
            int(number)
            for marks in re.findall(r"\[([\d, ]+)\]", text)
            for number in marks.split(",")
        } == set(range(1, len(method.references) + 1))


def test_the_chart_of_candidates_has_a_dot_for_each_and_needs_no_extra() -> None:
    plan = planned("curator's sum")
    chart = candidates_chart(plan)
    titles = [panel["layer"][0]["mark"]["text"] for panel in chart.spec["hconcat"]]
    assert titles[0] == "expected error (kcal)"
    errors, alone = (
        {
            place["y"]: place["x"]
            for layer in panel["layer"]
            if layer["mark"].get("size") == DOT_SIZE
            for place in layer["data"]["values"]
        }
        for panel in chart.spec["hconcat"]
    )
    assert errors == {
        row: candidate.expected_error for row, candidate in enumerate(plan.candidates)
    }
    assert alone == {
        row: offer.local_epsilon
        for row, offer in enumerate(plan.candidates)
        if math.isfinite(offer.local_epsilon)
    }
    assert all(candidate.protocol in chart.description for candidate in plan.candidates)
    words = [
        place.get("words")
        for layer in chart.spec["hconcat"][1]["layer"]
        for place in layer["data"]["values"]
    ]
    assert "raw values" in words  # infinite: no dot, but words


def test_kinds_cover_every_question_and_trust() -> None:
    plans = [planned(kind) for kind in MADE]
    assert {plan.query.title for plan in plans} >= {
        "sum",
        "mean",
        "centroid",
        "histogram",
        "map",
        "user-histogram",
        "user-mean",
    }
    assert {plan.choice.trusted for plan in plans} == {
        "nobody",
        "shuffler",
        "aggregator",
        "curator",
    }
    assert any(math.isinf(plan.if_shuffler_colludes.epsilon) for plan in plans)


@cache
def berlin(protocol: str) -> ms.Plan:
    grid = ms.Grid.from_box(52.45, 13.28, 52.60, 13.52, cell=1000)
    return ms.plan(
        ms.Histogram(grid),
        Target(1, 1e-6, 2000),
        users=1000,
        honest=900,
        protocols=[protocol],
        spread="smooth",
    )


@pytest.mark.parametrize(
    ("protocol", "certified"),
    [
        (
            "k-ary-randomized-response",
            "0.499 (promised: 1; nearer values need that much noise, and all get it)",
        ),
        (
            "noisy-vectors",
            "0.7072 (promised: 1, for several people's moves together; this is one person's)",
        ),
    ],
)
def test_a_map_does_not_contradict_itself(protocol: str, certified: str) -> None:
    """Certified and guaranteed numbers are distinguished, none weaker than the plan's."""
    plan = berlin(protocol)
    text = ParsedPage(report(ReportSubject.of(plan))).text
    assert certified in text
    assert "more and more easily" not in text
    assert "About answers farther apart than 2,000 m, up to 22,630 m" in text
    alike = (
        "a move across the whole range costs no more than the smallest one. That is more than "
        "is promised, which ends at 2,000 m."
    )
    assert (alike in text) == (protocol != "noisy-vectors")
    deltas = [
        float(found)
        for told in (text, str(plan))
        for found in re.findall(r"\bdelta (?:of )?(\d[\d.]*(?:e-?\d+)?)", told)
    ]
    assert len(deltas) > 5
    assert max(deltas) <= plan.target.delta
