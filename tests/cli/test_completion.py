"""Completion of commands, options and values in a real bash."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BASH = shutil.which("bash")

pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash")


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """A folder with the command in it, as an installation has it."""
    command = tmp_path / "metricshuffle"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m metricshuffle "$@"\n')
    command.chmod(0o755)
    return tmp_path


def bash(folder: Path, script: str) -> str:
    done = subprocess.run(
        [str(BASH), "--norc", "--noprofile", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={
            "PATH": f"{folder}:/usr/bin:/bin",
            "HOME": str(folder),
            "PYTHONPATH": ":".join(filter(None, sys.path)),
        },
    )
    return done.stdout


ASK = """
eval "$(metricshuffle --show-completion)"
complete -p metricshuffle
ask() {
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_metricshuffle_completion metricshuffle
echo "${COMPREPLY[*]}" | tr '\\n' ' '; echo; }
"""


@pytest.mark.thorough
def test_bash_completes_commands_options_and_words(shell: Path) -> None:
    lines = bash(
        shell,
        ASK + "ask metricshuffle ampl; ask metricshuffle users ''; ask metricshuffle plan --max; "
        "ask metricshuffle plan --query user; "
        "ask metricshuffle run --qui",
    ).splitlines()
    assert lines[0] == "complete -o default -F _metricshuffle_completion metricshuffle", (
        "files are completed where nothing else is"
    )
    answers = [sorted(line.split()) for line in lines[1:]]
    assert answers == [
        ["amplify"],
        ["calibrate", "compare"],
        ["--max-bits", "--max-damage", "--max-dummies", "--max-local-epsilon"],
        ["user-histogram", "user-linear", "user-mean", "user-share-above", "user-total"],
        ["--quiet"],
    ]


@pytest.mark.thorough
def test_bash_completes_columns_of_the_file_before(shell: Path) -> None:
    (shell / "meals.csv").write_text("kcal;Kind of meal;kilos\n480;soup;1\n")
    (shell / "plan.json").write_text("{}")
    lines = bash(
        shell,
        ASK + "ask metricshuffle run plan.json meals.csv --column k; "
        "ask metricshuffle run plan.json meals.csv --column kcal --user-column Ki; "
        "ask metricshuffle run plan.json away.csv --column k",
    ).splitlines()
    assert [line.split() for line in lines[1:]] == [["kcal", "kilos"], ["Kind", "of", "meal"], []]


@pytest.mark.thorough
def test_bash_completes_columns_of_plan_and_labels_of_a_task(shell: Path) -> None:
    (shell / "drinks.csv").write_text("drink,age\ntea,1\ncoffee,2\n")
    query = {"kind": "histogram", "domain": {"kind": "categories", "labels": ["tea", "coffee"]}}
    (shell / "task.json").write_text(json.dumps({"query": query}))
    (shell / "collection.json").write_text(json.dumps({"task": json.dumps({"query": query})}))
    (shell / "number.json").write_text('{"query": {"domain": {"labels": 3}}}')
    (shell / "broken.json").write_text("{")
    lines = bash(
        shell,
        ASK + "ask metricshuffle plan --query histogram --labels-from drinks.csv --column d; "
        "ask metricshuffle plan --query mean --values drinks.csv --user-column a; "
        "ask metricshuffle audit task.json --first tea --second c; "
        "ask metricshuffle submit collection.json --value t; "
        "ask metricshuffle audit number.json --first t; "
        "ask metricshuffle audit broken.json --others t",
    ).splitlines()
    answers = [line.split() for line in lines[1:]]
    assert answers == [["drink"], ["age"], ["coffee"], ["tea"], [], []]


def test_completion_is_installed_where_bash_finds_it(shell: Path) -> None:
    # (bash becomes the last command that it is given, and which shell asks is told by who asked)
    assert "completion installed" in bash(shell, "metricshuffle --install-completion && true")
    assert "metricshuffle.sh" in (shell / ".bashrc").read_text()
    assert (
        "_metricshuffle_completion"
        in (shell / ".bash_completions" / "metricshuffle.sh").read_text()
    )


def test_completion_imports_nothing_heavy() -> None:
    code = (
        "import os, sys; os.environ.update(_METRICSHUFFLE_COMPLETE='complete_bash', "
        "COMP_WORDS='metricshuffle plan --q', COMP_CWORD='2')\n"
        "from metricshuffle.cli import main\n"
        "try: main()\n"
        "finally: print([name for name in ('numpy', 'scipy', 'numba', 'rich', "
        "'cryptography') if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    ).stdout.split("\n")
    assert said[:3] == ["--query", "--question", "--quiet"]
    assert said[-2] == "[]"
