"""Modified files are rejected by every command with exit code 2 and no output file."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import (
    SENT,
    load_task,
    planned,
    reports_of,
    run_of,
    signed,
    stored,
)

from metricshuffle.errors import NotCertified
from metricshuffle.models import content_digest
from metricshuffle.planning import Plan
from metricshuffle.protocols.tally import Shuffled
from metricshuffle.randomness import Randomness
from metricshuffle.tasks import Release, Task, read_reports, write_reports

KIND = "unary sum"
SHUFFLE = ("shuffle", "task.json", "reports", "--output", "shuffled")
ESTIMATE = ("estimate", "task.json", "shuffled", "--output", "release.json")


@pytest.fixture
def chain(terminal: Any, values: Path) -> Any:
    """Task, its reports and a shuffled batch in the current folder, without the ledger."""
    load_task(KIND).save("task.json")
    for words in (
        ("randomize", "task.json", values, "--column", "kcal", "--output", "reports"),
        SHUFFLE,
    ):
        assert terminal(*words).exit_code == 0
    Path("batches.ledger").unlink()
    return terminal


def changed(kind: str, change: Callable[[dict[str, Any]], object]) -> str:
    content = stored(kind)
    change(content)
    return signed(content)


LIES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "smaller noise": ("users' mean", lambda task: task["protocol"]["noise"].update(scale=0.5)),
    "a larger rate": (KIND, lambda task: task["protocol"]["randomizers"][0].update(rate=0.5)),
    "a smaller flip": (
        "flipped bits",
        lambda task: task["protocol"]["randomizers"][0].update(flip=2**-8),
    ),
    "less randomized response": (
        "labels",
        lambda task: task["protocol"]["randomizer"].update(epsilon=5.0),
    ),
    "less noise on vectors": (
        "vectors of labels",
        lambda task: task["protocol"].update(factor=2.0),
    ),
    "vectors in fewer shares": (
        "vectors of a line",
        lambda task: task["protocol"].update(shares=3),
    ),
    "a lower floor": (
        "vectors of labels",
        lambda task: task["protocol"]["floor"].update(epsilon=9.0),
    ),
    "vectors of more items": (
        "users' vectors",
        lambda task: task["protocol"].update(units=2 * task["protocol"]["units"]),
    ),
    "labels together": (
        "vectors of labels",
        lambda task: task["guarantee"].update(protects="people together"),
    ),
    "a smaller epsilon": (KIND, lambda task: task["guarantee"].update(epsilon=0.1)),
    "a smaller delta": (KIND, lambda task: task["guarantee"].update(delta=1e-12)),
    "a larger distance": (KIND, lambda task: task["guarantee"].update(distance=15.0)),
    "people together": (
        "labels",
        lambda task: task["guarantee"].update(protects="people together"),
    ),
    "fewer honest people": (KIND, lambda task: task["guarantee"]["trust"].update(honest_reports=3)),
    "fewer honest people everywhere": (
        KIND,
        lambda task: (task.update(honest=3), task["guarantee"]["trust"].update(honest_reports=3)),
    ),
    "fewer rounds": ("two rounds", lambda task: task["guarantee"].update(rounds=1)),
    "a smaller epsilon of the fallback": (
        KIND,
        lambda task: task["if_shuffler_colludes"].update(epsilon=0.5),
    ),
    "another step": (KIND, lambda task: task["protocol"].update(step=0.5)),
    "another domain": (KIND, lambda task: task["query"]["domain"].update(high=200)),
    "another span": (KIND, lambda task: task["protocol"]["randomizers"][0].update(span=10)),
    "nobody to trust": (
        KIND,
        lambda task: (
            task["protocol"].update(trusted="nobody"),
            task["guarantee"].update(trust={"trusted": "nobody"}),
        ),
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_task_that_lies_is_not_verified(terminal: Any, lie: str) -> None:
    """With a valid digest, a false claim is recomputed and rejected."""
    kind, change = LIES[lie]
    Path("task.json").write_text(changed(kind, change))
    told = terminal.refused("verify", "task.json")
    assert "claims more than is true" in told or "cannot be certified" in told
    assert terminal.refused("verify", "task.json", "--json") == told


@pytest.mark.slow
def test_every_planned_task_is_verified(terminal: Any) -> None:
    """And what nobody changed is certified, from the plan and from the task."""
    for kind in SENT:
        planned(kind).save("plan.json", task="task.json")
        assert (
            terminal("verify", "task.json").exit_code
            == terminal("verify", "plan.json").exit_code
            == 0
        )


def test_an_edited_task_is_refused_by_every_command(chain: Any, values: Path) -> None:
    """Without a new digest: the file was edited or damaged."""
    edited = json.loads(Path("task.json").read_text())
    edited["honest"] = 2
    Path("edited.json").write_text(json.dumps(edited))
    for words in (
        ["verify", "edited.json"],
        ["randomize", "edited.json", values, "--column", "kcal", "--output", "new"],
        ["shuffle", "edited.json", "reports", "--output", "new"],
        ["estimate", "edited.json", "shuffled", "--output", "new"],
        ["run", "edited.json", values, "--column", "kcal", "--output", "new"],
        ["simulate", "edited.json"],
    ):
        assert (
            "its digest does not match its content: the file was edited or damaged"
            in chain.refused(*words)
        )


@pytest.fixture
def forged() -> Path:
    """Plan with epsilon 0.1 instead of 1 everywhere, and a valid digest."""
    content = json.loads(planned(KIND).to_json())
    content["task"] = json.loads(changed(KIND, lambda task: task["guarantee"].update(epsilon=0.1)))
    content["candidates"][content["chosen"]]["guarantee"] = content["task"]["guarantee"]
    content["digest"] = content["task"]["digest"]
    content["checksum"] = content_digest(
        {name: value for name, value in content.items() if name != "checksum"}
    )
    Path("forged.json").write_text(json.dumps(content))
    Path("forged-task.json").write_text(json.dumps(content["task"]))
    return Path("forged.json")


def test_no_command_prints_a_forged_promise(terminal: Any, values: Path, forged: Path) -> None:
    """Commands that print or use a guarantee recompute it and reject a forged one."""
    task = Task.from_json(Path("forged-task.json").read_text())
    reports = task.randomize([person % 21 for person in range(40)])
    write_reports(task, "reports", [reports])
    Path("shuffled").write_bytes(task.shuffle(reports).to_bytes())
    for file in (forged, Path("forged-task.json")):
        for words in (
            ["run", file, values, "--column", "kcal", "--output", "new"],
            ["estimate", file, "shuffled", "--output", "new"],
            ["report", file, "--output", "new.html"],
            ["shuffle", file, "reports", "--output", "new"],
            ["simulate", file],
            ["explain", file],
            ["verify", file],
            ["randomize", file, values, "--column", "kcal", "--output", "new"],
            ["budget", file],
        ):
            assert "claims more than is true" in terminal.refused(*words)
    assert (
        terminal(
            "randomize", forged, values, "--column", "kcal", "--output", "new", "--believe"
        ).exit_code
        == 0
    )


def test_no_release_of_a_forged_task_is_shown(terminal: Any, forged: Path) -> None:
    """Nor one that was made by other hands: its answer is right, and its promise is not."""
    honest = json.loads(run_of(KIND).to_json())
    honest["task"] = json.loads(Path("forged-task.json").read_text())
    honest["plan"], honest["guarantee"] = honest["task"]["digest"], honest["task"]["guarantee"]
    honest["checksum"] = content_digest(
        {name: value for name, value in honest.items() if name != "checksum"}
    )
    Path("release.json").write_text(json.dumps(honest))
    assert "cannot use release.json: this task claims more" in terminal.refused(
        "report", "release.json", "--output", "new.html"
    )
    assert "claims more than is true" in terminal.refused(
        "map", "release.json", "--output", "new.csv"
    )
    with pytest.raises(NotCertified, match="claims more"):
        Release.load("release.json")


def test_nothing_loads_a_forged_promise(
    terminal: Any, forged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in Python; honest tasks are verified once, and a changed copy is another task."""
    for load in (lambda: Plan.load(forged), lambda: Task.load("forged-task.json")):
        with pytest.raises(NotCertified, match="claims more than is true"):
            load()
    believed = Plan.from_json(forged.read_text())
    with pytest.raises(NotCertified, match="claims more than is true"):
        believed.run([3] * 40)
    planned(KIND).save("plan.json")
    Plan.load("plan.json").task.verify()
    monkeypatch.setattr(Task, "verify", lambda task: pytest.fail("computed again"))
    again = Plan.load("plan.json")
    monkeypatch.undo()
    lie = again.task.model_copy(update={"guarantee": believed.guarantee})
    with pytest.raises(NotCertified, match="claims more than is true"):
        lie.verify_once()


