"""The analyst's ledger: which rounds of which tasks were released about whom, so that none is released that nobody planned for.

The shuffler keeps another one, of batches that were let go (`tasks.shuffle.Ledger`); neither can be taken for the other.
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

from metricshuffle.errors import InputError, PlanError
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
"""The group of people that nobody named. It may hold anybody, so its releases count for every group."""
RELEASES_LEDGER = "releases.ledger"
"""The ledger's name, beside the plan, the task or the collection. Earlier versions named it after the file (`plan.ledger`)."""
MAX_NAME_LENGTH = 60
LEDGER_REMEDY = "name a file in a folder that can be written with --ledger (in Python: Budget(path))"


class RecordedRelease(FrozenModel):
    """A release, as the ledger remembers it."""

    task: str
    """Digest of the task."""
    people: str
    round: Whole
    reports: Whole
    time: str
    """When it was noted, UTC."""
    raw_values_seen: bool
    unsafe_seeded: bool
    fingerprint: str
    """Of the shuffled sums: the same ones again are the same release."""
    batches: Whole
    batch_ids: str
    """Of the batches of reports, in hexadecimal, one space between two; as many as `batches`, or none where the file did not tell."""

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
        """All ids, one after the other."""
        try:
            ids = bytes.fromhex(self.batch_ids)
        except ValueError:
            ids = b"?"
        if len(ids) != ID_BYTES * self.batches:
            raise PlanError("this ledger is damaged: the ids of a release are not as many as it says; restore it from a copy.")
        return ids

    def is_same_release(self, other: RecordedRelease) -> bool:
        """Whether it is the same release: the same sums, of the same batches where both tell them."""
        return self.fingerprint == other.fingerprint and (self.ids == other.ids or not self.batches or not other.batches)

    @property
    def told(self) -> str:
        """In a sentence: when, and from how many reports."""
        return f"on {self.time.replace('T', ' at ').removesuffix('Z')} UTC from {self.reports:,} report{'s' * (self.reports != 1)}"


@dataclass(frozen=True)
class LedgerContent:
    """What stands in a ledger: the tasks by their digests, as they were written, and the releases in their order."""

    tasks: dict[str, Any]
    releases: tuple[RecordedRelease, ...]

    @classmethod
    def read(cls, path: Path) -> LedgerContent:
        """Those of a file, none if it does not exist; what was edited, or is something else, is refused in words."""
        if not path.exists():
            return cls({}, ())
        data = read_bytes(path)
        if data.startswith(SQLITE_HEADER):
            raise PlanError(
                f"{path} is a shuffler's ledger, of batches that were let go, and not an analyst's, of releases; name another file with "
                "--ledger."
            )
        if not data.strip():
            raise PlanError(
                f"cannot use {path}: it is empty, and what was noted in it is lost; restore it from a copy, or delete it if nothing was."
            )
        try:
            return cls._checked(parse_json(data.decode("utf-8"), "an analyst's ledger"))
        except UnicodeDecodeError:
            raise PlanError(f"cannot use {path}: this is not an analyst's ledger, because it is not a text file.") from None
        except InputError as error:
            raise PlanError(f"cannot use {path}: {error}") from None

    @classmethod
    def _checked(cls, content: Any) -> LedgerContent:
        named = content.get("format") if isinstance(content, dict) else None
        if named != BUDGET_FORMAT:
            raise PlanError(f"this is not an analyst's ledger: its format is {named!r}, not {BUDGET_FORMAT!r}.")
        if content.get("checksum") != content_digest({name: value for name, value in content.items() if name != "checksum"}):
            raise PlanError("its checksum does not match its content: the ledger was edited or damaged; restore it from a copy.")
        tasks, releases = content.get("tasks"), content.get("releases")
        if not isinstance(tasks, dict) or not isinstance(releases, list) or not all(isinstance(row, dict) for row in releases):
            raise PlanError("this ledger is damaged: it has no tasks or no releases; restore it from a copy.")
        noted = tuple(RecordedRelease(**row) for row in releases)
        if any(row.task not in tasks or row.round < 1 for row in noted):
            raise PlanError("this ledger is damaged: a release is of no task that stands in it; restore it from a copy.")
        return cls(tasks, noted)

    def to_json(self) -> str:
        content = {"format": BUDGET_FORMAT, "tasks": self.tasks, "releases": [row.model_dump() for row in self.releases]}
        return json.dumps({**content, "checksum": content_digest(content)}, indent=1)

    def task(self, digest: str) -> Task:
        """One of its tasks; refused if it is not the one of that digest."""
        task = Task.from_json(json.dumps(self.tasks[digest]))
        if task.digest != digest:
            raise PlanError("this ledger is damaged: a task stands under the digest of another; restore it from a copy.")
        return task

    def of(self, task: str, people: str) -> list[RecordedRelease]:
        """The releases of a task that count for a group of people: its own, and those about everybody; for everybody, those about any."""
        return [row for row in self.releases if row.task == task and (EVERYBODY in (people, row.people) or row.people == people)]

    def released(self, task: str, people: str) -> int:
        """How many releases of a task somebody of that group is in, at the most (named groups have nobody in common)."""
        counts: dict[str, int] = {}
        for row in self.of(task, people):
            counts[row.people] = counts.get(row.people, 0) + 1
        return counts.pop(EVERYBODY, 0) + max(counts.values(), default=0)

    def free_round(self, task: Task, people: str) -> int | None:
        """The first planned round that was not released; None if there is none."""
        taken = {row.round for row in self.of(task.digest, people)}
        return next((round for round in range(1, task.rounds + 1) if round not in taken), None)


