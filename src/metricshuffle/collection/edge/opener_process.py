"""Process that opens reports: the only one of an edge that has keys of collections.

It asks the hub for the keys of a lease by itself. Its parent prolongs leases; when the time of any
lease is over, the process exits. `python -m metricshuffle.collection.edge.opener_process` reads
frames on standard input and answers on standard output. A frame is: length (4 bytes), number (8),
kind (1), content.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import struct
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from metricshuffle.collection.admission_tokens import TokenRejected, TokenVerifier
from metricshuffle.collection.capsules import GatewayKey
from metricshuffle.collection.hub.lease_office import LeaseDenied, boot_and_wall
from metricshuffle.collection.hub.lease_server import HubLink, HubUnreachable, LeaseIdentity
from metricshuffle.collection.keys import LEASE_BYTES, TAG_BYTES, LeaseKeys
from metricshuffle.collection.memory import forbid_memory_dumps, locked_memory
from metricshuffle.collection.sealed_boxes import BoxFormat, NotOpened, PrivateKey

HEAD = struct.Struct("<IQB")
TAKE_LEASE = 0
OPEN_REPORT = 1
PROLONG = 2
OPEN_CAPSULE = 3
"""Kinds of requests."""
DONE = 0
NOT_OPENED = 1
NO_LEASE = 2
NOT_ADMITTED = 3
"""Kinds of answers."""
CLOCK_SECONDS = 0.2
OVER_EXIT_CODE = 3


@dataclass
class OpenLease:
    """Keys of a lease, and when it is over by either clock."""

    keys: LeaseKeys
    private: PrivateKey
    sealing: BoxFormat
    deadline: tuple[float, float]
    gateway: GatewayKey
    capsule_size: int
    verifier: TokenVerifier | None = None

    def is_over(self) -> bool:
        return any(not now < end for now, end in zip(boot_and_wall(), self.deadline, strict=True))

    def opened(self, report: bytes) -> bytes:
        """Open a report; return its tag, the hash of its ticket or nonce, and its encrypted boxes.

        A report that contains a box twice is rejected, as in `ReportOpener`.
        """
        ticket, boxes = self.sealing.open_report(report, self.private)
        if len(set(boxes)) != len(boxes):
            raise NotOpened("this report cannot be opened.")
        if self.verifier is not None:
            ticket = self.verifier.nonce_of(ticket)
        tag = self.keys.tag(report)
        ticket_hash = self.keys.ticket_hash(ticket) if ticket else b""
        hidden = self.keys.hidden(ticket_hash or tag, report, b"".join(boxes))
        return tag + ticket_hash.ljust(TAG_BYTES, b"\0") + hidden


class Opener:
    """Leases of this process, and its answers."""

    def __init__(self, link: HubLink) -> None:
        self._link = link
        self._leases: dict[bytes, OpenLease] = {}

    def watch(self) -> None:
        """End the process as soon as a lease is over; runs in a thread."""
        while not any(lease.is_over() for lease in list(self._leases.values())):
            threading.Event().wait(CLOCK_SECONDS)
        os._exit(OVER_EXIT_CODE)

    def answer(self, kind: int, content: bytes) -> tuple[int, bytes]:
        if kind == OPEN_REPORT:
            lease = self._leases.get(content[:LEASE_BYTES])
            if lease is None:
                return NO_LEASE, b""
            if lease.is_over():
                os._exit(OVER_EXIT_CODE)
            try:
                return DONE, lease.opened(content[LEASE_BYTES:])
            except NotOpened:
                return NOT_OPENED, b""
            except TokenRejected:
                return NOT_ADMITTED, b""
        if kind == OPEN_CAPSULE:
            return self._open_capsule(content)
        document = json.loads(content)
        number = bytes.fromhex(document["lease"])
        deadline = (float(document["boot"]), float(document["wall"]))
        if kind == PROLONG:
            if number in self._leases:
                self._leases[number].deadline = deadline
            return DONE, b""
        try:
            answer = self._link.call(f"/v1/leases/{number.hex()}/keys", {})
        except (LeaseDenied, HubUnreachable):
            return NO_LEASE, b""
        keys = LeaseKeys.from_json(answer)
        sealing = BoxFormat(keys.digest, *document["sizes"])
        tokens = document["tokens"]
        self._leases[number] = OpenLease(
            keys,
            keys.private,
            sealing,
            deadline,
            GatewayKey(keys.gateway),
            document["capsule_size"],
            tokens and TokenVerifier.from_document(tokens),
        )
        return DONE, b""

    def _open_capsule(self, capsule: bytes) -> tuple[int, bytes]:
        """Open a capsule by any lease, in random order as in `Intake.open_capsule`."""
        leases = list(self._leases.items())
        secrets.SystemRandom().shuffle(leases)
        for number, lease in leases:
            if len(capsule) > lease.capsule_size:
                continue
            if lease.is_over():
                os._exit(OVER_EXIT_CODE)
            try:
                request, answer = lease.gateway.opened(capsule)
            except NotOpened:
                continue
            return DONE, number + answer.enc + answer.secret + request
        return NOT_OPENED, b""


def read_frame(stream: BinaryIO) -> tuple[int, int, bytes] | None:
    """Read one frame; None at the end of the stream."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    size, number, kind = HEAD.unpack(head)
    content = stream.read(size)
    return (number, kind, content) if len(content) == size else None


def main(url: str, identity: str, authority: str) -> None:
    forbid_memory_dumps()
    with locked_memory():
        opener = Opener(HubLink(url, LeaseIdentity(Path(identity), Path(authority))))
        threading.Thread(target=opener.watch, daemon=True).start()
        with contextlib.suppress(BrokenPipeError):  # the edge was killed
            while (frame := read_frame(sys.stdin.buffer)) is not None:
                number, kind, content = frame
                status, answer = opener.answer(kind, content)
                sys.stdout.buffer.write(HEAD.pack(len(answer), number, status) + answer)
                sys.stdout.buffer.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
