"""Client of the operator's routes: open collections at all hops; show, abort and purge them."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from metricshuffle.collection.adder.adder_service import tickets_of
from metricshuffle.collection.adder.sum_terms import (
    MAX_ADDERS,
    MIN_ADDERS,
    AdderParty,
    AnyCollection,
    SumCollection,
    summed_shape,
)
from metricshuffle.collection.client.http_client import (
    is_untrusted_certificate,
    network_error_text,
    unreachable_text,
)
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.sealed_boxes import TICKET_BYTES
from metricshuffle.collection.terms import (
    Admission,
    Collection,
    Hop,
    Issuer,
    Party,
    fewest_honest,
    instant,
    parse_time,
)
from metricshuffle.errors import InputError, MetricShuffleError, PlanError, argument, require
from metricshuffle.tasks.message_format import MessageFormat
from metricshuffle.tasks.task import Task

ANSWER_SECONDS = 60.0
"""Timeout for an answer of a shuffler."""
MAX_ANSWER_BYTES = 64 * 2**20
"""Size limit of an answer: the states of a hundred thousand collections."""
DURATION = re.compile(r"([0-9]{1,9})([smhd])")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LATEST_SECONDS = 253402300799
"""End of the year 9999, the last time that can be written."""


class NoAnswerError(MetricShuffleError):
    """A shuffler did not answer; the request may have been carried out."""


def parse_duration_option(text: str, option: str) -> int:
    """Parse a duration like 90s, 10m, 1h or 2d into seconds."""
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{option} must be a duration like 90s, 10m, 1h or 2d, got {text!r}.")
    return int(match[1]) * UNITS[match[2]]


def parse_time_option(text: str, since: float, option: str) -> int:
    """Parse a time like 2030-01-31T12:00:00Z, or a duration after `since`, into Unix seconds."""
    if DURATION.fullmatch(text.strip()):
        return min(int(since) + parse_duration_option(text, option), LATEST_SECONDS)
    try:
        return parse_time(text.strip())
    except ValueError:
        raise InputError(
            f"{option} must be a duration like 90s, 10m, 1h or 2d, or a time like "
            f"2030-01-31T12:00:00Z, got {text!r}."
        ) from None


@dataclass(frozen=True)
class Operator:
    """Operator of a shuffler: its address and token."""

    url: str
    token: str
    address: str = ""
    """Address at which people reach the shuffler, if it is not `url`."""

    def __repr__(self) -> str:
        return f"Operator({self.url!r})"

    def new_hop(self, name: str = "") -> Hop:
        """Create keys for a new collection at the shuffler; return its hop."""
        return self.new_gateway_hop(name)[0]

    def new_gateway_hop(self, name: str = "") -> tuple[Hop, str]:
        """Create keys for a new collection; return the hop, and the key of its gateway.

        Shufflers of an earlier version have no gateway: then its key is empty.
        """
        answer = self._call("POST", "keys")
        try:
            hop = Hop(
                key=answer["key"],
                release=answer["release"],
                name=name,
                url=self.address or self.url,
                witness=answer.get("witness"),
            )
            return hop, str(answer.get("gateway", ""))
        except (KeyError, InputError):
            raise InputError(
                f"{self.url} does not answer as a shuffler does; see whether it is "
                "metricshuffle serve."
            ) from None

    def new_adder(self, name: str = "") -> AdderParty:
        """Create keys for a new sum at an adder; return its entry."""
        answer = self._call("POST", "keys")
        try:
            return AdderParty(
                key=answer["key"],
                signature=answer["signature"],
                name=name,
                url=self.address or self.url,
            )
        except (KeyError, InputError):
            raise InputError(
                f"{self.url} is not an adder; its operator starts one with serve --role adder."
            ) from None

    def open(self, collection: AnyCollection, tickets: Sequence[bytes] = ()) -> None:
        content = {"collection": collection.served.decode(), "tickets": b"".join(tickets).hex()}
        self._call("POST", "collections", content)

    def statuses(self) -> list[JsonObject]:
        """Statuses of all collections."""
        answer = self._call("GET", "collections").get("collections", [])
        return (
            [status for status in answer if isinstance(status, dict)]
            if isinstance(answer, list)
            else []
        )

    def status(self, digest: str) -> JsonObject:
        return self._call("GET", f"collections/{digest}")

    def abort(self, digest: str, reason: str) -> JsonObject:
        return self._call("POST", f"collections/{digest}/abort", {"reason": reason})

    def purge(self, digest: str) -> JsonObject:
        return self._call("POST", f"collections/{digest}/purge", {})

    def clock(self) -> JsonObject:
        """Status of the shuffler's clock."""
        return self._call("GET", "clock")

    def confirm_clock(self) -> JsonObject:
        return self._call("POST", "clock/confirm", {})

    def database(self) -> JsonObject:
        """Whether a hub accepts its database."""
        return self._call("GET", "database")

    def accept_database(self) -> JsonObject:
        return self._call("POST", "database/accept", {})

    def confirm_lease(self, lease: str) -> JsonObject:
        """End a lease whose machine is destroyed; `lease` is the first digits of its id."""
        return self._call("POST", f"leases/{lease}/confirm", {})

    def correct_clock(self) -> JsonObject:
        return self._call("POST", "clock/correct", {})

    def _call(self, method: str, call: str, content: object = None) -> JsonObject:
        httpx = require("httpx", "service")
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            with (
                httpx.Client(
                    headers=headers, timeout=ANSWER_SECONDS, follow_redirects=False
                ) as client,
                client.stream(method, f"{self.url}/v1/control/{call}", json=content) as response,
            ):
                answer = bytearray()
                for part in response.iter_bytes():
                    answer += part
                    if len(answer) > MAX_ANSWER_BYTES:
                        raise InputError(
                            f"the answer of {self.url} is too long for a shuffler; check that "
                            "metricshuffle serve runs there."
                        )
        except (
            httpx.ConnectError,
            httpx.ConnectTimeout,
            httpx.UnsupportedProtocol,
            httpx.InvalidURL,
        ) as failure:
            if is_untrusted_certificate(failure):
                raise InputError(unreachable_text(self.url, failure)) from None
            raise InputError(
                f"cannot reach {self.url} ({network_error_text(failure)}); check that "
                "metricshuffle serve runs there."
            ) from None
        except (httpx.HTTPError, UnicodeEncodeError) as failure:
            raise NoAnswerError(
                f"{self.url} did not answer ({network_error_text(failure)}); try again."
            ) from None
        try:
            content_read = json.loads(answer)
        except (ValueError, RecursionError):
            content_read = None
        if not isinstance(content_read, dict):
            raise InputError(
                f"{self.url} does not answer as a shuffler does; see whether it is "
                "metricshuffle serve."
            )
        if response.is_success:
            return content_read
        error = "".join(
            letter for letter in str(content_read.get("error", "")) if letter.isprintable()
        )[:1000]
        if response.status_code >= 500:
            raise NoAnswerError(f"{self.url} cannot do it now: {error}")
        hint = (
            " Give its keys folder with --keys, or --token-file."
            if response.status_code == 401
            else ""
        )
        raise InputError(f"{self.url} says: {error}{hint}")


