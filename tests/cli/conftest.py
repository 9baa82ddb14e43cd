"""Small plans and files for the tests of the command line."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer.main
import typer.testing
from tests.catalogue.planned_tasks import planned
from typer.testing import CliRunner, Result

from metricshuffle import Centroid, Grid, Plan, Target, plan
from metricshuffle.cli.command_group import app

# Making the commands takes a tenth of a second; the tests run hundreds of them.
setattr(typer.testing, "_get_command", cache(typer.main.get_command))  # noqa: B010 - not exported


class Terminal:
    """Runner of commands in a folder that records their output and files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str | Path) -> Result:
        return CliRunner().invoke(app, [str(word) for word in words])

    def typed(self, line: str, *more: str) -> Result:
        """Run a command as typed by a user."""
        return self(*line.split(), *more)

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file()
        }

    def refused(self, *words: str | Path) -> str:
        """Return the error sentence of a command.

        Exit code 2, one line on stderr, nothing on stdout, nothing written.
        """
        before = self.files()
        result = self(*words)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        told = result.stderr
        assert told.startswith("metricshuffle: ")
        assert told.endswith(".\n")
        assert told.count("\n") == 1
        assert "Traceback" not in told
        assert self.files() == before
        return told


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(tmp_path)


@pytest.fixture(scope="session")
def sum_plan() -> Plan:
    """Plan for whole numbers 0..20 of 40 people, 30 of them honest; reports are counts."""
    return planned("unary sum")


@pytest.fixture(scope="session")
def shares_plan() -> Plan:
    """Plan of `sum_plan` with additive shares."""
    return planned("sum in shares")


@pytest.fixture(scope="session")
def centroid_plan() -> Plan:
    """Plan on a grid of 8 x 6 cells of 10 m."""
    target = Target(4.0, 1e-6, 20)
    return plan(
        Centroid(domain=Grid(8, 6, 10.0, "m")),
        target,
        40,
        encoding="modular",
        protocols=["polya-shuffle"],
    )


@pytest.fixture
def values(tmp_path: Path) -> Path:
    """File of forty people with a value each; the true sum is 390."""
    path = tmp_path / "values.csv"
    path.write_text(
        "id,kcal,x,y,name\n"
        + "".join(f'{i},{i % 21},{i % 8},{i % 6},"a, ""b"" c"\n' for i in range(40))
    )
    return path


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """File of sixty users with one to four items each: a word, a number, a point and a place."""
    rng = np.random.default_rng(1)
    lines = ["who,word,n,x,y,lat,lon"]
    for user in range(60):
        for _ in range(1 + user % 4):
            x, y = rng.uniform(0, 80, 2)
            word = ("tea", "coffee", "water")[int(rng.integers(3))]
            place = f"{x:.2f},{y:.2f},{42 + x / 1000:.5f},{-72 + y / 1000:.5f}"
            lines.append(f"u{user},{word},{rng.integers(21)},{place}")
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
