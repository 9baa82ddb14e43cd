"""What a collection of sealed reports brought: whose messages arrived, through whom, and what so many of them hide.

The headline of a release stays the plan's promise, which counts on `honest` reports. What is told here beside it is certified for the
reports that were released without the declared colluders, never for the number of reports alone.
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
"""To this much (relative) the least epsilon is searched for; what is returned was certified."""
MAX_EPSILON = 1000.0
NOT_CERTIFIED_ERRORS = (ConditionError, NotCertified, InputError, ArithmeticError, TypeError, ValueError)
"""What a received task makes the arithmetic stumble over is not certified."""
MAX_ADDRESS_LENGTH, MAX_PARTS = 500, 1000
LONGEST_NOTE = 1000


def is_promise_kept(task: Task, epsilon: float, honest: int, rounds: int) -> bool:
    """Whether the task's promise with that epsilon is certified, at every distance up to its own, if so many reports are honest."""
    claimed, target = task.guarantee, task.target.model_copy(update={"epsilon": epsilon})
    try:
        with np.errstate(all="ignore"):
            account = task.protocol.account(task.query, target, honest, rounds)
            # (the exact law of one person's noise says nothing of several people who move as far in total)
            about_as_many = protects_no_less(account.protects, claimed.protects)
            return account.delta <= claimed.delta and about_as_many and account.kept
    except NOT_CERTIFIED_ERRORS:
        return False


def guarantee_for_honest(task: Task, honest: int) -> Guarantee | None:
    """What one round of a task hides if so many of its reports are honest; None where nothing is certified.

    Where nobody else is counted on that is the task's own promise. Of several rounds this is one by itself: the others may have
    had fewer people.
    """
    claimed, protocol = task.guarantee, task.protocol
    if claimed.trust.honest_reports is None:
        return claimed
    if honest < 1:
        return None

    def is_kept(epsilon: float) -> bool:
        return is_promise_kept(task, epsilon, honest, 1)

    if is_kept(claimed.epsilon):
        epsilon = last_certified(is_kept, 0.0, claimed.epsilon, relative=EPSILON_RELATIVE_TOLERANCE)
    else:
        walked = first_certified(is_kept, claimed.epsilon * 1.1, MAX_EPSILON, step=0.1, failing=claimed.epsilon, growth=2.0)
        if walked.passing >= MAX_EPSILON:
            return None
        epsilon = last_certified(is_kept, *walked, relative=EPSILON_RELATIVE_TOLERANCE)
    promise = protocol.guarantee(task.query, task.target.model_copy(update={"epsilon": epsilon}), honest, 1)
    return promise.model_copy(update={"protects": claimed.protects, "delta": claimed.delta})


