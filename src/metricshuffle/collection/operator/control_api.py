"""The operator's side of a shuffler's calls: open a collection at every hop of its chain, see how it stands, abort it, purge it."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metricshuffle.collection.client.http_client import is_untrusted_certificate, network_error_text, unreachable_text
from metricshuffle.collection.sealed_boxes import TICKET_BYTES
from metricshuffle.collection.terms import Admission, Collection, Hop, Party, instant, parse_time
from metricshuffle.errors import InputError, MetricShuffleError, PlanError, require
from metricshuffle.tasks.message_format import MessageFormat
from metricshuffle.tasks.task import Task

ANSWER_SECONDS = 60.0
"""That a shuffler may take to answer."""
MAX_ANSWER_BYTES = 64 * 2**20
"""Bytes that it says: the states of a hundred thousand collections."""
DURATION = re.compile(r"([0-9]{1,9})([smhd])")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LATEST_SECONDS = 253402300799
"""The end of the year 9999, which the format of times ends with."""


class NoAnswerError(MetricShuffleError):
    """A shuffler did not answer: what it was asked for was done, or was not."""


def parse_duration_option(text: str, option: str) -> int:
    """How many a duration like 90s, 10m, 1h or 2d has."""
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{option} must be a duration like 90s, 10m, 1h or 2d, got {text!r}.")
    return int(match[1]) * UNITS[match[2]]


def parse_time_option(text: str, since: float, option: str) -> int:
    """Seconds since 1970 of a time like 2030-01-31T12:00:00Z, or of a duration after `since`."""
    if DURATION.fullmatch(text.strip()):
        return min(int(since) + parse_duration_option(text, option), LATEST_SECONDS)
    try:
        return parse_time(text.strip())
    except ValueError:
        raise InputError(
            f"{option} must be a duration like 90s, 10m, 1h or 2d, or a time like 2030-01-31T12:00:00Z, got {text!r}."
        ) from None


@dataclass(frozen=True)
class Operator:
    """Who may open collections at a shuffler, and where that listens."""

    url: str
    token: str

    def __repr__(self) -> str:
        return f"Operator({self.url!r})"

    def new_hop(self, name: str = "") -> Hop:
        """That shuffler as a hop of one collection: fresh keys, and its witness, if it has one."""
        told = self._call("POST", "keys")
        try:
            return Hop(key=told["key"], release=told["release"], name=name, url=self.url, witness=told.get("witness"))
        except (KeyError, InputError):
            raise InputError(f"{self.url} does not answer as a shuffler does; see whether it is metricshuffle serve.") from None

    def open(self, collection: Collection, tickets: Sequence[bytes] = ()) -> None:
        content = {"collection": collection.served.decode(), "tickets": b"".join(tickets).hex()}
        self._call("POST", "collections", content)

    def statuses(self) -> list[dict[str, Any]]:
        """Of every collection there."""
        answer = self._call("GET", "collections").get("collections", [])
        return [status for status in answer if isinstance(status, dict)] if isinstance(answer, list) else []

    def status(self, digest: str) -> dict[str, Any]:
        return self._call("GET", f"collections/{digest}")

    def abort(self, digest: str, reason: str) -> dict[str, Any]:
        return self._call("POST", f"collections/{digest}/abort", {"reason": reason})

    def purge(self, digest: str) -> dict[str, Any]:
        return self._call("POST", f"collections/{digest}/purge", {})

    def clock(self) -> dict[str, Any]:
        """What the shuffler's clock says, and whether it is believed."""
        return self._call("GET", "clock")

    def confirm_clock(self) -> dict[str, Any]:
        return self._call("POST", "clock/confirm", {})

    def correct_clock(self) -> dict[str, Any]:
        return self._call("POST", "clock/correct", {})

    def _call(self, method: str, call: str, content: Any = None) -> dict[str, Any]:
        httpx = require("httpx", "service")
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            with (
                httpx.Client(headers=headers, timeout=ANSWER_SECONDS, follow_redirects=False) as client,
                client.stream(method, f"{self.url}/v1/control/{call}", json=content) as response,
            ):
                answer = bytearray()
                for part in response.iter_bytes():
                    answer += part
                    if len(answer) > MAX_ANSWER_BYTES:
                        raise InputError(f"{self.url} answers more than a shuffler does; see whether it is metricshuffle serve.")
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as failure:
            if is_untrusted_certificate(failure):
                raise InputError(unreachable_text(self.url, failure)) from None
            raise InputError(
                f"cannot reach {self.url} ({network_error_text(failure)}); see whether metricshuffle serve runs there."
            ) from None
        except (httpx.HTTPError, UnicodeEncodeError) as failure:
            raise NoAnswerError(f"{self.url} did not answer ({network_error_text(failure)}); try again.") from None
        try:
            content_read = json.loads(answer)
        except (ValueError, RecursionError):
            content_read = None
        if not isinstance(content_read, dict):
            raise InputError(f"{self.url} does not answer as a shuffler does; see whether it is metricshuffle serve.")
        if response.is_success:
            return content_read
        error = "".join(letter for letter in str(content_read.get("error", "")) if letter.isprintable())[:1000]
        if response.status_code >= 500:
            raise NoAnswerError(f"{self.url} cannot do it now: {error}")
        hint = " Give its keys folder with --keys, or --token-file." if response.status_code == 401 else ""
        raise InputError(f"{self.url} says: {error}{hint}")


