"""How a question is answered: what a client sends, what is added up, what is let go, what is estimated, and what that hides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, SerializeAsAny

from metricshuffle.display import Brief
from metricshuffle.errors import PlanError
from metricshuffle.models import Positive, TaggedModel
from metricshuffle.privacy.guarantee import Guarantee, Protects, Trust, Who
from metricshuffle.privacy.profile import PrivacyProfile, Shape
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.tally import ID_BYTES, Batch, Shuffled, Tally
from metricshuffle.queries.query import Estimate, Inputs, Query
from metricshuffle.randomness import Randomness


@dataclass(frozen=True)
class Layout:
    """One report: so many whole numbers of one type, the same for everybody.

    A message is `width` of them, one after another, and belongs to one of `piles`, which are mixed each by itself; a report has the
    messages of the first pile first, as many for each. Not `apart`: a number stands for many messages (a count of unary ones), so that
    messages cannot be mixed one by one in this form.
    """

    type: np.dtype[Any]
    numbers: int
    piles: int = 1
    width: int = 1
    apart: bool = True

    @property
    def each(self) -> int:
        """Messages of a person for one pile."""
        return self.numbers // (self.piles * self.width)

    @property
    def size(self) -> int:
        """Bytes of a report."""
        return self.type.itemsize * self.numbers


@dataclass(frozen=True, eq=False)
class Reports(Brief):
    """Randomized reports as the clients send them: one row of messages a person, all of the same size.

    `batch_id` is random. Reports `first` .. of that batch are here: the same ones twice are recognised by it, whichever way they come.
    """

    batch: Batch
    messages: NDArray[Any]
    batch_id: bytes
    first: int = 0
    known_ids: NDArray[np.uint8] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.messages)

    @cached_property
    def ids(self) -> NDArray[np.uint8]:
        """A random id for each report, drawn when it is first asked for; it has nothing to do with the value."""
        if self.known_ids is not None:
            return self.known_ids
        return Randomness.system().words(ID_BYTES // 8 * len(self)).view(np.uint8).reshape(-1, ID_BYTES)


@dataclass(frozen=True)
class Account(Brief):
    """What certifies a promise: the profile and the target it must keep, both in the profile's own steps.

    `delta` is what is spent of the target's; `bound` names the argument; `shape` is that of the promise as it is told.
    """

    profile: PrivacyProfile
    target: Target
    protects: Protects
    delta: float
    bound: str
    shape: Shape

    @cached_property
    def kept(self) -> bool:
        """Certified at every distance up to the target's; what cannot be certified is not kept."""
        return self.target.kept_by(self.profile)


