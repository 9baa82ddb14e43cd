"""Data frames and tables with a column name: same values, errors with Python arguments."""

from __future__ import annotations

import datetime
import decimal
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import load_task
from tests.catalogue.small_plans import plan_of
from tests.tables import check_all

from metricshuffle import (
    Centroid,
    DomainError,
    Histogram,
    InputError,
    Mean,
    Randomness,
    Sum,
    Target,
    UserHistogram,
    plan,
    users_of,
)
from metricshuffle.data.query_values import join_parts, parts_of
from metricshuffle.errors import InputWarning
from metricshuffle.spaces import Categories, Grid, Integers, Places, Space
from metricshuffle.tasks import Task

pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra tables)")
COLUMNS: dict[str, list[Any]] = {
    "who": [f"p{row % 20}" for row in range(40)],
    "kcal": [row % 20 for row in range(40)],
    "x": [row % 8 for row in range(40)],
    "y": [row % 6 for row in range(40)],
    "word": ["tea", "water"] * 20,
}


class Stream:
    """Nothing but Arrow's interface for streams."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


class Array:
    """Nothing but Arrow's interface for arrays."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.batch.__arrow_c_array__(requested_schema)


def module(name: str) -> Any:
    return pytest.importorskip(
        name, reason=f"{name} is not installed, so its frames cannot be tried"
    )


MAKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "lists": dict,
    "arrays": lambda columns: {name: np.array(column) for name, column in columns.items()},
    "pandas": lambda columns: module("pandas").DataFrame(columns),
    "nullable pandas": lambda columns: module("pandas").DataFrame(columns).convert_dtypes(),
    "Polars": lambda columns: module("polars").DataFrame(columns),
    "Arrow table": pyarrow.table,
    "Arrow batch": pyarrow.RecordBatch.from_pydict,
    "Arrow reader": lambda columns: pyarrow.table(columns).to_reader(),
    "Arrow dataset": lambda columns: module("pyarrow.dataset").dataset(pyarrow.table(columns)),
    "lazy Polars": lambda columns: module("polars").DataFrame(columns).lazy(),
    "DuckDB": lambda columns: module("duckdb").from_arrow(pyarrow.table(columns)),
    "stream": lambda columns: Stream(pyarrow.table(columns)),
    "array": lambda columns: Array(pyarrow.RecordBatch.from_pydict(columns)),
}
INSTALLED = [name for name in ("pandas", "polars") if importlib.util.find_spec(name) is not None]


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], Any]:
    return MAKERS[request.param]


@pytest.fixture(scope="module")
def task() -> Task:
    """The sum of whole numbers from 0 to 20, reported by people who trust nobody."""
    return load_task("local sum")


def taken(query: Any, values: Any, **asked: Any) -> Any:
    return join_parts(parts_of(query, values, **asked))


def test_a_column_of_any_frame(make: Any, task: Task) -> None:
    """The same reports as from the bare column."""
    bare = task.randomize(COLUMNS["kcal"], Randomness.seeded(1))
    framed = task.randomize(make(COLUMNS), Randomness.seeded(1), column="kcal")
    assert np.array_equal(bare.messages, framed.messages)
    released = task.run(make(COLUMNS), Randomness.seeded(1), column="kcal")
    assert released.value == task.run(COLUMNS["kcal"], Randomness.seeded(1)).value


def test_people_labels_and_cells(make: Any) -> None:
    query = Sum(Integers(0, 20))
    expected = [
        sum(COLUMNS["kcal"][row] for row in (person, person + 20)) / 2 for person in range(20)
    ]
    assert (
        taken(query, make(COLUMNS), column="kcal", user_column="who", per_user="mean").tolist()
        == expected
    )
    labels = Sum(Integers(0, 1)).model_copy(update={"domain": Categories(["tea", "water"])})
    assert taken(labels, make(COLUMNS), column="word").tolist() == COLUMNS["word"]
    grid = Sum(Integers(0, 1)).model_copy(update={"domain": Grid(8, 6)})
    assert taken(grid, make(COLUMNS), column=["x", "y"]).tolist() == list(
        map(list, zip(COLUMNS["x"], COLUMNS["y"], strict=True))
    )


