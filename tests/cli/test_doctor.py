"""`metricshuffle doctor`: reports quickly what is installed and what is missing."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from metricshuffle import __version__
from metricshuffle.cli import doctor_command
from metricshuffle.cli.doctor_command import EXTRAS, PROGRAMS, UNUSED

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_extras_are_those_of_the_project() -> None:
    declared = tomllib.loads(PROJECT.read_text())["project"]
    written = {
        extra: {name.split(">")[0].split("[")[0] for name in names}
        for extra, names in declared["optional-dependencies"].items()
    }
    assert {extra: set(names) for extra, (names, _) in EXTRAS.items()} == written
    assert set(doctor_command.CORE) == {name.split(">")[0] for name in declared["dependencies"]}


def test_everything_is_told(terminal: Terminal) -> None:
    result = terminal("doctor", "--json")
    assert result.exit_code == 0
    parts = {part["name"]: part for part in json.loads(result.stdout)["parts"]}
    assert set(parts) >= {
        *EXTRAS,
        *PROGRAMS,
        "Python",
        "processors",
        "randomness",
        "inner loops",
        "SQLite",
        "pandas",
        "duckdb",
    }
    assert parts["metricshuffle"]["version"] == __version__
    assert parts["Python"]["version"] == platform.python_version()
    assert all(part["found"] for name, part in parts.items() if name in doctor_command.CORE)
    assert all(part["found"] or part["get"] for part in parts.values())
    text = terminal("doctor").stdout
    assert all(name in text for name in parts)


def test_what_is_missing_says_how_to_get_it(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = doctor_command._version
    monkeypatch.setattr(
        doctor_command, "_version", lambda name: None if name == "pyproj" else installed(name)
    )
    monkeypatch.setattr("shutil.which", lambda command: None)
    monkeypatch.setattr(doctor_command, "_which", lambda command: None)
    text = terminal("doctor").stdout
    assert "geo: pip install 'metricshuffle[geo]'" in text
    assert "Chromium: apt-get install chromium" in text
    assert "Spark:" not in text, f"what is of no use ({UNUSED}) is not to be installed"


def test_a_program_that_is_slow_or_odd_is_found_without_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    odd = tmp_path / "odd"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    odd.write_text("#!/bin/sh\necho no version here >&2\nexit 3\n")
    for file in (slow, odd):
        file.chmod(0o755)
    monkeypatch.setattr(
        doctor_command,
        "PROGRAMS",
        {"Slow": ((str(slow),), "-v", "", "slow"), "Odd": ((str(odd),), "-v", "", "odd")},
    )
    monkeypatch.setattr(doctor_command, "VERSION_SECONDS", 0.2)
    assert [(part.found, part.version, part.where) for part in doctor_command.programs()] == [
        (True, None, str(slow)),
        (True, None, str(odd)),
    ]


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys\nfrom metricshuffle.cli.command_group import app\n"
        "try: app(['doctor', '--json'])\n"
        "except SystemExit: print([name for name in ('numpy', 'numba', 'scipy', 'pyarrow', "
        "'pandas', 'jinja2') if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines()[-1] == "[]"
