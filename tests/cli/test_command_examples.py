"""Examples in the help of commands: every command has two, and they run in their order."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Terminal
from tools.reference import every_command

from metricshuffle.cli.command_group import app
from metricshuffle.cli.examples import EXAMPLES, NEEDS_SERVER

DATA = Path(__file__).parents[2] / "examples" / "kcal.csv"
VECTORS = Path(__file__).parents[2] / "docs" / "spec" / "vectors"


def commands() -> dict[str, Any]:
    """Commands of this package, without those of other distributions."""
    return {
        name: command
        for name, command in every_command(app)
        if command.callback.__module__.startswith("metricshuffle.")
    }


def test_every_command_has_two_examples_and_no_example_is_left_over() -> None:
    assert set(EXAMPLES) == set(commands())
    assert set(EXAMPLES) > NEEDS_SERVER


def test_the_help_ends_with_them(terminal: Terminal) -> None:
    for name, lines in EXAMPLES.items():
        text = " ".join(terminal(*name.split(), "-h").stdout.split())
        end = text[text.rindex("Examples:") :]
        for words in lines:
            assert f"metricshuffle {name} {words}".rstrip() in end, name


@pytest.mark.thorough
def test_examples_run_one_after_the_other(terminal: Terminal) -> None:
    shutil.copy(DATA, "kcal.csv")
    shutil.copytree(VECTORS, "docs/spec/vectors")
    for name, lines in EXAMPLES.items():
        for words in lines if name not in NEEDS_SERVER else ():
            result = terminal(*name.split(), *shlex.split(words))
            assert result.exit_code == 0, f"{name} {words}\n{result.output}"


def test_options_of_the_others_exist() -> None:
    known = commands()
    for name in NEEDS_SERVER:
        options = {option for parameter in known[name].params for option in parameter.opts}
        for words in EXAMPLES[name]:
            typed = words.partition("-- ")[0].split()
            assert {word for word in typed if word.startswith("--")} <= options, words