class Part(FrozenModel):
    """What the shufflers of one collection let go."""

    digest: str
    """SHA-256 of the bytes of the collection."""
    output: str
    """SHA-256 of the messages that were let go, as the shuffler publishes it."""
    people: Whole
    left_out: Whole = 0
    """Reports that shared a message with another one."""
    unreadable: Whole = 0
    """Reports of a single message that the analyst could not read; they are not in the answer."""
    witness: str = ""
    """Where the witness of the last shuffler listened, if it has one."""
    countersignature: str = ""
    """The witness's under `output`, which was checked with the key that the collection names."""
    clock: tuple[str, ...] = ()
    """What operators did to the clocks of the shufflers meanwhile, as those say publicly: an address and a sentence each."""

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What there is nothing to say of is not written, as before there was anything to say."""
        written: dict[str, Any] = handler(self)
        return {name: value for name, value in written.items() if value or name not in ("witness", "countersignature", "clock")}

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        if not all(text.isprintable() and len(text) <= LONGEST_NOTE for text in (self.witness, self.countersignature, *self.clock)):
            raise ValueError("its witness or a note about a clock has strange letters, or too many")
        if any(len(text) != 64 or set(text) - set("0123456789abcdef") for text in (self.digest, self.output)):
            raise ValueError("its digests must be 64 hexadecimal digits")
        if min(self.left_out, self.unreadable) < 0 or not self.unreadable < self.people:
            raise ValueError("its numbers of people cannot be")
        return self

    @property
    def read(self) -> int:
        """People in the answer."""
        return self.people - self.unreadable

    def honest_count_given(self, colluders: int) -> int:
        """Reports that are counted on: without the declared colluders, among whom are all who sent what cannot be read; or without
        those, if they are more."""
        return self.people - max(colluders, self.unreadable)


class Collected(Part):
    """What arrived, and what it hides. Of a split all `parts` together, each of which was let go by itself."""

    hops: tuple[str, ...]
    """Where the shufflers listened, in the order in which messages travelled."""
    colluders: Whole
    """How many of the reports may be told to the analyst, as far as the operator declared."""
    admission: Literal["open", "tickets"]
    apart: bool
    """Whether operator and analyst are different people, as far as the operator says."""
    guarantee_as_arrived: Guarantee | None
    """Certified for the reports that arrived without the declared colluders; None where nothing could be."""
    parts: tuple[Part, ...] = ()
    """Of a split."""
    spoiled: tuple[str, ...] = ()
    """Digests of further parts of the split, whose messages were seen and gave no answer."""

    @classmethod
    def of(
        cls, task: Task, parts: tuple[Part, ...], *, hops: tuple[str, ...], colluders: int, admission: str, apart: bool,
        spoiled: tuple[str, ...] = (),
    ) -> Self:  # fmt: skip
        """Of one collection, or of the parts of a split: the guarantee is that of the smallest, because everybody is in one of them."""
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
            raise ValueError("its colluders, shufflers or parts cannot be")
        if not all(hop.isascii() and hop.isprintable() and len(hop) <= MAX_ADDRESS_LENGTH for hop in self.hops):
            raise ValueError("the address of a shuffler has strange letters")
        if self.parts and any(getattr(self, name) != value for name, value in _part_totals(self.parts).items()):
            raise ValueError("its parts do not add up to it")
        return self

    @property
    def honest(self) -> int:
        """Reports that are counted on, of the part that has the fewest."""
        return min(part.honest_count_given(self.colluders) for part in self.parts or (self,))

    def check(self, task: Task, people: int) -> None:
        """Raise unless it is about a batch of so many people, and no more is said of it than is certified."""
        if self.read != people:
            raise PlanError(f"this release is damaged: {self.read:,} people arrived, and {people:,} are in the answer; ask for it again.")
        stated, claimed = self.guarantee_as_arrived, task.guarantee
        if stated is None or (stated == claimed and claimed.trust.honest_reports is None):
            return
        about = ("distance", "unit", "shape", "protects", "delta", "between", "items")
        same = all(getattr(stated, name) == getattr(claimed, name) for name in about)
        if not same or stated.rounds != 1 or stated.trust != claimed.trust.model_copy(update={"honest_reports": self.honest}):
            raise PlanError("this release is damaged: what it says of the reports that arrived is about something else; ask for it again.")
        if not is_promise_kept(task, stated.epsilon, self.honest, 1):
            raise PlanError("this release says more of the reports that arrived than is certified; do not believe it.")

    def sentences(self, task: Task) -> list[str]:
        """What stands below the promises of a release: what arrived, what that hides, and who could have spoiled it."""
        texts = [self._arrival_text()]
        trusted = task.protocol.trusted != "nobody"
        if trusted:
            texts.append(self._guarantee_text(task))
        if self.admission == "open":
            texts.append(
                "Nobody checked that reports come from different people (open admission)"
                + ("; whoever sends several takes that many away from those that hide the others." if trusted else ".")
            )
        else:
            texts.append("Every report spent a ticket; a person who had several was not stopped.")
        if trusted:
            who = "The shuffler" if len(self.hops) == 1 else "One of the shufflers"
            texts.append(
                f"{who} could have dropped all reports but one and added others, and would then learn from this release what one report "
                "gives away, the second promise; compare the number of people with what was published and with what you know."
            )
        texts += self._witnessed()
        if not self.apart:
            texts.append("Operator and analyst are the same, so nobody is kept from linking messages: the second promise is what holds.")
        if task.protocol.modulus is not None and self.read > 1:
            texts.append("What people send is not checked: a single one who lies can shift the answer by anything, unseen.")
        return texts

    def _arrival_text(self) -> str:
        through = f"{self.hops[0]}" if len(self.hops) == 1 else f"{len(self.hops)} shufflers ({', '.join(self.hops)})"
        split = f" in {len(self.parts)} parts, each of which was let go by itself," if self.parts else ""
        texts = [f"Sealed reports of {self.people:,} people arrived{split} through {through}; collection {self.digest[:16]}."]
        if self.left_out:
            texts.append(f"{self.left_out:,} more shared a message with another report and were left out.")
        if self.spoiled:
            texts.append(
                f"{len(self.spoiled):,} more part{'s' * (len(self.spoiled) != 1)} of the split gave no answer, because somebody sent "
                "something else than a report there; for those people the first promise holds if whoever did it was declared as a colluder."
            )
        if self.unreadable:
            texts.append(f"{self.unreadable:,} of them could not be read; they count among the colluders and are not in the answer.")
        return " ".join(texts)

    def _witnessed(self) -> list[str]:
        """Who countersigned that nothing else leaves, and what operators did to clocks."""
        parts = self.parts or (self,)
        witnesses = sorted({part.witness for part in parts if part.witness})
        some = "" if all(part.witness for part in parts) else " of some parts"
        told = [f"The witness {url} countersigned these messages{some}; of one collection it countersigns no other." for url in witnesses]
        return [*told, *(f"A note about the clock of {note}" for note in dict.fromkeys(note for part in parts for note in part.clock))]

    def _guarantee_text(self, task: Task) -> str:
        fewest = min(self.parts or (self,), key=lambda part: part.honest_count_given(self.colluders))
        some = " of the smallest part" if self.parts else ""
        of_whom = f"{self.colluders:,} declared colluders"
        if fewest.unreadable > self.colluders:
            of_whom = f"{fewest.unreadable:,} that could not be read, more than the {self.colluders:,} declared colluders"
        without = f"the {fewest.people:,} reports{some} without {of_whom}"
        if self.guarantee_as_arrived is None or not math.isfinite(self.guarantee_as_arrived.epsilon):
            left = "the first promise is what holds" if self.honest >= task.honest else "not even the first promise is kept"
            return f"As it arrived, nothing more can be certified for {without}; {left}."
        alone = "" if task.rounds == 1 else ", this round by itself"
        return f"As it arrived ({without}{alone}): {self.guarantee_as_arrived}"


def _part_totals(parts: tuple[Part, ...]) -> dict[str, Any]:
    """Totals of the parts of a split, under a name that stands for all of them; of a single one what it says."""
    counts = {name: sum(getattr(part, name) for part in parts) for name in ("people", "left_out", "unreadable")}
    if len(parts) == 1:
        [part] = parts
        others = {"witness": part.witness, "countersignature": part.countersignature, "clock": part.clock}
        return {"digest": part.digest, "output": part.output, **counts, **others}
    return {"digest": content_digest([part.digest for part in parts]), "output": content_digest([part.output for part in parts]), **counts}
