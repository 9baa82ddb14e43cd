"""The analyst's ledger of releases; rejects rounds that were not planned or are already released.

The shuffler's ledger of released batches is a different file (`tasks.shuffle.Ledger`); each kind
rejects the other.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from metricshuffle.errors import InputError, PlanError, argument
from metricshuffle.files import locked, read_bytes, write_text, written_in_place
from metricshuffle.models import FrozenModel, Whole, content_digest, parse_json
from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon
from metricshuffle.planning.costs.joint_cost import JointCost, joint_cost
from metricshuffle.planning.costs.task_cost import TaskCost
from metricshuffle.protocols.tally import ID_BYTES, Shuffled
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.shuffle import SQLITE_HEADER, SeenIds
from metricshuffle.tasks.task import Task

BUDGET_FORMAT = "metricshuffle-budget/1"
EVERYBODY = "everybody"
"""Default group. It may overlap every named group, so its releases count against all of them."""
RELEASES_LEDGER = "releases.ledger"
"""Default file name, in the folder of the plan, the task or the collection.

Earlier versions named the ledger after the plan, task or collection (`plan.ledger`).
"""
MAX_NAME_LENGTH = 60
LEDGER_REMEDY = (
    "name a file in a folder that can be written with --ledger (in Python: Budget(path))"
)


class RecordedRelease(FrozenModel):
    """One release as recorded in the ledger."""

    task: str
    """Digest of the task."""
    people: str
    round: Whole
    reports: Whole
    time: str
    """Time of recording, UTC."""
    raw_values_seen: bool
    unsafe_seeded: bool
    fingerprint: str
    """Fingerprint of the shuffled sums; equal sums are the same release."""
    batches: Whole
    batch_ids: str
    """Hexadecimal batch ids, separated by spaces; empty if the file did not contain them."""

    @classmethod
    def of(cls, shuffled: Shuffled, people: str, *, raw_values_seen: bool) -> RecordedRelease:
        return cls(
            task=shuffled.batch.task,
            people=people,
            round=shuffled.batch.round,
            reports=shuffled.people,
            time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            raw_values_seen=raw_values_seen,
            unsafe_seeded=shuffled.batch.seeded,
            fingerprint=shuffled.fingerprint,
            batches=len(shuffled.batches),
            batch_ids=b"".join(shuffled.batches).hex(" ", ID_BYTES),
        )

    @property
    def ids(self) -> bytes:
        """All batch ids, concatenated."""
        try:
            ids = bytes.fromhex(self.batch_ids)
        except ValueError:
            ids = b"?"
        if len(ids) != ID_BYTES * self.batches:
            raise PlanError(
                "this ledger is damaged: a release does not have the stated number of batch ids; "
                "restore it from a copy."
            )
        return ids

    def is_same_release(self, other: RecordedRelease) -> bool:
        """Whether both have the same sums, and the same batches where both list them."""
        return self.fingerprint == other.fingerprint and (
            self.ids == other.ids or not self.batches or not other.batches
        )

    @property
    def told(self) -> str:
        """Time and number of reports, as part of a sentence."""
        return (
            f"on {self.time.replace('T', ' at ').removesuffix('Z')} UTC from {self.reports:,} "
            f"report{'s' * (self.reports != 1)}"
        )


@dataclass(frozen=True)
class LedgerContent:
    """Content of a ledger: the tasks as written, by digest, and the releases in order."""

    tasks: dict[str, Any]
    releases: tuple[RecordedRelease, ...]

    @classmethod
    def read(cls, path: Path) -> LedgerContent:
        """Read a ledger file; empty if it does not exist.

        Raises:
            PlanError: if the file was edited, is damaged or is not an analyst's ledger.
        """
        if not path.exists():
            return cls({}, ())
        data = read_bytes(path)
        if data.startswith(SQLITE_HEADER):
            raise PlanError(
                f"{path} is a shuffler's ledger, of released batches, and not an analyst's, "
                "of releases; name another file with --ledger."
            )
        if not data.strip():
            raise PlanError(
                f"cannot use {path}: it is empty, so its records are lost; restore it from "
                "a copy, or delete it if there were none."
            )
        try:
            return cls._checked(parse_json(data.decode("utf-8"), "an analyst's ledger"))
        except UnicodeDecodeError:
            raise PlanError(
                f"cannot use {path}: this is not an analyst's ledger, because it is not a "
                "text file."
            ) from None
        except InputError as error:
            raise PlanError(f"cannot use {path}: {error}") from None

    @classmethod
    def _checked(cls, content: Any) -> LedgerContent:
        named = content.get("format") if isinstance(content, dict) else None
        if named != BUDGET_FORMAT:
            raise PlanError(
                f"this is not an analyst's ledger: its format is {named!r}, not {BUDGET_FORMAT!r}."
            )
        if content.get("checksum") != content_digest(
            {name: value for name, value in content.items() if name != "checksum"}
        ):
            raise PlanError(
                "its checksum does not match its content: the ledger was edited or "
                "damaged; restore it from a copy."
            )
        tasks = content.get("tasks")
        releases = content.get("releases")
        if (
            not isinstance(tasks, dict)
            or not isinstance(releases, list)
            or not all(isinstance(row, dict) for row in releases)
        ):
            raise PlanError(
                "this ledger is damaged: it has no tasks or no releases; restore it from a copy."
            )
        noted = tuple(RecordedRelease(**row) for row in releases)
        if any(row.task not in tasks or row.round < 1 for row in noted):
            raise PlanError(
                "this ledger is damaged: the task of a release is missing in it; "
                "restore it from a copy."
            )
        return cls(tasks, noted)

    def to_json(self) -> str:
        content = {
            "format": BUDGET_FORMAT,
            "tasks": self.tasks,
            "releases": [row.model_dump() for row in self.releases],
        }
        return json.dumps({**content, "checksum": content_digest(content)}, indent=1)

    def task(self, digest: str) -> Task:
        """Return the task of this digest; raises if the stored task has another digest."""
        task = Task.from_json(json.dumps(self.tasks[digest]))
        if task.digest != digest:
            raise PlanError(
                "this ledger is damaged: a task is stored under the digest of another; "
                "restore it from a copy."
            )
        return task

    def of(self, task: str, people: str) -> list[RecordedRelease]:
        """Return the releases of a task that count for a group.

        These are the group's own releases and those about everybody; for everybody, all releases.
        """
        return [
            row
            for row in self.releases
            if row.task == task and (EVERYBODY in (people, row.people) or row.people == people)
        ]

    def released(self, task: str, people: str) -> int:
        """Largest number of releases of a task that one member of the group can be in.

        Named groups have no members in common.
        """
        counts: dict[str, int] = {}
        for row in self.of(task, people):
            counts[row.people] = counts.get(row.people, 0) + 1
        return counts.pop(EVERYBODY, 0) + max(counts.values(), default=0)

    def free_round(self, task: Task, people: str) -> int | None:
        """Return the first planned round that was not released, or None."""
        taken = {row.round for row in self.of(task.digest, people)}
        return next((round for round in range(1, task.rounds + 1) if round not in taken), None)


class OpenLedger:
    """A locked ledger: what is checked here stays true until the release is recorded."""

    def __init__(self, path: Path, notes: LedgerContent) -> None:
        self.path = path
        self.notes = notes

    def round_for(self, task: Task, people: str = EVERYBODY, round: int | None = None) -> int:
        """Return the round to release: the first free one, or `round` if it is free.

        Raises:
            InputError: if there is none; the message says what another round would cost.
        """
        self._check_name(people)
        if round is None:
            free = self.notes.free_round(task, people)
            if free is None:
                raise self._no_round_left(task, people)
            return free
        if round > task.rounds:
            raise InputError(f"{extra_rounds_text(task, round)} {_more_rounds(task)}")
        task.batch(round)
        taken = next(
            (row for row in self.notes.of(task.digest, people) if row.round == round), None
        )
        if taken is not None:
            raise self._round_taken(task, people, taken)
        return round

    def noted(self, task: Task, shuffled: Shuffled, people: str = EVERYBODY) -> bool:
        """Whether this release is already recorded, so that it costs nothing more.

        Raises:
            InputError: if its round was released with other data or about another group.
            PlanError: if one of its batches was part of another release.
        """
        new = RecordedRelease.of(shuffled, people, raw_values_seen=False)
        for row in self.notes.releases:
            if row.task == task.digest and row.is_same_release(new):
                if row.people != people:
                    raise InputError(
                        f"{self.path} says that this batch was released about {row.people!r} "
                        f"{row.told}; give {argument('people', row.people)}."
                    )
                return True
        self._check_new(task, new)
        self.round_for(task, people, new.round)
        return False

    def _check_name(self, people: str) -> None:
        """Raise if the ledger has a group of almost the same name.

        Groups are assumed to have no members in common, so a typing error would undercount
        releases.
        """
        known = next(
            (
                row.people
                for row in self.notes.releases
                if row.people != people and _normalized_name(row.people) == _normalized_name(people)
            ),
            None,
        )
        if known is not None:
            raise InputError(
                f"{self.path} has a group {known!r}, and {people!r} is almost the same name; "
                f"give {argument('people', known)} for the same people, "
                "or another name for others."
            )

    def _check_new(self, task: Task, new: RecordedRelease) -> None:
        """Raise if one of its batches was part of an earlier release."""
        for row in self.notes.releases:
            overlap = _count_common_ids(row.ids, new.ids)
            if overlap:
                raise PlanError(
                    f"{overlap:,} of the {new.batches:,} batches of reports in this one "
                    f"were in the release of round {row.round} "
                    f"{row.told}, as {self.path} says. {_what_overlaps_cost(task)} "
                    "Nobody's report may count twice: shuffle the new "
                    "reports without those."
                )

    def _round_taken(self, task: Task, people: str, taken: RecordedRelease) -> InputError:
        released = self.notes.released(task.digest, people)
        ledger_text = f"{self.path} says that round {taken.round} was released {taken.told}."
        free = self.notes.free_round(task, people)
        if free is None:
            return InputError(
                f"{ledger_text} {extra_rounds_text(task, max(released, task.rounds) + 1)} "
                f"{_more_rounds(task)}"
            )
        task.verify()
        spent = TaskCost(task, released + 1).price
        return InputError(
            f"{ledger_text} Another batch is another round, the {ordinal(released + 1)} "
            f"release of {task.rounds} that are planned: epsilon "
            f"{format_epsilon(spent.epsilon)} of {format_epsilon(task.guarantee.epsilon)} would "
            "be spent. "
            f"Use {argument('round', free)}; reports must be randomized for the round that they "
            "are released in."
        )

    def _no_round_left(self, task: Task, people: str) -> InputError:
        rows = self.notes.of(task.digest, people)
        last = rows[-1]
        count = max(self.notes.released(task.digest, people), task.rounds) + 1
        ledger_text = (
            f"{self.path} says that round {last.round} was released {last.told}, and none of "
            "the planned rounds is left."
        )
        return InputError(f"{ledger_text} {extra_rounds_text(task, count)} {_more_rounds(task)}")

    def record(
        self,
        task: Task,
        shuffled: Shuffled,
        people: str = EVERYBODY,
        *,
        raw_values_seen: bool = False,
    ) -> None:
        """Write the release to the file, unless it is already recorded."""
        if self.noted(task, shuffled, people):
            return
        new = RecordedRelease.of(shuffled, people, raw_values_seen=raw_values_seen)
        tasks = (
            self.notes.tasks
            if task.digest in self.notes.tasks
            else {**self.notes.tasks, task.digest: json.loads(task.to_json())}
        )
        self.notes = replace(self.notes, tasks=tasks, releases=(*self.notes.releases, new))
        try:
            write_text(self.path, self.notes.to_json() + "\n")
        except (OSError, InputError) as error:
            raise _write_error(self.path, str(error).rstrip(".")) from None


def find_ledgers(folder: Path, task: str) -> list[Path]:
    """Return the analyst's ledgers in a folder that record releases of this task."""
    ledgers = []
    for path in sorted(folder.glob("*.ledger")):
        content = read_bytes(path) if path.is_file() else b""
        if BUDGET_FORMAT.encode() in content[:200] and task.encode() in content:
            ledgers += (
                [path] if any(row.task == task for row in LedgerContent.read(path).releases) else []
            )
    return ledgers


