"""Output of commands: standard output, links and pipes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import load_task
from tests.tables import check_all

from metricshuffle import Integers, Mean, Plan, Release, Target, plan
from metricshuffle.cli.command_group import _exit_code_of
from metricshuffle.tasks import Task

PLAN = (
    "plan --query sum --low 0 --high 20 --epsilon 1 --distance 5 --delta 0 --users 40 "
    "--trusted nobody"
)


@pytest.fixture
def task(terminal: Any, values: Path) -> Task:
    """A task in task.json, reports and a shuffled batch made from it, and nothing in the ledger."""
    task = load_task("local sum")
    task.save("task.json")
    for words in (
        ("randomize", "task.json", values, "--column", "kcal", "--output", "reports"),
        ("shuffle", "task.json", "reports", "--output", "shuffled"),
    ):
        assert terminal(*words).exit_code == 0
    Path("batches.ledger").unlink()
    return task


def test_the_chain_through_standard_output(terminal: Any, task: Task, values: Path) -> None:
    """Standard output has the bytes of the files, with remarks on stderr only."""
    result = terminal("randomize", "task.json", values, "--column", "kcal", "--output", "-")
    Path("heard").write_bytes(result.stdout_bytes)
    assert "Wrote 40 reports" in result.stderr
    result = terminal("shuffle", "task.json", "heard", "--output", "-")
    assert task.read_shuffled(result.stdout_bytes).people == 40
    assert "Wrote 40 shuffled reports" in result.stderr
    result = terminal("estimate", "task.json", "shuffled", "--output", "-")
    release = Release.from_json(result.stdout)
    assert str(release) in result.stderr
    assert (
        terminal("estimate", "task.json", "shuffled", "--output", "-", "--json").stdout
        == result.stdout
    )
    result = terminal(
        "run", "task.json", values, "--column", "kcal", "--output", "-", "--ledger", "run.ledger"
    )
    assert Release.from_json(result.stdout).raw_values_seen
    assert not Path("-").exists()


def test_plans_and_tasks_on_standard_output(terminal: Any) -> None:
    """--save - and --task - print the document and no table."""
    made = terminal.typed(f"{PLAN} --save -")
    task = terminal.typed(f"{PLAN} --task -")
    assert Plan.from_json(made.stdout).task.to_json() == Task.from_json(task.stdout).to_json()
    assert terminal.typed(f"{PLAN} --json").stdout == made.stdout


@pytest.mark.parametrize(
    "line",
    [
        "randomize task.json values.csv --column kcal --output - --json",
        "shuffle task.json reports --output - --json",
        f"{PLAN} --save - --json",
        f"{PLAN} --save - --task -",
    ],
)
def test_two_things_on_standard_output_are_refused(terminal: Any, task: Task, line: str) -> None:
    """Two documents in one stream could not be told apart."""
    assert "only one thing can be written to standard output" in terminal.refused(*line.split())


@pytest.mark.thorough
def test_a_real_standard_output(tmp_path: Path, task: Task) -> None:
    """In a pipe, `-` is only the document; /dev/stdout is written in place."""
    for name in ("-", "/dev/stdout"):
        words = [
            sys.executable,
            "-m",
            "metricshuffle",
            "estimate",
            "task.json",
            "shuffled",
            "--output",
            name,
        ]
        heard = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        ).stdout
        if name == "-":
            assert Release.from_json(heard).reports == 40
        else:
            assert json.JSONDecoder().raw_decode(heard[heard.index("{") :])[0]["reports"] == 40
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "releases.ledger",
        "reports",
        "shuffled",
        "task.json",
        "values.csv",
    ]


def test_a_pipe_and_a_link(terminal: Any, task: Task, values: Path, tmp_path: Path) -> None:
    """A named pipe carries the reports and stays; a link stays and its target is replaced."""
    os.mkfifo("pipe")
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(Path("pipe").read_bytes()))
    reader.start()
    assert (
        terminal("randomize", "task.json", values, "--column", "kcal", "--output", "pipe").exit_code
        == 0
    )
    reader.join(timeout=10)
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)
    Path("heard").write_bytes(heard[0])
    Path("kept").write_text("old")
    Path("link").symlink_to("kept")
    assert terminal("shuffle", "task.json", "heard", "--output", "link").exit_code == 0
    assert Path("link").is_symlink()
    assert task.read_shuffled(Path("kept").read_bytes()).people == 40


def test_private_files_stay_private(terminal: Any, task: Task, values: Path) -> None:
    """A umask of 077 is honoured, and a file that was private is replaced by a private one."""
    before = os.umask(0o077)
    try:
        terminal("randomize", "task.json", values, "--column", "kcal", "--output", "new")
        os.umask(0o022)
        terminal("randomize", "task.json", values, "--column", "kcal", "--output", "new")
        terminal("randomize", "task.json", values, "--column", "kcal", "--output", "open")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(os.stat(name).st_mode) for name in ("new", "open")] == [0o600, 0o644]


def nested(inner: BaseException, depth: int) -> BaseException:
    for _ in range(depth):
        wrapped = SystemError("a compiled loop returned a result with an exception set")
        wrapped.__cause__ = inner
        inner = wrapped
    return inner


@check_all("depth", [1, 2])
@check_all(
    ("inner", "code"),
    [
        (KeyboardInterrupt(), 130),
        (SystemExit(143), 143),
        (ValueError("a bug"), 1),
        (SystemExit("words"), 1),
    ],
)
def test_a_compiled_loop_that_was_stopped_is_not_called_a_bug(
    inner: BaseException, code: int, depth: int
) -> None:
    wrong = nested(inner, depth)
    assert isinstance(wrong, Exception)
    assert _exit_code_of(wrong) == code


def test_an_import_that_was_stopped_is_not_called_a_bug() -> None:
    wrong = ImportError("cannot import name 'njit' from partially initialized module 'numba'")
    wrong.__context__ = KeyboardInterrupt()
    assert _exit_code_of(wrong) == 130


def test_an_interruption_after_the_release_counted_says_so(
    terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    plan(
        Mean(Integers(0, 10)),
        Target(epsilon=1.0, delta=0.0, distance=1),
        users=3,
        trusted="curator",
    ).save("plan.json")
    Path("values.csv").write_text("kcal\n3\n4\n5\n")
    monkeypatch.setattr("metricshuffle.cli.console.say", stopped)
    result = terminal.typed("run plan.json values.csv --column kcal")
    assert result.exit_code == 130
    assert Release.load("release.json").reports == 3
    assert (
        result.stderr
        == "metricshuffle: interrupted; already written: releases.ledger, release.json.\n"
    )
