"""Roles on Spark: the local release exactly in one partition, the same law in many."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import CURATORS, KINDS, load_task, planned, values_of

from metricshuffle import DomainError, InputError, Randomness
from metricshuffle.errors import BatchTooSmall, InputWarning, PlanError
from metricshuffle.planning.costs.release_ledger import Budget
from metricshuffle.spaces import Places
from metricshuffle.spark import partitions, roles
from metricshuffle.spark.frame_request import FrameRequest
from metricshuffle.tasks import Ledger

pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra tables)")
pytestmark = pytest.mark.thorough
ONE_OF_EACH = (
    "sum in shares",
    "mean of real numbers",
    "centroid",
    "labels",
    "vectors of a line",
    "users' vectors",
    "users' samples",
    "curator's histogram",
)
"""Numbers, places, categories and users' items; every protocol; a curator."""


def rows_of(kind: str) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Values as columns, and the options that name them; users in the order of their names."""
    held = [
        (f"p{person:05}", value)
        for person, many in enumerate(values_of(kind))
        for value in (many if isinstance(many, list) else [many])
    ]
    columns: dict[str, list[Any]] = {"who": [who for who, _ in held]}
    asked: dict[str, Any] = {
        "user_column": "who" if load_task(kind).query.items is not None else None
    }
    if isinstance(held[0][1], tuple):
        return columns | {"x": [at[0] for _, at in held], "y": [at[1] for _, at in held]}, asked | {
            "column": ["x", "y"],
            "coordinates": "places"
            if isinstance(load_task(kind).query.values_in, Places)
            else "cells",
        }
    return columns | {"value": [value for _, value in held]}, asked | {"column": "value"}


@contextmanager
def any_pandas() -> Iterator[None]:
    """Without what Spark says about new versions of pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "PySpark does not yet fully support pandas", FutureWarning
        )
        yield


def open_frame(spark: Any, columns: dict[str, Any], partitions: int = 1) -> Any:
    with any_pandas():
        frame = spark.createDataFrame(pyarrow.table(columns))
    return frame.coalesce(1) if partitions == 1 else frame.repartition(partitions)


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_the_release_of_the_local_path_to_the_last_field(spark: Any, kind: str) -> None:
    """The same seed in one partition: the same JSON, a stamp of the seed included."""
    plan = planned(kind)
    columns, options = rows_of(kind)
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        tally = FrameRequest.of(
            open_frame(spark, columns), plan.task, seed="same", **options
        ).tally()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    on_spark = plan.estimate(
        plan.task.publish(tally, Randomness.seeded("noise")), raw_values_seen=True
    )
    local = plan.task.counted([values_of(kind)], Randomness.seeded("same"))
    on_one_machine = plan.estimate(
        plan.task.publish(local, Randomness.seeded("noise")), raw_values_seen=True
    )
    assert on_spark.unsafe_seeded
    assert on_spark.to_json() == on_one_machine.to_json()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ONE_OF_EACH])
def test_every_other_kind_too(spark: Any, kind: str) -> None:
    test_the_release_of_the_local_path_to_the_last_field(spark, kind)


def test_true_inputs_add_up_exactly_in_many_partitions(spark: Any) -> None:
    """A curator's sums have no noise yet: the bytes of the local tally, in any partitions."""
    for kind in ("curator's sum", "curator's histogram"):
        columns, options = rows_of(kind)
        order = np.random.default_rng(1).permutation(
            len(columns["who"])
        )  # users' rows lie anywhere
        mixed = {name: [cells[row] for row in order] for name, cells in columns.items()}
        mixed["who"] = [
            f" {name}\t" if row % 2 else name for row, name in enumerate(mixed["who"])
        ]  # blanks around a name do not count
        tally = roles.tally(open_frame(spark, mixed, 7), planned(kind), **options)
        assert tally.to_bytes() == load_task(kind).counted([values_of(kind)]).to_bytes()
    assert set(CURATORS) >= {"curator's sum", "curator's histogram"}


