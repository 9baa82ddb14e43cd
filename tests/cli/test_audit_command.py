"""`metricshuffle audit`: exit codes, JSON, inputs as words, and observed batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import load_task, signed, stored

from metricshuffle.auditing import audit as audits
from metricshuffle.auditing.neighbours import Neighbours
from metricshuffle.auditing.simulated_batches import drawn
from metricshuffle.cli.audit_command import REFUTED_EXIT_CODE, parse_value
from metricshuffle.errors import InputError
from metricshuffle.queries import Histogram, UserHistogram
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Grid, Space, users_of

FIELDS = {
    "epsilon",
    "delta",
    "confidence",
    "promised",
    "first",
    "second",
    "others",
    "batches",
    "hits",
    "most",
    "refuted",
    "plan",
}


@pytest.fixture
def task(terminal: Any) -> Any:
    """A task in task.json, and one in boast.json that claims a quarter of its epsilon."""
    task = load_task("local sum")
    task.save("task.json")
    content = stored("local sum")
    content["guarantee"]["epsilon"] = 0.25
    Path("boast.json").write_text(signed(content))
    return task


def test_a_promise_that_is_kept(terminal: Any, task: Any) -> None:
    result = terminal("audit", "task.json", "--batches", "400", "--confidence", "0.99999")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(
        "Consistent with the promised epsilon 1: the shuffled output shows at least epsilon 0"
    )
    assert "with confidence 99.999 %." in result.stdout
    assert "200 batches with 0 kcal and in" in result.stdout


def test_a_promise_that_is_not(terminal: Any, task: Any) -> None:
    """Another exit code than wrong input and bugs have, with --json too."""
    result = terminal("audit", "boast.json", "--batches", "1e3")
    assert result.exit_code == REFUTED_EXIT_CODE == 3
    assert result.stdout.startswith("REFUTED: the shuffled output shows at least epsilon 0")
    assert "more than the promised 0.25." in result.stdout
    result = terminal("audit", "boast.json", "--batches", "1000", "--json")
    assert result.exit_code == REFUTED_EXIT_CODE
    document = json.loads(result.stdout)
    assert set(document) == FIELDS
    assert document["refuted"] is True
    assert document["batches"] == [500, 500]
    assert document["epsilon"] > document["promised"] == 0.25


def test_inputs_of_ones_own(terminal: Any, task: Any) -> None:
    document = json.loads(
        terminal(
            "audit", "task.json", "--batches", "100", "--first", "3", "--second", "5", "--json"
        ).stdout
    )
    assert (document["first"], document["second"]) == ("3 kcal", "5 kcal")
    assert document["promised"] == pytest.approx(0.4)
    for words, told in (
        (("--first", "3"), "give both inputs"),
        (("--first", "3", "--second", "x"), "--second must be a number"),
        (
            ("--first", "3", "--second", "99"),
            "--second must lie in whole numbers from 0 to 20 kcal, got '99'",
        ),
        (("--first", "3", "--second", "20"), "the promise covers 5"),
        (("--others", "-1"), "--others must lie in"),
        (("--batches", "2"), "batches must be a whole number from 8"),
        (("--batches", "many"), "whole number"),
        (("--confidence", "95"), "confidence must lie strictly between 0 and 1"),
        (("--first-batches", "."), "--first-batches and --second-batches"),
    ):
        assert told in terminal.refused("audit", "task.json", *words)


def test_words_become_values() -> None:
    labels = Categories(["tea", "black coffee"])
    grid = Grid(5, 4, 10.0, "m")
    assert parse_value(Histogram(labels), "black coffee", "first") == "black coffee"
    assert parse_value(Histogram(grid), "4,3", "first") == (4, 3)
    users = UserHistogram(users_of(Space(Categories(["tea", "water"])), 3))
    assert parse_value(users, "tea water tea", "first") == ["tea", "water", "tea"]
    for query, text in (
        (Histogram(labels), "milk"),
        (Histogram(grid), "5,0"),
        (Histogram(grid), "5"),
        (users, ""),
        (users, "tea"),
    ):
        with pytest.raises(InputError):
            parse_value(query, text, "first")


@pytest.fixture
def folders(task: Any) -> None:
    """Sixty shuffled files with 0 kcal in each, and sixty with 5."""
    for name in ("a", "b"):
        Path(name).mkdir()
    for sides in drawn(task, Neighbours(0, 5, [], ""), 60, Randomness.seeded(1)):
        for name, batches in zip(("a", "b"), sides, strict=True):
            for place, batch in enumerate(batches):
                Path(name, f"{place}.bin").write_bytes(batch.to_bytes())


def test_batches_of_a_deployed_shuffler(terminal: Any, folders: None) -> None:
    """From folders, patterns and single files; which inputs were injected must be said."""
    injected = ["--first", "0", "--second", "5"]
    for places in (("a", "b"), ("a/*.bin", "b/*.bin"), (str(Path("a").resolve()) + "/*", "b")):
        result = terminal(
            "audit",
            "task.json",
            *injected,
            "--first-batches",
            places[0],
            "--second-batches",
            places[1],
        )
        assert result.exit_code == 0, result.output
        assert "of 30 batches with 0 kcal and in" in result.stdout
    told = terminal.refused("audit", "task.json", "--first-batches", "a", "--second-batches", "b")
    assert "say which two inputs were injected" in told
    told = terminal.refused(
        "audit", "task.json", *injected, "--first-batches", "a/0.bin", "--second-batches", "b"
    )
    assert "at least 8 shuffled batches" in told
    told = terminal.refused(
        "audit", "task.json", *injected, "--first-batches", "c/*.bin", "--second-batches", "b"
    )
    assert "--first-batches c/*.bin names no files" in told
    assert "cannot read c:" in terminal.refused(
        "audit", "task.json", *injected, "--first-batches", "c", "--second-batches", "b"
    )
    Path("a/7.bin").write_bytes(b"nothing")
    assert "cannot use a/7.bin:" in terminal.refused(
        "audit", "task.json", *injected, "--first-batches", "a", "--second-batches", "b"
    )
    assert "another task" in terminal.refused(
        "audit", "boast.json", *injected, "--first-batches", "b", "--second-batches", "b"
    )


def test_releases_of_a_served_shuffler_are_batches_too(
    terminal: Any, task: Any, folders: None
) -> None:
    """What `collect` keeps is a release; it counts as the batch that it was estimated from."""
    options = ["--first", "0", "--second", "5", "--first-batches"]
    of_batches = terminal("audit", "task.json", *options, "a", "--second-batches", "b", "--json")
    for name in ("a", "b"):
        for file in Path(name).iterdir():
            release = task.estimate(task.read_shuffled(file.read_bytes()))
            file.unlink()
            release.save(file.with_suffix(".json"))
    of_releases = terminal("audit", "task.json", *options, "a", "--second-batches", "b", "--json")
    assert of_releases.exit_code == of_batches.exit_code == 0, of_releases.output
    assert json.loads(of_releases.stdout) == json.loads(of_batches.stdout)
    edited = Path("a/7.json").read_text().replace('"people": ', '"people": 1')
    Path("a/7.json").write_text(edited)
    told = terminal.refused("audit", "task.json", *options, "a", "--second-batches", "b")
    assert "cannot use a/7.json: this release was edited or damaged" in told
    assert "another task" in terminal.refused(
        "audit", "boast.json", *options, "b", "--second-batches", "b"
    )


def test_an_audit_can_be_interrupted(
    terminal: Any, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(audits, "drawn", interrupted)
    result = terminal("audit", "task.json")
    assert result.exit_code == 130
    assert result.stderr == "metricshuffle: interrupted; no file was written or changed.\n"