def test_sentences_name_what_python_was_given(make: Any, task: Task) -> None:
    def refused(**asked: Any) -> str:
        with pytest.raises(InputError) as told:
            task.run(make(COLUMNS), **asked)
        assert "--" not in str(told.value)
        return str(told.value)

    assert "holds the values; it has: who, kcal, x, y, word." in refused()
    assert "has no column 'name' (column); its columns are: who, kcal, x, y, word." in refused(
        column="name"
    )
    assert "has no column 'name' (user_column)" in refused(column="kcal", user_column="name")
    assert "so choose per_user mean, sum, first or sample" in refused(
        column="kcal", user_column="who"
    )
    assert "per_user says what to do with several rows" in refused(column="kcal", per_user="mean")
    assert "a sum needs one column, named by column; got 2" in refused(column=["x", "y"])
    assert "coordinates='places' is for places on a grid" in refused(
        column="x", coordinates="places"
    )
    assert "column='kcal' is also the user_column;" in refused(column="kcal", user_column="kcal")


def test_misspelled_arguments_are_refused(task: Task) -> None:
    calls: list[Callable[..., Any]] = [task.run, task.randomize, plan_of("mean").run]
    for call in calls:
        with pytest.raises(
            TypeError,
            match=("unknown argument 'colum'; values are read with column, user_column, per_user"),
        ):
            call(COLUMNS, colum="kcal")


