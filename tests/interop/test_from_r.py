"""The script for R, through reticulate, where both are installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.collection.conftest import missing

import metricshuffle as ms
from metricshuffle.randomizers import KaryRandomizedResponse

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "kcal.R"


def test_the_page_shows_the_script() -> None:
    page = (ROOT / "docs" / "how-to" / "use-from-r.md").read_text()
    assert re.findall(r"^```r\n(.*?)^```$", page, re.M | re.S) == [SCRIPT.read_text()]


@pytest.fixture
def rscript() -> str:
    """The program, if R has reticulate."""
    program = shutil.which("Rscript")
    if program is None:
        missing("this test needs R (on Debian: apt-get install r-base-core r-cran-reticulate).")
    assert program is not None
    if subprocess.run([program, "-e", "library(reticulate)"], capture_output=True).returncode:
        missing("this test needs reticulate (on Debian: apt-get install r-cran-reticulate).")
    return program


@pytest.mark.thorough
def test_the_script_runs_and_prints_our_numbers(rscript: str) -> None:
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [rscript, str(SCRIPT), str(ROOT / "examples" / "kcal.csv")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "RETICULATE_PYTHON": sys.executable, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    mean, guarantee, survey = done.stdout.splitlines()
    value, low, high = map(float, re.findall(r"\d+\.\d+", mean))
    assert low <= value <= high
    assert guarantee.startswith("Hidden at epsilon 1, and proportionally less for a smaller move")
    band = ms.amplify(KaryRandomizedResponse(8, 1.0), users=10_000).epsilon(1e-6)
    assert survey == f"epsilon between {band.lower:.6f} and {band.upper:.6f}"
