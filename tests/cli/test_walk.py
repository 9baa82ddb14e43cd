"""How much code `metricshuffle run` of a mean goes through, which may only become less.

Whoever follows a value through the program has to read these functions. When a count falls, lower
its limit here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType

import pytest
from typer.testing import CliRunner

import metricshuffle as ms
from metricshuffle.cli.command_group import app

MAX_FUNCTIONS = 298
MAX_FILES = 46
SOURCE = f"{Path(ms.__file__).parent}{os.sep}"


def run(output: str) -> None:
    Path("releases.ledger").unlink(missing_ok=True)
    words = ["run", "plan.json", "values.csv", "--column", "kcal", "--output", output]
    ended = CliRunner().invoke(app, words, catch_exceptions=False)
    assert ended.exit_code == 0, ended.stderr


@pytest.mark.thorough
def test_a_mean_goes_through_few_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lambdas and comprehensions do not count; imports and caches are warm."""
    monkeypatch.chdir(tmp_path)
    plan = ms.plan(
        ms.Mean(ms.Integers(0, 1000, "kcal")),
        ms.Target(epsilon=1, delta=1e-6, distance=100),
        users=1000,
        honest="90%",
        protocols=["polya-shuffle"],
    )
    plan.save("plan.json")
    rows = [str(row % 1001) for row in range(1000)]
    Path("values.csv").write_text("\n".join(["kcal", *rows]) + "\n")
    run("warm.json")
    called: set[tuple[str, int]] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(SOURCE)
            and not code.co_name.startswith("<")
        ):
            called.add((code.co_filename, code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        run("counted.json")
    finally:
        sys.setprofile(before)
    assert 100 < len(called) <= MAX_FUNCTIONS
    assert len({file for file, _ in called}) <= MAX_FILES