def test_the_same_law_in_2000_groups_of_one_job(spark: Any) -> None:
    """Noisy sums of 2,000 small groups: chi-square against the local path's, at 1e-6."""
    from scipy.stats import chi2_contingency

    task = load_task("sum in shares")
    people = 30
    groups = 2_000
    job = partitions.PartitionJob(task.to_json(), {"column": "value"})

    def of_groups(batches: Any) -> Any:
        for batch in batches:
            for start in range(0, batch.num_rows, people):
                yield from partitions.tally_partition(iter([batch.slice(start, people)]), job)

    values = [person % 4 for person in range(people)] * groups
    with any_pandas():
        frame = spark.createDataFrame(pyarrow.table({"value": values}))
        # batches of 10,000 rows would cut groups in two, so there are 9,990
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "9990")
        try:
            rows = frame.repartition(1).mapInArrow(of_groups, partitions.OUTCOME_SCHEMA).collect()
        finally:
            spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    sums = [_centred(task, task.tally(bytes(row["tally"]))) for row in rows]
    assert sum(task.tally(bytes(row["tally"])).people for row in rows) == people * groups
    local = [_centred(task, task.counted([values[:people]])) for _ in range(groups)]
    edges = np.quantile(sums + local, np.linspace(0, 1, 13)[1:-1])
    table = [np.bincount(np.searchsorted(edges, drawn), minlength=12) for drawn in (sums, local)]
    assert len(set(sums)) > 20
    kept = [column for column in zip(*table, strict=True) if sum(column)]
    assert chi2_contingency(np.array(kept).T).pvalue > 1e-6