@dataclass(frozen=True)
class Opening:
    """What an operator wants to open; what cannot be is refused before anybody is asked for anything."""

    task: Task
    analyst: Party
    colluders: int
    opens: int
    """Seconds since 1970, as the next two."""
    closes: int
    extends: int
    retention: int
    delay: int = 0
    round: int = 1
    parts: int = 1
    admission: Admission = "open"
    tickets: int = 0
    """Of each part."""
    apart: bool = True

    def __post_init__(self) -> None:
        task, needed = self.task, self.task.honest + self.colluders
        MessageFormat.of(task.protocol)
        if not 1 <= self.round <= task.rounds:
            raise InputError(f"--round must be from 1 to {task.rounds}, the rounds of the plan, got {self.round}.")
        if self.colluders < 0 or not 1 <= self.parts <= 1000:
            raise InputError("--colluders must be 0 or more, and --split from 1 to 1,000.")
        if needed > task.users:
            raise InputError(
                f"the plan counts on {task.honest:,} honest reports; with {self.colluders:,} colluders that takes {needed:,} reports, and "
                f"the plan is for {task.users:,} people. Plan again with --honest {max(1, task.users - self.colluders)} or fewer, or for "
                "more people."
            )
        if not time.time() < self.closes <= self.extends or self.opens >= self.closes:
            raise InputError("--closes must lie in the future and after --opens, and --extends not before --closes.")
        if self.admission == "tickets" and not needed <= self.tickets:
            raise InputError(f"--tickets must be at least {needed:,}, the least number of reports (of each part), got {self.tickets:,}.")

    @property
    def needed(self) -> int:
        """Reports of each part, at least."""
        return self.task.honest + self.colluders

    def collection(self, part: int, hops: Sequence[Hop]) -> Collection:
        """The collection of one part."""
        return Collection.new(
            self.task,
            round=self.round,
            split=(part, self.parts),
            hops=tuple(hops),
            analyst=self.analyst,
            colluders=self.colluders,
            apart=self.apart,
            opens=instant(self.opens),
            closes=instant(self.closes),
            extends=instant(self.extends),
            delay=self.delay,
            admission=self.admission,
            retention=self.retention,
        )

    def new_tickets(self) -> list[bytes]:
        """For one part, in no order."""
        return [secrets.token_bytes(TICKET_BYTES) for _ in range(self.tickets)] if self.admission == "tickets" else []


def check_round_is_free(operators: Sequence[Operator], opening: Opening) -> None:
    """Raise if a hop has a collection of that plan and round already; so nothing is opened at some hops and refused at others."""
    for operator in operators:
        for status in operator.statuses():
            if (status.get("task"), status.get("round")) == (opening.task.digest, opening.round):
                raise InputError(
                    f"{operator.url} has a collection of round {opening.round} of this plan already, {str(status.get('digest'))[:16]} "
                    f"({status.get('state')}): nobody may report twice; open the next round, or make another plan."
                )


def open_at_all_hops(operators: Sequence[Operator], collection: Collection, tickets: Sequence[bytes]) -> None:
    """The same bytes at every hop, the last one first: when reports can come in, everybody behind is ready.

    If a hop refuses, those behind it are told to give up. `NoAnswerError` if a hop said nothing: then it may be open.
    """
    for place in reversed(range(len(operators))):
        try:
            operators[place].open(collection, tickets if place == 0 else ())
        except InputError as error:
            for later in operators[place + 1 :]:
                later.abort(collection.digest, "a shuffler before this one refused it")
            raise PlanError(str(error)) from None
