"""From a table to a release in separate folders: only task.json and reports are exchanged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metricshuffle import Release

Rows = list[tuple[str, ...]]


@dataclass(frozen=True)
class Campaign:
    """What is planned, what the clients' files look like, and how the release is checked."""

    plan: str
    header: str
    columns: str
    rows: Callable[[int], Rows]
    """The rows of one person."""
    people: int
    check: Callable[[Release], object]


def drinks(person: int) -> Rows:
    return [(f"u{person}", ("tea", "tea", "coffee", "water")[person % 4])]


def places(person: int) -> Rows:
    # three of four people in the south-west, the others in the north-east
    return [(f"u{person}", *(("46.9425", "7.4230") if person % 4 else ("46.9580", "7.4570")))]


def visits(person: int) -> Rows:
    return [(f"u{person}", str(number)) for number in ((0, 1, 1) if person % 2 else (4, 5, 5))]


def cups(person: int) -> Rows:
    return [(f"u{person}", str(2 + person % 5))] * (1 + person % 3)


def shares_near(*truth: float) -> Callable[[Release], None]:
    def check(release: Release) -> None:
        rows = list(release.value)
        assert len(rows) == len(truth)
        for row, share in zip(rows, truth, strict=True):
            assert abs(row["unbiased"] - share) < 6 * row["standard_error"], row

    return check


def most_in_the_south_west(release: Release) -> None:
    rows = list(release.value)
    fullest = max(rows, key=lambda row: float(row["share"]))
    assert fullest["south"] <= 46.9425 <= fullest["north"]
    assert fullest["west"] <= 7.4230 <= fullest["east"]
    assert abs(fullest["unbiased"] - 0.75) < 6 * fullest["standard_error"]


def number_near(truth: float) -> Callable[[Release], None]:
    def check(release: Release) -> None:
        assert abs(release.value - truth) < 14 * release.standard_error

    return check


def rows_near(*truth: float) -> Callable[[Release], None]:
    def check(release: Release) -> None:
        for row, value in zip(list(release.value), truth, strict=True):
            assert abs(row["value"] - value) < 14 * row["standard_error"], row

    return check


CAMPAIGNS = {
    "categories": Campaign(
        "--query histogram --labels tea,coffee,water --epsilon 1 --delta 1e-6 --users 400",
        "who,drink",
        "--column drink",
        drinks,
        400,
        shares_near(0.5, 0.25, 0.25),
    ),
    "map": Campaign(
        "--query map --box 46.94 7.42 46.96 7.46 --cell 1200 --epsilon 3 --distance 1200 "
        "--delta 1e-6 --users 400",
        "who,lat,lon",
        "--column lat --column lon",
        places,
        400,
        most_in_the_south_west,
    ),
    "user-histogram": Campaign(
        "--query user-histogram --low 0 --high 5 --items 3 --epsilon 2 --distance 2 "
        "--delta 1e-6 --users 60",
        "who,n",
        "--column n --user-column who",
        visits,
        60,
        shares_near(1 / 6, 1 / 3, 0, 0, 1 / 6, 1 / 3),
    ),
    "user-mean": Campaign(
        "--query user-mean --low 0 --high 20 --unit cups --epsilon 2 --distance 5 --delta "
        "0 --users 60",
        "who,n",
        "--column n --user-column who",
        cups,
        60,
        number_near(4.0),
    ),
    "user-total": Campaign(
        "--query user-total --low 0 --high 5 --items 3 --epsilon 2 --distance 2 "
        "--delta 1e-6 --users 60",
        "who,n",
        "--column n --user-column who",
        visits,
        60,
        number_near(8.0),
    ),
    "user-share-above": Campaign(
        "--query user-share-above --low 0 --high 20 --unit cups --at 3 --fade 2 --epsilon 2 "
        "--distance 5 --delta 1e-6 --users 60",
        "who,n",
        "--column n --user-column who",
        cups,
        60,
        rows_near(0.7),  # of 2, 3, 4, 5 and 6 cups, 3 count half
    ),
    "sum": Campaign(
        "--query sum --low 0 --high 20 --unit cups --epsilon 1 --distance 5 --delta 1e-6 "
        "--users 60 --honest 90% --encoding modular",
        "who,n",
        "--column n --user-column who --per-user first",
        cups,
        60,
        number_near(240.0),
    ),
}


