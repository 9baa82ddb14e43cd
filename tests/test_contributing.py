"""Examples in CONTRIBUTING: a user-defined randomizer and protocol are one file each."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_there_is_an_example_of_each() -> None:
    assert len(BLOCKS) == 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("index", "printed"),
    [(0, "ring-response 7"), (1, "flipped-bit True")],
    ids=["randomizer", "protocol"],
)
def test_one_file_is_enough(index: int, printed: str, tmp_path: Path) -> None:
    """The block as a file in a separate process, so that its registration stays there."""
    file = tmp_path / "own.py"
    file.write_text(BLOCKS[index], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == printed