def test_wrong_rows_are_counted_and_the_first_are_shown(
    make: Any, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metricshuffle.data.source.CHUNK_ROWS", 9)
    frame = {"n": [3, 99] * 20}
    with pytest.raises(DomainError) as told:
        task.run(make(frame), column="n")
    assert "20 of 40 values in column 'n' of the" in str(told.value)
    assert "(rows count from 0) are not in whole numbers from 0 to 20" in str(told.value)
    assert (
        "row 1: 99 lies above it; row 3: 99; row 5: 99; row 7: 99; row 9: 99; and 15 more."
        in str(told.value)
    )
    assert "pass clamp=True to move numbers outside" in str(told.value)
    with pytest.warns(
        InputWarning,
        match=(
            r"^Warning: 20 of 40 values of the .* \(50 %\) lay outside whole numbers from 0 to "
            r"20 kcal"
        ),
    ):
        assert taken(task.query, make(frame), column="n", clamp=True).tolist() == [3, 20] * 20


def test_missing_values(task: Task) -> None:
    """Nulls and NaN are missing in every frame: an error, or left out with a warning."""
    holes = [1.0, None, 3.0, float("nan"), 5.0] * 8
    frames: list[Any] = [
        {"n": holes},
        pyarrow.table({"n": holes}),
        {"n": np.ma.masked_invalid(np.array(holes, dtype=float))},
    ]
    if "pandas" in INSTALLED:
        pandas = module("pandas")
        frames += [
            pandas.DataFrame({"n": holes}),
            pandas.DataFrame({"n": pandas.array([1, None, 3, None, 5] * 8, dtype="Int64")}),
        ]
    if "polars" in INSTALLED:
        frames.append(module("polars").DataFrame({"n": holes}, strict=False))
    for frame in frames:
        with pytest.raises(
            DomainError,
            match=(
                r"16 of 40 values in column 'n' .* are missing: row 1: .* drop_missing=True "
                r"leaves out"
            ),
        ):
            task.run(frame, column="n")
        with pytest.warns(
            InputWarning, match=r"Of 40 rows of the \w+, 16 rows miss a value and were left out\."
        ):
            assert taken(task.query, frame, column="n", drop_missing=True).tolist() == [1, 3, 5] * 8
    with pytest.raises(
        DomainError,
        match=r"1 of 3 rows of the dict names no user in user_column 'who': row 1: \(empty\)",
    ):
        task.run({"n": [1, 2, 3], "who": ["a", None, "b"]}, column="n", user_column="who")
    with pytest.raises(InputError, match="every row of the dict misses a value"):
        task.run({"n": [None, None]}, column="n", drop_missing=True)


MOMENT = datetime.datetime(2024, 1, 5, 10, 30, tzinfo=datetime.UTC)
NOT_NUMBERS: dict[str, tuple[Any, str]] = {
    "time stamps": (pyarrow.table({"n": [MOMENT] * 3}), "is a date or a time"),
    "dates": (pyarrow.table({"n": [MOMENT.date()] * 3}), "is a date or a time"),
    "times": (pyarrow.table({"n": [MOMENT.time()] * 3}), "is a date or a time"),
    "durations": (pyarrow.table({"n": [datetime.timedelta(1)] * 3}), "is a date or a time"),
    "dates in a list": ({"n": [MOMENT.date()] * 3}, "is a date or a time"),
    "numpy's moments": (
        {"n": np.array(["2024-01-05", "2024-01-06"], dtype="M8[s]")},
        "is a date or a time",
    ),
    "numpy's durations": ({"n": np.array([1, 2], dtype="m8[s]")}, "is a date or a time"),
    "no time at all": ({"n": np.array(["NaT"], dtype="M8[s]")}, "is missing"),
    "truth values": (pyarrow.table({"n": [True, False]}), "is a truth value"),
    "text": (pyarrow.table({"n": ["3", "4"]}), "turn that column into numbers first"),
    "lists": (pyarrow.table({"n": [[3], [4]]}), "is a list and not a number"),
    "decimal commas": ({"n": ["3,5"]}, "read the file with decimal=','"),
}


@check_all(("frame", "told"), NOT_NUMBERS.values())
def test_columns_that_hold_no_numbers_are_refused(task: Task, frame: Any, told: str) -> None:
    with pytest.raises(DomainError, match=told):
        task.run(frame, column="n")


def test_pandas_moments_and_its_missing_ones(task: Task) -> None:
    pandas = module("pandas")
    with pytest.raises(DomainError, match="is a date or a time"):
        task.run(pandas.DataFrame({"n": pandas.date_range("2024-01-01", periods=3)}), column="n")
    for missing in (pandas.NaT, pandas.NA):
        with pytest.raises(DomainError, match=r"2 of 2 values in column 'n' .* are missing"):
            task.run(pandas.DataFrame({"n": [missing] * 2}), column="n")
        with pytest.raises(DomainError, match="is missing"):
            task.run(pandas.Series([3, missing], dtype=object))


def test_decimals_and_every_kind_of_text(task: Task) -> None:
    exact = [decimal.Decimal("3"), decimal.Decimal("4.0")]
    for frame in (pyarrow.table({"n": exact}), {"n": exact}):
        assert taken(task.query, frame, column="n").tolist() == [3, 4]
    labels = Sum(Integers(0, 1)).model_copy(update={"domain": Categories(["tea", "water"])})
    words = pyarrow.array(["tea", "water"])
    texts = [
        words,
        words.cast(pyarrow.large_string()),
        words.dictionary_encode(),
        words.cast(pyarrow.string_view()),
    ]
    frames = [pyarrow.table({"w": text}) for text in texts]
    if "pandas" in INSTALLED:
        frames.append(
            module("pandas").DataFrame(
                {"w": module("pandas").Series(["tea", "water"], dtype="category")}
            )
        )
    if "polars" in INSTALLED:
        frames.append(
            module("polars").DataFrame(
                {"w": module("polars").Series(["tea", "water"], dtype=module("polars").Categorical)}
            )
        )
    for frame in frames:
        assert taken(labels, frame, column="w").tolist() == ["tea", "water"]


def test_bare_columns_stay_as_they_were(task: Task) -> None:
    """Lists, arrays and series are values; a name for them is refused."""
    bare: list[Any] = [
        COLUMNS["kcal"],
        np.array(COLUMNS["kcal"]),
        pyarrow.array(COLUMNS["kcal"]),
        pyarrow.chunked_array([COLUMNS["kcal"]]),
    ]
    bare += [getattr(module(name), "Series")(COLUMNS["kcal"]) for name in INSTALLED]  # noqa: B009 - mypy knows nothing about it
    for values in bare:
        assert (
            task.run(values, Randomness.seeded(1)).value
            == task.run(bare[0], Randomness.seeded(1)).value
        )
        with pytest.raises(InputError, match=r"^column .*; leave it out"):
            task.run(values, column="kcal")
    with pytest.raises(InputError, match="drop_missing is for a frame or a table"):
        task.run([1, None], drop_missing=True)


def test_ids_of_users_are_text(task: Task) -> None:
    """1, 01 and 1.0 are three people, with a warning that names the first two."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            len(
                taken(
                    task.query,
                    pyarrow.table({"n": [1, 2], "who": [7, 8]}),
                    column="n",
                    user_column="who",
                )
            )
            == 2
        )
    with pytest.warns(
        InputWarning,
        match="Users '1' and '01' in 'who' of the dict counted as two people, and 2 more like them",
    ):
        held = taken(
            task.query,
            {"n": [1, 2, 3, 4, 5], "who": ["1", "01", "1.0", "Ann", "ann"]},
            column="n",
            user_column="who",
        )
    assert held.tolist() == [1, 2, 3, 4, 5]


def test_frames_that_cannot_be_read(task: Task) -> None:
    with pytest.raises(InputError, match="column 'n' of the dict has 1 rows, but 'who' has 2"):
        task.run({"n": [1], "who": ["a", "b"]}, column="n", user_column="who")
    with pytest.raises(InputError, match="must have one value a row"):
        task.run({"n": np.zeros((2, 2))}, column="n")
    with pytest.raises(InputError, match="has no rows"):
        task.run({"n": []}, column="n")
    with pytest.raises(InputError, match="has no rows"):
        task.run(pyarrow.table({"n": pyarrow.array([], pyarrow.int64())}), column="n")


def austin(cell: float = 2000.0, **box: float) -> Any:
    corners = {"south": 30.1, "west": -98.1, "north": 30.55, "east": -97.5} | box
    return Grid.from_box(corners["south"], corners["west"], corners["north"], corners["east"], cell)


def test_lists_of_places_are_degrees() -> None:
    """Latitude and longitude; whole numbers on a grid are cells, or as stated."""
    grid = austin()
    pairs = [(30.267, -97.743), (30.3, -97.7)]
    for query in (Centroid(grid), Histogram(grid)):
        expected = grid.cells_at(*zip(*pairs, strict=True)).tolist()
        for values in (pairs, [list(pair) for pair in pairs], np.array(pairs)):
            assert taken(query, values).tolist() == expected
            assert taken(query, values, coordinates="places").tolist() == expected
        assert taken(query, [(1, 2), (3, 4)]) == [(1, 2), (3, 4)]
        assert taken(query, [(100.0, 2100.0)], coordinates="points").tolist() == [[0, 1]]
        with pytest.raises(DomainError, match=r"latitudes 30.1 to 30.55"):
            taken(query, [(30.267, -97.743), (48.2, 16.4)])
        with pytest.warns(
            InputWarning, match=r"1 of 2 values of the list \(50 %\) lay outside the grid"
        ):
            assert taken(query, [(30.267, -97.743), (30.3, -99.5)], clamp=True)[1].tolist()[0] == 0
    release = plan(
        Centroid(Places(30.1, -98.1, 30.55, -97.5)), Target(1, 1e-6, 5000), 40, trusted="curator"
    ).run(pairs * 20)
    assert np.abs(np.array(release.value) - np.mean(pairs, axis=0)).max() < 0.1


def test_pairs_that_may_be_cells_or_degrees() -> None:
    grid = austin(10_000.0, south=0.0, west=0.0, north=2.0, east=2.0)
    query = Histogram(grid)
    with pytest.raises(
        InputError,
        match=(
            r"may be columns and rows of cells, or latitudes and longitudes of places; say "
            r"which .*coordinates='"
        ),
    ):
        taken(query, [(1, 1), (2, 1)])
    assert taken(query, [(1, 1)], coordinates="cells") == [(1, 1)]
    assert (
        taken(query, [(1, 1)], coordinates="places").tolist()
        == grid.cells_at([1.0], [1.0]).tolist()
    )
    with pytest.raises(InputError, match="coordinates='places' is for places on a grid"):
        taken(Mean(Integers(0, 5)), [1, 2], coordinates="places")
    # rows of a file are cells already when they are randomized, and are not taken for degrees again
    task = plan(query, Target(1, 1e-6, 20_000), 40, protocols=["k-ary-randomized-response"]).task
    cells = taken(query, {"lat": [0.1] * 40, "lon": [1.0] * 40}, column=["lat", "lon"])
    assert sum(map(len, task.randomized([cells]))) == 40


def test_users_places_are_degrees() -> None:
    grid = austin()
    users = UserHistogram(users_of(Space(grid)))
    first, second = taken(users, [[(30.267, -97.743), (30.3, -97.7)], [(30.2, -98.0)]])
    assert (len(first), len(second)) == (2, 1)
    assert second.tolist() == grid.cells_at([30.2], [-98.0]).tolist()
