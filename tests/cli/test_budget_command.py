"""Rounds on the command line: `run`, `estimate` and `randomize` with a ledger, and `budget`."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import load_task, planned, run_of

from metricshuffle import Budget, Plan, Release, Shuffled
from metricshuffle.cli.budget_options import check_other_ledgers
from metricshuffle.cli.estimate_command import publish
from metricshuffle.errors import InputError
from metricshuffle.planning.costs.release_ledger import LedgerContent
from metricshuffle.tasks.task import new_batch_id

WORDS = ("values.csv", "--column", "kcal")


@pytest.fixture
def two(terminal: Any, values: Path) -> Plan:
    """A plan of two rounds, where nobody is trusted."""
    plan = planned("two rounds")
    plan.save("plan.json", "task.json")
    return plan


def rounds(ledger: str = "releases.ledger") -> list[int]:
    return [row.round for row in Budget(ledger).releases]


def test_a_plan_runs_as_often_as_it_was_planned(terminal: Any, two: Plan) -> None:
    """Each run is the next round; one more is rejected with its cost and changes nothing."""
    assert "round 1 of 2" in terminal("run", "plan.json", *WORDS).stdout
    second = terminal("run", "plan.json", *WORDS, "--output", "release.json", "--json")
    assert (
        json.loads(second.stdout)["round"]
        == json.loads(Path("release.json").read_text())["round"]
        == 2
    )
    told = terminal.refused("run", "plan.json", *WORDS, "--output", "third.json")
    assert (
        "A 3rd round of a 2-round plan would make it epsilon 1.5 instead of 1 (with "
        "certainty, at a distance of 5 kcal)" in told
    )
    assert "Plan again with more --rounds" in told
    assert "A 7th round of a 2-round plan would make it epsilon 3.5" in terminal.refused(
        "run", "plan.json", *WORDS, "--round", "7"
    )
    assert rounds() == [1, 2]
    assert (
        terminal(
            "run", "plan.json", *WORDS, "--ledger", "elsewhere.ledger", "--round", "2", "--json"
        ).exit_code
        == 0
    )
    assert rounds("elsewhere.ledger") == [2]
    assert "--output releases.ledger is the ledger, which must stay" in terminal.refused(
        "run", "plan.json", *WORDS, "--output", "releases.ledger"
    )


def test_a_release_is_kept_beside_the_plan(terminal: Any, two: Plan) -> None:
    """A release is written without a file name, too, and never replaces another one.

    That is rejected before a round is spent.
    """
    first = terminal("run", "plan.json", *WORDS)
    assert "Wrote release.json." in first.stderr
    assert Release.load("release.json").round == 1
    told = terminal.refused("run", "plan.json", *WORDS)
    assert (
        "release.json exists, and a release is not replaced by default; name another file "
        "with --output" in told
    )
    assert rounds() == [1]
    assert (
        terminal("run", "plan.json", *WORDS, "--json").exit_code == 0
    )  # all of it is on the screen
    Path("folder").mkdir()
    two.save("folder/plan.json")
    assert terminal("run", "folder/plan.json", *WORDS).exit_code == 0
    assert Release.load("folder/release.json").round == 1


def test_the_analyst_counts_what_the_shuffler_let_go(terminal: Any, two: Plan) -> None:
    """Clients get the next round by the plan's ledger; the same file is the same release.

    Other reports are another release.
    """
    Path("half.csv").write_text("kcal\n" + "3\n" * 20)
    half = ("half.csv", *WORDS[1:])
    for round in (1, 2):
        told = terminal("randomize", "plan.json", *half, "--output", f"r{round}")
        assert f"for round {round} of 2" in told.stderr
        assert terminal("shuffle", "plan.json", f"r{round}", "--output", f"s{round}").exit_code == 0
        assert f"round {round} of 2" in terminal("estimate", "plan.json", f"s{round}").stdout
        if round == 1:
            again = terminal("estimate", "plan.json", "s1", "--output", "release.json")
            assert (
                "releases.ledger has this release already; the same answer again costs nothing."
                in again.stderr
            )
            assert "made for round 1, and not for --round 2" in terminal.refused(
                "estimate", "plan.json", "s1", "--round", "2"
            )
            for name in ("again", "more"):
                assert (
                    terminal(
                        "randomize", "plan.json", *half, "--round", "1", "--output", name
                    ).exit_code
                    == 0
                )
            Path("batches.ledger").rename("aside")  # a shuffler that forgot
            assert terminal("shuffle", "plan.json", "again", "--output", "other").exit_code == 0
            assert terminal("shuffle", "plan.json", "r1", "more", "--output", "both").exit_code == 0
            assert "Another batch is another round" in terminal.refused(
                "estimate", "plan.json", "other", "--output", "new"
            )
            assert (
                "1 of the 2 batches of reports in this one were in the release of round 1"
                in terminal.refused("estimate", "plan.json", "both")
            )
    assert rounds() == [1, 2]
    assert "none of the planned rounds is left" in terminal.refused(
        "randomize", "plan.json", *WORDS, "--output", "r3"
    )
    assert [row.batches for row in Budget("releases.ledger").releases] == [1, 1]


def test_batches_of_earlier_versions_are_read(terminal: Any, two: Plan) -> None:
    """They tell no batches; their sums are still recognised."""
    batch = two.shuffle(two.randomize([3] * 40))
    rest: dict[str, Any] = {
        "batch": batch.batch,
        "people": 40,
        "messages": batch.messages,
        "sums": batch.sums,
        "modulus": batch.modulus,
    }

    class Earlier(Shuffled):
        formats = ("metricshuffle-shuffled/2", "metricshuffle-shuffled-seeded/2")

        def _more(self) -> tuple[dict[str, Any], bytes]:
            return {}, b""

    Path("old").write_bytes(Earlier(**rest).to_bytes())
    Path("new").write_bytes(batch.to_bytes())
    assert load_task("two rounds").read_shuffled(Path("old").read_bytes()).batches == ()
    for name in ("old", "new", "old"):
        assert terminal("estimate", "plan.json", name).exit_code == 0
    assert rounds() == [1]


def test_the_budget_in_words_and_in_json(terminal: Any, two: Plan) -> None:
    """Per task and jointly, for plans and ledgers; an unreleased plan has all rounds left."""
    planned("local sum").save("other.json")
    assert "there is no analyst's ledger in this folder" in terminal.refused("budget")
    told = terminal("budget", "plan.json").stdout
    assert "Nothing was released." in told or "0 of 2 rounds released, 2 left" in told
    assert terminal("run", "plan.json", *WORDS).exit_code == 0
    assert terminal("run", "other.json", *WORDS, "--output", "-").exit_code == 0
    told = " ".join(terminal("budget").stdout.split())
    for words in (
        "1 of 2 rounds released, 1 left. Spent: epsilon 0.5 of 1 (with certainty)",
        "1 of 1 round released, 0 left. Spent: epsilon 1 of 1",
        "Together: epsilon 1.5 (with certainty) so far, and epsilon 2 (with certainty) "
        "when all planned rounds are released",
    ):
        assert words in told
    for files in ([], ["plan.json", "other.json"]):
        (group,) = json.loads(terminal("budget", *files, "--json").stdout)["people"]
        assert group["people"] == "everybody"
        assert sorted(
            (row["released"], row["left"], row["spent"]["epsilon"]) for row in group["tasks"]
        ) == [(1, 0, 1.0), (1, 1, 0.5)]
        assert group["together"]["spent"]["epsilon"] == pytest.approx(1.5)
        assert group["together"]["spent"]["epsilon"] >= 1.5
    Path("plan.json").unlink()  # what is noted survives the plan
    assert (
        json.loads(terminal("budget", "releases.ledger", "--json").stdout)["people"][0]["tasks"][0][
            "planned"
        ]["epsilon"]
        == 1.0
    )


def test_groups_on_the_command_line(terminal: Any, two: Plan) -> None:
    """Named groups have rounds of their own; a name that nobody used is a sentence."""
    for number, people in enumerate(("north", "north", "south")):
        assert (
            terminal(
                "run", "plan.json", *WORDS, "--people", people, "--output", f"{number}.json"
            ).exit_code
            == 0
        )
    assert "none of the planned rounds is left" in terminal.refused(
        "run", "plan.json", *WORDS, "--people", "north"
    )
    told = terminal("budget", "--people", "south").stdout
    assert "1 of 2 rounds released" in told
    assert "north (with what was released about everybody):" in terminal("budget").stdout
    assert "the ledger has everybody, north, south" in terminal.refused(
        "budget", "--people", "west"
    )
    assert "printable characters" in terminal.refused("run", "plan.json", *WORDS, "--people", "")


def test_what_fails_notes_nothing(
    terminal: Any, two: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad values, an impossible output, and Ctrl-C: no release, no entry, no lock."""
    Path("bad.csv").write_text("kcal\n500\n")
    terminal.refused("run", "plan.json", "bad.csv", "--column", "kcal")
    terminal.refused("run", "plan.json", *WORDS, "--output", "nowhere/release.json")
    terminal.refused(
        "run", "plan.json", *WORDS, "--ledger", "nowhere/plan.ledger", "--output", "release.json"
    )
    with monkeypatch.context() as patched:

        def stop(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr(Plan, "estimate", stop)
        before = terminal.files()
        assert terminal("run", "plan.json", *WORDS, "--output", "release.json").exit_code == 130
        assert terminal.files() == before
    assert not Path("releases.ledger").exists()


def test_no_release_without_a_note(
    terminal: Any, two: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the note cannot be written there is no file and nothing on the screen."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("metricshuffle.planning.costs.release_ledger.write_text", full)
    for more in (["--output", "release.json"], ["--json"], []):
        assert (
            "cannot write the ledger releases.ledger, which records every release"
            in terminal.refused("run", "plan.json", *WORDS, *more)
        )


def test_an_interruption_between_the_note_and_the_release(
    terminal: Any, two: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits: both are there, and it is said."""
    write = LedgerContent.to_json

    def interrupted(notes: LedgerContent) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return write(notes)

    monkeypatch.setattr(LedgerContent, "to_json", interrupted)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # what runs in the background may ignore it
    elsewhere = threading.Event()
    thread = threading.Thread(target=elsewhere.wait)  # which the signal may go to
    thread.start()
    result = terminal("run", "plan.json", *WORDS, "--output", "release.json")
    elsewhere.set()
    thread.join()
    signal.signal(signal.SIGINT, before)
    assert "The interruption came too late: the release is written and counts." in result.stderr
    assert json.loads(Path("release.json").read_text())["round"] == 1
    assert rounds() == [1]


def test_the_machine_stops_between_the_note_and_the_release(
    terminal: Any, two: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may have been seen counts: the note is there before the file is."""
    noted: list[list[int]] = []
    replace = os.replace

    def watched(source: Any, target: Any) -> None:
        if str(target).endswith("release.json"):
            noted.append(rounds())
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    assert terminal("run", "plan.json", *WORDS, "--output", "release.json").exit_code == 0
    assert noted == [[1]]


@pytest.mark.thorough
def test_one_last_round_and_two_processes(terminal: Any, tmp_path: Path, values: Path) -> None:
    """Whoever comes first gets it; the other is refused, and one release is noted."""
    planned("local sum").save("plan.json")
    words = [sys.executable, "-m", "metricshuffle", "run", "plan.json", *WORDS, "--output"]
    started = [
        subprocess.Popen(
            [*words, f"release{number}.json"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    told = [process.communicate(timeout=120)[1] for process in started]
    assert sorted(process.returncode for process in started) == [0, 2]
    assert sum("none of the planned rounds is left" in line for line in told) == 1
    assert len(list(tmp_path.glob("release*.json"))) == 1
    assert rounds() == [1]
    assert not list(tmp_path.glob(".*"))


def test_copies_of_a_plan_share_one_ledger(terminal: Any, two: Plan) -> None:
    """Under another name, as a task or by a link; releases in a named ledger count, too."""
    Path("copy.json").write_text(Path("plan.json").read_text())
    Path("link.json").symlink_to("plan.json")
    assert terminal("run", "plan.json", *WORDS).exit_code == 0
    assert terminal("run", "copy.json", *WORDS, "--output", "second.json").exit_code == 0
    assert rounds() == [1, 2]
    for name in ("copy", "task", "link"):
        assert "none of the planned rounds is left" in terminal.refused(
            "run", f"{name}.json", *WORDS, "--output", "third.json"
        )
        assert "2 of 2 rounds released, 0 left" in " ".join(
            terminal("budget", f"{name}.json").stdout.split()
        )
    assert [path.name for path in Path().glob("*.ledger")] == ["releases.ledger"]
    assert (
        terminal(
            "run", "copy.json", *WORDS, "--ledger", "copy.ledger", "--output", "third.json"
        ).exit_code
        == 0
    )
    told = terminal.refused("run", "plan.json", *WORDS, "--output", "fourth.json")
    assert (
        "copy.ledger has releases of this task that releases.ledger, beside it, does not have"
        in told
    )
    for words in ((), ("plan.json",)):
        assert "3 of 2 rounds released, 0 left; 1 MORE THAN PLANNED" in " ".join(
            terminal("budget", *words).stdout.split()
        )


def test_ledgers_of_earlier_versions_are_continued(terminal: Any, two: Plan) -> None:
    """Ledgers named after the plan, task or collection are read by every command."""
    assert terminal("run", "plan.json", *WORDS).exit_code == 0
    Path("releases.ledger").rename("collection.ledger")
    for name in ("plan", "task"):
        assert "1 of 2 rounds released, 1 left" in terminal("budget", f"{name}.json").stdout
    assert (
        "for round 2 of 2"
        in terminal("randomize", "task.json", *WORDS, "--output", "reports").stderr
    )
    assert Budget.beside("task.json").path == Path("collection.ledger")
    assert terminal("run", "task.json", *WORDS, "--output", "second.json").exit_code == 0
    assert rounds("collection.ledger") == [1, 2]
    assert not Path("releases.ledger").exists()


def test_two_plans_in_one_folder(terminal: Any, two: Plan) -> None:
    """They share a ledger; the budget of one mentions that there are others."""
    planned("local sum").save("other.json")
    for name in ("plan", "other"):
        assert (
            terminal("run", f"{name}.json", *WORDS, "--output", f"{name}-release.json").exit_code
            == 0
        )
    told = terminal("budget", "other.json")
    assert "1 of 1 round released, 0 left" in told.stdout
    assert "rounds released" not in told.stdout
    assert "releases.ledger also has releases of 1 more task" in " ".join(told.stderr.split())
    assert rounds() == [1, 1]


def test_equal_sums_of_other_reports_are_another_release(tmp_path: Path, two: Plan) -> None:
    """Two batches may have equal sums by chance; their reports distinguish them."""
    task = two.task
    tally = task.counted([[1] * 40])
    one, other = (task.publish(tally, batches=[new_batch_id()]) for _ in range(2))
    other.sums = one.sums
    assert one.fingerprint == other.fingerprint
    with Budget(tmp_path / "first.ledger").opened() as account:
        account.record(task, one)
    with Budget(tmp_path / "second.ledger").opened() as account:
        check_other_ledgers(task, account, None, one)
        with pytest.raises(InputError, match="has releases of this task"):
            check_other_ledgers(task, account, None, other)


def test_a_ledger_that_became_empty(terminal: Any, two: Plan) -> None:
    """It is not passed over, among others or by itself."""
    assert terminal("run", "plan.json", *WORDS).exit_code == 0
    Path("lost.ledger").touch()
    for words in (
        ("budget",),
        ("budget", "lost.ledger"),
        ("run", "plan.json", *WORDS, "--ledger", "lost.ledger"),
    ):
        assert "lost.ledger: it is empty, so its records are lost" in terminal.refused(*words)


def test_a_plan_without_a_ledger(terminal: Any, two: Plan) -> None:
    """That nothing was released is said with where that was looked for."""
    told = " ".join(terminal("budget", "plan.json").stderr.split())
    assert (
        "No ledger beside plan.json has a release of it (releases.ledger would be the one)" in told
    )


def test_groups_are_named_as_they_were(terminal: Any, two: Plan) -> None:
    assert terminal("run", "plan.json", *WORDS, "--people", " north  side ").exit_code == 0
    assert "1 of 2 rounds released" in terminal("budget", "--people", "north side ").stdout


def test_a_full_disk_costs_no_round(tmp_path: Path) -> None:
    """The release is on the disk before it counts, and gets its name after."""
    counted: list[str] = []
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            publish(
                run_of("two rounds"),
                tmp_path / "release.json",
                False,
                lambda: counted.append("counted"),
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not counted
    assert not list(tmp_path.iterdir())


def test_outputs_that_would_be_lost(terminal: Any, two: Plan) -> None:
    """The ledger's lock is removed; a release that a device rejects counts, and is reported."""
    assert "or its lock; give another name" in terminal.refused(
        "run", "plan.json", *WORDS, "--output", ".releases.ledger.lock"
    )
    assert not Path("releases.ledger").exists()
    if Path("/dev/full").exists():
        full = terminal("run", "plan.json", *WORDS, "--output", "/dev/full")
        assert full.exit_code == 2
        assert "The release is recorded and counts" in full.stderr
        assert rounds() == [1]