class Budget:
    """The analyst's ledger (`releases.ledger`, next to the plan), which records every release."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def beside(cls, plan_file: str | Path, task: Task | None = None) -> Budget:
        """Return the ledger of a plan, task or collection: `releases.ledger` in the same folder.

        If `releases.ledger` has no release of the task but another ledger in the folder has one,
        return that ledger, so that earlier records are continued.
        """
        file = Path(plan_file)
        if written_in_place(file):
            raise InputError(
                f"{file} is not a file in a folder, so no ledger can lie beside it; name "
                "one with --ledger."
            )
        ledger = file.with_name(RELEASES_LEDGER)
        digest = task.digest if task is not None else _digest_in(file)
        known = find_ledgers(file.parent, digest) if digest else []
        if not known or ledger in known:
            return cls(ledger)
        named_after_it = file.with_suffix(".ledger")
        return cls(named_after_it if named_after_it in known else known[0])

    @contextmanager
    def opened(self, seconds: float = 30.0) -> Iterator[OpenLedger]:
        """Open the ledger for writing; waits up to `seconds` for other processes, then raises."""
        if written_in_place(self.path):
            raise InputError(f"the ledger {self.path} must be a file; {LEDGER_REMEDY}.")
        LedgerContent.read(self.path)  # rejects other files before a lock file is created
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path, seconds))
            except OSError as error:
                raise _write_error(self.path, error.strerror or str(error)) from None
            yield OpenLedger(self.path, LedgerContent.read(self.path))

    @property
    def notes(self) -> LedgerContent:
        """The current content of the file."""
        return LedgerContent.read(self.path)

    @property
    def releases(self) -> tuple[RecordedRelease, ...]:
        return self.notes.releases

    def next_round(self, task: Task, people: str = EVERYBODY) -> int:
        """Return the first planned round that was not released; raises if there is none."""
        return OpenLedger(self.path, self.notes).round_for(task, validate_group_name(people))

    def note(self, release: Release, people: str = EVERYBODY) -> None:
        """Record a release; recording the same release again changes nothing.

        Raises:
            InputError: if its round was already released; the message says what that would cost.
            PlanError: if some of its reports were released before.
        """
        with self.opened() as ledger:
            ledger.record(
                release.task,
                release.shuffled,
                validate_group_name(people),
                raw_values_seen=release.raw_values_seen,
            )

    def together(self, people: str = EVERYBODY) -> JointCost:
        """Compute the cost of all releases about a group, per task and jointly.

        For everybody: the cost to people who are in none of the named groups.
        """
        return joint_cost(spendings([self.notes], validate_group_name(people)))

    def __repr__(self) -> str:
        return f"Budget({str(self.path)!r})"


def _digest_in(file: Path) -> str:
    """Return the digest stated in a plan or task file; empty if there is no such file."""
    if not file.exists():
        return ""
    data = parse_json(read_bytes(file).decode("utf-8", "replace"), "a plan or a task")
    return str(data.get("digest", "")) if isinstance(data, dict) else ""


def spendings(ledgers: Sequence[LedgerContent], people: str) -> list[TaskCost]:
    """Count the rounds of each task that a member of the group is in, over several ledgers.

    A release that is recorded in two ledgers counts once.
    """
    merged = LedgerContent({}, ())
    for notes in ledgers:
        # A release counts if any of the ledgers records it for this group.
        mine = [row for row in notes.releases if row.people in (people, EVERYBODY)]
        new = [
            row
            for row in mine
            if not any(
                row.task == known.task and row.is_same_release(known) for known in merged.releases
            )
        ]
        merged = LedgerContent({**merged.tasks, **notes.tasks}, (*merged.releases, *new))
    counted = Counter(row.task for row in merged.releases)
    seeded = Counter(row.task for row in merged.releases if row.unsafe_seeded)
    return [
        TaskCost(merged.task(digest), counted[digest], seeded[digest])
        for digest in merged.tasks
        if counted[digest]
    ]


def ledger_groups(ledgers: Iterable[LedgerContent]) -> list[str]:
    """Return everybody, then the named groups in alphabetical order."""
    named = sorted({row.people for notes in ledgers for row in notes.releases} - {EVERYBODY})
    return [EVERYBODY, *named]


def validate_group_name(name: str) -> str:
    """Return the name of a group with normalized spaces and Unicode; raises if it is invalid."""
    if (
        not isinstance(name, str)
        or not name.strip()
        or not name.isprintable()
        or len(name) > MAX_NAME_LENGTH
    ):
        raise InputError(
            f"the name of a group of people must have 1 to {MAX_NAME_LENGTH} printable "
            f"characters, got {name!r:.80}."
        )
    tidy = unicodedata.normalize("NFC", " ".join(name.split()))
    if tidy != EVERYBODY and _normalized_name(tidy) == _normalized_name(EVERYBODY):
        raise InputError(
            f"{tidy!r} can be mistaken for {EVERYBODY!r}, whose releases count for every "
            f"group; give {argument('people', EVERYBODY)}."
        )
    return tidy


def _normalized_name(name: str) -> str:
    """Normalize a name so that names that a person would confuse become equal."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).replace(
        " ", ""
    )