def test_a_plan_whose_chosen_row_boasts(terminal: Any) -> None:
    """The table of a plan cannot promise more than its task, which is what is verified."""
    content = json.loads(planned(KIND).to_json())
    content["candidates"][content["chosen"]]["guarantee"]["epsilon"] = 0.1
    content["checksum"] = content_digest(
        {name: value for name, value in content.items() if name != "checksum"}
    )
    Path("plan.json").write_text(json.dumps(content))
    sentence = terminal.refused("report", "plan.json", "--output", "new.html")
    assert "guarantees or the damage of the chosen candidate differ from those of" in sentence


def test_files_of_another_task(chain: Any) -> None:
    """Reports and batches of a task with other guarantees are not accepted."""
    Path("weaker.json").write_text(
        changed(KIND, lambda task: task["guarantee"].update(epsilon=2.0))
    )
    assert chain("verify", "weaker.json").exit_code == 0
    assert "made for another task (the digests differ)" in chain.refused(
        "shuffle", "weaker.json", "reports", "--output", "new"
    )
    assert "for another task (the digests differ)" in chain.refused(
        "estimate", "weaker.json", "shuffled", "--output", "new"
    )
    load_task("labels").save("labels.json")
    assert "made for another task" in chain.refused(
        "shuffle", "labels.json", "reports", "--output", "new"
    )


