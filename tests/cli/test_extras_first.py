"""Missing extras are reported before anything is computed or written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.catalogue.planned_tasks import planned

# What is blocked, what is typed, and the extra that must be named. The folder is empty but for
# plan.json (a map in degrees) and v.csv.
ASKED = {
    "amplify": (
        "vl_convert",
        "amplify --randomizer krr --options 4 --local-epsilon 1 --users 100 --delta 1e-6 "
        "--plot p.html",
        "report",
    ),
    "find": (
        "jinja2",
        "amplify --randomizer krr --options 4 --target-epsilon 1 --users 100 --delta 1e-6 "
        "--plot p.html",
        "report",
    ),
    "reproduce": ("jinja2", "reproduce all --quick --output out", "report"),
    "compare": ("vl_convert", "users compare --users 50 --plot p.html", "report"),
    "compare places": (
        "pyproj",
        "users compare --csv v.csv --user-column who --column lat --column lon",
        "geo",
    ),
    "box": (
        "pyproj",
        "plan --query map --box 41 -73 43 -71 --cell 20000 --epsilon 1 --distance 1 "
        "--delta 1e-6 --users 100",
        "geo",
    ),
    "users' cells": (
        "ot",
        "plan --query user-histogram --width 4 --height 4 --cell 1 --epsilon 1 --distance "
        "1 --delta 1e-6 --users 100 --items 3",
        "transport",
    ),
    "run": ("pyproj", "run plan.json v.csv --column lat --column lon --output r.json", "geo"),
    "randomize": (
        "pyproj",
        "randomize plan.json v.csv --column lat --column lon --output r.bin",
        "geo",
    ),
    "Parquet": (
        "pyarrow",
        "randomize plan.json v.parquet --column lat --column lon --output r.bin",
        "tables",
    ),
}

BLOCKED = """
import sys
sys.modules[sys.argv[1]] = None
from metricshuffle.cli import console as screen
def forbidden(doing):
    raise AssertionError(f"computed before it was refused: {doing}")
screen.working = forbidden
sys.argv = ["metricshuffle", *sys.argv[2:]]
from metricshuffle.cli import main
main()
"""


QUICK = ("users' cells", "randomize", "Parquet")


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ASKED],
)
def test_nothing_is_computed_without_the_extra(tmp_path: Path, name: str) -> None:
    blocked, line, extra = ASKED[name]
    (tmp_path / "v.csv").write_text("who,lat,lon\na,42,-72\nb,42.1,-72.1\n")
    (tmp_path / "v.parquet").write_bytes(b"PAR1")
    planned("map").save(str(tmp_path / "plan.json"))
    before = sorted(tmp_path.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, blocked, *line.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert f"pip install 'metricshuffle[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before
