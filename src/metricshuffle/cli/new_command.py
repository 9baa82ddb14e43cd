"""`metricshuffle new`: a few questions in the terminal, then a plan, its task and the next step."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import typer
from typer.core import TyperGroup

from metricshuffle.cli.shared_options import Json, writable
from metricshuffle.errors import InputError

MAX_TRIES = 3
HONEST = "90%"
STRENGTHS = {"1": "0.5", "2": "1", "3": "2"}
"""Epsilon of each answer to the last question."""
MAX_LABELS = 1000

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*(?:to|-|–|\.\.)\s*({_NUMBER})\s*(.*)")


@dataclass
class Interview:
    """Questions on standard error, answers from standard input, one line each."""

    asked: int = 0

    def ask(self, question: str, parse: Callable[[str], list[str]]) -> list[str]:
        """Ask until the answer can be used, at most three times.

        Raises:
            InputError: if there is no usable answer, or no further line.
        """
        self.asked += 1
        for _ in range(MAX_TRIES):
            print(f"{self.asked}. {question}", file=sys.stderr)
            print("> ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                raise InputError(
                    f"the input ended before question {self.asked} was answered; answer in a "
                    "terminal, or use metricshuffle plan."
                )
            try:
                return parse(line.strip())
            except ValueError as problem:
                print(f"   {problem}", file=sys.stderr)
        raise InputError(
            f"question {self.asked} has no usable answer after {MAX_TRIES} tries; see "
            "metricshuffle plan --help for all options."
        )


def new(
    context: typer.Context,
    output: Annotated[
        Path,
        typer.Option("--output", metavar="FILE", help="File of the plan; the task is beside it."),
    ] = Path("plan.json"),
    as_json: Json = False,
) -> None:
    """Ask a few questions, plan the collection, and print what to do next.

    The answers become a `metricshuffle plan` command, which is printed, so that it can be changed
    and repeated.
    """
    from metricshuffle.cli.console import note

    task_file = output.with_name(f"{output.stem}-task.json")
    for path in (output, task_file):
        writable(path)
        if path.exists():
            raise InputError(f"{path} exists already; give another --output.")
    words = _answers(Interview())
    words += ["--save", str(output), "--task", str(task_file)]
    words += ["--json"] if as_json else []
    note("", f"metricshuffle plan {shlex.join(words)}", "")
    root = context.find_root()
    plan = cast(TyperGroup, root.command).commands["plan"]
    with plan.make_context("plan", words, parent=root) as planning:
        plan.invoke(planning)
    note(
        "",
        "Next, with a file of answers (one row a person):",
        f"  metricshuffle run {output} FILE.csv --column NAME --output release.json",
        "What to tell the people who are asked:",
        f"  metricshuffle explain {task_file}",
    )


def _answers(interview: Interview) -> list[str]:
    """Options of `metricshuffle plan` from the answers."""
    question = interview.ask(
        "What do you ask people, in the words that they will read? (an empty line: say it later)",
        lambda line: ["--question", line] if line else [],
    )
    kind = interview.ask(
        "What does each person answer? 1: a number, 2: one of several labels, 3: a place.",
        _choice("1", "2", "3"),
    )[0]
    if kind == "2":
        words = interview.ask("Which labels, with commas between them?", _labels)
        distance = []
    elif kind == "3":
        words = interview.ask(
            "Which area, in degrees: SOUTH WEST NORTH EAST? And how wide is a cell of the map, in "
            "metres? (five numbers)",
            _area,
        )
        distance = interview.ask(
            "What is the largest distance, in metres, between two places that nobody should be "
            "able to tell apart? (homes: 2000, if clinics 2 km apart must not be told apart)",
            _distance,
        )
    else:
        words = interview.ask(
            "From which number to which, in which unit? (like 0 to 1000 kcal)", _range
        )
        distance = interview.ask(
            "What is the largest difference between two answers that nobody should be able to "
            "tell apart? (minutes to work: 15, if suburbs 15 minutes apart must not be told apart)",
            _distance,
        )
    people = interview.ask("How many people will take part?", _people)
    strength = interview.ask(
        "How well must they be hidden? A guess between two such answers is right at most "
        "1: 63, 2: 74, 3: 89 times in 100 (a coin: 50).",
        _choice("1", "2", "3"),
    )[0]
    return [*words, *question, *distance, *people, "--epsilon", STRENGTHS[strength]]


def _choice(*answers: str) -> Callable[[str], list[str]]:
    def parse(line: str) -> list[str]:
        if line not in answers:
            raise ValueError(f"answer {', '.join(answers[:-1])} or {answers[-1]}.")
        return [line]

    return parse


def _labels(line: str) -> list[str]:
    labels = [label.strip() for label in line.split(",")]
    if len(labels) < 2 or not all(labels) or len(set(labels)) < len(labels):
        raise ValueError("give at least two different labels, such as tea,coffee,water.")
    if len(labels) > MAX_LABELS:
        raise ValueError(f"give at most {MAX_LABELS:,} labels here; plan takes more from a file.")
    return ["--query", "histogram", "--labels", ",".join(labels)]


def _area(line: str) -> list[str]:
    numbers = line.replace(",", " ").split()
    if len(numbers) != 5:
        raise ValueError(f"give five numbers, got {len(numbers)}.")
    for number in numbers:
        _finite(number)
    return ["--query", "map", "--box", *numbers[:4], "--cell", numbers[4]]


def _range(line: str) -> list[str]:
    match = _RANGE.fullmatch(line.replace(",", ""))
    if match is None or not _finite(match[1]) < _finite(match[2]):
        raise ValueError("give two numbers and a unit, the smaller number first: 0 to 1000 kcal.")
    unit = ["--unit", match[3]] if match[3] else []
    return ["--query", "mean", "--low", match[1], "--high", match[2], *unit]


def _distance(line: str) -> list[str]:
    number = line.replace(",", "").split()[0] if line else ""
    if not _finite(number) > 0:
        raise ValueError("give a number greater than 0.")
    return ["--distance", number]


def _people(line: str) -> list[str]:
    number = line.replace(",", "")
    if not number.isascii() or not number.isdigit() or int(number) < 2:
        raise ValueError("give a whole number of at least 2.")
    # With this delta, fewer than one person in total is expected to be exposed.
    delta = min(1e-6, 10.0 ** -(len(number) + 1))
    honest = ["--honest", HONEST] if int(number) >= 10 else []
    return ["--users", number, *honest, "--delta", f"{delta:g}"]


def _finite(number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        raise ValueError(f"{number!r} is not a number.") from None
    if not abs(value) < float("inf"):
        raise ValueError(f"{number!r} is not a finite number.")
    return value