class OpenLedger:
    """A ledger while nobody else can write it: what is checked here stays true until it is recorded."""

    def __init__(self, path: Path, notes: LedgerContent) -> None:
        self.path, self.notes = path, notes

    def round_for(self, task: Task, people: str = EVERYBODY, round: int | None = None) -> int:
        """The round to release: the first that is free, or `round` if that is; otherwise refused with what it would cost."""
        self._check_name(people)
        if round is None:
            free = self.notes.free_round(task, people)
            if free is None:
                raise self._no_round_left(task, people)
            return free
        if round > task.rounds:
            raise InputError(f"{extra_rounds_text(task, round)} {_more_rounds(task)}")
        task.batch(round)
        taken = next((row for row in self.notes.of(task.digest, people) if row.round == round), None)
        if taken is not None:
            raise self._round_taken(task, people, taken)
        return round

    def noted(self, task: Task, shuffled: Shuffled, people: str = EVERYBODY) -> bool:
        """Whether this very release was noted already, which costs nothing again; refused if anything else of it was released."""
        new = RecordedRelease.of(shuffled, people, raw_values_seen=False)
        for row in self.notes.releases:
            if row.task == task.digest and row.is_same_release(new):
                if row.people != people:
                    raise InputError(
                        f"{self.path} says that this batch was released about {row.people!r} {row.told}; give people={row.people!r}."
                    )
                return True
        self._check_new(task, new)
        self.round_for(task, people, new.round)
        return False

    def _check_name(self, people: str) -> None:
        """Raise if the ledger knows a name that is almost this one: two groups have nobody in common, and a slip would make them two."""
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
                f"{self.path} knows a group {known!r}, and {people!r} is almost the same name; give people={known!r} for the same people, "
                "or another name for others."
            )

    def _check_new(self, task: Task, new: RecordedRelease) -> None:
        """Raise if a batch of reports of this one was in an earlier release."""
        for row in self.notes.releases:
            overlap = _count_common_ids(row.ids, new.ids)
            if overlap:
                raise PlanError(
                    f"{overlap:,} of the {new.batches:,} batches of reports in this one were in the release of round {row.round} "
                    f"{row.told}, as {self.path} says. {_what_overlaps_cost(task)} Nobody's report may count twice: shuffle the new "
                    "reports without those."
                )

    def _round_taken(self, task: Task, people: str, taken: RecordedRelease) -> InputError:
        released = self.notes.released(task.digest, people)
        ledger_text = f"{self.path} says that round {taken.round} was released {taken.told}."
        free = self.notes.free_round(task, people)
        if free is None:
            return InputError(f"{ledger_text} {extra_rounds_text(task, max(released, task.rounds) + 1)} {_more_rounds(task)}")
        task.verify()
        spent = TaskCost(task, released + 1).price
        return InputError(
            f"{ledger_text} Another batch is another round, the {ordinal(released + 1)} release of {task.rounds} that are planned: epsilon "
            f"{format_epsilon(spent.epsilon)} of {format_epsilon(task.guarantee.epsilon)} would be spent. Use round={free}; "
            "reports must be "
            "randomized for the round that they are released in."
        )

    def _no_round_left(self, task: Task, people: str) -> InputError:
        rows = self.notes.of(task.digest, people)
        last, count = rows[-1], max(self.notes.released(task.digest, people), task.rounds) + 1
        ledger_text = f"{self.path} says that round {last.round} was released {last.told}, and none of the planned rounds is left."
        return InputError(f"{ledger_text} {extra_rounds_text(task, count)} {_more_rounds(task)}")

    def record(self, task: Task, shuffled: Shuffled, people: str = EVERYBODY, *, raw_values_seen: bool = False) -> None:
        """Write the release down, once."""
        if self.noted(task, shuffled, people):
            return
        new = RecordedRelease.of(shuffled, people, raw_values_seen=raw_values_seen)
        tasks = self.notes.tasks if task.digest in self.notes.tasks else {**self.notes.tasks, task.digest: json.loads(task.to_json())}
        self.notes = replace(self.notes, tasks=tasks, releases=(*self.notes.releases, new))
        try:
            write_text(self.path, self.notes.to_json() + "\n")
        except (OSError, InputError) as error:
            raise _write_error(self.path, str(error).rstrip(".")) from None


