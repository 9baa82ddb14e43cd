"""Task: the public part of a plan, which clients, the shuffler and the analyst need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, Unpack
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from metricshuffle.accounting.user_items.user_privacy import full_replacement_sentence
from metricshuffle.data.query_values import join_parts, parts_of
from metricshuffle.data.value_reading import Reading, ReadingArguments
from metricshuffle.display import HtmlRepr
from metricshuffle.errors import (
    BatchTooSmall,
    ConditionError,
    InputError,
    NotCertified,
    PlanError,
    argument,
)
from metricshuffle.files import read_text, write_text
from metricshuffle.models import StoredModel, Whole, content_digest
from metricshuffle.numerics.rounding import format_delta, format_epsilon, round_up
from metricshuffle.privacy.guarantee import Guarantee, check_claim
from metricshuffle.privacy.target import Honest, Target, checked_users, honest_count
from metricshuffle.protocols.damage import Damage
from metricshuffle.protocols.protocol import AnyProtocol, Protocol, Reports
from metricshuffle.protocols.tally import ID_BYTES, Batch, Shuffled, Tally
from metricshuffle.queries.query import AnyQuery, Query
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.collection_summary import Collected
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.shuffle import Ledger, Shuffle
from metricshuffle.tasks.wording import (
    Question,
    Title,
    normalize_question,
    normalize_title,
    wording_lines,
)

TASK_FORMAT = "metricshuffle-task/1"
# Relative tolerance for a claimed epsilon, because decimals are rounded to binary.
RELATIVE_TOLERANCE = 1e-9
# Maximum length of a unit or a protocol name, which are printed next to guarantees.
MAX_WORD_LENGTH = 60
# Approximate bytes of messages that are added up at once, where one machine has the raw values.
MESSAGE_BYTES_PER_PART = 2**26
# Tasks whose content matches their digest, by identity (a copy is another one). A plan or a release
# validates its task again, and hashing a table of a million distances takes a while.
_digest_checked: WeakValueDictionary[int, Task] = WeakValueDictionary()
# Digests of the tasks verified last, so that loading, running and reporting a task computes its
# guarantees once.
MAX_VERIFIED_DIGESTS = 1000
_verified_digests: dict[str, None] = {}


def new_batch_id() -> bytes:
    """Random batch id, from the operating system even if reports are seeded, so never repeated."""
    return Randomness.system().words(ID_BYTES // 8).tobytes()


class Task(HtmlRepr, StoredModel):
    """Query, protocol, minimum, rounds and both guarantees.

    The digest identifies the task and detects accidental changes; `verify` recomputes the
    guarantees, so that the task need not be trusted.
    """

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
    damage: Damage | None = None
    """How far one of `users` participants who lies can move the answer; None: not claimed."""
    digest: str = ""

    @model_validator(mode="after")
    def _check_digest(self) -> Self:
        if _digest_checked.get(id(self)) is self:
            return self
        if not 1 <= self.honest <= self.users or self.rounds < 1:
            raise ValueError(
                f"honest must be in 1..users and rounds at least 1, got honest={self.honest}, "
                f"users={self.users}, rounds={self.rounds}"
            )
        expected = content_digest(self.model_dump(mode="json", exclude={"digest"}))
        if not self.digest:
            object.__setattr__(self, "digest", expected)
        elif self.digest != expected:
            raise ValueError(
                "its digest does not match its content: the file was edited or damaged; "
                "ask for it again"
            )
        _digest_checked[id(self)] = self
        return self

    @model_serializer(mode="wrap")
    def _without_missing_words(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out missing words and damage, so that tasks without any keep their digest."""
        return {
            name: value
            for name, value in dump(self).items()
            if value is not None or name not in ("title", "question", "damage")
        }

    @classmethod
    def of(
        cls,
        query: Query,
        protocol: Protocol,
        target: Target,
        users: int,
        honest: Honest = None,
        rounds: int = 1,
        *,
        title: str | None = None,
        question: str | None = None,
    ) -> Self:
        """Create the task of a custom protocol, with its guarantees.

        Raises NotCertified if it does not meet the target.
        """
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
            damage=protocol.damage(query, users),
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
        # The digest covers the content of the file, including the sentences for readers, which are
        # computed again from the numbers afterwards.
        if data["digest"] != content_digest(
            {name: value for name, value in data.items() if name != "digest"}
        ):
            raise PlanError(
                "its digest does not match its content: the file was edited or damaged; "
                "ask for it again."
            )

    def reworded(self, title: str | None = None, question: str | None = None) -> Self:
        """Copy with another title and question, or none: another task with its own digest."""
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "digest"}
        return type(self)(
            **fields | {"title": normalize_title(title), "question": normalize_question(question)}
        )

    def save(self, path: str | Path) -> None:
        write_text(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a task and verify it; `from_json` does not verify."""
        task = cls.from_json(read_text(path))
        task.verify_once()
        return task

    @property
    def minimum(self) -> int:
        """Smallest batch that the guarantee covers."""
        return self.honest if self.protocol.counts_on_honest else 1

    @property
    def target(self) -> Target:
        """Target that the guarantee states."""
        claimed = self.guarantee
        return Target(claimed.epsilon, claimed.delta, claimed.distance, claimed.shape)

    def verify(self) -> None:
        """Recompute both guarantees; raises NotCertified if the task claims more than is true.

        A received task need not be trusted: the protocol contains the noise that a report will
        have, and the guarantee is computed from it again, at every distance up to the stated one.
        """
        claimed = self.guarantee
        protocol = self.protocol
        query = self.query
        if (
            not f"{query} {protocol.name}".isprintable()
            or max(len(query.unit), len(protocol.name)) > MAX_WORD_LENGTH
        ):
            raise NotCertified(
                "the text of this task could be mistaken for something else where it is "
                "printed: a unit, a label or a name has line ends, control characters or more "
                f"than {MAX_WORD_LENGTH} letters; do not take part."
            )
        try:
            # A received task may contain any numbers; a NaN result is not certified.
            with np.errstate(all="ignore"):
                query.check_distance(claimed.distance)
                query.check_units()
                query.values_in.check_claims()
                protocol.check(query)
                protocol.check_people(query, self.users, self.users)
                protocol.check_size(self.honest)
                account = protocol.account(query, self.target, self.honest, self.rounds)
                true = protocol.guarantee(query, self.target, self.honest, self.rounds, account)
                is_kept = account.kept
                delta = max(self.target.delta, self.if_shuffler_colludes.delta)
                alone = (
                    protocol.alone(query, self.target.with_delta(delta), self.rounds)
                    if is_kept
                    else true
                )
        except (ConditionError, NotCertified, ValueError, ArithmeticError, TypeError) as error:
            # Errors that the numbers of a received task cause mean that it is not certified.
            raise NotCertified(f"the guarantee of this task cannot be certified: {error}") from None
        if not is_kept:
            raise NotCertified(
                "this task claims more than is true: epsilon "
                f"{format_epsilon(claimed.epsilon)} with delta "
                f"{format_delta(claimed.delta)} at "
                f"distance {claimed.distance:g} is not what its noise gives; do not take part."
            )
        check_claim(claimed, true, claimed.delta < true.delta * (1.0 - RELATIVE_TOLERANCE))
        less = alone.epsilon > self.if_shuffler_colludes.epsilon * (
            1.0 + RELATIVE_TOLERANCE
        ) or self.if_shuffler_colludes.delta < alone.delta * (1.0 - RELATIVE_TOLERANCE)
        check_claim(self.if_shuffler_colludes, alone, less)
        self._check_damage()
        if _digest_checked.get(id(self)) is self:  # its digest matches its content
            _verified_digests.pop(self.digest, None)
            _verified_digests[self.digest] = None
            if len(_verified_digests) > MAX_VERIFIED_DIGESTS:
                del _verified_digests[next(iter(_verified_digests))]

    def _check_damage(self) -> None:
        """Raise if participants who lie can do more than the task claims."""
        claimed = self.damage
        if claimed is None or claimed.one is None:
            return
        try:
            with np.errstate(all="ignore"):
                true = self.protocol.damage(self.query, self.users)
        except (ConditionError, NotCertified, ValueError, ArithmeticError, TypeError) as error:
            raise NotCertified(f"the damage of this task cannot be certified: {error}") from None
        if (
            true.one is None
            or claimed.one < true.one * (1.0 - RELATIVE_TOLERANCE)
            or (claimed.certified and not true.certified)
        ):
            raise NotCertified(
                "this task claims too little damage. It says: "
                f"{claimed.sentence(self.query)} True is: {true.sentence(self.query)}"
            )

    def verify_once(self) -> None:
        """Verify the task, unless one with the same content was verified before.

        Everything that prints a guarantee from a file calls it.
        """
        if self.digest not in _verified_digests or _digest_checked.get(id(self)) is not self:
            self.verify()

    @cached_property
    def full_replacement(self) -> str:
        """Sentence with the cost of replacing all items of one user.

        It uses the rate of the guarantee, if this rate is certified at the diameter.
        """
        claimed = self.guarantee
        across = self.query.diameter
        if claimed.shape == "linear" and claimed.distance < across:
            epsilon = round_up(claimed.epsilon * (across / claimed.distance), 4)
            # Otherwise the bound that follows by chaining the guarantee remains.
            if self._is_kept(epsilon, claimed.delta, across):
                claimed = claimed.model_copy(update={"epsilon": epsilon, "distance": across})
        return full_replacement_sentence(claimed, across)

    def _is_kept(self, epsilon: float, delta: float, distance: float) -> bool:
        """Return whether a linear guarantee is certified; False if it cannot be."""
        try:
            return self.protocol.account(
                self.query, Target(epsilon, delta, distance), self.honest, self.rounds
            ).kept
        except (ConditionError, NotCertified, InputError):
            return False

    # Roles

    def batch(self, round: int = 1, *, seeded: bool = False) -> Batch:
        if isinstance(round, bool) or not isinstance(round, int) or not 1 <= round <= self.rounds:
            planned = "one round" if self.rounds == 1 else f"{self.rounds} rounds"
            raise InputError(
                f"{argument('round')} must be a whole number from 1 to {self.rounds}, got "
                f"{round!r}: the promise covers {planned}."
            )
        return Batch(self.digest, round, seeded)

    def randomize(
        self,
        values: Any,
        randomness: Randomness | None = None,
        *,
        round: int = 1,
        **reading: Unpack[ReadingArguments],
    ) -> Reports:
        """Client: make one report a person. Values outside the domain are rejected by default.

        Args:
            values: list, array, or a frame or table (pandas, Polars, Arrow, a dictionary of
                columns).
            randomness: that of the operating system if left out.
            round: one of the planned rounds.
            reading: `column`, `user_column`, `per_user`, `coordinates`, `drop_missing`,
                `drop_outside` and `clamp`, see `metricshuffle.data.value_reading.ReadingArguments`.
        """
        self.check_sent()
        parts = parts_of(self.query, values, **reading)
        source = Randomness.system() if randomness is None else randomness
        return self._reports(join_parts(parts), source, reading.get("clamp", False), round)

    def _reports(self, values: Any, source: Randomness, clamp: bool, round: int) -> Reports:
        """Make one report for each of the values, which have the form that the query takes."""
        self.check_sent()
        batch = self.batch(round, seeded=source.unsafe_seeded)
        messages = self.protocol.messages(
            self.query.inputs(values, self.protocol.step, clamp=clamp), source
        )
        return Reports(batch, messages, new_batch_id())

    def check_sent(self) -> None:
        """Raise if clients of this task send nothing."""
        if self.protocol.trusted == "curator":
            raise PlanError(
                "this plan trusts a curator, who adds noise once to everybody's values "
                "together, so clients have nothing to randomize: give the values to the "
                "curator, who calls run; or plan with less trust."
            )

    def randomized(
        self,
        parts: Iterable[Any],
        randomness: Randomness | None = None,
        *,
        clamp: bool = False,
        round: int = 1,
    ) -> Iterator[Reports]:
        """Make reports from values that come in parts, as parts of one batch."""
        source = Randomness.system() if randomness is None else randomness
        batch_id = new_batch_id()
        first = 0
        for values in parts:
            reports = self._reports(values, source, clamp, round)
            yield replace(reports, batch_id=batch_id, first=first)
            first += len(reports)

    def tally(self, data: bytes | None = None, *, round: int = 1) -> Tally:
        """Return an empty tally, or read one of this task from bytes."""
        empty = self.protocol.tally(self.batch(round))
        if data is None:
            return empty
        stored = Tally.from_bytes(data)
        self._check_sums(stored)
        mine = self.protocol.tally(stored.batch)
        return mine.merge(self.protocol.current(stored))

    def read_shuffled(self, data: bytes) -> Shuffled:
        """Read the output of a shuffler; raises if it is of another task."""
        stored = Shuffled.from_bytes(data)
        self._check_sums(stored)
        return stored

    def _check_sums(self, stored: Tally | Shuffled) -> None:
        self.batch(stored.batch.round).check_same(stored.batch, f"{stored.what} was made")
        self.protocol.check_sums(self.query, stored)

    def shuffle(
        self,
        reports: Reports | Iterable[Reports],
        randomness: Randomness | None = None,
        *,
        ledger: Ledger | None = None,
    ) -> Shuffled:
        """Shuffler (or aggregator): return what the analyst may see.

        Rejects a batch below the minimum, or one that was counted before. Reports may come in parts
        and are added up on arrival, so that memory stays bounded.
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
        """Tally of a shuffle so far."""
        return self.tally() if shuffling.tally is None else shuffling.tally

    def publish(
        self, tally: Tally, randomness: Randomness | None = None, *, batches: Iterable[bytes] = ()
    ) -> Shuffled:
        """Release a tally after the last merge; a curator or shuffler that adds noise does it here.

        Raises BatchTooSmall if there are too few people. `batches` are the ids of the batches of
        reports in it.
        """
        if not isinstance(tally, Tally):
            raise InputError(f"publish needs a Tally, got {type(tally).__name__}.")
        self._check_sums(tally)
        self.check_batch(tally.people)
        source = Randomness.system() if randomness is None else randomness
        batch = Batch(
            tally.batch.task,
            tally.batch.round,
            tally.batch.seeded or (self.protocol.adds_noise and source.unsafe_seeded),
        )
        sums = self.protocol.published(self.query, self.protocol.current(tally), source)
        return Shuffled(
            batch,
            tally.people,
            tally.messages,
            sums,
            self.protocol.modulus,
            batches=tuple(batches),
            noise_sets=max(tally.noise_sets, 1),
        )

    def check_batch(self, people: int) -> None:
        """Raise unless the guarantee and the protocol cover a batch of `people`."""
        if people < max(self.minimum, 1):
            raise BatchTooSmall(
                f"the batch has {people:,} report{'s' * (people != 1)}, but the guarantee "
                f"counts on at least {max(self.minimum, 1):,} honest ones; wait for more "
                f"reports, or plan again counting on {max(people, 1):,} honest ones and let "
                "people randomize again, which costs them a second round: its epsilon adds to "
                "that of the first reports."
            )
        self.protocol.check_people(self.query, people, self.users)

    def estimate(
        self,
        shuffled: Shuffled,
        *,
        raw_values_seen: bool = False,
        expected_error: float | None = None,
        collected: Collected | None = None,
        reading: Reading | None = None,
    ) -> Release:
        """Analyst: compute the answer with its interval and both guarantees, verified.

        `collected` is the summary of a collection of sealed reports.
        """
        if not isinstance(shuffled, Shuffled):
            raise InputError(
                f"estimate needs what shuffle() returned, got {type(shuffled).__name__}; "
                "reports must be shuffled first."
            )
        self.verify_once()  # a release prints the claims of the task
        self._check_sums(shuffled)
        self.check_batch(shuffled.people)
        return Release.of(
            self,
            shuffled,
            raw_values_seen=raw_values_seen,
            expected_error=expected_error,
            collected=collected,
            reading=reading,
        )

    def run(
        self,
        values: Any,
        randomness: Randomness | None = None,
        *,
        round: int = 1,
        publisher_noise: bool = False,
        **reading: Unpack[ReadingArguments],
    ) -> Release:
        """Run all roles on one machine; the release says that raw values were seen there.

        Arguments as in `randomize`; `publisher_noise` as in `with_publisher_noise`.
        """
        summary = Reading.of(reading)
        tally = self.counted(
            parts_of(self.query, values, **reading), randomness, clamp=summary.clamp, round=round
        )
        return self.release_tally(
            tally, randomness, reading=summary, publisher_noise=publisher_noise
        )

    def with_publisher_noise(
        self, shuffled: Shuffled, randomness: Randomness | None = None
    ) -> Shuffled:
        """Add another set of dummies, so that the shuffler cannot subtract its own from a release.

        Only for `shuffler-noise`; errors become up to sqrt 2 times as large. Add it once.
        """
        self._check_sums(shuffled)
        source = Randomness.system() if randomness is None else randomness
        return self.protocol.with_publisher_noise(self.query, shuffled, source)

    def publish_seen(
        self, tally: Tally, randomness: Randomness | None = None, *, publisher_noise: bool = False
    ) -> Shuffled:
        """Publish a tally of values that were seen where they were added up."""
        shuffled = self.publish(tally, randomness, batches=[new_batch_id()])
        return self.with_publisher_noise(shuffled, randomness) if publisher_noise else shuffled

    def release_tally(
        self,
        tally: Tally,
        randomness: Randomness | None = None,
        *,
        reading: Reading | None = None,
        publisher_noise: bool = False,
    ) -> Release:
        """Publish and estimate a tally of values that were seen where they were added up."""
        shuffled = self.publish_seen(tally, randomness, publisher_noise=publisher_noise)
        return self.estimate(shuffled, raw_values_seen=True, reading=reading)

    def counted(
        self,
        parts: Iterable[Any],
        randomness: Randomness | None = None,
        *,
        clamp: bool = False,
        round: int = 1,
    ) -> Tally:
        """Tally values that come in parts, on a machine that has the raw values."""
        source = Randomness.system() if randomness is None else randomness
        tally = self.tally(round=round)
        for messages in self.messages(parts, source, clamp=clamp):
            tally.add(messages, seeded=source.unsafe_seeded)
        return tally

    def messages(
        self, parts: Iterable[Any], randomness: Randomness, *, clamp: bool = False
    ) -> Iterator[NDArray[Any]]:
        """Iterate over the messages of values that come in parts, a row a person.

        The size of each array is bounded.
        """
        for values in parts:
            inputs = self.query.inputs(values, self.protocol.step, clamp=clamp)
            for part in inputs.parts(max(1, MESSAGE_BYTES_PER_PART // self.protocol.layout.size)):
                yield self.protocol.messages(part, randomness)

    def __repr__(self) -> str:
        return f"Task({self.query.title}, {self.protocol.name}, digest {self.digest[:12]})"

    def __str__(self) -> str:
        query_text = str(self.query)
        minimum_text = (
            f"at least {self.minimum:,} report{'s' * (self.minimum != 1)} of {self.users:,}"
        )
        lines = [
            *wording_lines(self.title, self.question),
            f"{query_text[:1].upper()}{query_text[1:]}: {self.protocol.name}, {minimum_text}.",
        ]
        if self.protocol.trusted == "nobody":
            lines.append(str(self.guarantee))
        else:
            lines += [
                f"If the {self.protocol.trusted} is honest: {self.guarantee}",
                f"If it is not: {self.if_shuffler_colludes}",
            ]
            lines += filter(None, [self.protocol.warning(self.query)])
        if self.damage is not None:
            lines.append(self.damage.sentence(self.query))
        return "\n".join(lines)