@dataclass(frozen=True)
class Opening:
    """Settings of a collection to open, validated before any shuffler is asked."""

    task: Task
    analyst: Party
    colluders: int
    opens: int
    """Seconds since 1970, like the next two."""
    closes: int
    extends: int
    retention: int
    delay: int = 0
    round: int = 1
    parts: int = 1
    admission: Admission = "open"
    tickets: int = 0
    """Number of tickets for each part."""
    issuer: Issuer | None = None
    """Issuer of tokens, which all parts share: a person gets one token, for one part."""
    apart: bool = True
    oblivious: bool = False
    """Whether reports may also come through a relay."""

    def __post_init__(self) -> None:
        task = self.task
        needed = self.needed
        if self.sums:
            summed_shape(task)
        else:
            MessageFormat.of(task.protocol)
        if self.sums and self.parts != 1:
            raise InputError("--split must be 1 for a plan that trusts an aggregator.")
        if self.sums and self.oblivious:
            raise InputError(
                "adders have no gateway for reports through a relay; open the sum without "
                f"{argument('oblivious')}."
            )
        if not 1 <= self.round <= task.rounds:
            raise InputError(
                f"--round must be from 1 to {task.rounds}, the rounds of the plan, got "
                f"{self.round}."
            )
        if self.colluders < 0 or not 1 <= self.parts <= 1000:
            raise InputError("--colluders must be 0 or more, and --split from 1 to 1,000.")
        if needed > task.users:
            raise InputError(
                f"the plan counts on {fewest_honest(task):,} honest reports; with "
                f"{self.colluders:,} colluders that takes {needed:,} reports, and "
                f"the plan is for {task.users:,} people. Plan again with --honest "
                f"{max(1, task.users - self.colluders)} or fewer, or for "
                "more people."
            )
        if not time.time() < self.closes <= self.extends or self.opens >= self.closes:
            raise InputError(
                "--closes must lie in the future and after --opens, and --extends not "
                "before --closes."
            )
        if self.admission == "tickets" and not needed <= self.tickets:
            raise InputError(
                f"--tickets must be at least {needed:,}, the minimum number of reports (of "
                f"each part), got {self.tickets:,}."
            )

    @property
    def needed(self) -> int:
        """Minimum number of reports of each part."""
        return fewest_honest(self.task) + self.colluders

    @property
    def sums(self) -> bool:
        """Whether adders sum the reports, instead of shufflers that mix them."""
        return self.task.protocol.trusted == "aggregator"

    def check_servers(self, count: int) -> None:
        """Raise unless the plan can be collected by that many servers."""
        if self.sums and self.issuer is not None:
            raise InputError(
                f"adders take no tokens; choose {argument('admission', 'tickets')} or open."
            )
        if self.sums and not MIN_ADDERS <= count <= MAX_ADDERS:
            raise InputError(
                f"a plan that trusts an aggregator needs {MIN_ADDERS} to {MAX_ADDERS} adders; give "
                f"--server that often, got {count}."
            )

    def sum_collection(self, adders: Sequence[AdderParty]) -> SumCollection:
        """Sum by these adders."""
        self.check_servers(len(adders))
        return SumCollection.new(
            self.task,
            round=self.round,
            adders=tuple(adders),
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

    def collection(self, part: int, hops: Sequence[Hop], gateway: str = "") -> Collection:
        """Collection of one part; `gateway` is the key of the first hop's gateway."""
        if self.oblivious and not gateway:
            raise InputError(
                f"{hops[0].url} has no gateway for reports through a relay; it runs an earlier "
                "version."
            )
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
            issuer=self.issuer,
            retention=self.retention,
            **({"gateway": gateway} if self.oblivious else {}),
        )

    def new_tickets(self) -> list[bytes]:
        """New random tickets for one part."""
        return (
            [secrets.token_bytes(TICKET_BYTES) for _ in range(self.tickets)]
            if self.admission == "tickets"
            else []
        )