def find_ledgers(folder: Path, task: str) -> list[Path]:
    """The analyst's ledgers in a folder, whatever their names, that have releases of the task of that digest."""
    ledgers = []
    for path in sorted(folder.glob("*.ledger")):
        content = read_bytes(path) if path.is_file() else b""
        if BUDGET_FORMAT.encode() in content[:200] and task.encode() in content:
            ledgers += [path] if any(row.task == task for row in LedgerContent.read(path).releases) else []
    return ledgers


class Budget:
    """The ledger beside a plan (`releases.ledger`), in which an analyst notes every release."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def beside(cls, plan_file: str | Path, task: Task | None = None) -> Budget:
        """The ledger of a plan, a task or a collection in a file: `releases.ledger` in the same folder.

        If another ledger there has releases of that task, and `releases.ledger` has none, it is that one: what was begun is continued.
        """
        file = Path(plan_file)
        if written_in_place(file):
            raise InputError(f"no ledger lies beside {file}, which is no file in a folder; name one with --ledger.")
        ledger = file.with_name(RELEASES_LEDGER)
        digest = task.digest if task is not None else _digest_in(file)
        known = find_ledgers(file.parent, digest) if digest else []
        if not known or ledger in known:
            return cls(ledger)
        named_after_it = file.with_suffix(".ledger")
        return cls(named_after_it if named_after_it in known else known[0])

    @contextmanager
    def opened(self, seconds: float = 30.0) -> Iterator[OpenLedger]:
        """The ledger with nobody else writing it; waits for others, and says so in a sentence if that takes longer."""
        if written_in_place(self.path):
            raise InputError(f"the ledger {self.path} must be a file; {LEDGER_REMEDY}.")
        LedgerContent.read(self.path)  # what is no ledger is told before anything is written beside it
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path, seconds))
            except OSError as error:
                raise _write_error(self.path, error.strerror or str(error)) from None
            yield OpenLedger(self.path, LedgerContent.read(self.path))

    @property
    def notes(self) -> LedgerContent:
        """What stands in it now."""
        return LedgerContent.read(self.path)

    @property
    def releases(self) -> tuple[RecordedRelease, ...]:
        return self.notes.releases

    def next_round(self, task: Task, people: str = EVERYBODY) -> int:
        """The first planned round that was not released; refused if there is none."""
        return OpenLedger(self.path, self.notes).round_for(task, validate_group_name(people))

    def note(self, release: Release, people: str = EVERYBODY) -> None:
        """Note a release; refused with what it would cost if its round, or reports in it, were released before. Once is enough."""
        with self.opened() as ledger:
            ledger.record(release.task, release.shuffled, validate_group_name(people), raw_values_seen=release.raw_values_seen)

    def together(self, people: str = EVERYBODY) -> JointCost:
        """What was released about a group of people, task by task and all together; about everybody: those in no group that was named."""
        return joint_cost(spendings([self.notes], validate_group_name(people)))

    def __repr__(self) -> str:
        return f"Budget({str(self.path)!r})"


def _digest_in(file: Path) -> str:
    """The digest that a plan or a task says it has; nothing if there is no such file."""
    if not file.exists():
        return ""
    data = parse_json(read_bytes(file).decode("utf-8", "replace"), "a plan or a task")
    return str(data.get("digest", "")) if isinstance(data, dict) else ""


def spendings(ledgers: Sequence[LedgerContent], people: str) -> list[TaskCost]:
    """How many rounds of each task somebody of a group is in, over several ledgers; the same release in two of them counts once."""
    merged = LedgerContent({}, ())
    for notes in ledgers:
        # (one ledger may say that a release is about this group, and another one not: then it counts)
        mine = [row for row in notes.releases if row.people in (people, EVERYBODY)]
        new = [row for row in mine if not any(row.task == known.task and row.is_same_release(known) for known in merged.releases)]
        merged = LedgerContent({**merged.tasks, **notes.tasks}, (*merged.releases, *new))
    counted = Counter(row.task for row in merged.releases)
    seeded = Counter(row.task for row in merged.releases if row.unsafe_seeded)
    return [TaskCost(merged.task(digest), counted[digest], seeded[digest]) for digest in merged.tasks if counted[digest]]


def ledger_groups(ledgers: Iterable[LedgerContent]) -> list[str]:
    """Everybody, and then the groups that were named."""
    named = sorted({row.people for notes in ledgers for row in notes.releases} - {EVERYBODY})
    return [EVERYBODY, *named]


def validate_group_name(name: str) -> str:
    """The name of a group of people, or a sentence."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > MAX_NAME_LENGTH:
        raise InputError(f"the name of a group of people is 1 to {MAX_NAME_LENGTH} printable letters, got {name!r:.80}.")
    tidy = unicodedata.normalize("NFC", " ".join(name.split()))
    if tidy != EVERYBODY and _normalized_name(tidy) == _normalized_name(EVERYBODY):
        raise InputError(f"{tidy!r} can be taken for {EVERYBODY!r}, whose releases count for every group; give people={EVERYBODY!r}.")
    return tidy


