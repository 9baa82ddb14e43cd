"""Pages on collections: the walk-through runs in one shell, from a plan to a report."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "service"


@pytest.mark.thorough
def test_the_walk_through_runs_in_one_terminal(tmp_path: Path) -> None:
    block = re.search(
        r"^```sh\n(.*?)^```$", (PAGES / "operate.md").read_text(encoding="utf-8"), re.M | re.S
    )
    assert block is not None
    script = f"set -eu\nset -m\ntrap 'kill %1 2> /dev/null || true' EXIT\n{block[1]}"
    bash = shutil.which("bash")
    assert bash is not None
    folder = Path(sys.executable).parent
    said = subprocess.run(
        [bash, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert "mean = " in said.stdout
    assert {"release.json", "report.html", "collection.json"} <= {
        path.name for path in tmp_path.iterdir()
    }