def check_round_is_free(operators: Sequence[Operator], opening: Opening) -> None:
    """Raise if a hop has a collection of that plan and round already, before any hop opens it."""
    for operator in operators:
        for status in operator.statuses():
            if (status.get("task"), status.get("round")) == (opening.task.digest, opening.round):
                raise InputError(
                    f"{operator.url} has a collection of round {opening.round} of this "
                    f"plan already, {str(status.get('digest'))[:16]} "
                    f"({status.get('state')}): nobody may report twice; open the next "
                    "round, or make another plan."
                )


def open_at_all_hops(
    operators: Sequence[Operator], collection: AnyCollection, tickets: Sequence[bytes]
) -> None:
    """Open a collection at all hops, the last first, so that all are ready for reports.

    Each adder of a sum gets the tickets that are derived for it.

    If a hop rejects the collection, it is aborted at the later hops. Raises NoAnswerError if a hop
    does not answer: the collection may be open there.
    """
    for place in reversed(range(len(operators))):
        try:
            own = tickets if place == 0 else ()
            if isinstance(collection, SumCollection):
                own = tickets_of(tickets, place)
            operators[place].open(collection, own)
        except InputError as error:
            for later in operators[place + 1 :]:
                later.abort(collection.digest, "another server refused it")
            raise PlanError(str(error)) from None
