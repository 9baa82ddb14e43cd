"""--quiet on every command, escape codes, -h, and the message about compiling."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.cli.conftest import Terminal
from tests.cli.test_narrow_tables import in_terminal
from tools.reference import every_command

from metricshuffle.cli import console
from metricshuffle.cli.command_group import app
from metricshuffle.cli.compile_notice import (
    COMPILE_NOTICE,
    announce_compilation,
    compiled_loops,
    kernel_loops,
)

ACCOUNT = "profile --noise geometric --rate 1 --users 100 --distance 5 --delta 1e-6"


@pytest.mark.parametrize("name", [name for name, _ in every_command(typer.main.get_command(app))])
def test_every_command_has_the_common_options(name: str) -> None:
    command = dict(every_command(typer.main.get_command(app)))[name]
    names = [
        decl
        for option in command.params
        if option.param_type_name == "option"
        for decl in option.opts
    ]
    assert {"--quiet", "-q", "--json"} <= set(names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("words", [(), ("plan",), ("users",), ("users", "compare"), ("doctor",)])
def test_h_is_help(terminal: Terminal, words: tuple[str, ...]) -> None:
    short = terminal(*words, "-h")
    long = terminal(*words, "--help")
    assert short.exit_code == 0
    assert short.stdout == long.stdout
    assert "--help" in short.stdout


def test_quiet_leaves_the_answer_and_the_errors(
    terminal: Terminal, sum_plan: Any, values: Path
) -> None:
    sum_plan.save("plan.json")
    line = "run plan.json values.csv --column kcal --output release.json"
    loud = terminal.typed(line, "--ledger", "first")
    quiet = terminal.typed(line, "--ledger", "second", "--quiet")
    assert "Every row counted as another person" in loud.stderr
    assert "Wrote release.json" in loud.stderr
    assert quiet.exit_code == 0
    assert quiet.stderr == ""
    assert quiet.stdout.startswith("sum = ")
    assert "no column 'nope'" in terminal.refused(
        *["run", "plan.json", "values.csv", "--column", "nope", "-q"]
    )
    assert "Every row counted" in terminal.typed(line, "--ledger", "third").stderr, (
        "it is for one command only"
    )


def test_a_pipe_gets_no_escape_codes(terminal: Terminal, sum_plan: Any) -> None:
    sum_plan.save("plan.json")
    for line in (
        "verify plan.json",
        "plan -h",
        "doctor",
        "plan --query sum --low 0 --high 2 --epsilon 1 --distance 1 --delta 0 --users 9",
    ):
        assert "\x1b" not in terminal.typed(line).output


@pytest.mark.thorough
def test_no_color_in_a_terminal(tmp_path: Path) -> None:
    for words in (("plan", "-h"), ("doctor",)):
        assert "\x1b" not in in_terminal(tmp_path, 80, *words, NO_COLOR="1")
    assert "\x1b" in in_terminal(tmp_path, 80, "plan", "-h", TERM="xterm-256color")


class WatchedCollection(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("no terminal at all")


def test_progress_without_escape_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", shown := WatchedCollection())
    with console.show_progress("Planning") as tell:
        tell("polya-shuffle")
        console.note("A note.")
    assert "\x1b" not in shown.getvalue()
    assert "Planning: polya-shuffle ..." in shown.getvalue()
    assert shown.getvalue().split("\r")[-1].strip() == "A note."
    with console.silence(True), console.show_progress("Planning") as tell:
        tell("hushed")
        console.note("hushed")
        console.print_error("This is an error.")
    assert "hushed" not in shown.getvalue()
    assert shown.getvalue().endswith("metricshuffle: This is an error.\n")


def test_names_are_gone_through_with_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", shown := WatchedCollection())
    with console.counting(["table-1", "figure-2"]) as names:
        for name, tell in names:
            tell(f"half of {name}")
    assert "Running: 1 of 2, table-1: half of table-1 ..." in shown.getvalue()
    assert "Running: 2 of 2, figure-2: half of figure-2 ..." in shown.getvalue()


def test_numba_tells_when_it_compiles_and_that_is_told_once() -> None:
    import numba

    told: list[str] = []
    announce_compilation(told.append)
    assert numba.njit(lambda x: x + 1)(1) == 2
    assert numba.njit(lambda x: x + 2)(1) == 3
    assert told == [COMPILE_NOTICE]


@pytest.mark.slow
def test_compiling_is_told_once_wherever_it_happens(tmp_path: Path) -> None:
    """With an empty cache the first command compiles and says so; the second uses the cache."""
    empty = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NO_COLOR": "1"}
    first, second = (in_terminal(tmp_path, 200, *ACCOUNT.split(), **empty) for _ in range(2))
    assert first.count(COMPILE_NOTICE) == 1
    assert COMPILE_NOTICE not in second
    assert "hidden at epsilon" in first
    assert "hidden at epsilon" in second


@pytest.mark.thorough
def test_compiled_loops_are_counted_without_numba(tmp_path: Path) -> None:
    assert len(kernel_loops()) > 100
    assert len({(file, name) for file, name, _ in kernel_loops()}) == len(kernel_loops())
    code = (
        "import numpy as np; from metricshuffle.cli.compile_notice import compiled_loops; "
        "assert compiled_loops() == []; "
        "from metricshuffle._randomness_kernels import multiply_high; "
        "multiply_high(np.uint64(3), np.uint64(4)); print(compiled_loops())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "['_randomness_kernels.multiply_high']", done.stderr
    assert compiled_loops() == [] or set(compiled_loops()) <= {
        f"{file.stem}.{name}" for file, name, _ in kernel_loops()
    }
