"""Pool of database connections, and a cache for the bytes of collections."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from metricshuffle.collection.store.records import StoreError

Connection = TypeVar("Connection")

MAX_CONNECTIONS = 8
"""Maximum number of connections of a process; further calls wait."""
WAIT_SECONDS = 30.0
"""Seconds that a call waits for a connection before it fails."""

_inherited_connections: list[object] = []
"""Connections of a parent process; closing them here would end them for the parent too."""


class ConnectionPool(Generic[Connection]):
    """Pool of connections that threads borrow; failed ones are closed, none survives a fork."""

    def __init__(
        self,
        opened: Callable[[], Connection],
        close: Callable[[Connection], None],
        begin: Callable[[Connection], object] = lambda _: None,
    ) -> None:
        """Create an empty pool.

        `begin` is called with a connection before it is lent. If `begin` fails with an idle
        connection, that connection was lost meanwhile, and another one is taken.
        """
        self._open = opened
        self._close = close
        self._begin = begin
        self._start()

    def _start(self) -> None:
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._places = threading.Semaphore(MAX_CONNECTIONS)
        self._process = os.getpid()
        self._closed = False

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        if self._process != os.getpid():
            _inherited_connections.append(self._idle)
            self._start()
        if not self._places.acquire(timeout=WAIT_SECONDS):
            raise StoreError(
                f"{MAX_CONNECTIONS} calls of the database have not ended for "
                f"{WAIT_SECONDS:.0f} seconds; trying again later."
            )
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
        """Close idle connections; those in use are closed when they are handed back."""
        with self._lock:
            idle = self._idle
            self._idle = []
            self._closed = True
        if self._process == os.getpid():
            for connection in idle:
                self._close(connection)


class BytesCache(dict[str, bytes]):
    """Cache of bytes by digest, emptied when it is full; the scheduler reads all rows often."""

    MAX_BYTES = 64 * 2**20
    size = 0

    def __setitem__(self, digest: str, data: bytes) -> None:
        if self.size + len(data) > self.MAX_BYTES:
            self.clear()
            self.size = 0
        self.size += len(data)
        super().__setitem__(digest, data)