class Protocol(TaggedModel, ABC):
    """One way to answer a query, with its parameters. The three implementations are siblings and share nothing but this."""

    kinds: ClassVar[dict[str, type[TaggedModel]]] = {}
    kind: str
    name: str
    """What it is called in tables: "polya-shuffle", "k-ary-randomized-response", "tree-laplace"."""
    trusted: Who
    step: Positive = 1.0
    """Units per step of the whole numbers it is given."""
    modulus: int | None = None
    """Sums are residues of this, if it is given."""

    @property
    def encoding(self) -> str | None:
        """How a number becomes messages, where there is a choice."""
        return None

    @property
    def grain(self) -> int:
        """How many steps are rounded, at random, to one cell of the noise."""
        return 1

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """What a report looks like."""

    @property
    @abstractmethod
    def bits_per_user(self) -> int: ...

    @property
    def messages_per_user(self) -> int:
        return self.layout.numbers

    @property
    @abstractmethod
    def row(self) -> int:
        """How many sums a tally has."""

    @abstractmethod
    def messages(self, inputs: Inputs, randomness: Randomness) -> NDArray[Any]:
        """Clients: one row of messages a person. To a curator these are raw."""

    @abstractmethod
    def counted(self, messages: NDArray[Any]) -> dict[int, list[int]]:
        """Shuffler: the sums of a batch of messages; a message that this protocol does not make is refused."""

    def tally(self, batch: Batch) -> Tally:
        """An empty one."""
        return Tally(batch, 0, 0, {}, self.modulus, protocol=self)

    def published(self, query: Query, tally: Tally, randomness: Randomness) -> dict[int, list[int]]:
        """What is let go of a tally; a curator adds noise here, once, after the last merge."""
        return {key: list(row) for key, row in tally.sums.items()}

    @abstractmethod
    def estimate(self, query: Query, shuffled: Shuffled) -> Estimate:
        """Analyst: unbiased totals with their errors. What cannot come from this protocol is refused."""

    @abstractmethod
    def check(self, query: Query) -> None:
        """Raise unless the parameters fit the query, so that what is accounted for is what is sampled. A received task is not believed."""

    @abstractmethod
    def account(self, query: Query, target: Target, honest: int, rounds: int) -> Account:
        """What is certified if whoever is trusted is honest, and so many of the reports are."""

    @abstractmethod
    def alone(self, query: Query, target: Target, rounds: int) -> Guarantee:
        """What one person's report hides if everybody else colludes."""

    @abstractmethod
    def expected_error(self, query: Query, people: int) -> float | None:
        """The mean error of the answer for so many people, as the query measures it; None if only a simulation can tell."""

    def standard_error(self, query: Query, people: int) -> float | None:
        """The standard error of the answer for so many people, where it does not depend on what they hold."""
        return None

    def check_people(self, query: Query, people: int, users: int) -> None:
        """Raise if the protocol has no room for so many."""

    def check_size(self, honest: int) -> None:
        """Raise if what the honest reports hide would take minutes to compute, as for no protocol that was planned."""

    def warning(self, query: Query) -> str:
        """What the number that is left if the shuffler colludes does not say, in a sentence; empty if it says enough."""
        return ""

    def remarks(self, query: Query, target: Target, honest: int, rounds: int) -> list[str]:
        """What else is true of the promise, in sentences."""
        return []

    def check_width(self, messages: NDArray[Any]) -> None:
        """Raise unless these are rows of messages of this protocol."""
        numbers = self.layout.numbers
        if messages.ndim != 2 or messages.shape[1] != numbers or messages.dtype.kind not in "iu":
            raise PlanError(
                f"a report of this task is {numbers:,} whole number{'s' * (numbers != 1)}, got an array of shape {messages.shape}."
            )

    def guarantee(self, query: Query, target: Target, honest: int, rounds: int, account: Account | None = None) -> Guarantee:
        """The promise that the account stands for; it is not certified here (see Account.kept)."""
        account = self.account(query, target, honest, rounds) if account is None else account
        return Guarantee(
            epsilon=target.epsilon,
            delta=account.delta,
            distance=target.distance,
            unit=query.unit,
            shape=account.shape,
            protects=account.protects,
            trust=Trust(trusted=self.trusted, honest_reports=honest if self.trusted in ("shuffler", "aggregator") else None),
            bound=account.bound,
            rounds=rounds,
            between=query.between(self.step),
            items=query.items,
        )


def single_person_guarantee(
    query: Query, target: Target, rounds: int, epsilon: float, bound: str, *, delta: float = 0.0, step: float = 1.0
) -> Guarantee:
    """What is promised of one person's reports where nobody is trusted: at the target's distance, over all rounds."""
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        distance=target.distance,
        unit=query.unit,
        shape="flat",
        protects="one person" if query.items is None else "one user's items",
        trust=Trust(trusted="nobody"),
        bound=bound,
        rounds=rounds,
        between=query.between(step),
        items=query.items,
    )


AnyProtocol = Annotated[SerializeAsAny[Protocol], BeforeValidator(Protocol.of_kind)]
"""A field that holds any protocol and reads it back from JSON by its kind."""
