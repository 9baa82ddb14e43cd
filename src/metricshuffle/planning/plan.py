"""Target -> Plan: candidates side by side, and the task of the chosen one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from metricshuffle.data.rows import CoordinateKind, PerUser
from metricshuffle.data.value_parts import parts_of
from metricshuffle.display import Plottable
from metricshuffle.errors import InputError, PlanError
from metricshuffle.files import read_text, write_text
from metricshuffle.models import FrozenModel, Real, StoredModel, content_digest, parse_json
from metricshuffle.numerics.rounding import format_epsilon
from metricshuffle.planning.candidate import TRUST_ORDER, Candidate, allowed_candidates, enforce_known_order
from metricshuffle.planning.candidates import SkippedCandidate, calibrate_offers
from metricshuffle.planning.costs.release_ledger import EVERYBODY, Budget, validate_group_name
from metricshuffle.planning.error_simulation import other_errors
from metricshuffle.planning.setting import EncodingChoice, KindsOfPeople, Padding, Setting, ShareTransport, validate_setting
from metricshuffle.privacy.guarantee import Guarantee, Who
from metricshuffle.privacy.target import Honest, Target
from metricshuffle.protocols.protocol import Protocol, Reports
from metricshuffle.protocols.sums import Sums
from metricshuffle.protocols.tally import Shuffled
from metricshuffle.queries.query import Query
from metricshuffle.queries.result_table import Library, frame
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.shuffle import Ledger
from metricshuffle.tasks.task import Task, new_batch_id
from metricshuffle.tasks.value_reading import Reading

PLAN_FORMAT = "metricshuffle-plan/2"


class NotOffered(FrozenModel):
    """A protocol that does not apply here, and why."""

    protocol: str
    encoding: str | None
    reason: str


class Plan(Plottable, StoredModel):
    """A calibrated choice of protocol: every candidate that was compared, and the task that the three roles need."""

    stored_as: ClassVar[str] = "a plan"
    format: Literal["metricshuffle-plan/2"] = "metricshuffle-plan/2"
    target: Target
    granularity: Real = 1.0
    samples: int | None = None
    spread: KindsOfPeople = "any"
    trusted: Who
    chosen: int
    candidates: tuple[Candidate, ...]
    not_offered: tuple[NotOffered, ...] = ()
    task: Task

    @model_validator(mode="after")
    def _chosen_exists(self) -> Self:
        if not 0 <= self.chosen < len(self.candidates):
            raise ValueError(f"chosen must be the index of a candidate, got {self.chosen}")
        if (self.choice.guarantee, self.choice.fallback) != (self.task.guarantee, self.task.if_shuffler_colludes):
            raise ValueError("the chosen candidate promises something else than the task: the file was edited; make the plan again")
        return self

    @property
    def choice(self) -> Candidate:
        """The chosen candidate."""
        return self.candidates[self.chosen]

    @property
    def protocol(self) -> Protocol:
        """The protocol of the chosen candidate."""
        return self.task.protocol

    @property
    def query(self) -> Query:
        return self.task.query

    @property
    def title(self) -> str | None:
        return self.task.title

    @property
    def question(self) -> str | None:
        """What people are asked, in the planner's words."""
        return self.task.question

    @property
    def users(self) -> int:
        return self.task.users

    @property
    def honest(self) -> int:
        return self.task.honest

    @property
    def rounds(self) -> int:
        return self.task.rounds

    @property
    def digest(self) -> str:
        """That of the task: what reports and tallies are bound to."""
        return self.task.digest

    @property
    def minimum(self) -> int:
        """The smallest batch the guarantee covers."""
        return self.task.minimum

    @property
    def guarantee(self) -> Guarantee:
        return self.task.guarantee

    @property
    def if_shuffler_colludes(self) -> Guarantee:
        return self.task.if_shuffler_colludes

    # The roles, as the task has them

    def randomize(
        self,
        values: Any,
        randomness: Randomness | None = None,
        *,
        column: str | Sequence[str] | None = None,
        user_column: str | None = None,
        per_user: PerUser | None = None,
        coordinates: CoordinateKind | None = None,
        drop_missing: bool = False,
        drop_outside: bool = False,
        clamp: bool = False,
        round: int = 1,
    ) -> Reports:
        """Clients: one report a person. Values outside the domain are refused unless `clamp`.

        `values`: a list, an array, or a frame or table (pandas, Polars, Arrow, a dictionary of columns) and the name of its `column`, two
        for places. `user_column` tells whose row it is, and `per_user` what to do with several rows of one person: "mean" or "sum" of
        numbers, the "first" row, or a "sample"; `drop_missing` leaves out rows that miss a value, `drop_outside` those with one
        outside the domain; `coordinates`: what two columns are, "places" (latitude and longitude), "cells" or "points".
        """
        return self.task.randomize(
            values, randomness, column=column, user_column=user_column, per_user=per_user, coordinates=coordinates,
            drop_missing=drop_missing, drop_outside=drop_outside, clamp=clamp, round=round,
        )  # fmt: skip

    def shuffle(
        self, reports: Reports | Iterable[Reports], randomness: Randomness | None = None, *, ledger: Ledger | None = None
    ) -> Shuffled:
        """Shuffler (aggregator): what the analyst may see; refuses a batch below the minimum, and reports that come twice."""
        return self.task.shuffle(reports, randomness, ledger=ledger)

    def estimate(
        self, shuffled: Shuffled, *, raw_values_seen: bool = False, budget: Budget | None = None, people: str = EVERYBODY,
        reading: Reading | None = None,
    ) -> Release:  # fmt: skip
        """Analyst: the answer with its interval and both guarantees; noted in the `budget`, which refuses what it should not be."""
        expected = self.choice.expected_error if isinstance(shuffled, Shuffled) and shuffled.people == self.users else None
        release = self.task.estimate(shuffled, raw_values_seen=raw_values_seen, expected_error=expected, reading=reading)
        if budget is not None:
            budget.note(release, people)
        return release

    def run(
        self,
        values: Any,
        randomness: Randomness | None = None,
        *,
        column: str | Sequence[str] | None = None,
        user_column: str | None = None,
        per_user: PerUser | None = None,
        coordinates: CoordinateKind | None = None,
        drop_missing: bool = False,
        drop_outside: bool = False,
        clamp: bool = False,
        round: int | None = None,
        budget: Budget | None = None,
        people: str = EVERYBODY,
    ) -> Release:
        """All roles on one machine; the release says that raw values were seen there. Values and columns as in `randomize`.

        With a `budget` it is the next round and is noted there, else the first.
        """
        taken = parts_of(self.query, values, column=column, user_column=user_column, per_user=per_user, coordinates=coordinates,
                         drop_missing=drop_missing, drop_outside=drop_outside, clamp=clamp)  # fmt: skip

        reading = Reading(clamp=clamp, drop_outside=drop_outside, drop_missing=drop_missing, per_user=per_user)

        def released(number: int) -> Release:
            tally = self.task.counted(taken, randomness, clamp=clamp, round=number)
            shuffled = self.task.publish(tally, randomness, batches=[new_batch_id()])
            return self.estimate(shuffled, raw_values_seen=True, reading=reading)

        if budget is None:
            return released(1 if round is None else round)
        group = validate_group_name(people)
        with budget.opened() as account:
            release = released(account.round_for(self.task, group, round))
            account.record(self.task, release.shuffled, group, raw_values_seen=True)
        return release

    def check_batch(self, people: int) -> None:
        """Raise unless the guarantee and the protocol cover a batch of so many people."""
        self.task.check_batch(people)

    # Files

    def to_json(self) -> str:
        """What was asked, all candidates, and the task; only the chosen candidate keeps its mechanism."""
        return json.dumps(self._document(), indent=2)

    def _document(self) -> dict[str, Any]:
        kept_index = self.chosen if isinstance(self.protocol, Sums) else None
        left_out = {index: {"mechanism"} for index in range(len(self.candidates)) if index != kept_index}  # (some have a million numbers)
        # null where there is no bound; model_dump would leave an infinity
        stored = json.loads(self.model_dump_json(exclude={"candidates": left_out, "task": True}))
        task = json.loads(self.task.to_json())
        document = {
            "format": PLAN_FORMAT,
            "query": task["query"],
            "target": stored["target"],
            "users": self.users,
            "honest": self.honest,
            "rounds": self.rounds,
            **{name: stored[name] for name in ("granularity", "samples")},
            **({} if self.spread == "any" else {"spread": self.spread}),
            **{name: stored[name] for name in ("trusted", "chosen", "candidates", "not_offered")},
            "digest": self.digest,
            "task": task,
        }
        return {**document, "checksum": content_digest(document)}

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Undo `to_json`; a damaged or edited text is refused in words."""
        data = parse_json(text, cls.stored_as)
        named = data.get("format") if isinstance(data, dict) else None
        if named != PLAN_FORMAT:
            old = str(named).startswith("metricshuffle-") and str(named).endswith("-plan/1")
            hint = "; it was made by an earlier version, so plan again" if old else ""
            nothing = "not a plan" if str(named).startswith("metricshuffle-") else "neither a plan nor a task"
            raise PlanError(f"this is {nothing}: its format is {named!r}, not {PLAN_FORMAT!r}{hint}.")
        content = {name: value for name, value in data.items() if name != "checksum"}
        if data.get("checksum") != content_digest(content):
            raise PlanError("its checksum does not match its content: the file was edited or damaged; make the plan again.")
        fields = {name: value for name, value in content.items() if name in cls.model_fields}
        plan = super().from_json(json.dumps(fields))
        choice = plan.choice.model_copy(update={"mechanism": plan.task.protocol})
        candidates = tuple(choice if index == plan.chosen else candidate for index, candidate in enumerate(plan.candidates))
        return plan.model_copy(update={"candidates": candidates})

    def save(self, path: str | Path, task: str | Path | None = None) -> None:
        """Write the plan, and the task that travels to another file if one is named."""
        write_text(path, self.to_json() + "\n")
        if task is not None:
            self.task.save(task)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The plan in a file, with its task verified; `from_json` reads one without verifying it."""
        plan = cls.from_json(read_text(path))
        plan.task.verify_once()
        return plan

    def to_frame(self, library: Library | None = None) -> Any:
        """The candidates as a frame of "pandas", "polars" or "pyarrow", or of whichever is installed: a row each, in the table's order."""
        names = ("protocol", "encoding", "shape", "trusted", "expected_error", "standard_error", "local_epsilon", "bits_per_user",
                 "messages_per_user", "baseline")  # fmt: skip
        columns: dict[str, list[Any]] = {name: [getattr(offer, name) for offer in self.candidates] for name in names}
        promises = [offer.guarantee for offer in self.candidates]
        columns |= {name: [getattr(promise, name) for promise in promises] for name in ("epsilon", "delta", "distance")}
        return frame({"chosen": [index == self.chosen for index in range(len(self.candidates))], **columns}, library)

    def __repr__(self) -> str:
        return (
            f"Plan({self.query.title}, {self.target}, {self.users:,} users, {self.honest:,} honest: {self.choice.protocol} "
            f"of {len(self.candidates)} candidate{'s' * (len(self.candidates) != 1)})"
        )

    def __str__(self) -> str:
        from metricshuffle.planning.plan_text import plan_text

        return plan_text(self)


