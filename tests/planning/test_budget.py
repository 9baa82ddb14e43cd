"""Ledger of the analyst: entries, rejections, and detection of edits."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import load_task, planned, reports_of, values_of

from metricshuffle import Budget, InputError, Ledger, Plan, PlanError, Release, Shuffled
from metricshuffle.cli.common_options import command_text
from metricshuffle.models import content_digest
from metricshuffle.planning.costs.release_ledger import (
    EVERYBODY,
    LedgerContent,
    OpenLedger,
    article,
    ordinal,
    spendings,
)
from metricshuffle.protocols.tally import Batch
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.message_format import MessageFormat

TWO = "two rounds"


@pytest.fixture
def budget(tmp_path: Path) -> Budget:
    return Budget(tmp_path / "plan.ledger")


@pytest.fixture
def two() -> Plan:
    return planned(TWO)


def shuffled(round: int = 1, seed: int = 1) -> Shuffled:
    return load_task(TWO).shuffle(reports_of(TWO, seed=seed, round=round))


def test_every_run_is_the_next_round(two: Plan, budget: Budget) -> None:
    """Two rounds are recorded; a third is rejected with its cost and not recorded."""
    for round in (1, 2):
        assert budget.next_round(two.task) == round
        assert two.run(values_of(TWO), budget=budget).round == round
    before = budget.path.read_bytes()
    with pytest.raises(
        InputError,
        match=(
            r"none of the planned rounds is left. A 3rd round of a 2-round plan would make it "
            r"epsilon 1.5 instead of 1 "
        ),
    ):
        two.run(values_of(TWO), budget=budget)
    with pytest.raises(
        InputError, match=r"A 5th round of a 2-round plan would make it epsilon 2.5 instead of 1"
    ):
        two.run(values_of(TWO), budget=budget, round=5)
    assert budget.path.read_bytes() == before
    first, second = budget.releases
    assert (first.task, first.people, first.round, first.reports, first.batches) == (
        two.digest,
        EVERYBODY,
        1,
        40,
        1,
    )
    assert first.time.endswith("Z")
    assert first.raw_values_seen
    assert first.ids != second.ids
    assert budget.notes.task(two.digest).to_json() == two.task.to_json()
    assert budget.together().spent.epsilon == 1.0
    assert [path.name for path in budget.path.parent.iterdir()] == ["plan.ledger"]


def test_without_a_budget_nothing_changes(two: Plan, tmp_path: Path) -> None:
    assert two.run(values_of(TWO)).round == two.run(values_of(TWO)).round == 1
    assert not list(tmp_path.iterdir())


def test_the_same_release_again_costs_nothing(two: Plan, budget: Budget, tmp_path: Path) -> None:
    """Sums estimated again, or read from the release file, are recorded once."""
    batch = shuffled()
    release = two.estimate(batch, budget=budget)
    release.save(str(tmp_path / "release.json"))
    two.estimate(batch, budget=budget)
    budget.note(Release.load(str(tmp_path / "release.json")))
    assert len(budget.releases) == 1
    with pytest.raises(
        InputError, match=f"released about '{EVERYBODY}' .*; give people='{EVERYBODY}'"
    ):
        two.estimate(batch, budget=budget, people="north")


def test_another_batch_in_a_released_round(two: Plan, budget: Budget) -> None:
    """It is another round, even with equal sums; the error names the free round."""
    batch = shuffled()
    two.estimate(batch, budget=budget)
    by_chance = replace(batch, batches=(bytes(16),))
    for other in (shuffled(seed=2), by_chance):
        with pytest.raises(
            InputError,
            match=(
                r"the 2nd release of 2 that are planned: epsilon 1 of 1 would be spent. Use "
                r"round=2; reports must be"
            ),
        ):
            two.estimate(other, budget=budget)
    assert two.estimate(shuffled(2), budget=budget).round == 2


def test_reports_that_were_released_are_refused_with_others() -> None:
    """Overlapping batches can be subtracted, which leaves one report's privacy.

    Stated for each kind of trust.
    """
    task = load_task("unary sum")
    reports = [reports_of("unary sum", seed=seed) for seed in (1, 2)]
    account = OpenLedger(Path("plan.ledger"), LedgerContent({}, ()))
    account.notes = LedgerContent({task.digest: {}}, (_noted(task.shuffle(reports[0])),))
    with pytest.raises(
        PlanError,
        match=(
            r"1 of the 2 batches of reports .* each report hides by itself: epsilon 5.915 "
            r"instead of 1. Nobody's report"
        ),
    ):
        account.noted(task, task.shuffle(reports))


def _noted(batch: Shuffled, people: str = EVERYBODY) -> Any:
    from metricshuffle.planning.costs.release_ledger import RecordedRelease

    return RecordedRelease.of(batch, people, raw_values_seen=False)


def test_groups_of_people(two: Plan, budget: Budget) -> None:
    """Named groups have their own rounds; releases about everyone count for each."""
    two.run(values_of(TWO), budget=budget, people="north")
    two.run(values_of(TWO), budget=budget, people="south")
    assert budget.next_round(two.task, "south") == 2
    assert budget.next_round(two.task) == 2  # somebody of the north has had her first round
    two.run(values_of(TWO), budget=budget)
    for people in ("north", "south", EVERYBODY):
        with pytest.raises(InputError, match="none of the planned rounds is left"):
            budget.next_round(two.task, people)
    assert budget.next_round(two.task, "west") == 1
    assert [part.rounds for part in budget.together("north").tasks] == [2]
    assert [part.rounds for part in budget.together("west").tasks] == [1]
    for name in ("", " ", "a\nb", "x" * 61):
        with pytest.raises(InputError, match="1 to 60 printable characters"):
            budget.together(name)


def test_several_ledgers_count_together(two: Plan, tmp_path: Path) -> None:
    """Rounds of plan.ledger and task.ledger add up; a release in both counts once."""
    one = Budget(tmp_path / "plan.ledger")
    other = Budget(tmp_path / "task.ledger")
    batch = shuffled()
    two.estimate(batch, budget=one)
    two.estimate(batch, budget=other)
    assert [part.rounds for part in spendings([one.notes, other.notes], EVERYBODY)] == [1]
    two.run(values_of(TWO), budget=one)
    two.run(values_of(TWO), budget=other)
    (part,) = spendings([one.notes, other.notes], EVERYBODY)
    assert part.rounds == 3
    assert part.price.epsilon == pytest.approx(1.5, rel=1e-2)


EDITS = {
    "a round less": lambda content: content["releases"].pop(),
    "another round": lambda content: content["releases"][0].update(round=2),
    "other people": lambda content: content["releases"][0].update(people="nobody I know"),
    "another task": lambda content: content["tasks"].clear(),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_ledger_is_refused(edit: str, two: Plan, budget: Budget) -> None:
    """By its checksum; and whoever makes the checksum anew must still tell a ledger that can be."""
    two.run(values_of(TWO), budget=budget)
    content = json.loads(budget.path.read_text())
    EDITS[edit](content)
    budget.path.write_text(json.dumps(content))
    for act in (
        lambda: budget.releases,
        lambda: two.run(values_of(TWO), budget=budget),
        lambda: budget.together(),
    ):
        with pytest.raises(
            PlanError,
            match=(
                r"cannot use .*plan.ledger: its checksum does not match its content: the "
                r"ledger was edited"
            ),
        ):
            act()
    if edit == "another task":
        del content["checksum"]
        budget.path.write_text(json.dumps({**content, "checksum": content_digest(content)}))
        with pytest.raises(PlanError, match="the task of a release is missing in it"):
            _ = budget.releases


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "it is empty, so its records are lost"),
        ("[]", "its format is None"),
        (
            '{"format": "metricshuffle-plan/2"}',
            "its format is 'metricshuffle-plan/2', not 'metricshuffle-budget/1'",
        ),
        ('{"format": "metricshuffle-budget/2"}', "its format is 'metricshuffle-budget/2'"),
        (b"\xff\xfe", "it is not a text file"),
    ],
)
def test_other_files_are_refused(
    content: str | bytes, told: str, two: Plan, budget: Budget
) -> None:
    budget.path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(PlanError, match=told):
        two.run(values_of(TWO), budget=budget)


def test_the_two_kinds_of_ledgers_are_not_mixed_up(
    two: Plan, budget: Budget, tmp_path: Path
) -> None:
    """A shuffler's and an analyst's: each refuses the other's file, and leaves it as it is."""
    shufflers = Ledger(tmp_path / "plan.json.ledger")
    two.shuffle(reports_of(TWO), ledger=shufflers)
    two.run(values_of(TWO), budget=budget)
    assert Budget.beside("folder/plan.json").path == Path("folder/releases.ledger")
    assert Budget.beside("plan").path == Path("releases.ledger")
    for pipe in ("-", "/dev/stdin"):
        with pytest.raises(InputError, match="name one with --ledger"):
            Budget.beside(pipe)
    before = shufflers.path.read_bytes(), budget.path.read_bytes()
    with pytest.raises(
        PlanError, match="is a shuffler's ledger, of released batches, and not an analyst's"
    ):
        two.run(values_of(TWO), budget=Budget(shufflers.path))
    with pytest.raises(
        InputError,
        match=(
            r"it is not a shuffler's ledger of released batches \(an analyst's ledger of "
            r"releases is another file\)"
        ),
    ):
        two.shuffle(reports_of(TWO, seed=2), ledger=Ledger(budget.path))
    assert (shufflers.path.read_bytes(), budget.path.read_bytes()) == before


