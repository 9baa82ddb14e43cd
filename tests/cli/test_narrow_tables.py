"""Tables at any width: rows are stacked where needed, and no number is cut."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.catalogue.planned_tasks import planned

from metricshuffle.cli.candidate_table import candidate_table
from metricshuffle.cli.doctor_command import InstalledPart, doctor_table
from metricshuffle.cli.solve_command import solved_table
from metricshuffle.cli.table_layout import Column, Line, TableLayout
from metricshuffle_papers.cli.reproduce import rows_table
from metricshuffle_papers.cli.users_table import table as users_table

NUMBER = re.compile(r"\d[\d,.e+-]*\d|\d")


@cache
def tables() -> dict[str, Any]:
    """Every table of the command line, as small as its computation can be."""
    from metricshuffle.privacy.target import Target
    from metricshuffle.solving.solution import solve
    from metricshuffle.spaces import Clustered, Integers, Space, users_of
    from metricshuffle_papers.compare.users import compare_users
    from metricshuffle_papers.reproduction import Row

    made = planned("unary sum")
    choice = made.choice
    others = tuple(
        choice.model_copy(
            update={
                "protocol": name,
                "expected_error": error,
                "bits_per_user": bits,
                "baseline": baseline,
                "shape": 1,
            }
        )
        for name, error, bits, baseline in (
            ("randomized-response-shuffle", 0.00031234, 123_456, False),
            ("geometric-central", 12_345.6, 7, True),
        )
    )
    rows = (
        Row(
            label="error of the mean, 10,000 people",
            published=0.123456,
            as_published=0.12349,
            ours=0.9,
            verdict="false",
            note="why",
        ),
        Row(
            label="rate",
            published=1234567.0,
            as_published=1.0,
            ours=1.0,
            verdict="reproduced",
            standard_error=0.012,
        ),
    )
    parts = [
        InstalledPart("core", "Python", True, "3.11.7", None, "3.11 or newer is needed", ""),
        InstalledPart(
            "extras",
            "report",
            True,
            "jinja2 3.1.6, vl-convert-python 1.9.0.post1",
            None,
            "pages and pictures",
            "",
        ),
        InstalledPart(
            "extras",
            "geo",
            False,
            None,
            None,
            "places in degrees",
            "pip install 'metricshuffle[geo]'",
        ),
    ]
    people = users_of(Clustered(2, 2, inner=0.05), 5)
    return {
        "plan": candidate_table(
            made.model_copy(update={"candidates": (choice, *others), "chosen": 0})
        ),
        "users compare": users_table(
            compare_users(people, 50, epsilon=1.0, rate=2.0, delta=1e-9, runs=2, seed=1), "km"
        ),
        "solve": solved_table(solve(Space(Integers(0, 3)), Target(1.0, 1e-6, 1.0), 1000, grid=1)),
        "reproduce": rows_table(rows),
        "doctor": doctor_table(parts),
    }


def drawn(table: Any, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(table)
    return console.export_text()


@pytest.mark.parametrize("name", ["plan", "users compare", "solve", "reproduce", "doctor"])
def test_every_number_of_the_wide_table_is_in_the_narrow_one(name: str) -> None:
    table = tables()[name]
    wide = sorted(NUMBER.findall(drawn(table, 200)))
    assert len(wide) >= 4
    cells = sorted(NUMBER.findall(" ".join(cell for line in table.lines for cell in line.cells)))
    for width in range(30, 121):
        narrow = drawn(table, width)
        assert max(map(len, narrow.splitlines())) <= width, width
        assert "…" not in narrow
        found = NUMBER.findall(narrow)
        assert not [number for number in cells if found.count(number) < cells.count(number)], (
            width,
            narrow,
        )


def test_stacked_rows_are_blocks_of_names_and_values() -> None:
    table = TableLayout(
        (
            Column(),
            Column("protocol", wraps=True),
            Column("expected\nerror\n(kcal)", number=True),
            Column("model", once=True),
        ),
        (
            Line(("->", "polya-shuffle", "0.1163", "local")),
            Line(("", "(geometric-central)", "0.1", "local")),
        ),
    )
    assert drawn(table, 30).splitlines() == [
        "-> polya-shuffle",
        "   expected error (kcal):",
        "     0.1163",
        "   model: local",
        "",
        "(geometric-central)",
        "   expected error (kcal): 0.1",
        "   model: local",
    ]
    wide = drawn(table, 80)
    assert "->  polya-shuffle" in wide
    assert wide.count("local") == 1, (
        "what repeats the row above is left out where rows stand below each other"
    )
    assert drawn(table, table_width(wide)) == wide
    assert "expected error (kcal):" in drawn(table, table_width(wide) - 4)


def table_width(text: str) -> int:
    return max(len(line.rstrip()) for line in text.splitlines())


def test_words_wrap_before_a_table_stacks_but_not_into_a_sliver() -> None:
    table = TableLayout(
        (Column("name"), Column("what it is about", wraps=True)),
        (Line(("a", "words that go on and on, and are broken at spaces")),),
    )
    assert drawn(table, 40).count("name:") == 0
    assert max(map(len, drawn(table, 40).splitlines())) <= 40
    assert "what it is about: words" in drawn(table, 16).replace("\n     ", " ")


def in_terminal(folder: Path, width: int, *words: str, **environment: str) -> str:
    """What a command writes to a terminal of that width, both streams."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "LINES", "NO_COLOR")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "metricshuffle", *words],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=folder,
        env={**clean, "TERM": "xterm-256color", **environment},
    )
    os.close(follower)
    said = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        said += part
    os.close(leader)
    assert process.wait() == 0, said.decode()
    return said.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("width", [40, 120])
def test_in_a_real_terminal(tmp_path: Path, width: int) -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", in_terminal(tmp_path, width, "doctor", "--quiet"))
    assert max(map(len, text.splitlines())) <= width
    assert ("found: " in text) == (width == 40)
    assert f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}" in text
