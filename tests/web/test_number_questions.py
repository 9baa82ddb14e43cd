"""Quantiles, spread, shares above and zones on the page: read from the form, and tried out."""

from __future__ import annotations

import pytest
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.web.downloads import command, python
from metricshuffle.web.dry_run import trial
from metricshuffle.web.form_fields import FieldErrors
from metricshuffle.web.forms import asked
from metricshuffle.web.results import load_result

KCAL = ms.Integers(0, 1000, "kcal")
READ = {
    "quantiles": ms.Quantiles(KCAL, (0.1, 0.5, 0.9)),
    "spread": ms.Spread(KCAL),
    "share-above": ms.ShareAbove(KCAL, (600,), 50),
}


@check_all("question", READ)
def test_the_examples_are_read(question: str) -> None:
    assert asked("number", {"question": question}).request.query == READ[question]


def test_totals_of_items_are_read_and_written() -> None:
    request = asked("items", {"question": "total", "distance": "2"}).request
    users = ms.Users(ms.Space(ms.Integers(0, 23, "hours")), 10)
    assert request.query == ms.UserLinearQuery.total(users)
    assert ("--query", "user-total") in request.to_command()
    for typed, field, words in (
        ({"items": ""}, "items", "one item more would change a total"),
        ({"item": "label"}, "item", "of a total, or above a threshold, is a whole number"),
        ({"item": "square"}, "item", "of a total, or above a threshold, is a whole number"),
    ):
        with pytest.raises(FieldErrors) as wrong:
            asked("items", {"question": "total", **typed})
        assert words in wrong.value.sentences[field]


def test_shares_of_items_above_are_read_and_written() -> None:
    users = ms.users_of(ms.Integers(0, 23, "hours"))
    typed = {"question": "share-above", "items": "", "thresholds": "5, 11", "distance": "2"}
    request = asked("items", typed).request
    assert request.query == ms.UserLinearQuery.share_above(users, (5, 11), 4)
    options = request.to_command()
    assert {("--query", "user-share-above"), ("--at", "5,11"), ("--fade", "4")} <= set(options)
    assert "ms.UserLinearQuery.share_above(" in request.to_python()
    for name, words in (("thresholds", "30"), ("thresholds", "9, 5"), ("fade", "0.5")):
        with pytest.raises(FieldErrors) as wrong:
            asked("items", {**typed, name: words})
        assert name in wrong.value.sentences


@pytest.mark.thorough
def test_a_dry_run_of_totals_is_drawn_on_the_range_of_totals() -> None:
    result = load_result("items", {"question": "total", "distance": "2", "users": "300"})
    assert "--query user-total" in command(result)
    private = trial(result, None, (), "", "").private
    assert "on the range from 0 to 230 hours" in str(private)


RECORDS = {
    "means": ms.Means(["bus", "train", "bike"], ms.Integers(1, 5)),
    "sets": ms.Sets(["tea", "coffee", "milk", "water"], 2),
    "key-values": ms.KeyValues(["tea", "coffee", "milk", "water"], ms.Integers(1, 5), 2),
}


@check_all("question", RECORDS)
def test_the_examples_of_records_are_read_and_written(question: str) -> None:
    request = asked("records", {"question": question}).request
    assert request.query == RECORDS[question]
    assert ("--query", question) in request.to_command()
    assert eval(request.to_python(), {"ms": ReturnedRequest}).query == request.query  # noqa: S307


class ReturnedRequest:
    """Public names, of which `plan` returns the request."""

    plan = staticmethod(PlanRequest)
    Target, Integers, Categories = ms.Target, ms.Integers, ms.Categories
    Means, Sets, KeyValues = ms.Means, ms.Sets, ms.KeyValues


@check_all(
    "question, typed, field, words",
    [
        ("means", {"columns": "bus"}, "columns", "names 1; at least two are needed"),
        ("means", {"low": "7"}, "low", "must be below"),
        ("sets", {"labels": "tea, tea"}, "labels", "names one of them twice"),
        ("sets", {"size": "5"}, "size", "must lie between 1 and the number of labels, 4, got 5"),
        ("sets", {"size": "x"}, "size", "must be a number"),
        ("key-values", {"size": "0"}, "size", "must lie between 1 and the number of keys"),
        ("key-values", {"low": "1.0"}, "granularity", "real numbers need “Rounded to”"),
        ("sets", {"distance": "5"}, "distance", "must lie between the smallest change, 1 label,"),
    ],
)
def test_a_sentence_about_records_is_next_to_its_field(
    question: str, typed: dict[str, str], field: str, words: str
) -> None:
    with pytest.raises(FieldErrors) as wrong:
        asked("records", {"question": question, **typed})
    assert field in wrong.value.sentences
    assert words in wrong.value.sentences[field]