def test_a_ledger_that_cannot_be_written(two: Plan, tmp_path: Path) -> None:
    """Nothing is released without a note."""
    for path in (tmp_path / "nowhere" / "plan.ledger", Path("/proc/plan.ledger"), tmp_path):
        with pytest.raises(InputError, match="--ledger"):
            two.run(values_of(TWO), budget=Budget(path))
    assert not list(tmp_path.iterdir())


def test_who_waits_and_who_gives_up(two: Plan, budget: Budget) -> None:
    """Releases are exclusive; two that want the last round do not both get it."""
    with (
        budget.opened(),
        pytest.raises(InputError, match="is being written by another command"),
        budget.opened(0.1),
    ):
        pass
    outcomes: list[str] = []

    def last_round() -> None:
        try:
            outcomes.append(str(two.run(values_of(TWO), budget=budget).round))
        except InputError as wrong:
            outcomes.append(str(wrong))

    threads = [threading.Thread(target=last_round) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes, key=len)[:2] in (["1", "2"], ["2", "1"])
    assert sum("none of the planned rounds is left" in outcome for outcome in outcomes) == 2
    assert len(budget.releases) == 2


def test_many_batches_of_one_person(budget: Budget) -> None:
    """Thirty thousand ids: 16 bytes each in the batch, 33 in the ledger, and fast."""
    task = load_task(TWO)
    ids = np.random.default_rng(1).bytes(16 * 30_000)
    batches = tuple(ids[at : at + 16] for at in range(0, len(ids), 16))
    many = Shuffled(
        Batch(task.digest, 1), 30_000, 30_000, {0: [7]}, task.protocol.modulus, batches=batches
    )
    data = many.to_bytes()
    assert len(data) < 16 * 30_000 + 1000
    assert task.read_shuffled(data).batches == tuple(sorted(batches))
    with budget.opened() as account:
        account.record(task, many)
    assert budget.path.stat().st_size < 33 * 30_000 + 10_000
    with budget.opened() as account, pytest.raises(PlanError, match="1 of the 1 batches"):
        account.noted(task, replace(many, batch=Batch(task.digest, 2), batches=batches[77:78]))


