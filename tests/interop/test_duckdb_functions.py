"""Plans in SQL: table functions of DuckDB, Ibis tables, and the model of dbt in examples."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="needs DuckDB, which make check installs")
pytest.importorskip("pyarrow", reason="needs Arrow, which make check installs")

import duckdb
from tests.interop.settings import account_profile, plans

import metricshuffle as ms
from metricshuffle.interop import register_duckdb
from metricshuffle.interop.duckdb_functions import ReleaseFunction, order_free_hash
from metricshuffle.planning.costs.release_ledger import RELEASES_LEDGER

ROOT = Path(__file__).parents[2]
MEAN = "SELECT * FROM metricshuffle_run('{}', (SELECT list(kcal ORDER BY id) FROM people))"

LABELS = (
    "SELECT label, value, low_95, high_95 FROM metricshuffle_run_labels('{}', "
    "(SELECT list(if(id % 4 = 0, 'tea', 'water')) FROM people))"
)


@pytest.fixture(scope="module")
def planned() -> ms.Plan:
    target = ms.Target(epsilon=1, delta=1e-6, distance=5)
    return ms.plan(ms.Mean(ms.Integers(0, 20, unit="kcal")), target, users=200)


@pytest.fixture
def plan_file(planned: ms.Plan, tmp_path: Path) -> Path:
    planned.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    opened = duckdb.connect()
    opened.execute("CREATE TABLE people AS SELECT range AS id, range % 21 AS kcal FROM range(200)")
    register_duckdb(opened)
    return opened


def test_a_mean_in_sql(
    connection: duckdb.DuckDBPyConnection, plan_file: Path, planned: ms.Plan
) -> None:
    """One row with the guarantee of the plan; it is recorded beside the plan."""
    rows = connection.sql(MEAN.format(plan_file)).fetchall()
    assert len(rows) == 1
    label, value, error, low, high, epsilon, delta, distance, text = rows[0]
    assert label == "mean"
    assert abs(value - 9.765) < 10 * error
    assert low <= value <= high
    promise = planned.guarantee
    assert (epsilon, delta, distance) == (promise.epsilon, promise.delta, promise.distance)
    assert str(promise) in text
    assert "All roles ran on one machine" in text
    assert (plan_file.parent / RELEASES_LEDGER).exists()


def test_the_same_values_are_released_once(
    connection: duckdb.DuckDBPyConnection, plan_file: Path
) -> None:
    """Evaluated again, a query shows the same answer; other values are another release."""
    query = MEAN.format(plan_file)
    first = connection.sql(query).fetchall()
    assert connection.sql(query).fetchall() == first
    twice = connection.sql(query).union(connection.sql(query))
    assert twice.fetchall() == 2 * first
    with pytest.raises(duckdb.InvalidInputException, match="none of the planned rounds is left"):
        connection.sql(query.replace("kcal ORDER", "20 - kcal ORDER")).fetchall()
    other = duckdb.connect()
    register_duckdb(other)
    other.execute("CREATE TABLE people AS SELECT range AS id, range % 21 AS kcal FROM range(200)")
    with pytest.raises(duckdb.InvalidInputException, match="none of the planned rounds is left"):
        other.sql(query).fetchall()


def test_the_order_of_the_values_is_no_other_release(
    connection: duckdb.DuckDBPyConnection, planned: ms.Plan, tmp_path: Path
) -> None:
    """Scans on several threads have no fixed order. One round is planned, and stays spent once."""
    planned.save(tmp_path / "plan.json")
    query = MEAN.format(tmp_path / "plan.json")
    first = connection.sql(query).fetchall()
    for order in ("id DESC", "hash(id)", "kcal, id"):
        assert connection.sql(query.replace("ORDER BY id", f"ORDER BY {order}")).fetchall() == first
    values: list[object] = [3.0, 1.0, 1.0, "1.0", 1, None, "a\nb"]
    assert order_free_hash(values) == order_free_hash(values[::-1])
    for other in (values[1:], [*values, 3.0], [*values[:-1], "a", "b"], [*values[1:], 3]):
        assert order_free_hash(other) != order_free_hash(values)


def check_never_smaller(plan: ms.Plan, folder: Path) -> None:
    """The rows of a plan promise no more than the profile of its protocol."""
    folder.mkdir()
    plan.save(folder / "plan.json")
    values_in = plan.query.values_in
    assert isinstance(values_in, ms.Integers)
    codes = range(values_in.low, values_in.high + 1)
    values = [float(codes[place % len(codes)]) for place in range(plan.users)]
    rows = ReleaseFunction().released(str(folder / "plan.json"), values)
    assert len(rows) == 1
    profile = account_profile(plan)
    for row in rows:
        assert profile.delta(row["epsilon"], row["distance"]) <= row["delta"], plan
        assert (row["epsilon"], row["distance"]) == (plan.target.epsilon, plan.target.distance)


@pytest.mark.thorough
def test_never_smaller_than_the_profile(tmp_path: Path) -> None:
    for index, plan in enumerate(plans(4, 8)):
        check_never_smaller(plan, tmp_path / str(index))


@pytest.mark.slow
def test_never_smaller_than_the_profile_in_a_thousand_settings(tmp_path: Path) -> None:
    for index, plan in enumerate(plans(1000, 9)):
        check_never_smaller(plan, tmp_path / str(index))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (
            "SELECT metricshuffle_run_rows('{}', list(kcal)) FROM people GROUP BY id % 3",
            "runs once in a query|200",
        ),
        (
            "SELECT * FROM metricshuffle_run('{}', (SELECT list(kcal) FROM people WHERE false))",
            "the list of values is NULL",
        ),
        ("SELECT * FROM metricshuffle_run('{}', NULL)", "one list of all values"),
        (
            "SELECT * FROM metricshuffle_run('{}', (SELECT kcal FROM people))",
            r"write \(SELECT list\(column\) FROM table\)",
        ),
        (
            "SELECT * FROM metricshuffle_run_labels('{}', (SELECT id::VARCHAR FROM people))",
            r"metricshuffle_run_labels takes one list .*write \(SELECT list\(column\) FROM table",
        ),
        ("SELECT * FROM metricshuffle_run('missing.json', [1.0])", "missing.json"),
        ("SELECT * FROM metricshuffle_run('{}', [1.0, 2.0])", "200"),
        (
            "SELECT * FROM metricshuffle_run('{}', (SELECT list(NULLIF(kcal, 3)) FROM people))",
            "row 3",
        ),
        ("SELECT * FROM metricshuffle_run('{}', (SELECT list(kcal + 5) FROM people))", "0 to 20"),
    ],
)
def test_refusals_leave_no_release(
    connection: duckdb.DuckDBPyConnection, plan_file: Path, query: str, words: str
) -> None:
    with pytest.raises(duckdb.InvalidInputException, match=words):
        connection.sql(query.format(plan_file)).fetchall()
    ledger = plan_file.parent / RELEASES_LEDGER
    assert not ledger.exists() or not ledger.read_text().strip()


@pytest.mark.thorough
def test_labels_and_what_has_no_rows(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    target = ms.Target(epsilon=1, delta=1e-6, distance=1)
    labels = ms.plan(ms.Histogram(ms.Categories(["tea", "water"])), target, users=200)
    labels.save(tmp_path / "labels.json")
    rows = connection.sql(LABELS.format(tmp_path / "labels.json")).fetchall()
    assert [row[0] for row in rows] == ["tea", "water"]
    assert all(low <= value <= high for _, value, low, high in rows)
    places = ms.plan(
        ms.Centroid(ms.Grid(4, 4)), ms.Target(epsilon=1, delta=1e-6, distance=1), users=200
    )
    places.save(tmp_path / "places.json")
    with pytest.raises(duckdb.InvalidInputException, match="no label and number a row"):
        connection.sql(MEAN.format(tmp_path / "places.json")).fetchall()
    assert sorted(path.name for path in tmp_path.glob("*.ledger")) == [RELEASES_LEDGER]


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")  # of pandas
def test_ibis_tables_are_read_through_arrow(planned: ms.Plan) -> None:
    """Ibis's tables have Arrow's C interface, which is what is read."""
    ibis = pytest.importorskip("ibis", reason="needs Ibis (pip install 'ibis-framework[duckdb]')")
    people = ibis.memtable({"kcal": [index % 21 for index in range(200)], "name": ["x"] * 200})
    release = planned.run(people, column="kcal")
    assert abs(release.value - 9.765) < 10 * release.standard_error
    doubled = people.mutate(kcal=people.kcal // 2)
    assert planned.run(doubled, column="kcal").value < 6.0


def test_the_model_of_dbt_runs_a_plan(planned: ms.Plan, tmp_path: Path) -> None:
    """The function of the model, with a relation of DuckDB as dbt-duckdb passes it."""
    namespace: dict[str, object] = {}
    source = (ROOT / "examples" / "dbt" / "models" / "private_mean.py").read_text()
    exec(compile(source, "private_mean.py", "exec"), namespace)  # noqa: S102 - our own example

    class Session:
        """What dbt passes to a model."""

        config = property(lambda self: self)

        def __call__(self, **options: object) -> None:
            self.options = options

        def get(self, name: str) -> str:
            return {"plan": str(tmp_path / "plan.json")}[name]

        def ref(self, name: str) -> duckdb.DuckDBPyRelation:
            assert name == "people"
            return opened.table("people")

    planned.save(tmp_path / "plan.json")
    opened = duckdb.connect()
    opened.execute("CREATE TABLE people AS SELECT range % 21 AS kcal FROM range(200)")
    model = namespace["model"]
    assert callable(model)
    table = model(Session(), opened)
    assert table.column_names[:2] == ["label", "value"]
    assert table.num_rows == 1
    assert (tmp_path / RELEASES_LEDGER).exists()


@pytest.mark.thorough
@pytest.mark.skipif(
    shutil.which("dbt", path=str(Path(sys.executable).parent)) is None,
    reason="needs dbt (pip install dbt-duckdb), which is not installed beside this Python",
)
def test_dbt_itself_builds_the_model(planned: ms.Plan, tmp_path: Path) -> None:
    project = tmp_path / "dbt"
    shutil.copytree(ROOT / "examples" / "dbt", project)
    target = ms.Target(epsilon=1, delta=1e-6, distance=100)
    query = ms.Mean(ms.Integers(0, 1000, unit="kcal"))
    ms.plan(query, target, users=1000).save(project / "plan.json")
    shutil.copy(ROOT / "examples" / "kcal.csv", project / "seeds" / "people.csv")
    program = str(Path(sys.executable).parent / "dbt")
    done = subprocess.run(
        [program, "build", "--project-dir", ".", "--profiles-dir", "."],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with duckdb.connect(str(project / "example.duckdb"), read_only=True) as built:
        rows = built.sql("SELECT label, value FROM private_mean").fetchall()
    assert [label for label, _ in rows] == ["mean"]
    assert 0 < rows[0][1] < 1000
