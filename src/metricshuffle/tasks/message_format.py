"""A report taken apart: the messages that a shuffler mixes one by one, as bytes of equal length, and back to what can be added up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError, PlanError
from metricshuffle.protocols.protocol import Layout, Protocol

Payloads = NDArray[np.uint8]
MAX_GROUPS = 2**32


@dataclass(frozen=True)
class MessageFormat:
    """A payload is the number of its pile, in 1, 2 or 4 bytes, and its numbers, all little endian: axis u8 | value u64 for a sum.

    The payloads of a task all have the same length.
    """

    layout: Layout

    @classmethod
    def of(cls, protocol: Protocol) -> MessageFormat:
        """How the messages of a protocol travel one by one; refused where they cannot."""
        layout = protocol.layout
        if protocol.trusted not in ("nobody", "shuffler"):
            raise InputError(f"this plan trusts a {protocol.trusted}, and mixed messages are for a shuffler; plan with trusted='shuffler'.")
        if not layout.apart:
            raise InputError(
                f"this plan sends {protocol.messages_per_user:,} unary messages a person, too many to be sealed one by one; plan with "
                "encoding='modular'."
            )
        if layout.piles > MAX_GROUPS:
            raise InputError(f"{layout.piles:,} piles are more than a message can name.")
        return cls(layout)

    @property
    def messages(self) -> int:
        """Of one person."""
        return self.layout.piles * self.layout.each

    @property
    def _type(self) -> np.dtype[Any]:
        piles = self.layout.piles
        tag = "u1" if piles <= 2**8 else "<u2" if piles <= 2**16 else "<u4"
        return np.dtype([("pile", tag), ("numbers", self.layout.type, (self.layout.width,))])

    @property
    def size(self) -> int:
        """Bytes of a payload."""
        return self._type.itemsize

    def split_messages(self, messages: NDArray[Any]) -> Payloads:
        """Of every person her payloads, sorted: (people, messages, size). The order of a person's own messages says nothing then."""
        layout, people = self.layout, len(messages)
        if messages.shape != (people, layout.numbers) or messages.dtype != layout.type:
            raise InputError(
                f"reports are rows of {layout.numbers} numbers of type {layout.type.str}, got {messages.dtype} of shape {messages.shape}."
            )
        records = np.empty((people, layout.piles, layout.each), dtype=self._type)
        records["pile"] = np.arange(layout.piles)[None, :, None]
        records["numbers"] = messages.reshape(people, layout.piles, layout.each, layout.width)
        rows = records.view(np.uint8).reshape(people, self.messages, self.size)
        order = np.argsort(np.ascontiguousarray(rows).view(f"V{self.size}").reshape(people, self.messages), axis=1, kind="stable")
        return np.ascontiguousarray(np.take_along_axis(rows, order[:, :, None], axis=1))

    def join_messages(self, payloads: Payloads, people: int) -> NDArray[Any]:
        """Rows of messages with the same piles as the mixed payloads of so many people: whose is whose is lost, and every sum is kept.

        Refused unless each pile has as many messages as so many complete reports put there.
        """
        layout = self.layout
        flat = np.ascontiguousarray(payloads).reshape(-1, self.size)
        if people < 1 or len(flat) != people * self.messages:
            raise PlanError(
                f"{people:,} people of this task send {people * self.messages:,} messages, and there are {len(flat):,}; some are missing."
            )
        records = flat.view(self._type).reshape(-1)
        counts = np.bincount(records["pile"], minlength=layout.piles)
        if len(counts) > layout.piles or (counts != people * layout.each).any():
            raise PlanError("the messages do not belong to complete reports of this task: a pile has more or fewer than its share.")
        by_pile = records[np.argsort(records["pile"], kind="stable")]["numbers"].reshape(layout.piles, people, layout.each * layout.width)
        return np.ascontiguousarray(by_pile.transpose(1, 0, 2).reshape(people, layout.numbers))
