"""Compiled loops as plain Python give the same results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Small cases; larger ones take hours without the compiler. The ratios of the Polya law and the
# contour sum are not here: they count on infinities and NaN where Python raises, and refuse or fall
# back on what comes out.
CHOSEN = [
    "tests/noise/test_table.py",
    "tests/noise/test_bit_count.py",
    "tests/accounting/test_blanket_law.py",
    "tests/spaces/test_earth_mover.py",
    "tests/randomizers/test_channel_matrix.py",
]


@pytest.mark.slow
@pytest.mark.parametrize("file", CHOSEN)
def test_kernels_run_without_the_compiler(file: str) -> None:
    """With numba off loops are interpreted, so index errors and overflows raise."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        file,
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
    ]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
