"""The public part of a plan: what clients, the shuffler and the analyst need, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from metricshuffle.accounting.user_items.user_privacy import full_replacement_sentence
from metricshuffle.data.rows import CoordinateKind, PerUser
from metricshuffle.data.value_parts import join_parts, parts_of
from metricshuffle.display import HtmlRepr
from metricshuffle.errors import BatchTooSmall, ConditionError, InputError, NotCertified, PlanError
from metricshuffle.files import read_text, write_text
from metricshuffle.models import StoredModel, Whole, content_digest
from metricshuffle.numerics.rounding import format_delta, format_epsilon, round_up
from metricshuffle.privacy.guarantee import Guarantee, protects_no_less
from metricshuffle.privacy.target import Honest, Target, checked_users, honest_count
from metricshuffle.protocols.protocol import AnyProtocol, Protocol, Reports
from metricshuffle.protocols.tally import ID_BYTES, Batch, Shuffled, Tally
from metricshuffle.queries.query import AnyQuery, Query
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.collection_summary import Collected
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.shuffle import Ledger, Shuffle
from metricshuffle.tasks.value_reading import Reading
from metricshuffle.tasks.wording import Question, Title, normalize_question, normalize_title, wording_lines

TASK_FORMAT = "metricshuffle-task/1"
# A claimed epsilon may be off by this much (relative): decimals that were rounded to binary.
RELATIVE_TOLERANCE = 1e-9
# Letters of a unit or of the name of a protocol, which are printed beside promises.
MAX_WORD_LENGTH = 60
# Of messages that are added up at once, about, where one machine holds the raw values.
MESSAGE_BYTES_PER_PART = 2**26
# Tasks whose content was found to match their digest, by identity (a copy is another one): a table of a million distances takes a while,
# and a plan or a release validates the task that it is given again.
_digest_checked: WeakValueDictionary[int, Task] = WeakValueDictionary()
# Digests of tasks that were verified, the last ones: whoever loads, runs and reports a task computes its guarantees once.
MAX_VERIFIED_DIGESTS = 1000
_verified_digests: dict[str, None] = {}


def new_batch_id() -> bytes:
    """Random, from the operating system even where reports are seeded: two batches never share one."""
    return Randomness.system().words(ID_BYTES // 8).tobytes()


class Task(HtmlRepr, StoredModel):
    """Query, protocol, minimum, rounds and both guarantees. The digest names it and catches accidents; `verify` needs no trust."""

    stored_as: ClassVar[str] = "a task"
    format: Literal["metricshuffle-task/1"] = "metricshuffle-task/1"
    title: Title | None = None
    question: Question | None = None
    query: AnyQuery
    protocol: AnyProtocol
    users: Whole
    honest: Whole
    rounds: Whole = 1
    guarantee: Guarantee
    if_shuffler_colludes: Guarantee
    digest: str = ""

    @model_validator(mode="after")
    def _check_digest(self) -> Self:
        if _digest_checked.get(id(self)) is self:
            return self
        if not 1 <= self.honest <= self.users or self.rounds < 1:
            raise ValueError(f"it counts on {self.honest} honest of {self.users} users in {self.rounds} rounds, which cannot be")
        expected = content_digest(self.model_dump(mode="json", exclude={"digest"}))
        if not self.digest:
            object.__setattr__(self, "digest", expected)
        elif self.digest != expected:
            raise ValueError("its digest does not match its content: the file was edited or damaged; ask for it again")
        _digest_checked[id(self)] = self
        return self

    @model_serializer(mode="wrap")
    def _without_missing_words(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A title or a question that is missing is left out, so that tasks without any keep their digest."""
        return {name: value for name, value in dump(self).items() if value is not None or name not in ("title", "question")}

    @classmethod
    def of(
        cls, query: Query, protocol: Protocol, target: Target, users: int, honest: Honest = None, rounds: int = 1, *,
        title: str | None = None, question: str | None = None,
    ) -> Self:  # fmt: skip
        """The task of a protocol of one's own making, with the guarantees it has; refused if it does not keep the target."""
        counted_on = honest_count(honest, checked_users(users))
        task = cls(
            title=normalize_title(title),
            question=normalize_question(question),
            query=query,
            protocol=protocol,
            users=users,
            honest=counted_on,
            rounds=rounds,
            guarantee=protocol.guarantee(query, target, counted_on, rounds),
            if_shuffler_colludes=protocol.alone(query, target, rounds),
        )
        task.verify()
        return task

    @classmethod
    def check_stored(cls, data: Any) -> None:
        named = data.get("format") if isinstance(data, dict) else None
        if named != TASK_FORMAT:
            raise PlanError(f"this is not a task: its format is {named!r}, not {TASK_FORMAT!r}.")
        if not data.get("digest"):
            raise PlanError("this task has no digest; ask for it again.")
        # As it stands in the file, the sentences for readers included, which are made anew from the numbers afterwards.
        if data["digest"] != content_digest({name: value for name, value in data.items() if name != "digest"}):
            raise PlanError("its digest does not match its content: the file was edited or damaged; ask for it again.")

    def reworded(self, title: str | None = None, question: str | None = None) -> Self:
        """The same with another title and question, or with none: another task, with a digest of its own."""
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "digest"}
        return type(self)(**fields | {"title": normalize_title(title), "question": normalize_question(question)})

    def save(self, path: str | Path) -> None:
        write_text(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The task in a file, verified; `from_json` reads one without believing or verifying it."""
        task = cls.from_json(read_text(path))
        task.verify_once()
        return task

    @property
    def minimum(self) -> int:
        """The smallest batch the guarantee covers."""
        return self.honest if self.protocol.trusted in ("shuffler", "aggregator") else 1

    @property
    def target(self) -> Target:
        """What the guarantee promises, as a target."""
        claimed = self.guarantee
        return Target(claimed.epsilon, claimed.delta, claimed.distance, claimed.shape)

    def verify(self) -> None:
        """Recompute both guarantees from the mechanism; raise if the task claims more than is true.

        Whoever receives a task need not believe it: the noise that a report will carry is in the protocol, and what that hides
        is computed here again, at every distance up to the stated one.
        """
        claimed, protocol, query = self.guarantee, self.protocol, self.query
        if not f"{query} {protocol.name}".isprintable() or max(len(query.unit), len(protocol.name)) > MAX_WORD_LENGTH:
            raise NotCertified(
                "the words of this task could pass for something else where they are printed: a unit, a label or a name has line ends, "
                f"control characters or more than {MAX_WORD_LENGTH} letters; do not take part."
            )
        try:
            with np.errstate(all="ignore"):  # it may hold any numbers; what comes out as none is not kept
                query.check_distance(claimed.distance)
                query.check_units()
                protocol.check(query)
                protocol.check_people(query, self.users, self.users)
                protocol.check_size(self.honest)
                account = protocol.account(query, self.target, self.honest, self.rounds)
                true = protocol.guarantee(query, self.target, self.honest, self.rounds, account)
                is_kept = account.kept
                delta = max(self.target.delta, self.if_shuffler_colludes.delta)
                alone = protocol.alone(query, self.target.with_delta(delta), self.rounds) if is_kept else true
        except (ConditionError, NotCertified, ValueError, ArithmeticError, TypeError) as error:
            # What a received task makes the arithmetic stumble over is not certified either.
            raise NotCertified(f"the guarantee of this task cannot be certified: {error}") from None
        if not is_kept:
            raise NotCertified(
                f"this task claims more than is true: epsilon {format_epsilon(claimed.epsilon)} with delta "
                f"{format_delta(claimed.delta)} at "
                f"distance {claimed.distance:g} is not what its noise gives; do not take part."
            )
        self._check_claim(claimed, true, claimed.delta < true.delta * (1.0 - RELATIVE_TOLERANCE))
        less = alone.epsilon > self.if_shuffler_colludes.epsilon * (
            1.0 + RELATIVE_TOLERANCE
        ) or self.if_shuffler_colludes.delta < alone.delta * (1.0 - RELATIVE_TOLERANCE)
        self._check_claim(self.if_shuffler_colludes, alone, less)
        if _digest_checked.get(id(self)) is self:  # (its digest stands for its content)
            _verified_digests.pop(self.digest, None)
            _verified_digests[self.digest] = None
            if len(_verified_digests) > MAX_VERIFIED_DIGESTS:
                del _verified_digests[next(iter(_verified_digests))]

    def verify_once(self) -> None:
        """`verify`, unless a task of the same content was verified before: what everything calls that prints a promise from a file."""
        if self.digest not in _verified_digests or _digest_checked.get(id(self)) is not self:
            self.verify()

    @cached_property
    def full_replacement(self) -> str:
        """What it costs to replace all of one user's items, in a sentence: at the same rate, if that is certified so far."""
        claimed, across = self.guarantee, self.query.diameter
        if claimed.shape == "linear" and claimed.distance < across:
            epsilon = round_up(claimed.epsilon * (across / claimed.distance), 4)
            if self._is_kept(epsilon, claimed.delta, across):  # else what follows from the promise by chaining remains
                claimed = claimed.model_copy(update={"epsilon": epsilon, "distance": across})
        return full_replacement_sentence(claimed, across)

    def _is_kept(self, epsilon: float, delta: float, distance: float) -> bool:
        """Whether a linear promise is certified; what cannot be is not."""
        try:
            return self.protocol.account(self.query, Target(epsilon, delta, distance), self.honest, self.rounds).kept
        except (ConditionError, NotCertified, InputError):
            return False

    def _check_claim(self, claimed: Guarantee, true: Guarantee, more: bool) -> None:
        """Raise if the claim is stronger, or about something else, than what was computed."""
        fields = ("trust", "rounds", "unit", "between", "items", "bound")
        differ = [name for name in fields if getattr(claimed, name) != getattr(true, name)]
        if claimed.distance > true.distance or claimed.shape != true.shape:
            differ.append("distance")
        if more or not protects_no_less(true.protects, claimed.protects) or differ:
            about = f" ({', '.join(differ)})" if differ else ""
            raise NotCertified(f"this task claims more than is true{about}. It says: {claimed} True is: {true}")

    # The roles

    def batch(self, round: int = 1, *, seeded: bool = False) -> Batch:
        if isinstance(round, bool) or not isinstance(round, int) or not 1 <= round <= self.rounds:
            planned = "one round" if self.rounds == 1 else f"{self.rounds} rounds"
            raise InputError(f"round must be a whole number from 1 to {self.rounds}, got {round!r}: the promise covers {planned}.")
        return Batch(self.digest, round, seeded)

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
        self.check_sent()
        parts = parts_of(self.query, values, column=column, user_column=user_column, per_user=per_user, coordinates=coordinates,
                         drop_missing=drop_missing, drop_outside=drop_outside, clamp=clamp)  # fmt: skip
        return self._reports(join_parts(parts), Randomness.system() if randomness is None else randomness, clamp, round)

    def _reports(self, values: Any, source: Randomness, clamp: bool, round: int) -> Reports:
        """One report for each of the values, which are as the query takes them."""
        self.check_sent()
        batch = self.batch(round, seeded=source.unsafe_seeded)
        messages = self.protocol.messages(self.query.inputs(values, self.protocol.step, clamp=clamp), source)
        return Reports(batch, messages, new_batch_id())

    def check_sent(self) -> None:
        """Raise if clients of this task send nothing."""
        if self.protocol.trusted == "curator":
            raise PlanError(
                "this plan trusts a curator, who adds noise once to everybody's values together, so there is nothing to randomize at "
                "home: hand the values to the curator, who calls run; or plan with less trust."
            )

    def randomized(
        self, parts: Iterable[Any], randomness: Randomness | None = None, *, clamp: bool = False, round: int = 1
    ) -> Iterator[Reports]:
        """Clients' reports on values that come in parts, as parts of one batch."""
        source, batch_id, first = Randomness.system() if randomness is None else randomness, new_batch_id(), 0
        for values in parts:
            reports = self._reports(values, source, clamp, round)
            yield replace(reports, batch_id=batch_id, first=first)
            first += len(reports)

    def tally(self, data: bytes | None = None, *, round: int = 1) -> Tally:
        """An empty tally, or the one in bytes if it is of this task."""
        empty = self.protocol.tally(self.batch(round))
        if data is None:
            return empty
        stored = Tally.from_bytes(data)
        self._check_sums(stored)
        mine = self.protocol.tally(stored.batch)
        return mine.merge(stored)

    def read_shuffled(self, data: bytes) -> Shuffled:
        """What a shuffler wrote, if it is of this task."""
        stored = Shuffled.from_bytes(data)
        self._check_sums(stored)
        return stored

    def _check_sums(self, stored: Tally | Shuffled) -> None:
        self.batch(stored.batch.round).check_same(stored.batch, f"{stored.what} was made")
        if stored.modulus != self.protocol.modulus:
            raise PlanError(f"{stored.what} has another modulus than this task's protocol; it was made by something else.")
        fractions = self.protocol.trusted == "curator" and isinstance(stored, Tally) and self.query.items is not None
        if any(len(row) != self.protocol.row or (key != 0 and not fractions) for key, row in stored.sums.items()):
            raise PlanError(f"{stored.what} of this task has rows of {self.protocol.row:,} sums; this one has others.")

    def shuffle(
        self, reports: Reports | Iterable[Reports], randomness: Randomness | None = None, *, ledger: Ledger | None = None
    ) -> Shuffled:
        """Shuffler (aggregator): what the analyst may see. A batch below the minimum, or one that was counted before, is refused.

        Reports may come in parts and are added up as they come, so that memory stays bounded.
        """
        if not isinstance(reports, Reports | Iterable):
            raise InputError(f"shuffle needs Reports, got {type(reports).__name__}.")
        shuffling = Shuffle(self.protocol, self.digest, ledger)
        for batch in [reports] if isinstance(reports, Reports) else reports:
            self.batch(shuffling.add(batch))
        shuffled = self.publish(self.empty_or(shuffling), randomness, batches=shuffling.batches)
        if ledger is not None:
            ledger.record(self.digest, shuffling.batches)
        return shuffled

    def empty_or(self, shuffling: Shuffle) -> Tally:
        """What a shuffle has added up so far."""
        return self.tally() if shuffling.tally is None else shuffling.tally

    def publish(self, tally: Tally, randomness: Randomness | None = None, *, batches: Iterable[bytes] = ()) -> Shuffled:
        """What is let go of a tally, after the last merge; a curator adds the noise here. Refuses too few people.

        `batches` are the ids of the batches of reports in it.
        """
        if not isinstance(tally, Tally):
            raise InputError(f"publish needs a Tally, got {type(tally).__name__}.")
        self._check_sums(tally)
        self.check_batch(tally.people)
        source = Randomness.system() if randomness is None else randomness
        batch = Batch(
            tally.batch.task, tally.batch.round, tally.batch.seeded or (self.protocol.trusted == "curator" and source.unsafe_seeded)
        )
        sums = self.protocol.published(self.query, tally, source)
        return Shuffled(batch, tally.people, tally.messages, sums, tally.modulus, batches=tuple(batches))

    def check_batch(self, people: int) -> None:
        """Raise unless the guarantee and the protocol cover a batch of so many people."""
        if people < max(self.minimum, 1):
            raise BatchTooSmall(
                f"the batch has {people:,} report{'s' * (people != 1)}, but the guarantee counts on at least "
                f"{max(self.minimum, 1):,} honest ones; wait for more reports, or plan again counting on "
                f"{max(people, 1):,} honest ones and let people randomize again, which costs them a second round: "
                "what the first reports give away adds up with it."
            )
        self.protocol.check_people(self.query, people, self.users)

    def estimate(
        self, shuffled: Shuffled, *, raw_values_seen: bool = False, expected_error: float | None = None,
        collected: Collected | None = None, reading: Reading | None = None,
    ) -> Release:  # fmt: skip
        """Analyst: the answer with its interval and both guarantees, verified; `collected` is what arrived where sealed reports did."""
        if not isinstance(shuffled, Shuffled):
            raise InputError(f"estimate needs what shuffle() returned, got {type(shuffled).__name__}; reports must be shuffled first.")
        self.verify_once()  # a release prints what the task claims
        self._check_sums(shuffled)
        self.check_batch(shuffled.people)
        return Release.of(
            self, shuffled, raw_values_seen=raw_values_seen, expected_error=expected_error, collected=collected, reading=reading
        )

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
        round: int = 1,
    ) -> Release:
        """All roles on one machine; the release says that raw values were seen there. Values and columns as in `randomize`."""
        parts = parts_of(self.query, values, column=column, user_column=user_column, per_user=per_user, coordinates=coordinates,
                         drop_missing=drop_missing, drop_outside=drop_outside, clamp=clamp)  # fmt: skip
        tally = self.counted(parts, randomness, clamp=clamp, round=round)
        reading = Reading(clamp=clamp, drop_outside=drop_outside, drop_missing=drop_missing, per_user=per_user)
        return self.estimate(self.publish(tally, randomness, batches=[new_batch_id()]), raw_values_seen=True, reading=reading)

    def counted(self, parts: Iterable[Any], randomness: Randomness | None = None, *, clamp: bool = False, round: int = 1) -> Tally:
        """The tally of values that come in parts, whoever is trusted: what a machine that holds raw values adds up."""
        source = Randomness.system() if randomness is None else randomness
        tally = self.tally(round=round)
        for messages in self.messages(parts, source, clamp=clamp):
            tally.add(messages, seeded=source.unsafe_seeded)
        return tally

    def messages(self, parts: Iterable[Any], randomness: Randomness, *, clamp: bool = False) -> Iterator[NDArray[Any]]:
        """The messages of values that come in parts, a row a person, so many at once that memory stays bounded."""
        for values in parts:
            inputs = self.query.inputs(values, self.protocol.step, clamp=clamp)
            for part in inputs.parts(max(1, MESSAGE_BYTES_PER_PART // self.protocol.layout.size)):
                yield self.protocol.messages(part, randomness)

    def __repr__(self) -> str:
        return f"Task({self.query.title}, {self.protocol.name}, digest {self.digest[:12]})"

    def __str__(self) -> str:
        query_text = str(self.query)
        minimum_text = f"at least {self.minimum:,} report{'s' * (self.minimum != 1)} of {self.users:,}"
        lines = [
            *wording_lines(self.title, self.question),
            f"{query_text[:1].upper()}{query_text[1:]}: {self.protocol.name}, {minimum_text}.",
        ]
        if self.protocol.trusted == "nobody":
            lines.append(str(self.guarantee))
        else:
            lines += [f"If the {self.protocol.trusted} is honest: {self.guarantee}", f"If it is not: {self.if_shuffler_colludes}"]
        return "\n".join(lines)