def _normalized_name(name: str) -> str:
    """What two names have in common that a person would take for the same."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).replace(" ", "")


def extra_rounds_text(task: Task, rounds: int) -> str:
    """What so many rounds would cost, more than were planned."""
    task.verify()
    claimed, price = task.guarantee, TaskCost(task, rounds).price
    unit = f" {claimed.unit}" if claimed.unit else ""
    delta = f"delta {format_delta(price.delta)}" if price.delta > 0.0 else "with certainty"
    if price.delta > claimed.delta:
        delta += f" instead of {format_delta(claimed.delta)}"
    plan = "a one-round plan" if task.rounds == 1 else f"a {task.rounds}-round plan"
    return (
        f"{article(rounds)} {ordinal(rounds)} round of {plan} would make it epsilon {format_epsilon(price.epsilon)} instead of "
        f"{format_epsilon(claimed.epsilon)} ({delta}, at a distance of {format_distance(claimed.distance)}{unit})."
    )


def _more_rounds(task: Task) -> str:
    return (
        "Plan again with more `rounds` (what was released adds up with that); if these are other people than in the earlier rounds, keep "
        "count of them in a ledger of their own, or name all groups with `people` from the first round on."
    )


def _what_overlaps_cost(task: Task) -> str:
    """Why sums of overlapping batches are no rounds: they are not noisy independently."""
    if task.protocol.trusted == "nobody":
        return "Every report hides its person by itself, but it would count in two rounds."
    alone = task.if_shuffler_colludes
    return (
        "One sum can be subtracted from the other, down to single reports, so that nothing is left but what each report hides by itself: "
        f"epsilon {format_epsilon(alone.epsilon)} instead of {format_epsilon(task.guarantee.epsilon)}."
    )


def _count_common_ids(left: bytes, right: bytes) -> int:
    """How many ids are in both."""
    if not left or not right:
        return 0
    seen = SeenIds()
    seen.new(np.frombuffer(left, dtype=np.uint8).reshape(-1, ID_BYTES))
    return int(np.count_nonzero(~seen.new(np.frombuffer(right, dtype=np.uint8).reshape(-1, ID_BYTES))))


def _write_error(path: Path, why: str) -> InputError:
    return InputError(f"cannot write the ledger {path}, in which every release is noted ({why}); {LEDGER_REMEDY}.")


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, ... 11th, ... 21st."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def article(number: int) -> str:
    """How a sentence about an ordinal begins: an 8th, an 11th, an 18th, an 80th, an 8,000th."""
    leading = f"{number:,}".split(",")[0]
    return "An" if leading.startswith("8") or leading in ("11", "18") else "A"
