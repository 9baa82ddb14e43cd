"""Base class of protocols: messages of clients, tallies, releases, estimates and accounts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, SerializeAsAny

from metricshuffle.display import Brief
from metricshuffle.errors import InputError, PlanError, argument
from metricshuffle.models import Positive, TaggedModel
from metricshuffle.privacy.guarantee import Guarantee, Protects, Trust, Who
from metricshuffle.privacy.profile import PrivacyProfile, Shape
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.damage import NO_LIMIT, Damage
from metricshuffle.protocols.tally import ID_BYTES, Batch, Shuffled, Tally
from metricshuffle.queries.query import Estimate, Inputs, Query
from metricshuffle.randomness import Randomness


@dataclass(frozen=True)
class Layout:
    """Layout of one report: a fixed count of whole numbers of one type, the same for everyone.

    A message is `width` consecutive numbers and belongs to one of `piles` groups, each of which is
    shuffled independently. A report has the messages of the first group first, and equally many for
    each group. If not `apart`, a number represents many messages (a count of unary ones), so that
    messages cannot be shuffled one by one in this form.
    """

    type: np.dtype[Any]
    numbers: int
    piles: int = 1
    width: int = 1
    apart: bool = True

    @property
    def each(self) -> int:
        """Messages of a person in one group."""
        return self.numbers // (self.piles * self.width)

    @property
    def size(self) -> int:
        """Bytes of a report."""
        return self.type.itemsize * self.numbers


@dataclass(frozen=True, eq=False)
class Reports(Brief):
    """Randomized reports as clients send them: one row of messages of equal size per person.

    These are the reports from number `first` on of the batch with the random id `batch_id`. The id
    identifies reports that are received twice, by whatever path.
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
        """A random id for each report, drawn on first access and independent of the value."""
        if self.known_ids is not None:
            return self.known_ids
        return (
            Randomness.system()
            .words(ID_BYTES // 8 * len(self))
            .view(np.uint8)
            .reshape(-1, ID_BYTES)
        )


@dataclass(frozen=True)
class Account(Brief):
    """The account of a guarantee: a profile and the target it must meet, in the profile's steps.

    `delta` is the part of the target's delta that is used; `bound` names the argument; `shape` is
    that of the printed guarantee.
    """

    profile: PrivacyProfile
    target: Target
    protects: Protects
    delta: float
    bound: str
    shape: Shape

    @cached_property
    def kept(self) -> bool:
        """Whether the target is certified at every distance up to its own.

        False if it cannot be certified.
        """
        return self.target.kept_by(self.profile)


class Protocol(TaggedModel, ABC):
    """A method of answering a query, with its parameters.

    The implementations share nothing but this class.
    """

    kinds: ClassVar[dict[str, type[TaggedModel]]] = {}
    kind: str
    name: str
    """Name in tables: "polya-shuffle", "k-ary-randomized-response", "tree-laplace"."""
    trusted: Who
    step: Positive = 1.0
    """Units per step of the whole numbers that are the protocol's inputs."""
    modulus: int | None = None
    """If not None, sums are residues modulo this number."""

    @property
    def encoding(self) -> str | None:
        """How a number becomes messages, if there is a choice."""
        return None

    @property
    def counts_on_honest(self) -> bool:
        """Whether the guarantee counts on a number of honest people, and so on a smallest batch."""
        return self.trusted in ("shuffler", "aggregator")

    @property
    def adds_noise(self) -> bool:
        """Whether the trusted party draws noise where it releases sums (`published`)."""
        return self.trusted == "curator"

    @property
    def max_noise_sets(self) -> int:
        """Most sets of dummies that counts may have; 0 if the protocol has no dummies."""
        return 0

    @property
    def grain(self) -> int:
        """Number of steps that are rounded, at random, to one cell of the noise."""
        return 1

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Layout of a report."""

    @property
    @abstractmethod
    def bits_per_user(self) -> int: ...

    @property
    def messages_per_user(self) -> int:
        return self.layout.numbers

    @property
    @abstractmethod
    def row(self) -> int:
        """Number of sums in a tally."""

    @abstractmethod
    def messages(self, inputs: Inputs, randomness: Randomness) -> NDArray[Any]:
        """Client: return one row of messages per person. Those to a curator are not randomized."""

    @abstractmethod
    def counted(self, messages: NDArray[Any]) -> dict[int, list[int]]:
        """Shuffler: return the sums of a batch of messages; reject messages of another protocol."""

    @property
    def tally_modulus(self) -> int | None:
        """If not None, sums in a tally are residues modulo this number."""
        return self.modulus

    def tally(self, batch: Batch) -> Tally:
        """Return an empty tally."""
        return Tally(batch, 0, 0, {}, self.tally_modulus, protocol=self)

    def current(self, tally: Tally) -> Tally:
        """Return a stored tally in today's form; earlier versions reduced sums that are exact."""
        return tally

    def published(self, query: Query, tally: Tally, randomness: Randomness) -> dict[int, list[int]]:
        """Return the sums to release; noise is added here, once, after the last merge."""
        return {key: list(row) for key, row in tally.sums.items()}

    @abstractmethod
    def estimate(self, query: Query, shuffled: Shuffled) -> Estimate:
        """Analyst: estimate unbiased totals and their errors; reject sums of another protocol."""

    @abstractmethod
    def check(self, query: Query) -> None:
        """Raise unless the parameters fit the query, so that what is sampled is what is accounted.

        A received task is not trusted.
        """

    @abstractmethod
    def account(self, query: Query, target: Target, honest: int, rounds: int) -> Account:
        """Account for `honest` honest reports, if the trusted party is honest."""

    @abstractmethod
    def alone(self, query: Query, target: Target, rounds: int) -> Guarantee:
        """Guarantee of one person's report if everyone else colludes."""

    @abstractmethod
    def expected_error(self, query: Query, people: int) -> float | None:
        """Mean error of the answer, as the query measures it; None if it takes a simulation."""

    def standard_error(self, query: Query, people: int) -> float | None:
        """Standard error of the answer, or None if it depends on people's values."""
        return None

    def damage(self, query: Query, people: int) -> Damage:
        """Return how far one of `people` participants who lies can move the answer."""
        return NO_LIMIT

    def lies(self, query: Query, liars: int) -> NDArray[np.generic]:
        """Return the messages of liars in the worst attack known, one row each."""
        raise InputError(f"no attack on {self.name} is known.", remedy="Simulate it without liars.")

    def check_people(self, query: Query, people: int, users: int) -> None:
        """Raise if the protocol has no room for this many people."""

    def check_size(self, honest: int) -> None:
        """Raise if the account would take minutes, which no planned protocol does."""

    def warning(self, query: Query) -> str:
        """A caveat about the fallback that its number does not express; empty if there is none."""
        return ""

    def caveat(self, query: Query, shuffled: Shuffled, hops: int = 0) -> str:
        """The warning of a release of this batch, which may have further noise.

        `hops` is the number of shufflers that sealed reports passed, 0 for files.
        """
        return self.warning(query)

    def with_publisher_noise(
        self, query: Query, shuffled: Shuffled, randomness: Randomness
    ) -> Shuffled:
        """Return the batch with noise of the publisher, unknown to the shuffler."""
        raise InputError(
            f"{argument('publisher_noise', True)} is for counts with dummies of the shuffler; "
            f"nobody who publishes {self.name} knows its noise.",
            field="publisher_noise",
            remedy="Leave it out.",
        )

    def hides_alone(self, query: Query) -> bool:
        """Whether one report hides what the fallback states, if the trusted party colludes."""
        return not self.warning(query)

    def remarks(self, query: Query, target: Target, honest: int, rounds: int) -> list[str]:
        """Further sentences about the guarantee."""
        return []

    def check_sums(self, query: Query, stored: Tally | Shuffled) -> None:
        """Raise unless a tally, or what is published of it, has the form of this protocol."""
        moduli = {self.modulus}
        if isinstance(stored, Tally):
            moduli.add(self.tally_modulus)
        if stored.modulus not in moduli:
            raise PlanError(
                f"{stored.what} has another modulus than this task's protocol; it was not made "
                "for it."
            )
        stored.check_noise_sets(self.max_noise_sets)
        fractions = (
            self.trusted == "curator" and isinstance(stored, Tally) and query.items is not None
        )
        if any(
            len(row) != self.row or (key != 0 and not fractions) for key, row in stored.sums.items()
        ):
            raise PlanError(
                f"{stored.what} of this task must have rows of {self.row:,} sums; this one has not."
            )

    def check_width(self, messages: NDArray[Any]) -> None:
        """Raise unless these are rows of messages of this protocol."""
        numbers = self.layout.numbers
        if messages.ndim != 2 or messages.shape[1] != numbers or messages.dtype.kind not in "iu":
            raise PlanError(
                f"a report of this task is {numbers:,} whole number{'s' * (numbers != 1)}, "
                f"got an array of shape {messages.shape}."
            )

    def guarantee(
        self, query: Query, target: Target, honest: int, rounds: int, account: Account | None = None
    ) -> Guarantee:
        """Return the guarantee of the account; it is not certified here (see Account.kept)."""
        account = self.account(query, target, honest, rounds) if account is None else account
        target = query.covered(target)
        return Guarantee(
            epsilon=target.epsilon,
            delta=account.delta,
            distance=target.distance,
            unit=query.unit,
            shape=account.shape,
            protects=account.protects,
            trust=Trust(
                trusted=self.trusted,
                honest_reports=honest if self.counts_on_honest else None,
            ),
            bound=account.bound,
            rounds=rounds,
            between=query.between(self.step),
            items=query.items,
        )


def single_person_guarantee(
    query: Query,
    target: Target,
    rounds: int,
    epsilon: float,
    bound: str,
    *,
    delta: float = 0.0,
    step: float = 1.0,
) -> Guarantee:
    """Guarantee of one person's reports without a trusted party, at the target's distance.

    It covers all rounds.
    """
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
"""A field for any protocol, which is read back from JSON by its kind."""
