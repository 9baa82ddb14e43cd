"""Checks of a shuffler from outside, through its calls."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from metricshuffle.collection.admission_tokens import TOKEN_NONCE_BYTES, TokenVerifier
from metricshuffle.collection.binary_http import (
    BinaryRequest,
    BinaryResponse,
    MalformedMessage,
)
from metricshuffle.collection.blind_signatures import MODULUS_BYTES
from metricshuffle.collection.capsules import (
    ADDED_TO_ANSWER,
    ANSWER_TYPE,
    CAPSULE_TYPE,
    GATEWAY_PATH,
    SHORT_ANSWER_BYTES,
)
from metricshuffle.collection.conformance.requirements import (
    ConformanceLine,
    NotChecked,
    NotConforming,
    expect,
    lines_of,
)
from metricshuffle.collection.oblivious_calls import ObliviousCalls
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.sealed_boxes import (
    ADMISSION_TOKEN_BYTES,
    TICKET_BYTES,
    NotOpened,
    PrivateKey,
)
from metricshuffle.collection.store.records import STATES
from metricshuffle.collection.terms import Collection, origin_of
from metricshuffle.errors import InputError, require

if TYPE_CHECKING:
    import httpx

PHASES = ("open", "not open yet", "closed", "aborted", "gone")
FOREIGN_SITE = "https://another-site.example"
ANSWER_SECONDS = 60.0
CLOSING_SECONDS = 2.0
"""Time between the two readings of the state."""
NEEDS_SENDING = "it sends reports: give --send, for a collection that exists for this test."
NEEDS_OPEN = "the collection is not open."
NEEDS_TICKET = "it needs a collection with tickets, and two unused ones (--ticket-file)."
NEEDS_TOKEN = "it needs a collection with tokens."  # noqa: S105 - a sentence


@dataclass
class ServerCheck:
    """Calls of one collection at a shuffler, and all answers."""

    client: httpx.Client
    url: str
    """Address of the collection."""
    collection: Collection
    is_sending: bool
    tickets: Sequence[bytes]
    answers: list[httpx.Response] = field(default_factory=list)

    def ask(
        self, method: str, path: str = "", content: bytes | None = None, **headers: str
    ) -> httpx.Response:
        """Make one call, relative to the address of the collection."""
        import httpx

        try:
            answer = self.client.request(method, self.url + path, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise NotConforming(f"{method} {path or '/'} got no answer ({error}).") from None
        self.answers.append(answer)
        return answer

    def post(self, report: bytes, **headers: str) -> httpx.Response:
        return self.ask("POST", "/reports", report, **headers)

    def report(self, ticket: bytes = b"", key: PrivateKey | None = None) -> bytes:
        """Report of random boxes, which only the analyst can tell from others."""
        sealing = self.collection.sealing
        boxes = [secrets.token_bytes(sealing.inner_size) for _ in range(sealing.messages)]
        return sealing.closed(
            boxes, self.collection.keys[-1] if key is None else key.public, self._padded(ticket)
        )

    def _padded(self, ticket: bytes) -> bytes:
        size = self.collection.sealing.ticket
        return ticket if len(ticket) == size else secrets.token_bytes(size)

    def state(self) -> JsonObject:
        answer = self.ask("GET", "/state")
        expect(answer.status_code == 200, f"the state is answered by {answer.status_code}.")
        try:
            content = answer.json()
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise NotConforming("the state is not a JSON object.")
        return content

    def need_open(self) -> None:
        """Raise `NotChecked` unless reports are accepted."""
        if self.state().get("phase") != "open":
            raise NotChecked(NEEDS_OPEN)

    def need_sending(self) -> None:
        if not self.is_sending:
            raise NotChecked(NEEDS_SENDING)
        self.need_open()

    # Calls without reports

    def check_collection(self) -> None:
        answer = self.ask("GET")
        expect(answer.status_code == 200, f"answered by {answer.status_code}.")
        expect(answer.content == self.collection.served, "other bytes than before.")
        kind = answer.headers.get("content-type", "")
        expect(kind.partition(";")[0] == "application/json", f"of type {kind!r}.")

    def check_unknown(self) -> None:
        base = self.url.rpartition("/")[0]
        for method, path in (("GET", ""), ("GET", "/state"), ("POST", "/reports")):
            address = f"{base}/{secrets.token_hex(32)}{path}"
            answer = self.client.request(method, address, content=b"0" * 100)
            self.answers.append(answer)
            expect(answer.status_code == 404, f"{method} {path}: {answer.status_code}.")

    def check_state(self) -> None:
        state = self.state()
        for name in ("state", "phase", "reason", "closes", "until"):
            expect(name in state, f"`{name}` is missing.")
        expect(state["state"] in STATES, f"the state is {state['state']!r}.")
        expect(state["phase"] in PHASES, f"the phase is {state['phase']!r}.")

    def check_people(self) -> None:
        state = self.state()
        if state.get("state") in ("open", "sealed"):
            expect(state.get("people") is None, "the number of people is public too early.")
        else:
            raise NotChecked("the collection is shuffled or aborted.")

    def check_forward(self) -> None:
        before = self.state()["state"]
        time.sleep(CLOSING_SECONDS)
        after = self.state()["state"]
        expect(STATES.index(after) >= STATES.index(before), f"{after} after {before}.")

    def check_token(self) -> None:
        for headers in ({}, {"authorization": f"Bearer {secrets.token_hex(32)}"}):
            answer = self.ask("GET", "/release", None, **headers)
            expect(answer.status_code == 401, f"answered by {answer.status_code}.")

    # Reports that are refused

    def check_chunks(self) -> None:
        self.need_open()
        parts = iter([self.report()])
        import httpx

        try:
            answer = self.client.post(f"{self.url}/reports", content=parts)
        except httpx.HTTPError as error:
            raise NotConforming(f"no answer to a report in chunks ({error}).") from None
        self.answers.append(answer)
        expect(answer.status_code == 411, f"answered by {answer.status_code}.")

    def check_long(self) -> None:
        self.need_open()
        answer = self.post(self.report() + b"\0")
        expect(answer.status_code == 413, f"answered by {answer.status_code}.")

    def check_unreadable(self) -> None:
        """Check that reports that cannot be opened get one answer, whatever the cause."""
        self.need_open()
        report = self.report()
        bodies = [
            report[:-1],
            bytes(len(report)),
            report[:-1] + bytes([report[-1] ^ 1]),
            bytes([report[0] ^ 1]) + report[1:],
            self.report(key=PrivateKey.new()),
            secrets.token_bytes(len(report)),
        ]
        answers = [self.post(body) for body in bodies]
        statuses = [answer.status_code for answer in answers]
        expect(set(statuses) == {422}, f"answered by {statuses}.")
        expect(len({answer.content for answer in answers}) == 1, "the answers differ.")

    def check_repeated_box(self) -> None:
        self.need_open()
        sealing = self.collection.sealing
        if sealing.messages < 2:
            raise NotChecked("a report of this collection has one message.")
        boxes = [secrets.token_bytes(sealing.inner_size)] * sealing.messages
        body = sealing.closed(boxes, self.collection.keys[-1], self._padded(b""))
        answer = self.post(body)
        unreadable = self.post(bytes(len(body)))
        expect(
            (answer.status_code, answer.content) == (422, unreadable.content),
            f"answered by {answer.status_code}.",
        )

    def check_method(self) -> None:
        for method in ("GET", "PUT", "DELETE"):
            answer = self.ask(method, "/reports")
            allowed = answer.headers.get("allow", "")
            expect(answer.status_code == 405, f"{method}: {answer.status_code}.")
            expect("POST" in allowed, f"{method}: Allow is {allowed!r}.")

    def check_origin(self) -> None:
        self.need_open()
        answer = self.post(bytes(self.collection.sealing.report_size), origin=FOREIGN_SITE)
        expect(answer.status_code == 403, f"answered by {answer.status_code}.")
        shared = answer.headers.get("access-control-allow-origin")
        expect(shared is None, "the page of another site may read the answer.")

    # Reports that are stored

    def check_stored(self) -> None:
        self.need_sending()
        answer = self.post(self.report(self._ticket(0)))
        expect((answer.status_code, answer.content) == (204, b""), f"{answer.status_code}.")

    def check_again(self) -> None:
        self.need_sending()
        report = self.report(self._ticket(1))
        statuses = [self.post(report).status_code for _ in range(3)]
        expect(statuses == [204] * 3, f"answered by {statuses}.")

    def check_unknown_ticket(self) -> None:
        self.need_open()
        if self.collection.sealing.ticket != TICKET_BYTES:
            raise NotChecked(NEEDS_TICKET)
        answer = self.post(self.report(secrets.token_bytes(TICKET_BYTES)))
        expect(answer.status_code == 403, f"answered by {answer.status_code}.")

    def check_spent_ticket(self) -> None:
        self.need_sending()
        if self.collection.sealing.ticket != TICKET_BYTES:
            raise NotChecked(NEEDS_TICKET)
        self._check_spent()

    def check_invalid_token(self) -> None:
        self.need_open()
        verifier = self._verifier()
        signed = verifier.token_input(secrets.token_bytes(TOKEN_NONCE_BYTES))
        damaged = (
            signed + secrets.token_bytes(MODULUS_BYTES),
            b"\0\1" + signed[2:] + bytes(MODULUS_BYTES),
            secrets.token_bytes(ADMISSION_TOKEN_BYTES),
        )
        answers = [self.post(self.report(token)) for token in damaged]
        statuses = [answer.status_code for answer in answers]
        expect(set(statuses) == {403}, f"answered by {statuses}.")
        expect(len({answer.content for answer in answers}) == 1, "with several bodies.")

    def check_spent_token(self) -> None:
        self.need_sending()
        self._verifier()
        self._check_spent()

    def _verifier(self) -> TokenVerifier:
        if self.collection.token_verifier is None:
            raise NotChecked(NEEDS_TOKEN)
        return self.collection.token_verifier

    def _check_spent(self) -> None:
        ticket = self._ticket(0)  # spent by `check_stored`, or now
        statuses = [self.post(self.report(ticket)).status_code for _ in range(2)]
        expect(statuses[-1] == 409, f"answered by {statuses}.")

    def _ticket(self, place: int) -> bytes:
        if not self.collection.sealing.ticket:
            return b""
        if place >= len(self.tickets):
            raise NotChecked(NEEDS_TICKET)
        return self.tickets[place]

    def check_closed(self) -> None:
        if self.state().get("state") == "open":
            raise NotChecked("the collection is not sealed or aborted yet.")
        statuses = [self.post(self.report()).status_code for _ in range(2)]
        expect(set(statuses) == {410}, f"answered by {statuses}.")

    # The gateway

    def ask_gateway(self, request: BinaryRequest) -> tuple[BinaryResponse, int]:
        """Send a request through the gateway; return the response, and the answer's length."""
        if not self.collection.terms.gateway:
            raise NotChecked("the collection has no gateway.")
        if self.state().get("state") != "open":
            raise NotChecked(NEEDS_OPEN)
        calls = ObliviousCalls(self.collection)
        capsule, key = calls.configuration.sealed(request.encoded(calls.request_size))
        answer = self._post_capsule(capsule)
        kind = answer.headers.get("content-type", "")
        expect(answer.status_code == 200, f"a capsule is answered by {answer.status_code}.")
        expect(kind == ANSWER_TYPE, f"an answer has the type {kind!r}.")
        try:
            return BinaryResponse.decoded(key.opened(answer.content)), len(answer.content)
        except (NotOpened, MalformedMessage):
            raise NotConforming("an answer does not open.") from None

    def _post_capsule(self, capsule: bytes) -> httpx.Response:
        answer = self.client.post(
            origin_of(self.url) + GATEWAY_PATH,
            content=capsule,
            headers={"content-type": CAPSULE_TYPE},
        )
        self.answers.append(answer)
        if answer.status_code == 403:
            raise NotChecked("the gateway takes capsules of listed relays only.")
        return answer

    def check_gateway(self) -> None:
        response, _ = self.ask_gateway(ObliviousCalls(self.collection).fetching)
        expect(response.status == 200, f"the collection is answered by {response.status}.")
        expect(response.content == self.collection.served, "other bytes than without a gateway.")

    def check_targets(self) -> None:
        calls = ObliviousCalls(self.collection)
        for path in ("/v1/control/keys", f"/v1/collections/{secrets.token_hex(32)}/reports"):
            response, _ = self.ask_gateway(replace(calls.reporting(b""), path=path))
            expect(response.status == 404, f"{path} is answered by {response.status}.")
        self.need_open()
        response, _ = self.ask_gateway(calls.reporting(bytes(self.collection.sealing.report_size)))
        expect(response.status == 422, f"zeros are answered by {response.status}.")

    def check_answer_length(self) -> None:
        calls = ObliviousCalls(self.collection)
        size = self.collection.sealing.report_size
        contents = [bytes(size), bytes(size - 1), bytes(size + 1)]
        if self.is_sending and not self.collection.sealing.ticket:
            contents.append(self.report())
        lengths = {
            length
            for content in contents
            for _, length in [self.ask_gateway(calls.reporting(content))]
        }
        expect(lengths == {SHORT_ANSWER_BYTES + ADDED_TO_ANSWER}, f"lengths {sorted(lengths)}.")

    def check_malformed(self) -> None:
        calls = ObliviousCalls(self.collection)
        self.ask_gateway(calls.fetching)
        capsule, _ = calls.configuration.sealed(calls.fetching.encoded(calls.request_size))
        answers = [
            self._post_capsule(body)
            for body in (
                capsule[:-1],
                capsule[:-1] + bytes([capsule[-1] ^ 1]),
                bytes([capsule[0] ^ 1]) + capsule[1:],
                capsule[:7] + bytes(len(capsule) - 7),
                secrets.token_bytes(len(capsule)),
                b"",
            )
        ]
        statuses = [answer.status_code for answer in answers]
        expect(set(statuses) == {400}, f"answered by {statuses}.")
        expect(len({answer.content for answer in answers}) == 1, "the answers differ.")

    # All answers

    def check_all_answers(self) -> None:
        for answer in self.answers:
            about = f"{answer.request.method} {answer.request.url.path}: {answer.status_code}"
            expect(answer.headers.get("cache-control") == "no-store", f"{about} may be cached.")
            if answer.status_code >= 400 and answer.request.method != "HEAD":
                try:
                    error = json.loads(answer.content).get("error")
                except (ValueError, AttributeError):
                    error = None
                expect(isinstance(error, str) and bool(error), f"{about} has no `error`.")

    def check_retry_times(self) -> None:
        refused = [answer for answer in self.answers if answer.status_code in (429, 503)]
        if not refused:
            raise NotChecked("no call was answered by 429 or 503.")
        for answer in refused:
            seconds = answer.headers.get("retry-after", "")
            expect(seconds.isdigit(), f"Retry-After of {answer.status_code} is {seconds!r}.")


