"""Process that writes into a store until killed: `python -m tests.collection.store_writer`.

Once it is ready it reads commands on standard input: `write URL DIGEST SEED`, `seal URL DIGEST` or
`look URL`. It prints acknowledged reports, one line per transaction, only after they are durable.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable

from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import Entry, Verdict

BATCH = 20


def parse_ticket(seed: str, number: int) -> bytes:
    return hashlib.blake2b(f"{seed} {number}".encode(), digest_size=16).digest()


def write(url: str, digest: str, seed: str) -> None:
    """Write fresh reports until it is closed, one for each ticket of a seed.

    Without tickets where none is required.
    """
    store = connect_store(url)
    number = 0
    while True:
        entries = [
            Entry(os.urandom(16), parse_ticket(seed, number + place), os.urandom(200))
            for place in range(BATCH)
        ]
        verdicts = store.put(digest, entries)
        stored = [
            entry.tag.hex()
            for entry, verdict in zip(entries, verdicts, strict=True)
            if verdict is Verdict.STORED
        ]
        if stored:
            print(*stored, flush=True)
        if Verdict.CLOSED in verdicts:
            assert not stored, "half of a transaction was in time"
            break
        number += BATCH
    store.close()


def seal(url: str, digest: str) -> None:
    """Poll as a driver does until it is no longer open."""
    store = connect_store(url)
    while store.seal(digest) == "open":
        time.sleep(0.002)
    print(store.seal(digest), flush=True)
    store.close()


def look(url: str) -> None:
    """Open the store, concurrently with others."""
    print(len(connect_store(url).rows()), flush=True)


if __name__ == "__main__":
    print("ready", flush=True)
    what, *words = sys.stdin.readline().split()
    ways: dict[str, Callable[..., None]] = {"write": write, "seal": seal, "look": look}
    ways[what](*words)