def flipped(place: int) -> Callable[[bytes], bytes]:
    return lambda whole: (
        whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :]
        if place >= 0
        else flipped(len(whole) + place)(whole)
    )


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a bit of the name": flipped(3),
    "a bit of the header": flipped(60),
    "a bit of the content": flipped(-60),
    "a bit of the checksum": flipped(-5),
    "cut short": lambda whole: whole[:-7],
    "cut by a record": lambda whole: whole[:-18],
    "something more": lambda whole: whole + b"\n",
    "twice": lambda whole: whole + whole,
    "nothing": lambda whole: b"",
    "another count": lambda whole: whole[:-40] + (41).to_bytes(8, "little") + whole[-32:],
    "another version": lambda whole: re.sub(rb"/\d\n", b"/1\n", whole, count=1),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_reports_and_batches(chain: Any, damage: str) -> None:
    """Both files, damaged in the same ways."""
    for name, words in (("reports", SHUFFLE), ("shuffled", ESTIMATE)):
        if name == "reports":
            Path("shuffled").rename("aside")
        whole = Path(name).read_bytes()
        Path(name).write_bytes(DAMAGE[damage](whole))
        assert name in chain.refused(*words)
        Path(name).write_bytes(whole)
        if name == "reports":
            Path("aside").rename("shuffled")


def test_reports_twice(chain: Any) -> None:
    """The same file twice, a copy, and a part re-framed under its batch id, in one call."""
    shutil.copy("reports", "copy")
    task = load_task(KIND)
    (reports,) = read_reports(task, "reports")
    write_reports(
        task, "fewer", [replace(reports, messages=reports.messages[1:], known_ids=reports.ids[1:])]
    )
    for again in ("reports", "./reports", "copy", "fewer"):
        told = chain.refused("shuffle", "task.json", "reports", again, "--output", "new")
        assert "the same reports occur twice; no report may count twice" in told


def test_reports_in_a_later_call(chain: Any) -> None:
    """The ledger rejects a copy or part of a released batch later."""
    task = load_task(KIND)
    (reports,) = read_reports(task, "reports")
    write_reports(
        task, "fewer", [replace(reports, messages=reports.messages[1:], known_ids=reports.ids[1:])]
    )
    assert chain(*SHUFFLE).exit_code == 0
    for again in ("reports", "fewer"):
        told = chain.refused("shuffle", "task.json", again, "--output", "new")
        assert (
            "released in an earlier batch, according to batches.ledger; two releases could be "
            "compared to single out people" in told
        )
    assert (
        chain(
            "shuffle", "task.json", "reports", "--output", "new", "--ledger", "elsewhere"
        ).exit_code
        == 0
    )
    told = chain.refused(
        "shuffle", "task.json", "reports", "--output", "newer", "--ledger", "elsewhere"
    )
    assert "according to elsewhere;" in told
    assert "--output elsewhere is the ledger, which must stay" in chain.refused(
        "shuffle", "task.json", "reports", "--output", "elsewhere", "--ledger", "elsewhere"
    )
    Path("broken").write_text("no ledger " * 200)
    assert "cannot use the ledger broken" in chain.refused(
        "shuffle", "task.json", "reports", "--output", "new2", "--ledger", "broken"
    )


def test_a_batch_that_was_refused_may_come_again(chain: Any, terminal: Any) -> None:
    """Too few reports are not released, so they may be submitted again with others."""
    Path("few.csv").write_text("kcal\n" + "3\n" * 20)
    for name in ("one", "two"):
        assert (
            terminal(
                "randomize", "task.json", "few.csv", "--column", "kcal", "--output", name
            ).exit_code
            == 0
        )
    assert "has 20 reports, but the guarantee counts on at least 30" in chain.refused(
        "shuffle", "task.json", "one", "--output", "new"
    )
    assert chain("shuffle", "task.json", "one", "two", "--output", "new").exit_code == 0


