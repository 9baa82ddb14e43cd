"""`metricshuffle report`: one page from files, and errors where they do not match."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest
from tests.catalogue.planned_tasks import planned, values_of
from tests.cli.conftest import Terminal
from tests.report.parsed_page import ParsedPage


@pytest.fixture
def files(terminal: Terminal) -> Path:
    """A plan, its task and its release, and a release of another plan."""
    plan = planned("local sum")
    other = planned("two rounds")
    plan.save(str(terminal.folder / "plan.json"), str(terminal.folder / "task.json"))
    plan.run(values_of("local sum")).save(str(terminal.folder / "release.json"))
    other.run(values_of("two rounds")).save(str(terminal.folder / "other.json"))
    return terminal.folder


@pytest.mark.parametrize(
    "words",
    ["plan.json release.json", "plan.json", "task.json release.json", "task.json", "release.json"],
)
def test_files_become_a_page(terminal: Terminal, files: Path, words: str) -> None:
    result = terminal("report", *words.split())
    assert result.exit_code == 0, result.output
    assert result.stdout == "Report: report.html\n"
    page = ParsedPage((files / "report.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert planned("local sum").digest in page.text
    assert ("The sum is" in page.text) == ("release" in words)
    assert ("Choosing a protocol" in page.text) == ("plan" in words)


def test_json_and_standard_output(terminal: Terminal, files: Path) -> None:
    result = terminal.typed("report plan.json release.json --output own.html --json")
    told = json.loads(result.stdout)
    assert told == {
        "report": "own.html",
        "bytes": (files / "own.html").stat().st_size,
        "task": planned("local sum").digest,
        "release": True,
    }
    result = terminal.typed("report plan.json --output -")
    assert result.stdout.startswith("<!DOCTYPE html>")
    assert result.stdout.endswith("</html>\n")
    assert "one thing" in terminal.refused("report", "plan.json", "--output", "-", "--json")


def test_files_may_be_pipes(terminal: Terminal, files: Path) -> None:
    os.mkfifo(files / "pipe")
    plan = (files / "plan.json").read_text()
    writer = threading.Thread(target=lambda: (files / "pipe").write_text(plan))
    writer.start()
    result = terminal("report", "pipe", "release.json")
    writer.join()
    assert result.exit_code == 0, result.output
    assert planned("local sum").digest in (files / "report.html").read_text()


def test_what_does_not_fit_is_refused(terminal: Terminal, files: Path) -> None:
    assert "belongs to another plan" in terminal.refused("report", "plan.json", "other.json")
    assert "one release" in terminal.refused("report", "release.json", "release.json")
    assert "not a release" in terminal.refused("report", "plan.json", "plan.json")
    assert "also the input" in terminal.refused(
        "report", "plan.json", "release.json", "--output", "release.json"
    )
    assert "folder that does not exist" in terminal.refused(
        "report", "plan.json", "--output", "no/page.html"
    )
    assert "cannot read no.json" in terminal.refused("report", "no.json")
    assert "cannot read no.json" in terminal.refused("report", "plan.json", "no.json")
    (files / "damaged.json").write_text(
        (files / "release.json").read_text().replace('"reports": 40', '"reports": 41')
    )
    assert "cannot use damaged.json: this release was edited" in terminal.refused(
        "report", "plan.json", "damaged.json"
    )
    (files / "broken.json").write_text("{")
    assert "broken.json" in terminal.refused("report", "broken.json")


def test_without_the_extra_nothing_is_read(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    result = terminal("report", "no.json")
    assert result.exit_code == 2
    assert "metricshuffle[report]" in result.stderr
