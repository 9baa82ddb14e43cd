"""Quantiles, spread, shares above and zones on the page: read from the form, and tried out."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.planning.item_tables import item_files
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.web.downloads import command, file_commands, python
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


TOWNS = "town,latitude,longitude\nBern,46.95,7.45\nThun,46.75,7.63\nRome,41.90,12.50\n"
PLACED = {"item": "placed", "positions": TOWNS, "unit": "km", "distance": "20"}
SHEET = "town\tpeople\nRome\t2.75\nBern\t0.5\nThun\t0.25"
TABLES: dict[str, tuple[dict[str, str], list[str], list[Any]]] = {
    "columns": (
        {"question": "table", "high": "2", "table": "n,root,square\n2,1.5,4\n0,0,0\n1,1,1\n"},
        ["root", "square"],
        [[0.0, 0.0], [1.0, 1.0], [1.5, 4.0]],
    ),
    "columns of towns": (
        {"question": "table", "table": SHEET, **PLACED},
        ["people"],
        [[0.5], [0.25], [2.75]],
    ),
    "similarities": (
        {
            "question": "table",
            "item": "label",
            "labels": "tea, milk",
            "table": "word,x,y\ntea,1,0\nmilk,0,1",
            "similar_to": "name,x,y\nhot,1,0.5",
            "distance": "1",
        },
        ["hot"],
        [[1.0], [0.5]],
    ),
    "regions": (
        {"question": "regions", "high": "3", "fade": "2", "regions": "r,n\nlow,0\ntop,3\n"},
        ["low", "top"],
        [[1.0, 0.0], [0.5, 0.0], [0.0, 0.5], [0.0, 1.0]],
    ),
    "distances of numbers": (
        {"question": "distance", "high": "2", "distance_to": "1, 2"},
        ["1", "2"],
        [[1.0, 2.0], [0.0, 1.0], [1.0, 0.0]],
    ),
    "distances of towns": (
        {"question": "distance", "distance_to": "Bern", **PLACED},
        ["Bern"],
        [[0.0], [pytest.approx(26.11, abs=0.01)], [pytest.approx(689.7, abs=0.1)]],
    ),
}
"""Forms about functions of items, with the names of columns and the table that they ask for."""


@check_all("name", TABLES)
def test_functions_of_items_are_read_and_written(name: str, tmp_path: Path) -> None:
    typed, names, table = TABLES[name]
    question = asked("items", {"users": "300", **typed})
    query = question.request.query
    assert isinstance(query, ms.UserLinearQuery)
    assert list(query.names) == names
    assert query.table.tolist() == table
    options = question.request.to_command()
    assert {("--query", "user-linear"), ("--table", "table.csv")} <= set(options)
    assert (("--positions", "positions.csv") in options) == ("positions" in typed)
    assert eval(question.request.to_python(), {"ms": ReturnedRequest}).query == query  # noqa: S307
    writing = file_commands(query)
    subprocess.run(["/bin/sh", "-ec", writing], check=True, cwd=tmp_path)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == item_files(query)
    for file in tmp_path.iterdir():
        file.unlink()


def test_the_example_of_every_function_of_items_works() -> None:
    for question in ("table", "regions", "distance"):
        query = asked("items", {"question": question}).request.query
        assert isinstance(query, ms.UserLinearQuery)
        assert query.table.shape == (24, 2)


@check_all(
    "typed, field, words",
    [
        ({"question": "table", "table": ""}, "table", "Table is empty; give a header"),
        ({"question": "table", "table": "x" * 8001}, "table", "is longer than 8,000 characters"),
        ({"question": "table", "table": "n,a\n0,1\n"}, "table", "Table has no row for 1"),
        ({"question": "table", "table": "n,a\n0,1,2\n"}, "table", "has 3 cells, but the header"),
        ({"question": "table", "table": "n,a\n0,x\n", "high": "1"}, "table", "no row for 1"),
        (
            {"question": "table", "table": "n,a\n0,x\n1,1", "high": "1"},
            "table",
            "row 2, column a: 'x' is not a number",
        ),
        ({"question": "table", "table": "n,a\n0,5\n1,5", "high": "1"}, "table", "is the same at"),
        ({"question": "table", "item": "label"}, "table", "'0' is not a label"),
        (
            {"question": "table", "similar_to": "name,x\nhot,1\n"},
            "similar_to",
            "Compared with must have a name and 2 numbers in each row, as “Table” has, got 1",
        ),
        ({"question": "regions", "fade": ""}, "fade", "Fading over is empty; regions need it"),
        ({"question": "regions", "fade": "0"}, "fade", "Fading over must be a number > 0"),
        ({"question": "regions", "regions": "r,n\na,99\n"}, "regions", "99 lies above it"),
        ({"question": "regions", "regions": "r,n\na,?\n"}, "regions", "by whole numbers"),
        ({"question": "distance", "distance_to": "30"}, "distance_to", "30 lies above it"),
        ({"question": "distance", "distance_to": "1.5"}, "distance_to", "must be whole numbers"),
        ({"question": "distance", "item": "square"}, "item", "a number or a word, if distances"),
        ({**PLACED, "question": "distance", "distance_to": "Oslo"}, "distance_to", "'Oslo' is not"),
        ({**PLACED, "question": "distance", "unit": "mile"}, "unit", "is km or m, got 'mile'"),
        ({**PLACED, "question": "distance", "positions": "town\nx\ny"}, "positions", "needs a col"),
        ({**PLACED, "question": "histogram"}, "item", "a word with a position only for columns"),
    ],
)
def test_a_sentence_about_tables_is_next_to_its_field(
    typed: dict[str, str], field: str, words: str
) -> None:
    with pytest.raises(FieldErrors) as wrong:
        asked("items", typed).request.setting  # noqa: B018 - the target is checked there
    assert list(wrong.value.sentences) == [field]
    assert words in wrong.value.sentences[field]


@pytest.mark.thorough
@check_all("name", TABLES)
def test_a_dry_run_of_functions_of_items_has_the_true_answer(name: str) -> None:
    typed, names, _ = TABLES[name]
    result = load_result("items", {"users": "300", **typed})
    passed_on = pickle.loads(pickle.dumps(result))  # noqa: S301 - as between workers
    assert passed_on.plan.digest == result.plan.digest
    assert command(result).startswith(f"{file_commands(result.plan.query)}metricshuffle plan ")
    dry_run = trial(result, None, (), "", "")
    assert dry_run.true is not None
    assert [row[0] for row in dry_run.numbers.rows] == names


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
    Space, Users, UserLinearQuery = ms.Space, ms.Users, ms.UserLinearQuery
    GreatCircle, Vectors = ms.GreatCircle, ms.Vectors


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