def test_a_report_twice_under_another_batch_id(chain: Any) -> None:
    """It is ignored, counted, and told."""
    task = load_task(KIND)
    (reports,) = read_reports(task, "reports")
    other = task.randomize([3] * 10)
    mixed = replace(
        other,
        messages=np.concatenate([other.messages, reports.messages[:4]]),
        known_ids=np.concatenate([other.ids, reports.ids[:4]]),
    )
    write_reports(task, "mixed", [mixed])
    result = chain("shuffle", "task.json", "reports", "mixed", "--output", "new", "--json")
    assert json.loads(result.stdout)["ignored"] == 4
    assert json.loads(result.stdout)["reports"] == 50
    told = chain(
        "shuffle", "task.json", "reports", "mixed", "--output", "new2", "--ledger", "other"
    ).stderr
    assert "Wrote 50 shuffled reports to new2." in told
    assert "4 reports occurred twice and count once." in told


def test_rounds_that_do_not_match(terminal: Any) -> None:
    """Reports of two rounds in one call, and a batch of a round that another task has."""
    task = load_task("two rounds")
    task.save("task.json")
    for round in (1, 2):
        write_reports(task, f"round{round}", [reports_of("two rounds", round=round)])
    assert "rounds are not mixed" in terminal.refused(
        "shuffle", "task.json", "round1", "round2", "--output", "new"
    )
    load_task("local sum").save("one.json")
    assert "another task" in terminal.refused("shuffle", "one.json", "round2", "--output", "new")


def test_a_raw_tally_is_not_estimated(chain: Any) -> None:
    """What the shuffler adds up is another format than what it lets go."""
    task = load_task(KIND)
    Path("tally").write_bytes(task.tally().add(reports_of(KIND).messages).to_bytes())
    told = chain.refused("estimate", "task.json", "tally", "--output", "release.json")
    assert (
        "cannot use tally: this is not a shuffled batch: it begins with 'metricshuffle-tally"
        in told
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda batch: replace(batch, people=29), "at least 30 honest"),
        (lambda batch: replace(batch, sums={0: [10**9]}), "this batch does not"),
        (lambda batch: replace(batch, sums={0: [-1]}), "this batch does not"),
        (lambda batch: replace(batch, sums={0: [1, 2]}), "this one has not"),
        (lambda batch: replace(batch, sums={7: [1]}), "this one has not"),
        (lambda batch: replace(batch, modulus=11), "another modulus"),
        (
            lambda batch: replace(batch, batch=replace(batch.batch, round=2)),
            "round must be|rounds are not mixed",
        ),
        (lambda batch: replace(batch, batch=replace(batch.batch, task="0" * 64)), "another task"),
    ],
)
def test_batches_that_were_signed_anew(
    chain: Any, change: Callable[[Shuffled], Shuffled], told: str
) -> None:
    """Edited people, sums, rounds and tasks with a valid checksum are still detected."""
    batch = load_task(KIND).read_shuffled(Path("shuffled").read_bytes())
    Path("shuffled").write_bytes(change(batch).to_bytes())
    sentence = chain.refused(*ESTIMATE)
    assert any(part in sentence for part in told.split("|")), sentence


def test_seeded_reports_are_told_to_the_end(terminal: Any) -> None:
    """Simulated reports stay marked; the release says UNSAFE as text and in JSON."""
    task = load_task(KIND)
    task.save("task.json")
    write_reports(task, "reports", [task.randomize([3] * 40, Randomness.seeded(1))])
    whole = Path("reports").read_bytes()
    Path("renamed").write_bytes(
        whole.replace(b"metricshuffle-reports-seeded/2", b"metricshuffle-reports/2", 1)
    )
    assert "its checksum does not match" in terminal.refused(
        "shuffle", "task.json", "renamed", "--output", "new"
    )
    assert terminal("shuffle", "task.json", "reports", "--output", "shuffled").exit_code == 0
    batch = Path("shuffled").read_bytes()
    Path("renamed").write_bytes(
        batch.replace(b"metricshuffle-shuffled-seeded/3", b"metricshuffle-shuffled/3", 1)
    )
    assert "its checksum does not match" in terminal.refused("estimate", "task.json", "renamed")
    told = terminal("estimate", "task.json", "shuffled", "--output", "release.json").stdout
    assert "UNSAFE: seeded randomness was used; this is a simulation, not a release." in told
    assert (
        json.loads(terminal("estimate", "task.json", "shuffled", "--json").stdout)["unsafe_seeded"]
        is True
    )
    assert Release.load("release.json").unsafe_seeded
