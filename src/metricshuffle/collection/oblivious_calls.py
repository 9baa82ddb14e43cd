"""Calls of one collection through a relay and its gateway: fetch the collection, send a report.

All requests of a collection have one length, so that a relay does not see which call it is. Answers
have one length too, except for the collection itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from urllib.parse import urlsplit

from metricshuffle.collection.binary_http import BinaryRequest
from metricshuffle.collection.capsules import ADDED_TO_REQUEST, KeyConfiguration, padded_size
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import PlanError


@dataclass(frozen=True)
class ObliviousCalls:
    """Requests to the gateway of a collection."""

    collection: Collection

    @cached_property
    def configuration(self) -> KeyConfiguration:
        gateway = self.collection.terms.gateway
        if not gateway:
            raise PlanError(
                "this collection has no gateway for reports through a relay; its operator opens it "
                "with collection open --oblivious."
            )
        return KeyConfiguration(bytes.fromhex(gateway))

    @cached_property
    def fetching(self) -> BinaryRequest:
        """Request for the collection."""
        parts = urlsplit(self.collection.url)
        return BinaryRequest("GET", parts.scheme, parts.netloc, parts.path)

    def reporting(self, report: bytes) -> BinaryRequest:
        """Request that sends a report."""
        path = f"{self.fetching.path}/reports"
        return replace(self.fetching, method="POST", path=path, content=report)

    @cached_property
    def request_size(self) -> int:
        """Length of every request."""
        report = bytes(self.collection.sealing.report_size)
        return padded_size(len(self.reporting(report).encoded()))

    @property
    def capsule_size(self) -> int:
        return self.request_size + ADDED_TO_REQUEST

    def is_fetching(self, request: BinaryRequest) -> bool:
        return self._is_here(request) and (request.method, request.path) == (
            "GET",
            self.fetching.path,
        )

    def is_reporting(self, request: BinaryRequest) -> bool:
        return self._is_here(request) and (request.method, request.path) == (
            "POST",
            f"{self.fetching.path}/reports",
        )

    def _is_here(self, request: BinaryRequest) -> bool:
        here = self.fetching
        return (request.scheme, request.authority) == (here.scheme, here.authority)
