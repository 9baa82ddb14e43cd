"""Page on private maps: complete tables, reproducible numbers and figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.bench_vectors import BOXES, load_task
from benchmarks.maps import (
    CASES,
    FLOORS,
    PEOPLE,
    accuracy_table,
    cost_table,
    costs,
    floor_table,
    floors,
    plan_of,
    single,
    vectors,
)
from numpy.typing import NDArray
from tests.tables import check_all

from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.queries.query import Inputs
from metricshuffle.randomness import Randomness
from metricshuffle.tasks import task as tasks

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "maps.md").read_text(encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    """The cells of a table of the page, without its head."""
    part = PAGE.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in part.strip().splitlines()[2:]
    ]


def test_the_table_is_about_every_case() -> None:
    assert [row[:2] for row in rows("accuracy")] == [
        [case.name, f"{people:,}"] for case in CASES for people in PEOPLE
    ]
    for row in rows("accuracy"):
        off = [float(cell.split("/")[0].removesuffix(" ").removesuffix("m")) for cell in row[2:]]
        kary, geometric, vectors_alone, half, floor, curator = off
        assert (
            max(vectors_alone, half) <= 1.55 * curator
        )  # of noise it is sqrt(2); half the people may have other features
        assert max(vectors_alone, half, floor) < min(kary, geometric)
    assert len(rows("floors")) == len(FLOORS) + 1


@check_all("place", [0, 2])
def test_accuracy_comes_out_again(place: int) -> None:
    case = CASES[place]
    people = 2_000
    planned = plan_of(case, people)
    found = [
        single(case, people, "k-ary-randomized-response"),
        vectors(case, people, "all honest", planned),
        vectors(case, people, "curator", planned, trusted="curator"),
    ]
    made = [
        cell.strip()
        for cell in accuracy_table([one for one in found if one]).splitlines()[-1].split("|")[1:-1]
    ]
    shown = next(row for row in rows("accuracy") if row[:2] == made[:2])
    for column in (2, 4, 7):
        told, again = (
            float(cells[column].split("/")[0].removesuffix(" ").removesuffix("m"))
            for cells in (shown, made)
        )
        assert again == pytest.approx(
            told, rel=0.02
        )  # two digits, and the last one may round otherwise elsewhere
    assert made[3] == "-"


def test_floors_come_out_again() -> None:
    made = [line.split("|")[1:-1] for line in floor_table(list(floors())).splitlines()[2:]]
    assert [[cell.strip() for cell in row] for row in made] == rows("floors")


def test_costs_come_out_again() -> None:
    first = next(costs())
    assert [cell.strip() for cell in cost_table([first]).splitlines()[-1].split("|")[1:-1]] == rows(
        "costs"
    )[0]


def test_vectors_are_added_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that memory stays bounded; what is published is about everybody all the same."""
    task = load_task(BOXES)
    cells = np.random.default_rng(0).integers(0, 32, (50, 2))
    protocol = task.protocol
    assert isinstance(protocol, NoisyVectors)
    asked: list[int] = []
    whole = NoisyVectors.messages

    def noted(self: NoisyVectors, inputs: Inputs, randomness: Randomness) -> NDArray[Any]:
        asked.append(inputs.people)
        return whole(self, inputs, randomness)

    monkeypatch.setattr(NoisyVectors, "messages", noted)
    monkeypatch.setattr(tasks, "MESSAGE_BYTES_PER_PART", 20 * protocol.layout.size)
    tally = task.counted([cells])
    assert asked == [20, 20, 10]
    assert tally.people == 50


@pytest.mark.slow
def test_the_figure_is_drawn_alike() -> None:
    from tools.maps import picture, study

    assert (DOCS / "map.svg").read_text(encoding="utf-8") == picture(study())
