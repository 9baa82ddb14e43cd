"""Calls between the adders of a sum: lists of names and statements are sent until they are taken.

Everything that is sent is signed, so a call needs no token; TLS hides the names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from metricshuffle.collection.adder.sum_signatures import NameList, SumStatement
from metricshuffle.collection.client.http_client import network_error_text
from metricshuffle.collection.shuffler.upstream import (
    CONNECT_TIMEOUT_SECONDS,
    READ_TIMEOUT_SECONDS,
    answer_of,
    certificates,
    reason_in,
)
from metricshuffle.errors import MetricShuffleError, require

if TYPE_CHECKING:
    import httpx

TAKEN = 204
REFUSED_ANOTHER = 409
"""Status of an adder that has another list or statement of the sender."""
ENDED = 410
ABORTED = "has aborted this sum"


class AdderUnreachable(MetricShuffleError):
    """Another adder did not take a list or a statement; it is sent again."""


class AdderRefused(MetricShuffleError):
    """Another adder will never take it; `reason` is published when the sum is aborted."""

    def __init__(self, sentence: str, reason: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@dataclass(frozen=True)
class AdderLink:
    """Link to another adder of a sum."""

    url: str
    digest: str

    def send_names(self, names: NameList) -> None:
        self._send("names", names.to_bytes(), "application/octet-stream")

    def send_statement(self, statement: SumStatement) -> None:
        content = json.dumps(asdict(statement)).encode()
        self._send("statements", content, "application/json")

    def check_state(self) -> None:
        """Raise AdderRefused if the sum is aborted there, AdderUnreachable without an answer."""
        with self._call("GET", "state") as response:
            state = answer_of(response).get("state")
        if state == "aborted":
            raise AdderRefused(f"the adder {self.url} has aborted the sum.", ABORTED)

    def _send(self, call: str, content: bytes, kind: str) -> None:
        """Post once.

        Raises: AdderUnreachable to try again later; AdderRefused if the adder has another one, or
        has aborted the sum.
        """
        headers = {"content-type": kind}
        with self._call("POST", call, content=content, headers=headers) as response:
            reason = "" if response.status_code == TAKEN else reason_in(answer_of(response))
        refused = {
            REFUSED_ANOTHER: "has another list or set of this adder from before",
            ENDED: ABORTED,
        }
        if response.status_code in refused:
            sentence = f"the adder {self.url} says: {reason}"
            raise AdderRefused(sentence, refused[response.status_code])
        if response.status_code != TAKEN:
            raise AdderUnreachable(
                f"the adder {self.url} answers {response.status_code}: {reason} It is asked again."
            )

    @contextmanager
    def _call(
        self,
        method: str,
        call: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[httpx.Response]:
        httpx = require("httpx", "service")
        timeout = httpx.Timeout(READ_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS)
        address = f"{self.url}/v1/collections/{self.digest}/{call}"
        sent_headers = {"accept-encoding": "identity", **(headers or {})}
        try:
            with (
                httpx.Client(
                    timeout=timeout, follow_redirects=False, verify=certificates()
                ) as client,
                client.stream(method, address, content=content, headers=sent_headers) as response,
            ):
                yield response
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise AdderUnreachable(
                f"the adder {self.url} does not answer ({network_error_text(error)}); it is asked "
                "again."
            ) from None
