"""Byte format of single messages, which a shuffler mixes one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError, PlanError, argument
from metricshuffle.protocols.protocol import Layout, Protocol

Payloads = NDArray[np.uint8]
MAX_GROUPS = 2**32


@dataclass(frozen=True)
class MessageFormat:
    """Byte format of the messages of a task, which all have the same length.

    A payload is the index of its group, in 1, 2 or 4 bytes, and its numbers, all little endian: for
    a sum, axis u8 | value u64. In the format `by_pile` a payload is only the index of a part: the
    place of a message in a report gives its pile, because piles are never mixed with each other.
    """

    layout: Layout
    by_pile: bool = False

    @classmethod
    def of(cls, protocol: Protocol) -> MessageFormat:
        """Message format of a protocol; raises InputError if messages cannot be sent one by one."""
        layout = protocol.layout
        if protocol.trusted not in ("nobody", "shuffler"):
            raise InputError(
                f"this plan trusts a {protocol.trusted}, and mixed messages are for a shuffler; "
                f"plan with {argument('trusted', 'shuffler')}."
            )
        if not layout.apart:
            raise InputError(
                f"this plan sends {protocol.messages_per_user:,} unary messages a person, "
                "too many to be sealed one by one; plan with "
                f"{argument('encoding', 'modular')}."
            )
        if layout.piles > MAX_GROUPS:
            raise InputError(f"{layout.piles:,} groups are more than a message can name.")
        return cls(layout, protocol.adds_noise)

    @property
    def piles(self) -> int:
        """Number of piles that are mixed apart; 0 if all messages are mixed together."""
        return self.layout.piles if self.by_pile else 0

    @property
    def messages(self) -> int:
        """Number of messages of one person."""
        return self.layout.piles * self.layout.each

    @property
    def _type(self) -> np.dtype[Any]:
        piles = self.layout.piles
        tag = "u1" if piles <= 2**8 else "<u2" if piles <= 2**16 else "<u4"
        numbers = ("numbers", self.layout.type, (self.layout.width,))
        return np.dtype([numbers] if self.by_pile else [("pile", tag), numbers])

    @property
    def size(self) -> int:
        """Bytes of a payload."""
        return self._type.itemsize

    def split_messages(self, messages: NDArray[Any]) -> Payloads:
        """Split reports into payloads (people, messages, size), sorted for a person or in a pile.

        Sorting makes the order of a person's own messages meaningless.
        """
        layout = self.layout
        people = len(messages)
        if messages.shape != (people, layout.numbers) or messages.dtype != layout.type:
            raise InputError(
                f"reports must be rows of {layout.numbers} numbers of type {layout.type.str}, "
                f"got {messages.dtype} of shape {messages.shape}."
            )
        records = np.empty((people, layout.piles, layout.each), dtype=self._type)
        if not self.by_pile:
            records["pile"] = np.arange(layout.piles)[None, :, None]
        records["numbers"] = messages.reshape(people, layout.piles, layout.each, layout.width)
        groups = people * self.piles if self.by_pile else people
        rows = records.view(np.uint8).reshape(groups, -1, self.size)
        order = np.argsort(
            np.ascontiguousarray(rows).view(f"V{self.size}").reshape(groups, -1),
            axis=1,
            kind="stable",
        )
        ordered = np.take_along_axis(rows, order[:, :, None], axis=1)
        return np.ascontiguousarray(ordered.reshape(people, self.messages, self.size))

    def part_payloads(self, parts: NDArray[np.int64]) -> Payloads:
        """Payloads of these parts of a pile, one row each; only in the format `by_pile`."""
        records = np.empty(len(parts), dtype=self._type)
        records["numbers"] = np.asarray(parts)[:, None]
        return records.view(np.uint8).reshape(-1, self.size)

    def parts_of(self, payloads: Payloads) -> NDArray[np.int64]:
        """Parts that payloads of a pile name, whether or not the pile has them."""
        flat = np.ascontiguousarray(payloads).reshape(-1, self.size)
        return flat.view(self._type)["numbers"].reshape(-1).astype(np.int64)

    def join_messages(self, payloads: Payloads, people: int) -> NDArray[Any]:
        """Regroup shuffled messages into rows of one message per group.

        In the format `by_pile`, they come pile by pile. Rows no longer correspond to people;
        column sums are preserved. Raises PlanError unless each group has as many messages as
        `people` complete reports have.
        """
        layout = self.layout
        flat = np.ascontiguousarray(payloads).reshape(-1, self.size)
        if people < 1 or len(flat) != people * self.messages:
            raise PlanError(
                f"{people:,} people of this task send {people * self.messages:,} messages, "
                f"and there are {len(flat):,}; some are missing."
            )
        records = flat.view(self._type).reshape(-1)
        tags = (
            records["pile"]
            if not self.by_pile
            else np.repeat(np.arange(self.piles), people * layout.each)
        )
        counts = np.bincount(tags, minlength=layout.piles)
        if len(counts) > layout.piles or (counts != people * layout.each).any():
            raise PlanError(
                "the messages do not belong to complete reports of this task: a group has too "
                "many or too few."
            )
        by_pile = records[np.argsort(tags, kind="stable")]["numbers"].reshape(
            layout.piles, people, layout.each * layout.width
        )
        return np.ascontiguousarray(by_pile.transpose(1, 0, 2).reshape(people, layout.numbers))