def test_ordinals() -> None:
    assert [article(number) for number in (2, 8, 11, 18, 80, 110, 180, 800, 1_100, 11_000)] == [
        "A",
        "An",
        "An",
        "An",
        "An",
        "A",
        "A",
        "An",
        "A",
        "An",
    ]
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 112, 1001)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "21st",
        "112th",
        "1,001st",
    ]


ALIKE = {"case": "NORTH", "space": " nor th", "another form": "ｎｏｒｔｈ"}


@pytest.mark.parametrize("slip", ALIKE)
def test_names_that_are_almost_the_same(slip: str, two: Plan, budget: Budget) -> None:
    """Similar group names are rejected, so that a typo gives no fresh rounds."""
    two.run(values_of(TWO), budget=budget, people="  north ")
    assert [row.people for row in budget.releases] == ["north"]
    with pytest.raises(
        InputError,
        match=r"has a group 'north', and .* is almost the same name; give people='north'",
    ):
        two.run(values_of(TWO), budget=budget, people=ALIKE[slip])
    with pytest.raises(InputError, match="is almost the same name"):
        two.estimate(shuffled(), budget=budget, people=ALIKE[slip])
    assert len(budget.releases) == 1


def test_one_letter_or_two(two: Plan, budget: Budget) -> None:
    """The same name, written with a letter and its accent, or with one letter that has it."""
    two.run(values_of(TWO), budget=budget, people="Gene\u0300ve")
    assert budget.next_round(two.task, "Gen\u00e8ve") == 2


