"""Noise by the shuffler on the command line: plan, files of all roles, run, verify and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from metricshuffle.collection.terms import fewest_honest
from metricshuffle.planning import Plan
from metricshuffle.tasks.message_format import MessageFormat

PLAN = (
    "plan --query histogram --labels tea,coffee,water --distance 1 --epsilon 1 --delta 1e-6 "
    "--users 200 --honest 50% --floor never"
)


@pytest.fixture
def values(terminal: Terminal) -> Path:
    path = terminal.folder / "values.csv"
    path.write_text("drink\n" + "tea\n" * 120 + "water\n" * 80)
    return path


def test_a_plan_with_half_honest_people_chooses_it_and_says_who_can_subtract(
    terminal: Terminal,
) -> None:
    words = " ".join(terminal.typed(PLAN).stdout.split())
    assert "Chosen: shuffler-noise (cells, no floor)" in words
    assert "The shuffler adds 81 dummies on average" in words
    assert "can subtract them, and then knows the counts without their noise" in words
    stored = json.loads(terminal.typed(f"{PLAN} --json").stdout)
    choice = stored["candidates"][stored["chosen"]]
    assert choice["dummies"] == 81
    assert stored["task"]["protocol"]["radius"] == 27
    explained = " ".join(terminal.typed(f"{PLAN} --explain").stdout.split())
    assert "a batch of any size may be released. Accuracy decides" in explained
    offers = [offer for offer in stored["candidates"] if offer["dummies"] is not None]
    assert offers
    for offer in offers:
        assert offer["sealing_seconds"] == pytest.approx(155e-6 * offer["dummies"])
        assert f"{offer['encoding']}) {offer['dummies']:,} dummies (0.01" in explained
    assert "honest reports" not in explained.split("Not hidden")[0].split("Chosen")[1]


def test_all_roles_with_files(terminal: Terminal, values: Path) -> None:
    folder = terminal.folder
    plan, reports, shuffled = (folder / name for name in ("plan.json", "reports", "shuffled"))
    assert terminal.typed(f"{PLAN} --save {plan}").exit_code == 0
    assert terminal("verify", plan).exit_code == 0
    assert (
        terminal("randomize", plan, values, "--column", "drink", "--output", reports).exit_code == 0
    )
    assert terminal("shuffle", plan, reports, "--output", shuffled).exit_code == 0
    answer = terminal("estimate", plan, shuffled)
    assert answer.exit_code == 0, answer.output
    assert "subtract" in " ".join(answer.stdout.split())
    again = terminal("shuffle", plan, reports, "--output", folder / "again")
    assert again.exit_code != 0  # other dummies on the same reports would average out


def test_no_other_ledger_lets_dummies_be_drawn_again(terminal: Terminal, values: Path) -> None:
    """Fifty publications of one batch would average to the counts without noise."""
    folder = terminal.folder
    plan, reports = (folder / name for name in ("plan.json", "reports"))
    terminal.typed(f"{PLAN} --save {plan}")
    terminal("randomize", plan, values, "--column", "drink", "--output", reports)
    first = terminal(
        "shuffle", plan, reports, "--output", folder / "one", "--ledger", folder / "L1"
    )
    assert first.exit_code == 0, first.output
    away = folder / "away"
    away.mkdir()
    moved = away / "plan.json"
    moved.write_bytes(plan.read_bytes())
    for task, ledger in ((plan, "L2"), (moved, "away/L3"), (moved, "away/batches.ledger")):
        again = terminal.refused(
            "shuffle", task, reports, "--output", folder / "two", "--ledger", folder / ledger
        )
        assert "released in an earlier batch, according to" in again
        assert "batches.ledger" in again
    assert not (folder / "two").exists()


def test_nothing_is_published_if_the_ledger_beside_the_reports_cannot_be_written(
    terminal: Terminal, values: Path
) -> None:
    folder = terminal.folder
    plan, reports, ledger = (folder / name for name in ("plan.json", "reports", "L1"))
    terminal.typed(f"{PLAN} --save {plan}")
    terminal("randomize", plan, values, "--column", "drink", "--output", reports)
    (folder / "batches.ledger").mkdir()
    shuffled = ("shuffle", plan, reports, "--output", folder / "one", "--ledger", ledger)
    assert "cannot use the ledger" in terminal.refused(*shuffled)
    assert not (folder / "one").exists()
    (folder / "batches.ledger").rmdir()
    assert terminal(*shuffled).exit_code == 0  # the reports were not recorded before


def test_noise_of_the_publisher_in_files_run_and_reports(terminal: Terminal, values: Path) -> None:
    folder = terminal.folder
    plan, reports, shuffled = (folder / name for name in ("plan.json", "reports", "shuffled"))
    terminal.typed(f"{PLAN} --save {plan}")
    terminal("randomize", plan, values, "--column", "drink", "--output", reports)
    terminal("shuffle", plan, reports, "--output", shuffled)
    release, page = folder / "release.json", folder / "page.html"
    answer = terminal("estimate", plan, shuffled, "--publisher-noise", "--output", release)
    assert answer.exit_code == 0, answer.output
    assert "as many dummies again" in " ".join(answer.stdout.split())
    tally = json.loads(release.read_text())["tally"]
    assert (tally["noise_sets"], tally["publisher_noise"]) == (2, True)
    assert terminal("report", release, "--output", page).exit_code == 0
    assert "can subtract" not in page.read_text()
    assert "as many dummies again" in page.read_text()
    for again in (("--publisher-noise",), ()):  # two tallies of one batch would average out
        sentence = terminal.refused("estimate", plan, shuffled, *again)
        assert "batches of reports in this one were in the release" in sentence
    other = folder / "other"
    other.mkdir()
    fresh = other / "plan.json"
    fresh.write_bytes(plan.read_bytes())
    line = ("run", fresh, values, "--column", "drink", "--publisher-noise", "--json")
    assert json.loads(terminal(*line).stdout)["tally"]["noise_sets"] == 2


def test_few_people_are_no_problem(terminal: Terminal) -> None:
    path = terminal.folder / "one.csv"
    path.write_text("drink\ntea\n")
    plan = terminal.folder / "plan.json"
    terminal.typed(f"{PLAN} --save {plan}")
    assert terminal("run", plan, path, "--column", "drink").exit_code == 0


def test_too_many_dummies_are_refused_with_what_fits(terminal: Terminal) -> None:
    line = f"{PLAN} --protocol shuffler-noise --max-dummies 60"
    sentence = terminal.refused(*line.split())
    assert "--max-dummies 60" in sentence
    assert "2 parts would fit" in sentence
    assert "--max-dummies" in terminal.refused(*f"{PLAN} --max-dummies 0".split())


def test_a_collection_of_it_has_piles_and_needs_one_report(terminal: Terminal) -> None:
    plan = terminal.folder / "plan.json"
    terminal.typed(f"{PLAN} --save {plan}")
    task = Plan.load(plan).task
    form = MessageFormat.of(task.protocol)
    assert (form.by_pile, form.piles) == (True, len(task.protocol.sizes))  # type: ignore[attr-defined]
    assert fewest_honest(task) == 1 < task.honest


def test_simulations_agree_with_the_plan(terminal: Terminal) -> None:
    plan = terminal.folder / "plan.json"
    terminal.typed(f"{PLAN} --save {plan}")
    result = terminal("simulate", plan, "--runs", "50")
    assert result.exit_code == 0, result.output
