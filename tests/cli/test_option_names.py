"""Errors name what was typed: no Python name, class or traceback, for every option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import planned
from tests.cli.conftest import Terminal
from tests.tables import check_all
from tools.reference import every_command

import metricshuffle
from metricshuffle.cli.command_group import app
from metricshuffle.cli.common_options import (
    CORNERS,
    OTHER_OPTIONS,
    PYTHON_ARGUMENTS,
    command_text,
)
from metricshuffle.errors import InputError, argument, owner

OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in ("users", "high", "low", "max_local_epsilon", "padding", "box")
}


@check_all(
    ("message", "told"),
    [
        (f"{argument('users')} must be >= 1, got 0.", "--users must be >= 1, got 0."),
        (
            f"{owner('Integers')}{argument('low')} must be below {argument('high')}, got "
            f"{argument('low', 3)} and {argument('high', -1)}.",
            "--low must be below --high, got --low 3 and --high -1.",
        ),
        (
            f"nothing keeps {argument('max_local_epsilon', 3.0)}.",
            "nothing keeps --max-local-epsilon 3.",
        ),
        (f"more (use {argument('padding', 'clamp')})", "more (use --padding clamp)"),
        (f"pass {argument('floor', False)}.", "pass --no-floor."),
        (f"pass {argument('clamp', True)}, or {argument('clamp')}.", "pass --clamp, or --clamp."),
        (f"use {argument('per_user', 'mean')}.", "use --per-user mean."),
        (
            f"{owner('Box')}{argument('south')} must be below {argument('north')}, got "
            f"{argument('south', 3.0)} and {argument('north', 2.5)}.",
            "--box: SOUTH must be below NORTH, got SOUTH 3 and NORTH 2.5.",
        ),
        (f"fewer, got {10**300:,}.", "fewer, got a number of 301 digits."),
        (f"{argument('parents')} must be points.", "parents must be points."),
        ("users below high ground: local_delta() and my_file_name.csv stay.", None),
    ],
)
def test_arguments_become_options_and_words_stay(message: str, told: str | None) -> None:
    assert command_text(InputError(message), OPTIONS) == (message if told is None else told)


def test_marked_arguments_are_options_of_some_command() -> None:
    """Every marked argument is an option; only box corners and two names are exceptions."""
    names = (
        OTHER_OPTIONS.keys()
        | PYTHON_ARGUMENTS
        | {option.name for command in commands().values() for option in command.params}
    )
    sources = Path(metricshuffle.__file__).parent.rglob("*.py")
    marked = {
        name for file in sources for name in re.findall(r"argument\(['\"](\w+)", file.read_text())
    }
    assert {name for name in marked if name not in names and name.upper() not in CORNERS} == set()


# Commands that work, and together use every option with a value.
LINES = (
    "plan --query mean --low 0 --high 20 --unit kcal --epsilon 2 --distance 5 --delta 1e-6 "
    "--users 100 --honest 90% --trusted nobody "
    "--rounds 1 --encoding modular --padding clamp --transport shuffler "
    "--max-local-epsilon 50 --max-bits 100 --protocol geometric-local "
    "--save p.json --task t.json",
    "plan --query mean --low 0.0 --high 20.0 --granularity 0.5 --error 9 --distance 5 "
    "--delta 1e-6 --users 100 --trusted nobody",
    "plan --query histogram --labels tea,coffee --epsilon 1 --delta 1e-6 --users 200 "
    "--trusted nobody",
    "plan --query histogram --labels-from v.csv --column word --epsilon 1 --delta 1e-6 "
    "--users 200 --trusted nobody",
    "plan --query histogram --low 0 --high 20 --step 5 --epsilon 1 --distance 5 --delta "
    "1e-6 --users 200 --trusted nobody",
    "plan --query map --width 3 --height 3 --cell 10 --epsilon 1 --distance 10 --delta "
    "1e-6 --users 200 --trusted nobody",
    "plan --query centroid --box 30.1 -97.9 30.5 -97.5 --cell 10000 --epsilon 1 --distance "
    "20000 --delta 1e-6 --users 200 --trusted nobody",
    "plan --query user-histogram --labels tea,coffee --distances d.csv --epsilon 1 "
    "--distance 1 --delta 1e-6 --users 100 --trusted nobody "
    "--most-items 4 --samples 2 --flat",
    "plan --query user-mean --levels 2 --side 10 --items 3 --epsilon 1 --distance 3 "
    "--delta 1e-6 --users 100 --trusted nobody",
    "randomize plan.json v.csv --column kcal --output r2.bin --user-column who --per-user "
    "mean --delimiter , --round 1",
    "shuffle plan.json r.bin --output s2.bin --ledger l.ledger",
    "estimate plan.json s.bin --output e.json",
    "run plan.json v.csv --column kcal --output e.json --user-column who --per-user mean "
    "--delimiter , --round 1",
    "simulate plan.json --runs 20 --seed 1",
    "audit plan.json --batches 100 --confidence 0.9 --first 0 --second 5 --others 3",
    "profile --noise polya --rate 1 --users 100 --distance 5 --delta 1e-6 --honest 90% "
    "--shape 1/2 --rounds 2 --trust honest",
    "profile --noise geometric --rate 1 --users 100 --distance 5 --epsilon 1",
    "amplify --randomizer generic --local-epsilon 1 --local-delta 1e-9 --users 100 --delta "
    "1e-6 --honest 90% --rounds 2",
    "amplify --randomizer krr --options 4 --local-epsilon 1 --users 100 --epsilon 0.5",
    "amplify --randomizer metric --distance 1 --reach 2 --reach-other 2 --rate 1 --users "
    "100 --delta 1e-6",
    "amplify --randomizer laplace --low 0 --high 1 --rate 1 --steps 8 --distance 0.5 "
    "--users 100 --delta 1e-6",
    "amplify --randomizer witch-hat --half-width 1 --local-epsilon 1 --rate 1 --steps 8 "
    "--users 100 --delta 1e-6",
    "amplify --randomizer gaussian --span 4 --sigma 4 --margin 8 --users 100 --delta 1e-6",
    "amplify --randomizer subset --options 6 --size 2 --local-epsilon 1 --users 100 --delta 1e-6",
    "amplify --randomizer hash --options 6 --buckets 3 --local-epsilon 1 --users 100 --delta 1e-6",
    "amplify --randomizer pem --distances d.csv --rate 1 --users 100 --delta 1e-6",
    "amplify --randomizer exponential --low 0 --high 2 --steps 2 --rate 1 --users 100 --delta 1e-6",
    "amplify --randomizer gkrr --clusters 2 --leaves 2 --inner 0.5 --rate 1 --users 100 "
    "--delta 1e-6",
    "amplify --randomizer duchi --dimensions 2 --local-epsilon 1 --users 100 --delta 1e-6",
    "amplify --randomizer privset --options 6 --items 2 --local-epsilon 1 --users 100 --delta 1e-6",
    "amplify --randomizer privkv --keys 2 --items 1 --key-epsilon 1 --value-epsilon 1 --users 100 "
    "--delta 1e-6",
    "amplify --randomizer channel --matrix m.csv --pair 0 1 --users 100 --delta 1e-6",
    "amplify --randomizer krr --options 4 --group 50:local-epsilon=1 --dummies 5 --delta 1e-6",
    "amplify --randomizer krr --options 4 --target-epsilon 0.5 --find local-epsilon "
    "--users 1000 --delta 1e-6",
    "solve --low 0 --high 4 --step 1 --epsilon 1 --distance 1 --delta 1e-6 --users 1000 "
    "--grid 2 --algorithm 1N --least shares "
    "--save sol.json --honest 900",
    "solve --width 2 --height 2 --cell 1 --epsilon 1 --distance 1 --delta 1e-6 --users "
    "1000 --grid 1",
    "solve --tree t.csv --epsilon 1 --distance 1 --delta 1e-6 --users 1000 --grid 1",
    "users calibrate --rate 25 --delta 1e-6 --users 100 --items 10 --model central "
    "--diameter 1 --honest 90% --unit km",
    "users calibrate --rate 25 --delta 1e-6 --users 100 --items 10 --model local "
    "--clusters 2 --places 2 --inner 0.1",
    "users compare --users 50 --items 5 --epsilon 1 --rate 2 --delta 1e-9 --runs 2 --seed "
    "1 --clusters 2 --places 2 --inner 0.1",
    "users compare --csv v.csv --user-column who --column lat --column lon --levels 1 "
    "--box 41 -73 43 -71 --runs 2 --unit km --delimiter ,",
    "users compare --csv v.csv --user-column who --column x --column y --levels 1 --side "
    "50 --coordinates points --runs 2",
    "reproduce list --runs 2 --seed 1",
)
# Where a bad value makes a long computation, not a sentence.
SLOW_VALUES = {
    "--low": ("-1", "3.7"),
    "--distance": ("3.7",),
    "--epsilon": ("1e-300",),
    "--delta": ("1e-300",),
    "--cell": ("3.7",),
}
LEAKS = re.compile(
    r"\b[a-z]+_[a-z_]+\b(?!\.)|[A-Z][a-z]+[A-Z]\w*:|\b[a-z]+=|Traceback|this is a "
    r"bug|\bNone\b|object at 0x|\d{30}|<class|Value ?[Ee]rror"
)
ANY_WORD = ("--save", "--task", "--output", "--ledger", "--unit", "--plot")
WRONG = ("", "x", "-1", "0", "nan", "inf", "1e300", "1e-300", "3.7", "/")


@cache
def commands() -> dict[str, Any]:
    return dict(every_command(app))


def name_of(line: str) -> str:
    return next(
        name for name in sorted(commands(), key=len, reverse=True) if line.startswith(f"{name} ")
    )


def options_of(name: str) -> list[Any]:
    return [
        option
        for option in commands()[name].params
        if option.param_type_name == "option" and not option.is_flag
    ]


def spoiled(line: str, wrong: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """The line with a wrong value of every option that it has, one at a time."""
    words = line.split()
    for option in options_of(name_of(line)):
        if option.opts[0] not in words:
            continue
        at = words.index(option.opts[0]) + 1
        many = max(1, option.nargs)
        for value in wrong:
            if value not in SLOW_VALUES.get(option.opts[0], ()):
                yield option.opts[0], words[:at] + [value] * many + words[at + many :]


def added(wrong: str) -> Iterator[list[str]]:
    """Invalid value of every option without one: after its command's first line or name."""
    for name in commands():
        lines = [line for line in LINES if name_of(line) == name]
        used = {word for line in lines for word in line.split()}
        for option in options_of(name):
            if option.opts[0] not in used and option.opts[0] not in ANY_WORD:
                yield [
                    *(lines[0] if lines else name).split(),
                    option.opts[0],
                    *[wrong] * max(1, option.nargs),
                ]