def test_nobody_else_is_called_everybody(two: Plan, budget: Budget) -> None:
    """No group may have a name like that of everyone."""
    for name in ("Everybody", "EVERYBODY", "every body"):
        with pytest.raises(
            InputError,
            match="can be mistaken for 'everybody', whose releases count for every group",
        ):
            two.run(values_of(TWO), budget=budget, people=name)
    two.run(values_of(TWO), budget=budget, people=" everybody ")
    assert [row.people for row in budget.releases] == [EVERYBODY]


def test_ledgers_that_do_not_agree_about_whom(two: Plan, tmp_path: Path) -> None:
    """A release about one group in one ledger and everyone in another counts for all."""
    one = Budget(tmp_path / "a.ledger")
    other = Budget(tmp_path / "b.ledger")
    batch = shuffled()
    two.estimate(batch, budget=one, people="north")
    two.estimate(batch, budget=other)
    for ledgers in ([one.notes, other.notes], [other.notes, one.notes]):
        assert [
            [part.rounds for part in spendings(ledgers, people)]
            for people in ("north", "south", EVERYBODY)
        ] == [[1], [1], [1]]


def test_seeded_releases_are_told(two: Plan, budget: Budget) -> None:
    """Nothing that is promised is true of them."""
    two.run(values_of(TWO), Randomness.seeded(1), budget=budget)
    two.run(values_of(TWO), budget=budget)
    found = budget.together()
    assert "UNSAFE: seeded randomness was used in 1 of them" in " ".join(found.lines())
    assert found.document()["tasks"][0]["unsafe_seeded"] == 1


def test_sentences_name_what_python_was_given(two: Plan, budget: Budget, tmp_path: Path) -> None:
    """Python errors name Python arguments, not options of the command line."""
    told: list[InputError] = []
    two.run(values_of(TWO), budget=budget, people="north")
    two.run(values_of(TWO), budget=budget, people="south")
    for asked in ({"people": "North"}, {"people": "Everybody"}, {"people": "north", "round": 1}):
        with pytest.raises(InputError) as wrong:
            two.run(values_of(TWO), budget=budget, **asked)
        told.append(wrong.value)
    two.run(values_of(TWO), budget=budget, people="north")
    with pytest.raises(InputError) as wrong:
        two.run(values_of(TWO), budget=budget, people="north")
    told.append(wrong.value)
    with pytest.raises(InputError) as wrong:
        load_task("sum in shares").run([1] * 41)
    told.append(wrong.value)
    with pytest.raises(InputError) as wrong:
        MessageFormat.of(load_task("aggregated sum").protocol)
    told.append(wrong.value)
    assert not [error for error in told if "--" in str(error)]
    for error, name in zip(
        told,
        (
            "people='north'",
            "people='everybody'",
            "round=2",
            "more rounds",
            "(user_column)",
            "trusted='shuffler'",
        ),
        strict=True,
    ):
        assert name in str(error)
        words = name.strip("()").partition("=")[0].split()
        option = f"--{words[-1].replace('_', '-')}"
        assert option in command_text(error, {})