@pytest.mark.parametrize("kind", CAMPAIGNS)
def test_from_a_table_to_a_release(
    kind: str, terminal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """plan, verify, randomize twice, shuffle and estimate, each in a separate folder."""
    pytest.importorskip("pyproj")
    campaign = CAMPAIGNS[kind]
    analyst, north, south, shuffler = (
        tmp_path / name for name in ("analyst", "north", "south", "shuffler")
    )
    for folder in (analyst, north, south, shuffler):
        folder.mkdir()

    def at(folder: Path, line: str) -> Any:
        monkeypatch.chdir(folder)
        result = terminal.typed(f"{line} --json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    at(analyst, f"plan {campaign.plan} --save plan.json --task task.json")
    for folder in (north, south, shuffler):
        shutil.copy(analyst / "task.json", folder)
    half = campaign.people // 2
    for folder, people in ((north, range(half)), (south, range(half, campaign.people))):
        lines = [
            campaign.header,
            *(",".join(row) for person in people for row in campaign.rows(person)),
        ]
        (folder / "values.csv").write_text("\n".join(lines) + "\n")
        assert at(folder, "verify task.json")["verified"] is True
        assert at(
            folder,
            f"randomize task.json values.csv {campaign.columns} --output {folder.name}.reports",
        )["reports"] == len(people)
        shutil.copy(folder / f"{folder.name}.reports", shuffler)
    assert at(shuffler, "verify task.json")["verified"] is True
    told = at(shuffler, "shuffle task.json north.reports south.reports --output batch")
    assert (told["reports"], told["ignored"]) == (campaign.people, 0)
    shutil.copy(shuffler / "batch", analyst)
    document = at(analyst, "estimate plan.json batch --output release.json")
    release = Release.load(str(analyst / "release.json"))
    assert document["reports"] == release.reports == campaign.people
    assert not release.raw_values_seen
    assert not release.unsafe_seeded
    campaign.check(release)
    assert sorted(os.listdir(shuffler)) == [
        "batch",
        "batches.ledger",
        "north.reports",
        "south.reports",
        "task.json",
    ]
    assert sorted(os.listdir(analyst)) == [
        "batch",
        "plan.json",
        "release.json",
        "releases.ledger",
        "task.json",
    ]
    # What the analyst gets does not grow with the people: sums, and the ids of two files.
    assert (analyst / "batch").stat().st_size < 2000
    from_task = at(analyst, "estimate task.json batch")
    assert from_task["value"] == document["value"]


def test_the_task_holds_nothing_of_the_plan_but_what_the_roles_need(terminal: Any) -> None:
    """Candidates, targets and errors stay with the analyst; the task runs everything."""
    terminal.typed(f"plan {CAMPAIGNS['sum'].plan} --save plan.json --task task.json")
    task, plan = (json.loads(Path(name).read_text()) for name in ("task.json", "plan.json"))
    assert set(task) == {
        "format",
        "query",
        "protocol",
        "users",
        "honest",
        "rounds",
        "guarantee",
        "if_shuffler_colludes",
        "damage",
        "digest",
    }
    assert plan["task"] == task
    Path("values.csv").write_text("n\n" + "4\n" * 60)
    document = json.loads(terminal.typed("run task.json values.csv --column n --json").stdout)
    assert document["expected_error"] is None
    assert np.isfinite(document["value"])
    assert json.loads(terminal.typed("simulate task.json --runs 20 --json").stdout)["runs"] == 20