@pytest.fixture
def files(terminal: Terminal) -> Terminal:
    """Files that the lines name."""
    rows = (
        f"u{i},{i % 21},{('tea', 'coffee')[i % 2]},{i},{i % 6},{42 + i / 1000},{-72 + i / 1000}\n"
        for i in range(40)
    )
    Path("v.csv").write_text("who,kcal,word,x,y,lat,lon\n" + "".join(rows))
    Path("m.csv").write_text("0.5,0.5\n0.25,0.75\n")
    Path("d.csv").write_text("0,1\n1,0\n")
    Path("t.csv").write_text("root\na,root,1\nb,root,2\n")
    planned("unary sum").save("plan.json")
    assert terminal.typed("randomize plan.json v.csv --column kcal --output r.bin").exit_code == 0
    assert terminal.typed("shuffle plan.json r.bin --output s.bin").exit_code == 0
    return terminal


def refused_in_words(terminal: Terminal, words: list[str]) -> str:
    """What a command says that may not work; empty if it works."""
    result = terminal(*words)
    line = " ".join(words)
    assert result.exit_code in (0, 2, 3), f"{line}: {result.output}"
    if result.exit_code != 2:
        return ""
    told = result.stderr.removeprefix("metricshuffle: ")
    assert told.count("\n") == 1, line
    assert not LEAKS.search(told.replace("plan.json", "").replace("l.ledger", "")), (
        f"{line}: {told}"
    )
    return told


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", LINES, ids=[f"{name_of(line)} {index}" for index, line in enumerate(LINES)]
)
def test_whatever_is_wrong_is_told_in_options(files: Terminal, line: str) -> None:
    assert files(*line.split()).exit_code == 0
    told = [refused_in_words(files, words) for _, words in spoiled(line, WRONG)]
    assert any(told)


def test_a_word_in_place_of_every_value(files: Terminal) -> None:
    """The sweep above in a few seconds, and over commands and options that have no line there."""
    tried = {
        (name_of(line), option): words
        for line in LINES
        for option, words in spoiled(line, ("??",))
        if option not in ANY_WORD
    }
    told = [refused_in_words(files, words) for words in (*tried.values(), *added("??"))]
    assert len([sentence for sentence in told if sentence]) > 90
