"""Log messages with fields, and a log of JSON lines.

A message is text that people read; its fields are for programs. Neither contains an address, a tag,
a name or a time of a report. Times of lines are written to the minute.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TextIO

Log = Callable[[str], None]
EventKind = Literal["note", "state", "clock", "drain", "trouble", "bug", "certificate", "lease"]


class LogEvent(str):
    """Text of a log message, with the kind of event and public fields."""

    __slots__ = ("fields", "kind")
    kind: EventKind
    fields: dict[str, str]

    def __new__(cls, text: str, kind: EventKind, **fields: str) -> LogEvent:
        event = super().__new__(cls, text)
        event.kind = kind
        event.fields = fields
        return event


def kind_of(text: str) -> EventKind:
    """Return the kind of a message; plain text is a note."""
    return text.kind if isinstance(text, LogEvent) else "note"


class JsonLog:
    """Writes each message as one line of JSON."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.time) -> None:
        self._stream = stream
        self._clock = clock

    def __call__(self, text: str) -> None:
        minute = datetime.fromtimestamp(self._clock() // 60 * 60, UTC).strftime("%Y-%m-%dT%H:%MZ")
        line = {
            "time": minute,
            "event": kind_of(text),
            "message": " ".join(text.split()),
            **(text.fields if isinstance(text, LogEvent) else {}),
        }
        self._stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._stream.flush()


class EventLog:
    """Passes messages on, remembers which kinds there were, and repeats no bug.

    A bug that reports trigger would otherwise be logged once for each report.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._bugs: set[str] = set()
        self.kinds: set[EventKind] = set()

    def __call__(self, text: str) -> None:
        kind = kind_of(text)
        self.kinds.add(kind)
        if kind == "bug":
            if text in self._bugs:
                return
            self._bugs.add(str(text))
        self._log(text)


def failure_text(error: BaseException) -> str:
    """Type, file and line of an error, without any data."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = (
        f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        if trace is not None
        else ""
    )
    return f"{type(error).__name__}{where}."