@pytest.mark.thorough
@check_all("question", RECORDS)
def test_a_dry_run_of_records_has_the_true_answer(question: str) -> None:
    result = load_result("records", {"question": question, "users": "300"})
    assert f"--query {question}" in command(result)
    dry_run = trial(result, None, (), "", "")
    assert dry_run.true is not None
    assert len(dry_run.numbers.rows) == RECORDS[question].rows


def test_windows_of_quantiles_have_edges() -> None:
    query = asked("number", {"question": "quantiles", "edges": "100, 200, 400"}).request.query
    assert query == ms.Quantiles(KCAL, (0.1, 0.5, 0.9), edges=(100, 200, 400))
    with pytest.raises(FieldErrors) as wrong:
        asked("number", {"question": "quantiles", "edges": "2000"})
    assert list(wrong.value.sentences) == ["edges"]


@pytest.mark.thorough
def test_flows_between_cells_of_a_box() -> None:
    pytest.importorskip("h3")
    form = {"question": "flows", "where": "box", "resolution": "6", "distance": "10000"}
    result = load_result("place", form)
    zones = ms.Zones.h3_box(6, (48.10, 11.50, 48.20, 11.65))
    assert result.asked.request.query == ms.Flows(zones)
    assert "--query flows --h3 6" in command(result)
    assert trial(result, None, (), "", "").true is not None


def test_zones_are_cells_of_a_box() -> None:
    pytest.importorskip("h3")
    form = {"question": "zones", "where": "box"}
    request = asked("place", form).request
    assert request.query == ms.Histogram(ms.Zones.h3_box(8, (48.10, 11.50, 48.20, 11.65)))
    for typed, field, words in (
        ({"where": "grid"}, "where", "must be a box in degrees"),
        ({"resolution": "16"}, "resolution", "must be a resolution from 0 to 15"),
        ({"resolution": "12"}, "resolution", "there may be up to 16,384"),
        ({"distance": "100"}, "distance", "between the nearest two zones"),
    ):
        with pytest.raises(FieldErrors) as wrong:
            asked("place", form | typed)
        assert list(wrong.value.sentences) == [field]
        assert words in wrong.value.sentences[field]


@pytest.mark.thorough
def test_a_dry_run_of_zones() -> None:
    pytest.importorskip("h3")
    result = load_result("place", {"question": "zones", "where": "box", "users": "300"})
    assert "--query zones" in command(result)
    assert "ms.Zones(" in python(result)
    dry_run = trial(result, None, (), "", "")
    assert dry_run.true is not None


@pytest.mark.thorough
@check_all("question", READ)
def test_a_dry_run_has_the_true_answer(question: str) -> None:
    result = load_result("number", {"question": question, "users": "200"})
    dry_run = trial(result, None, (), "", "")
    assert len(dry_run.numbers.rows) == len(READ[question].row_labels)
    assert dry_run.true is not None
    assert "inside their 95 % interval" in " ".join(dry_run.simulated)


@check_all(
    "question, typed, field, words",
    [
        ("quantiles", {"at": "0.5, 2"}, "at", "Quantiles must be shares strictly between 0 and 1"),
        ("quantiles", {"at": "half"}, "at", "Quantiles must be numbers with commas between them"),
        ("share-above", {"thresholds": "2000"}, "thresholds", "Thresholds must be thresholds from"),
        ("share-above", {"fade": "0.5"}, "fade", "Fading over must be at least a step"),
        ("spread", {"high": "1e6"}, "bin", "merge values into fewer cells"),
    ],
)
def test_a_sentence_is_next_to_its_field(
    question: str, typed: dict[str, str], field: str, words: str
) -> None:
    with pytest.raises(FieldErrors) as wrong:
        asked("number", {"question": question, **typed})
    assert list(wrong.value.sentences) == [field]
    assert words in wrong.value.sentences[field]