def _centred(task: Any, tally: Any) -> int:
    modulus = task.protocol.modulus
    return int((tally.numbers[0] + modulus // 2) % modulus - modulus // 2)


def test_run_counts_in_the_budget_and_refuses_a_small_batch_on_the_driver(
    spark: Any, tmp_path: Path
) -> None:
    plan = planned("sum in shares")
    columns, options = rows_of("sum in shares")
    frame = open_frame(spark, columns, 3)
    budget = Budget(tmp_path / "plan.ledger")
    release = roles.run(frame, plan, budget=budget, **options)
    assert release.reports == 40
    assert release.raw_values_seen
    assert not release.unsafe_seeded
    assert release.expected_error == plan.choice.expected_error
    assert abs(release.value - 60) < 20 * release.standard_error
    with pytest.raises(InputError, match="round"):
        roles.run(frame, plan, budget=budget, **options)
    few = frame.limit(12)
    with pytest.raises(BatchTooSmall, match="the batch has 12 reports"):
        roles.run(few, plan, **options)


def test_reports_are_written_once_and_shuffled(spark: Any, tmp_path: Path) -> None:
    """Files do not change on re-evaluation; duplicate, foreign or earlier batches are rejected."""
    plan = planned("labels")
    columns, options = rows_of("labels")
    path = str(tmp_path / "reports")
    reports = roles.randomize(open_frame(spark, columns, 3), plan, path, **options)
    assert reports.columns == ["task", "round", "seeded", "batch", "number", "messages"]
    assert sorted(map(bytes, _messages(reports))) == sorted(map(bytes, _messages(reports)))
    batches = {bytes(row["batch"]) for row in reports.select("batch").distinct().collect()}
    assert len(batches) == 3
    ledger = Ledger(tmp_path / "ledger")
    shuffled = roles.shuffle(reports, plan, ledger=ledger)
    assert shuffled.people == 400
    assert set(shuffled.batches) == batches
    assert abs(plan.estimate(shuffled).value["share"][0] - 1 / 3) < 0.5
    assert (
        roles.tally(reports, plan).to_bytes()
        == roles.tally(reports.repartition(5), plan).to_bytes()
    )
    with pytest.raises(PlanError, match="released in an earlier batch"):
        roles.shuffle(reports, plan, ledger=ledger)
    with pytest.raises(InputError, match="reports are written once, so name another one"):
        roles.randomize(open_frame(spark, columns, 3), plan, path, **options)
    for twice in (
        reports.union(reports),
        reports.where("number > 3").union(reports.where("number < 9")),
    ):
        with pytest.raises(PlanError, match="the same reports occur twice"):
            roles.shuffle(twice, plan)
    with pytest.raises(PlanError, match="for another task"):
        roles.shuffle(reports, planned("line"))
    with pytest.raises(PlanError, match="some of these have another length"):
        roles.shuffle(
            reports.selectExpr(
                "task",
                "round",
                "seeded",
                "batch",
                "number",
                "concat(messages, messages) as messages",
            ),
            plan,
        )
    assert (
        roles.tally(reports.where("number > 3"), plan).people < 400
    )  # some of a batch are some of a batch


def _messages(reports: Any) -> list[Any]:
    return [row["messages"] for row in reports.collect()]


def test_wrong_values_in_one_partition_of_many(spark: Any, tmp_path: Path) -> None:
    """Errors are counted over all partitions and name the column; nothing is released."""
    plan = planned("sum in shares")
    values: list[float | None] = [float(person % 4) for person in range(60)]
    values[7], values[23], values[41], values[55] = None, float("nan"), 99.0, 99.0
    frame = open_frame(spark, {"kcal": values}, 11)
    for role in (
        partial(roles.run, frame, plan),
        partial(roles.randomize, frame, plan, str(tmp_path / "reports")),
    ):
        with pytest.raises(DomainError) as told:
            role(column="kcal")
        assert str(told.value).startswith(
            "4 of 60 values in column 'kcal' of the DataFrame (rows count from 0) are not "
            "in whole numbers"
        )
        assert "partition " in str(told.value)
        assert "99 lies above it" in str(told.value).replace("99.0", "99")
        assert not (tmp_path / "reports").exists()
    with pytest.warns(InputWarning) as warned:
        tally = roles.tally(frame, plan, column="kcal", drop_missing=True, drop_outside=True)
    assert tally.people == 56
    assert any("2 rows miss a value and were left out" in str(one.message) for one in warned)
    assert any(
        "2 rows are not in whole numbers from 0 to 20 kcal and were left out" in str(one.message)
        for one in warned
    )
    with pytest.warns(InputWarning, match="of 58 values of the DataFrame .* lay outside"):
        assert (
            roles.tally(
                frame.where("kcal is not null and not isnan(kcal)"), plan, column="kcal", clamp=True
            ).people
            == 58
        )


def test_users_are_grouped_and_never_counted_twice(spark: Any) -> None:
    """Rows of a user in several partitions are grouped; one value per person is enforced."""
    plan = planned("local sum")
    frame = open_frame(
        spark, {"who": [row % 20 for row in range(60)], "kcal": [row % 20 for row in range(60)]}, 6
    )
    assert roles.tally(frame, plan, column="kcal", user_column="who", per_user="mean").people == 20
    with pytest.raises(
        InputError,
        match=(
            r"rows of partition \d+ of the DataFrame belong to \d+ people, up to 3 to one of "
            r"them"
        ),
    ):
        roles.tally(frame, plan, column="kcal", user_column="who")
    with pytest.raises(
        InputError, match="per_user='first' needs an order, and the rows of a DataFrame have none"
    ):
        roles.tally(frame, plan, column="kcal", user_column="who", per_user="first")
    nobody = frame.selectExpr("if(who = 3, null, who) as who", "kcal")
    with pytest.raises(
        DomainError, match=r"3 of 60 rows of the DataFrame name no user in user_column 'who'"
    ):
        roles.tally(nobody, plan, column="kcal", user_column="who", per_user="mean")


def test_what_is_refused_before_anything_runs(spark: Any, tmp_path: Path) -> None:
    plan = planned("sum in shares")
    frame = open_frame(spark, {"kcal": [1, 2], "a.b `c`": [1, 2]})
    with pytest.raises(
        InputError,
        match=r"the DataFrame has no column 'name' \(column\); its columns are: kcal, a\.b `c`",
    ):
        roles.run(frame, plan, column="name")
    with pytest.raises(InputError, match="seeded randomness is rejected on Spark"):
        roles.run(frame, plan, column="kcal", randomness=Randomness.seeded(1))
    with pytest.raises(InputError, match="a streaming DataFrame has no end"):
        roles.run(spark.readStream.format("rate").load(), plan, column="value")
    with pytest.raises(
        InputError, match=r"this needs a Spark DataFrame, got dict; plan\.run takes other frames"
    ):
        roles.run({"kcal": [1]}, plan, column="kcal")
    with pytest.raises(InputError, match=r"which column of the DataFrame holds the values"):
        roles.tally(frame, plan)
    with pytest.raises(InputError, match="shuffle needs the reports that randomize wrote"):
        roles.shuffle(frame, plan)
    with pytest.raises(PlanError, match="nothing to randomize"):
        roles.randomize(frame, planned("curator's sum"), str(tmp_path / "none"), column="kcal")
    with pytest.raises(InputError, match="round must be a whole number from 1 to 1"):
        roles.tally(frame, plan, column="kcal", round=2)
    with pytest.raises(InputError, match="the DataFrame has no rows"):
        roles.tally(frame.where("kcal > 5"), plan, column="kcal")
    assert roles.tally(frame, plan, column="a.b `c`").people == 2


def test_a_partition_handed_back_twice_is_noticed() -> None:
    task = load_task("sum in shares")
    job = partitions.PartitionJob(task.to_json(), {"column": "value"})
    row = next(
        partitions.tally_partition(iter([pyarrow.RecordBatch.from_pydict({"value": [1, 2]})]), job)
    ).to_pylist()[0]
    assert partitions.combine_outcomes([row], job)[3] == [0]
    assert json.loads(row["seen"])["used"] == 2
    with pytest.raises(PlanError, match="returned a partition twice"):
        partitions.combine_outcomes([row, row], job)