def plan(
    query: Query,
    target: Target,
    users: int,
    honest: Honest = None,
    *,
    rounds: int = 1,
    trusted: Who = "shuffler",
    encoding: EncodingChoice = "auto",
    padding: Padding = "clamp",
    granularity: float | None = None,
    samples: int | None = None,
    transport: ShareTransport = "shuffler",
    max_local_epsilon: float | None = None,
    max_bits: int | None = None,
    floor: bool = True,
    most_items: int | None = None,
    spread: KindsOfPeople = "any",
    protocols: Sequence[str] | None = None,
    randomizer: Randomizer | None = None,
    title: str | None = None,
    question: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """Calibrate every protocol that fits the query (or only `protocols`); choose the least expected error for the trust that is allowed.

    `honest`: how many reports can be counted on, a count or a fraction; `rounds`: how often the same people are asked, all covered
    together; `trusted`: whom a protocol may rely on, "nobody", "shuffler", "aggregator" or "curator"; `max_local_epsilon` and
    `max_bits` cap what one report gives away and how much a person sends. Sums, means and centroids: `encoding` ("unary",
    "modular"), `padding` ("clamp", "bounded"), `granularity` (values are rounded at random to it first; real numbers need it),
    `transport` of modular shares ("shuffler", "aggregator"). Users' items: `samples`, how many of hers everybody draws, where users hold
    different numbers of items, and `most_items`, how many one may hold if vectors are added up. Histograms and users' items: not `floor`:
    noisy vectors of values as they are, which a colluding shuffler can read; `spread`, what is known of how people are spread ("smooth":
    evenly or in clusters, "spiky": at few points), so that features and errors are those for such people. Histograms: `randomizer`, one
    of your own (or one that `solve` built), which is accounted for as it is, in place of all others. `title` and `question`: what people
    are asked, shown to them and on everything that is made of the plan. `progress` is called with what is being calibrated.
    """
    setting = validate_setting(
        query,
        target,
        users,
        honest,
        rounds=rounds,
        trusted=trusted,
        encoding=encoding,
        padding=padding,
        granularity=granularity,
        samples=samples,
        transport=transport,
        max_local_epsilon=max_local_epsilon,
        max_bits=max_bits,
        floor=floor,
        most_items=most_items,
        spread=spread,
        protocols=protocols,
        randomizer=randomizer,
        title=title,
        question=question,
    )
    return planned(setting, progress)


def planned(setting: Setting, progress: Callable[[str], None] | None = None) -> Plan:
    """The plan for a checked setting."""
    candidates: list[Candidate] = []
    missing: list[NotOffered] = []
    for outcome in calibrate_offers(setting, progress):
        if isinstance(outcome, SkippedCandidate):
            row = NotOffered(protocol=outcome.protocol, encoding=outcome.encoding, reason=outcome.reason)
            missing += [row] if row not in missing else []
        else:
            candidates.append(outcome)
    candidates = enforce_known_order(candidates, setting.spread)
    candidates.sort(key=lambda offer: (offer.baseline, offer.expected_error))
    chosen = choose(setting, candidates, missing)
    choice = candidates[chosen]
    if choice.mechanism is None:
        raise PlanError("the chosen candidate has no mechanism; please report this as a bug.")
    if isinstance(setting.query, UserQuery):
        others = other_errors(setting.query, choice.mechanism, setting.users, setting.samples)
        choice = candidates[chosen] = choice.model_copy(update={"other_errors": others})
    task = Task(
        title=setting.title,
        question=setting.question,
        query=setting.query,
        protocol=choice.mechanism,
        users=setting.users,
        honest=setting.honest,
        rounds=setting.rounds,
        guarantee=choice.guarantee,
        if_shuffler_colludes=choice.fallback,
    )
    return Plan(
        target=setting.target,
        granularity=setting.granularity,
        samples=setting.samples,
        spread=setting.spread,
        trusted=setting.trusted,
        chosen=chosen,
        candidates=tuple(candidates),
        not_offered=tuple(missing),
        task=task,
    )


def choose(setting: Setting, candidates: list[Candidate], missing: list[NotOffered]) -> int:
    """Index of the candidate with the least expected error among those allowed (among equals least trust, then fewest bits)."""
    usable = allowed_candidates(setting, candidates)
    if not usable:
        reasons = _reasons(missing)
        caps = [f"max_local_epsilon = {setting.max_local_epsilon:g}"] if setting.max_local_epsilon is not None else []
        caps += [f"max_bits = {setting.max_bits}"] if setting.max_bits is not None else []
        why = f"under {' and '.join(caps)}" if caps else "here"
        raise InputError(f"no protocol keeps this target {why}. {_nearest(candidates)}{f'{reasons}.' if reasons else ''}".strip())
    best = most_exact([offer for _, offer in usable])
    return next(index for index, offer in usable if offer is best)


def most_exact(offers: Sequence[Candidate]) -> Candidate:
    """That of the least expected error; among equals the one with the least trust, then the fewest bits."""
    best = min(offers, key=lambda offer: offer.expected_error)
    equal = [offer for offer in offers if offer.expected_error <= best.largest_equal]
    return min(equal, key=lambda offer: (TRUST_ORDER[offer.trusted], offer.bits_per_user, offer.expected_error))


def _nearest(candidates: list[Candidate]) -> str:
    """What would have to be allowed: the fewest bits, and the least that a report gives away, of what trusts no more than is allowed."""
    allowed = [offer for offer in candidates if not offer.baseline]
    if not allowed:
        return ""
    fewest, quietest = min(allowed, key=lambda offer: offer.bits_per_user), min(allowed, key=lambda offer: offer.local_epsilon)
    return (
        f"The least epsilon of one report that any candidate reaches here is {format_epsilon(quietest.local_epsilon)} "
        f"({quietest.protocol}), and the "
        f"fewest bits are {fewest.bits_per_user:,} ({fewest.protocol}). "
    )


def _reasons(missing: list[NotOffered]) -> str:
    """Why the first few of the protocols that do not apply do not."""
    return "; ".join(f"{row.protocol}{f' ({row.encoding})' if row.encoding else ''}: {row.reason.rstrip('.')}" for row in missing[:3])
