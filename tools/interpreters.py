"""Pythons of this machine, and a trial of the wheels in an empty environment of each."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile")
HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NUMBA_CACHE_DIR", "PYTEST_CURRENT_TEST")
"""Variables by which an environment would see another."""
PLAN = (
    "plan --query mean --low 0 --high 20 --epsilon 1 --distance 5 --delta 1e-6 --users 100 "
    "--save plan.json"
)


class TrialFailed(Exception):
    """A wheel could not be installed, or a command of it failed."""


def found_interpreters() -> dict[str, Path]:
    """Supported Pythons by version: those on the path, and those of pyenv."""
    folders = sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin"), reverse=True)
    programs: dict[str, Path] = {}
    for version in SUPPORTED:
        named = [shutil.which(f"python{version}"), *(str(each / "python") for each in folders)]
        for program in filter(None, named):
            if version_of(program) == version:
                programs[version] = Path(program)
                break
    return programs


def version_of(program: str) -> str:
    """Version like 3.12 of a Python; empty if it does not run, as a shim of pyenv may."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(  # noqa: S603 - a Python of this machine
            [program, "-c", code], capture_output=True, text=True, check=False, env=clean()
        )
    except OSError:
        return ""
    return done.stdout.strip()


def clean() -> dict[str, str]:
    """The variables of this process without those that lead to its own environment."""
    return {name: value for name, value in os.environ.items() if name not in HIDDEN}


def run(words: list[str], folder: Path) -> str:
    """Output of a program in a folder; TrialFailed says what it wrote if it failed."""
    done = subprocess.run(  # noqa: S603 - words of this module
        words, cwd=folder, capture_output=True, text=True, check=False, env=clean()
    )
    if done.returncode:
        raise TrialFailed(f"{' '.join(words)}: {(done.stderr or done.stdout)[-500:]}")
    return done.stdout


def try_wheels(python: Path, wheels: list[Path], folder: Path) -> list[str]:
    """Install wheels into an empty environment, plan, run and list the papers; what was printed."""
    run([str(python), "-m", "venv", str(folder / "empty")], folder)
    programs = folder / "empty" / "bin"
    run([str(programs / "python"), *PIP, *map(str, wheels)], folder)
    rows = "".join(f"{index % 21}\n" for index in range(100))
    (folder / "values.csv").write_text(f"kcal\n{rows}", encoding="utf-8")
    command = str(programs / "metricshuffle")
    lines = ("--version", PLAN, "run plan.json values.csv --column kcal", "reproduce list")
    return [run([command, *line.split()], folder) for line in lines]
