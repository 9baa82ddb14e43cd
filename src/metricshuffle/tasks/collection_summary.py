"""Summary of a collection in its release: people, shufflers, and the guarantee as it arrived.

The headline of a release remains the plan's guarantee, which counts on `honest` reports. The
additional statements here are certified for the released reports without the declared colluders,
never for the number of reports alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from metricshuffle.errors import ConditionError, InputError, NotCertified, PlanError
from metricshuffle.models import FrozenModel, Whole, content_digest
from metricshuffle.numerics.certified_search import first_certified, last_certified
from metricshuffle.privacy.guarantee import Guarantee, protects_no_less

if TYPE_CHECKING:
    from metricshuffle.tasks.task import Task

EPSILON_RELATIVE_TOLERANCE = 1e-3
"""Relative tolerance of the search for the smallest epsilon; the result was certified."""
MAX_EPSILON = 1000.0
NOT_CERTIFIED_ERRORS = (
    ConditionError,
    NotCertified,
    InputError,
    ArithmeticError,
    TypeError,
    ValueError,
)
"""Errors that the numbers of a received task may cause; they mean "not certified"."""
MAX_ADDRESS_LENGTH = 500
MAX_PARTS = 1000
LONGEST_NOTE = 1000


def is_promise_kept(task: Task, epsilon: float, honest: int, rounds: int) -> bool:
    """Return whether the task's guarantee with this epsilon is certified for `honest` reports.

    The guarantee must hold at every distance up to the stated one.
    """
    claimed = task.guarantee
    target = task.target.model_copy(update={"epsilon": epsilon})
    try:
        with np.errstate(all="ignore"):
            account = task.protocol.account(task.query, target, honest, rounds)
            # The exact law of one person's noise says nothing about several people who move as far
            # in total.
            about_as_many = protects_no_less(account.protects, claimed.protects)
            return account.delta <= claimed.delta and about_as_many and account.kept
    except NOT_CERTIFIED_ERRORS:
        return False


def guarantee_for_honest(task: Task, honest: int) -> Guarantee | None:
    """Guarantee of one round of a task with `honest` reports; None if nothing can be certified.

    If the task's guarantee does not count on other people, it is returned unchanged. Otherwise the
    result covers one round by itself, because other rounds may have had fewer people.
    """
    claimed = task.guarantee
    protocol = task.protocol
    if claimed.trust.honest_reports is None:
        return claimed
    if honest < 1:
        return None

    def is_kept(epsilon: float) -> bool:
        return is_promise_kept(task, epsilon, honest, 1)

    if is_kept(claimed.epsilon):
        epsilon = last_certified(is_kept, 0.0, claimed.epsilon, relative=EPSILON_RELATIVE_TOLERANCE)
    else:
        walked = first_certified(
            is_kept,
            claimed.epsilon * 1.1,
            MAX_EPSILON,
            step=0.1,
            failing=claimed.epsilon,
            growth=2.0,
        )
        if walked.passing >= MAX_EPSILON:
            return None
        epsilon = last_certified(is_kept, *walked, relative=EPSILON_RELATIVE_TOLERANCE)
    promise = protocol.guarantee(
        task.query, task.target.model_copy(update={"epsilon": epsilon}), honest, 1
    )
    return promise.model_copy(update={"protects": claimed.protects, "delta": claimed.delta})


class Part(FrozenModel):
    """Output of the shufflers of one collection."""

    digest: str
    """SHA-256 of the bytes of the collection."""
    output: str
    """SHA-256 of the released messages, as the shuffler publishes it."""
    people: Whole
    left_out: Whole = 0
    """Number of reports that shared a message with another one."""
    unreadable: Whole = 0
    """Number of single-message reports that could not be read; they are not in the answer."""
    replaced: Whole = 0
    """Number of messages of piles that could not be read; they count as the first part."""
    witness: str = ""
    """Address of the witness of the last shuffler; empty without one."""
    countersignature: str = ""
    """Countersignature of the witness for `output`, checked with the key in the collection."""
    clock: tuple[str, ...] = ()
    """Public notes about the shufflers' clocks, leases and databases: address and sentence."""

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out empty fields, as in files from before these fields existed."""
        written: dict[str, Any] = handler(self)
        return {
            name: value
            for name, value in written.items()
            if value or name not in ("replaced", "witness", "countersignature", "clock")
        }

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        if not all(
            text.isprintable() and len(text) <= LONGEST_NOTE
            for text in (self.witness, self.countersignature, *self.clock)
        ):
            raise ValueError(
                "its witness or a note about a clock has invalid characters, or is too long"
            )
        if any(
            len(text) != 64 or set(text) - set("0123456789abcdef")
            for text in (self.digest, self.output)
        ):
            raise ValueError("its digests must be 64 hexadecimal digits")
        if (
            min(self.left_out, self.unreadable, self.replaced) < 0
            or not self.unreadable < self.people
        ):
            raise ValueError("its numbers of people are invalid")
        return self

    @property
    def read(self) -> int:
        """Number of people in the answer."""
        return self.people - self.unreadable

    def honest_count_given(self, colluders: int) -> int:
        """Number of reports that are counted on.

        The declared colluders, who include all people whose reports cannot be read, are subtracted;
        if there are more unreadable reports than declared colluders, these reports are.
        """
        return self.people - max(colluders, self.unreadable)


class Collected(Part):
    """The reports that arrived, and their guarantee; a split has `parts` released one by one."""

    hops: tuple[str, ...]
    """Addresses of the shufflers, in the order in which messages travelled."""
    colluders: Whole
    """Number of reports that may be revealed to the analyst, as declared by the operator."""
    admission: Literal["open", "tickets", "tokens"]
    apart: bool
    """Whether operator and analyst are different people, as declared by the operator."""
    guarantee_as_arrived: Guarantee | None
    """Guarantee for the reports that arrived, less declared colluders; None if not certified."""
    parts: tuple[Part, ...] = ()
    """Parts of a split; empty for a single collection."""
    spoiled: tuple[str, ...] = ()
    """Digests of further parts of the split, whose messages were seen and gave no answer."""

    @classmethod
    def of(
        cls,
        task: Task,
        parts: tuple[Part, ...],
        *,
        hops: tuple[str, ...],
        colluders: int,
        admission: str,
        apart: bool,
        spoiled: tuple[str, ...] = (),
    ) -> Self:
        """Summarize one collection, or the parts of a split.

        The guarantee is that of the smallest part, because each person is in one of them.
        """
        honest = min(part.honest_count_given(colluders) for part in parts)
        return cls(
            **_part_totals(parts),
            parts=parts if len(parts) > 1 else (),
            hops=hops,
            colluders=colluders,
            admission=admission,
            apart=apart,
            guarantee_as_arrived=guarantee_for_honest(task, honest),
            spoiled=spoiled,
        )

    @model_validator(mode="after")
    def _check_part_totals(self) -> Self:
        if self.colluders < 0 or not self.hops or len(self.parts) > MAX_PARTS:
            raise ValueError("its colluders, shufflers or parts are invalid")
        if not all(
            hop.isascii() and hop.isprintable() and len(hop) <= MAX_ADDRESS_LENGTH
            for hop in self.hops
        ):
            raise ValueError("the address of a shuffler has invalid characters")
        if self.parts and any(
            getattr(self, name) != value for name, value in _part_totals(self.parts).items()
        ):
            raise ValueError("its parts do not add up to it")
        return self

    @property
    def honest(self) -> int:
        """Number of reports that are counted on, of the part that has the fewest."""
        return min(part.honest_count_given(self.colluders) for part in self.parts or (self,))

    def check(self, task: Task, people: int) -> None:
        """Raise unless the summary is of a batch of `people` and claims only what is certified."""
        if self.read != people:
            raise PlanError(
                f"this release is damaged: {self.read:,} people arrived, and {people:,} "
                "are in the answer; ask for it again."
            )
        stated = self.guarantee_as_arrived
        claimed = task.guarantee
        if stated is None or (stated == claimed and claimed.trust.honest_reports is None):
            return
        about = ("distance", "unit", "shape", "protects", "delta", "between", "items")
        same = all(getattr(stated, name) == getattr(claimed, name) for name in about)
        if (
            not same
            or stated.rounds != 1
            or stated.trust != claimed.trust.model_copy(update={"honest_reports": self.honest})
        ):
            raise PlanError(
                "this release is damaged: its guarantee for the reports that arrived is about "
                "something else; ask for it again."
            )
        if not is_promise_kept(task, stated.epsilon, self.honest, 1):
            raise PlanError(
                "this release claims more for the reports that arrived than is certified; do "
                "not trust it."
            )

    def sentences(self, task: Task) -> list[str]:
        """Sentences below the guarantees of a release: arrival, guarantee as arrived, and risks."""
        return [text for _, text in self._graded_sentences(task)]

    def sentences_worst_first(self, task: Task) -> list[str]:
        """The same sentences in order of severity; neutral ones are last."""
        graded = self._graded_sentences(task)
        return [text for _, text in sorted(graded, key=lambda sentence: sentence[0])]

    def _graded_sentences(self, task: Task) -> list[tuple[int, str]]:
        """Sentences with grades: from 0, a promise that is broken, to 4, which is neutral."""
        if task.protocol.trusted == "aggregator":
            return self._adder_sentences(task)
        incomplete = self.left_out or self.spoiled or self.replaced or self.unreadable
        texts = [(1 if incomplete else 4, self._arrival_text(task))]
        dummies = task.protocol.adds_noise
        trusted = task.protocol.trusted != "nobody"
        if trusted and dummies:
            texts.append((2, self._dummies_text(task)))
        elif trusted:
            fulfilled = self.honest >= task.honest and self.guarantee_as_arrived is not None
            texts.append((4 if fulfilled else 0, self._guarantee_text(task)))
        if self.admission == "open":
            repeat_text = (
                "; a person who sends several leaves that many fewer to hide the others."
                if trusted and not dummies
                else "."
            )
            admission_text = (
                "Nobody checked that reports come from different people (open admission)"
            )
            texts.append((2, admission_text + repeat_text))
        elif self.admission == "tickets":
            admission_text = (
                "Every report spent a ticket; a person who had several was not stopped."
            )
            texts.append((3, admission_text))
        else:
            admission_text = (
                "Every report spent a token; whoever gives tokens could have made any number of "
                "them, and knows who took part."
            )
            texts.append((3, admission_text))
        if trusted and not dummies:
            who = "The shuffler" if len(self.hops) == 1 else "One of the shufflers"
            dropping_text = (
                f"{who} could have dropped all reports but one and added others, and would "
                "then learn from this release what one report "
                "gives away, the second promise; compare the number of people with what "
                "was published and with what you know."
            )
            texts.append((2, dropping_text))
        texts += [(3, text) for text in self._witnessed()]
        if not self.apart:
            linking_text = (
                "Operator and analyst are the same, so nothing keeps them from linking "
                "messages: the second promise is what holds."
            )
            texts.append((0, linking_text))
        if self.read > 1 and task.protocol.damage(task.query, self.read).one is None:
            lying_text = (
                "What people send is not checked: a single one who lies can shift the "
                "answer by anything, unseen."
            )
            texts.append((2, lying_text))
        return texts

    def _adder_sentences(self, task: Task) -> list[tuple[int, str]]:
        """Sentences about a sum by several servers, with the same grades."""
        servers = len(self.hops)
        fulfilled = self.honest >= task.honest and self.guarantee_as_arrived is not None
        texts = [
            f"{servers} adders ({', '.join(self.hops)}) signed the same set of {self.people:,} "
            f"reports and added up their shares; sum {self.digest[:16]}.",
            f"The first promise holds as long as fewer than all {servers} of them work together, "
            "also with the analyst: the shares of all but one are random numbers. If all of them "
            "work together, they can read every report, and the second promise is what holds.",
            self._guarantee_text(task),
            "Every report spent a ticket at each adder; a person who had several was not stopped."
            if self.admission == "tickets"
            else "Nobody checked that reports come from different people (open admission); a "
            "person who sends several leaves that many fewer to hide the others.",
            "An adder that cheats could have dropped reports down to the minimum, or moved the sum "
            "by anything, unseen; so could a participant who lies. Compare the number of people "
            "with what you know.",
        ]
        if not self.apart:
            texts.append(
                "The analyst works together with the operators of the adders; if that is all of "
                "them, the second promise is what holds."
            )
        # Arrival, trust, guarantee, admission, cheating; then that all roles are one.
        grades = (4, 2, 4 if fulfilled else 0, 2, 2, 0)
        notes = dict.fromkeys(self.clock)
        return [
            *zip(grades, texts, strict=False),
            *((3, f"A note about the adder {note}") for note in notes),
        ]

    def _arrival_text(self, task: Task) -> str:
        through = (
            f"{self.hops[0]}"
            if len(self.hops) == 1
            else f"{len(self.hops)} shufflers ({', '.join(self.hops)})"
        )
        split = (
            f" in {len(self.parts)} parts, each of which was released by itself,"
            if self.parts
            else ""
        )
        texts = [
            f"Sealed reports of {self.people:,} people arrived{split} through {through}; "
            f"collection {self.digest[:16]}."
        ]
        if self.left_out:
            texts.append(
                f"{self.left_out:,} more shared a message with another report and were left out."
            )
        if self.spoiled and task.protocol.adds_noise:
            texts.append(
                f"{len(self.spoiled):,} more part{'s' * (len(self.spoiled) != 1)} of the split "
                "gave no answer, because the totals there cannot be: a shuffler of the chain did "
                "not add what it should."
            )
        elif self.spoiled:
            texts.append(
                f"{len(self.spoiled):,} more part{'s' * (len(self.spoiled) != 1)} of the split "
                "gave no answer, because someone sent something other than a report there; "
                "for those people the first promise holds if that person was declared as a "
                "colluder."
            )
        if self.replaced:
            texts.append(
                f"{self.replaced:,} messages could not be read, and count as the first part of "
                "their pile, as if people had lied about their values."
            )
        if self.unreadable:
            texts.append(
                f"{self.unreadable:,} of them could not be read; they count among the "
                "colluders and are not in the answer."
            )
        return " ".join(texts)

    def _dummies_text(self, task: Task) -> str:
        """Sentence about the condition of the promise, if shufflers added dummies."""
        from metricshuffle.protocols.shuffler_noise import ShufflerNoise

        hops = len(self.hops)
        protocol = task.protocol
        checked = (
            "the totals show that no set of dummies is missing"
            if isinstance(protocol, ShufflerNoise) and protocol.totals.shows_missing_set(hops)
            else "the totals cannot show whether a set of dummies is missing"
        )
        if hops == 1:
            return (
                "The first promise holds for any number of reports, if this shuffler drew its "
                f"dummies and kept them secret; {checked}."
            )
        return (
            f"The first promise holds for any number of reports, if at least one of these {hops} "
            f"shufflers drew its dummies and kept them secret; {checked}."
        )

    def _witnessed(self) -> list[str]:
        """Sentences about countersignatures, and public notes of shufflers."""
        parts = self.parts or (self,)
        witnesses = sorted({part.witness for part in parts if part.witness})
        some = "" if all(part.witness for part in parts) else " of some parts"
        countersigned = [
            f"The witness {url} countersigned these messages{some}; of one collection it "
            "countersigns no other."
            for url in witnesses
        ]
        return [
            *countersigned,
            *(
                f"A note about the shuffler {note}"
                for note in dict.fromkeys(note for part in parts for note in part.clock)
            ),
        ]

    def _guarantee_text(self, task: Task) -> str:
        fewest = min(
            self.parts or (self,), key=lambda part: part.honest_count_given(self.colluders)
        )
        some = " of the smallest part" if self.parts else ""
        of_whom = f"{self.colluders:,} declared colluders"
        if fewest.unreadable > self.colluders:
            of_whom = (
                f"{fewest.unreadable:,} that could not be read, more than the "
                f"{self.colluders:,} declared colluders"
            )
        without = f"the {fewest.people:,} reports{some} without {of_whom}"
        if self.guarantee_as_arrived is None or not math.isfinite(
            self.guarantee_as_arrived.epsilon
        ):
            left = (
                "the first promise is what holds"
                if self.honest >= task.honest
                else "not even the first promise is kept"
            )
            return f"As it arrived, nothing more can be certified for {without}; {left}."
        alone = "" if task.rounds == 1 else ", this round by itself"
        return f"As it arrived ({without}{alone}): {self.guarantee_as_arrived}"


def _part_totals(parts: tuple[Part, ...]) -> dict[str, Any]:
    """Totals of the parts of a split, with digests of all; for a single part its own fields."""
    counts = {
        name: sum(getattr(part, name) for part in parts)
        for name in ("people", "left_out", "unreadable", "replaced")
    }
    if len(parts) == 1:
        [part] = parts
        others = {
            "witness": part.witness,
            "countersignature": part.countersignature,
            "clock": part.clock,
        }
        return {"digest": part.digest, "output": part.output, **counts, **others}
    return {
        "digest": content_digest([part.digest for part in parts]),
        "output": content_digest([part.output for part in parts]),
        **counts,
    }