def extra_rounds_text(task: Task, rounds: int) -> str:
    """Say what `rounds` rounds would cost, which are more than were planned."""
    task.verify()
    claimed = task.guarantee
    price = TaskCost(task, rounds).price
    unit = f" {claimed.unit}" if claimed.unit else ""
    delta = f"delta {format_delta(price.delta)}" if price.delta > 0.0 else "with certainty"
    if price.delta > claimed.delta:
        delta += f" instead of {format_delta(claimed.delta)}"
    plan = "a one-round plan" if task.rounds == 1 else f"a {task.rounds}-round plan"
    return (
        f"{article(rounds)} {ordinal(rounds)} round of {plan} would make it epsilon "
        f"{format_epsilon(price.epsilon)} instead of "
        f"{format_epsilon(claimed.epsilon)} ({delta}, at a distance of "
        f"{format_distance(claimed.distance)}{unit})."
    )


def _more_rounds(task: Task) -> str:
    return (
        f"Plan again with more {argument('rounds')} (what was released adds up with that); if "
        "these are "
        "other people than in the earlier rounds, count them in a separate ledger, or name "
        f"all groups with {argument('people')} from the first round on."
    )


def _what_overlaps_cost(task: Task) -> str:
    """Explain why overlapping batches are not rounds: their noise is not independent."""
    if task.protocol.trusted == "nobody":
        return "Every report hides its person by itself, but it would count in two rounds."
    alone = task.if_shuffler_colludes
    return (
        "One sum can be subtracted from the other, down to single reports, so that nothing "
        "is left but what each report hides by itself: "
        f"epsilon {format_epsilon(alone.epsilon)} instead of "
        f"{format_epsilon(task.guarantee.epsilon)}."
    )


def _count_common_ids(left: bytes, right: bytes) -> int:
    if not left or not right:
        return 0
    seen = SeenIds()
    seen.new(np.frombuffer(left, dtype=np.uint8).reshape(-1, ID_BYTES))
    return int(
        np.count_nonzero(~seen.new(np.frombuffer(right, dtype=np.uint8).reshape(-1, ID_BYTES)))
    )


def _write_error(path: Path, why: str) -> InputError:
    return InputError(
        f"cannot write the ledger {path}, which records every release ({why}); {LEDGER_REMEDY}."
    )


def ordinal(number: int) -> str:
    """Format an ordinal: 1st, 2nd, 3rd, 4th, ... 11th, ... 21st."""
    ending = (
        "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number:,}{ending}"


def article(number: int) -> str:
    """Return the article of an ordinal: An 8th, An 11th, An 18th, An 80th, An 8,000th."""
    leading = f"{number:,}".split(",")[0]
    return "An" if leading.startswith("8") or leading in ("11", "18") else "A"