def check_server(
    url: str, collection: Collection, *, is_sending: bool = False, tickets: Sequence[bytes] = ()
) -> Iterable[ConformanceLine]:
    """Check the shuffler of a collection, and yield a line for each requirement.

    Args:
        url: address of the collection.
        is_sending: store reports of random content, which spoils the collection.
        tickets: two unused ones, if the collection needs tickets; or two tokens.
    """
    httpx = require("httpx", "client")
    if not url.startswith(("http://", "https://")):
        raise InputError(f"the address of a collection starts with https://, got {url[:80]!r}.")
    with httpx.Client(timeout=ANSWER_SECONDS, follow_redirects=False) as client:
        server = ServerCheck(client, url.rstrip("/"), collection, is_sending, tickets)
        checks: dict[str, Callable[[], None]] = {
            "C1": server.check_collection,
            "H1": server.check_collection,
            "H2": server.check_unknown,
            "T1": server.check_state,
            "T2": server.check_people,
            "T3": server.check_forward,
            "R3": server.check_token,
            "H3": server.check_chunks,
            "H4": server.check_long,
            "H5": server.check_unreadable,
            "H11": server.check_repeated_box,
            "H6": server.check_method,
            "H7": server.check_origin,
            "A1": server.check_unknown_ticket,
            "H9": server.check_stored,
            "H10": server.check_again,
            "A2": server.check_spent_ticket,
            "A3": server.check_invalid_token,
            "A4": server.check_spent_token,
            "O6": server.check_gateway,
            "O7": server.check_targets,
            "O8": server.check_answer_length,
            "O9": server.check_malformed,
            "T4": server.check_closed,
            "H8": server.check_all_answers,
            "H12": server.check_retry_times,
        }
        numbered = [(number, partial(_run, check)) for number, check in checks.items()]
        return list(lines_of("server", numbered))


def _run(check: Callable[[], None]) -> None:
    """Run a check, which fails if an answer cannot be understood."""
    import httpx

    try:
        check()
    except (httpx.HTTPError, KeyError, ValueError) as error:
        raise NotConforming(f"{type(error).__name__}: {error}") from None
