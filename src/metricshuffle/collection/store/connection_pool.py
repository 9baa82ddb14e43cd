"""What a store keeps in memory: connections that wait to be used again, and the bytes of collections, which never change."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from metricshuffle.collection.store.interface import StoreError

Connection = TypeVar("Connection")

MAX_CONNECTIONS = 8
"""Connections of a process at one time; whoever needs one more waits, as databases take a limited number."""
WAIT_SECONDS = 30.0
"""Seconds that somebody waits for others before it says so."""

_inherited_connections: list[Any] = []
"""Connections of a parent process. They are never used here, and never closed: that would end them for the parent too."""


class ConnectionPool(Generic[Connection]):
    """Those that are idle. Any thread borrows one for itself; whatever failed is not used again, and none is carried over a fork."""

    def __init__(
        self, opened: Callable[[], Connection], close: Callable[[Connection], None], begin: Callable[[Connection], object] = lambda _: None
    ) -> None:
        """`begin` is done with one before it is handed out; an idle one that fails there was lost meanwhile, and another one is taken."""
        self._open, self._close, self._begin = opened, close, begin
        self._start()

    def _start(self) -> None:
        self._idle: list[Connection] = []
        self._lock, self._places, self._process, self._closed = threading.Lock(), threading.Semaphore(MAX_CONNECTIONS), os.getpid(), False

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        if self._process != os.getpid():
            _inherited_connections.append(self._idle)
            self._start()
        if not self._places.acquire(timeout=WAIT_SECONDS):
            raise StoreError(f"{MAX_CONNECTIONS} calls of the database have not ended for {WAIT_SECONDS:.0f} seconds; it is tried again.")
        try:
            connection = self._take()
            try:
                yield connection
            except BaseException:
                self._close(connection)
                raise
            self._hand_back(connection)
        finally:
            self._places.release()

    def _take(self) -> Connection:
        while True:
            with self._lock:
                self._closed = False
                connection = self._idle.pop() if self._idle else None
            was_idle = connection is not None
            if connection is None:
                connection = self._open()
            try:
                self._begin(connection)
                return connection
            except Exception:
                self._close(connection)
                if not was_idle:
                    raise

    def _hand_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        self._close(connection)

    def close(self) -> None:
        """End those that are idle; one that is in use is ended when it is handed back."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        if self._process == os.getpid():
            for connection in idle:
                self._close(connection)


class BytesCache(dict[str, bytes]):
    """Bytes by their digest, forgotten when they become many: whoever looks every half second does not read them anew."""

    MOST = 64 * 2**20
    size = 0

    def __setitem__(self, digest: str, data: bytes) -> None:
        if self.size + len(data) > self.MOST:
            self.clear()
            self.size = 0
        self.size += len(data)
        super().__setitem__(digest, data)
