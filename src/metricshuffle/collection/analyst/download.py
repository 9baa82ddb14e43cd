"""Download of outputs: into a file before they are opened, acknowledged after the release."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from metricshuffle.collection.adder.sum_terms import AnyCollection
from metricshuffle.collection.analyst.decryption_pool import BOXES_PER_PART, SealedPart
from metricshuffle.collection.client.http_client import (
    DIGEST,
    answer_of,
    is_untrusted_certificate,
    network_error_text,
    open_connection,
    read_error,
    unreachable_text,
)
from metricshuffle.collection.keys import write_secret
from metricshuffle.collection.output_runs import OrderCheck, OutOfOrder, OutputRuns, head_size
from metricshuffle.collection.sealed_boxes import ANALYST_LAYER
from metricshuffle.collection.shuffler.external_sort import ExternalSort
from metricshuffle.collection.signatures import SIGNATURE_BYTES, is_countersigned
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError, MetricShuffleError, PlanError
from metricshuffle.files import atomic_file

if TYPE_CHECKING:
    import httpx

Received = TypeVar("Received")
RETRY_SECONDS = 30.0
"""Seconds for which an unreachable shuffler is asked again."""
RETRY_PAUSE_SECONDS = 0.5
BOXES_FORMAT = "metricshuffle-boxes/1"
MAX_HEADER_BYTES = 2**16
NOTES = 10
LONGEST_NOTE = 300
"""Limits for recorded notes about the clock of a shuffler: number of notes, letters of a note."""
ASKED_SECONDS = 5.0
"""Timeout for reading the notes; shorter than that of the shuffler whose download waits."""
LONGEST_SIGNATURE = 2 * SIGNATURE_BYTES
NOT_MIXED = (
    "the output of the shuffler is not in the order of its bytes, or contains a message twice; it "
    "was not mixed as this collection says, so nothing is estimated."
)


class NotReleased(MetricShuffleError):
    """The output is not released; `gone` says that it was released before, and is deleted."""

    def __init__(self, sentence: str, *, gone: bool = False) -> None:
        super().__init__(sentence)
        self.gone = gone


@dataclass(frozen=True)
class OutputAnnouncement:
    """Announcement of an output by a shuffler."""

    collection: str
    people: int
    left_out: int
    output: str
    """SHA-256 of all boxes."""
    format: str = BOXES_FORMAT
    countersignature: str = ""
    """Countersignature of the last shuffler's witness, if the collection names one."""
    clock: Sequence[str] = ()
    """Address and sentence for each note about a clock, and for a shuffler without an answer."""

    def is_countersigned(self, collection: Collection) -> bool:
        return is_countersigned(
            collection, len(collection.terms.hops) - 1, self.output, self.countersignature
        )


@dataclass(frozen=True)
class FetchedOutput:
    """File with a line that describes the boxes, followed by the boxes."""

    path: Path
    announced: OutputAnnouncement
    start: int
    """Offset of the first box."""

    @classmethod
    def kept(cls, path: Path, collection: Collection) -> FetchedOutput | None:
        """Return the download of an earlier call; None if there is none of this output."""
        try:
            with open(path, "rb") as stream:
                line = stream.readline(MAX_HEADER_BYTES)
        except OSError:
            return None
        try:
            announced = OutputAnnouncement(**json.loads(line))
            is_countersigned = announced.is_countersigned(collection)
        except (ValueError, TypeError):
            return None
        if (
            announced.format != BOXES_FORMAT
            or announced.collection != collection.digest
            or not is_countersigned
        ):
            return None
        output = cls(path, announced, len(line))
        try:
            total = output.runs(collection).total
        except PlanError:
            return None
        return output if os.path.getsize(path) - len(line) == total else None

    def runs(self, collection: Collection) -> OutputRuns:
        """Runs of the output; raises PlanError if they are impossible."""
        with open(self.path, "rb") as stream:
            stream.seek(self.start)
            head = stream.read(head_size(collection))
        return runs_of(collection, self.announced.people, head)

    def read_boxes(self, collection: Collection) -> Iterator[SealedPart]:
        """Read all boxes of each pile in batches.

        Raises PlanError, at the end at the latest, unless the boxes are the announced ones, sorted
        and distinct.
        """
        runs = self.runs(collection)
        digest = hashlib.sha256(runs.head)
        order = OrderCheck(runs)
        order.feed(runs.head)
        with open(self.path, "rb") as stream:
            stream.seek(self.start + len(runs.head))
            for pile, part in runs.read_parts(stream, BOXES_PER_PART):
                digest.update(part)
                try:
                    order.feed(part)
                except OutOfOrder:
                    raise PlanError(NOT_MIXED) from None
                yield pile, part
        if digest.hexdigest() != self.announced.output:
            raise PlanError(
                f"{self.path} was changed since it was fetched; delete it and collect again."
            )

    def check_piles(self, collection: Collection) -> None:
        """Raise if a message is in two piles."""
        runs = self.runs(collection)

        def read_boxes() -> Iterator[bytes]:
            for _, part in self.read_boxes(collection):
                for start in range(0, len(part), runs.size):
                    yield part[start : start + runs.size]

        if ExternalSort(read_boxes, runs.size, 1, sum(runs.lengths)).find_shared()[1]:
            raise PlanError(NOT_MIXED)


def runs_of(collection: Collection, people: int, head: bytes) -> OutputRuns:
    """Runs of the output for the analyst; raises PlanError if they are impossible."""
    return OutputRuns.of(collection, ANALYST_LAYER, people, head[: head_size(collection)])


@dataclass(frozen=True)
class OutputRecord:
    """File that records the first output fetched of a collection; no other one is accepted.

    The difference of two outputs of one collection would show what single people sent.
    """

    path: Path
    collection: AnyCollection

    def check(self, output: str) -> None:
        """Raise if another output was fetched before; nothing is stored."""
        try:
            first_output = self.path.read_bytes().decode("ascii", "replace").strip()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(
                f"cannot read {self.path}, which records what was fetched before: "
                f"{error.strerror or error}."
            ) from None
        if first_output != output:
            raise PlanError(
                f"{self.collection.terms.hops[-1].url} releases another set of messages of "
                f"collection {self.collection.digest[:16]} than was fetched before (SHA-256 "
                f"{output[:16]}, before {first_output[:16]}): its shuffler was restored from "
                "an older copy of its database and keys. The difference between the two sets "
                "would show what single people sent, protected only by their own noise; the "
                f"second one is not fetched. Use the release of the first one. ({self.path} "
                "records what was fetched.)"
            )

    def note(self, output: str) -> None:
        """Record the first output durably; raise if another one was recorded."""
        try:
            with suppress(FileExistsError):
                write_secret(self.path, f"{output}\n".encode())
        except OSError as error:
            raise InputError(
                f"cannot write {self.path}, which records what was fetched: "
                f"{error.strerror or error}."
            ) from None
        self.check(output)


class ReleaseLink:
    """Link to a server that releases something of a collection or of a sum to the analyst."""

    def __init__(
        self, collection: AnyCollection, host: str, token: str, patience: float = RETRY_SECONDS
    ) -> None:
        self._document = collection
        self._patience = patience
        self._headers = {"authorization": f"Bearer {token}", "accept-encoding": "identity"}
        self._host = host
        self._url = f"{host}/v1/collections/{collection.digest}"

    async def _retried(self, receive: Callable[[httpx.Response], Awaitable[Received]]) -> Received:
        """Ask for the release until there is an answer; raises `NotReleased` without one."""
        deadline = time.monotonic() + self._patience
        async with open_connection() as client:
            while True:
                try:
                    return await self._attempt(client, receive)
                except _TemporaryFailure as error:
                    if time.monotonic() + RETRY_PAUSE_SECONDS > deadline:
                        raise NotReleased(str(error)) from None
                await asyncio.sleep(RETRY_PAUSE_SECONDS)

    async def _attempt(
        self,
        client: httpx.AsyncClient,
        receive: Callable[[httpx.Response], Awaitable[Received]],
    ) -> Received:
        import httpx

        try:
            async with client.stream(
                "GET", f"{self._url}/release", headers=self._headers
            ) as response:
                if response.status_code != 200:
                    raise await self._refusal(response)
                return await receive(response)
        except httpx.HTTPError as error:
            if is_untrusted_certificate(error):
                raise NotReleased(unreachable_text(self._host, error)) from None
            raise _TemporaryFailure(f"{unreachable_text(self._host, error)} Try again.") from None

    async def _refusal(self, response: httpx.Response) -> MetricShuffleError:
        message, terms = await read_error(response), self._document.terms
        if response.status_code == 425:
            return NotReleased(
                f"this collection is not released yet: it closes at {terms.closes} and "
                f"then needs {terms.minimum:,} reports"
                + (
                    f", or waits for them until {terms.extends}"
                    if terms.extends != terms.closes
                    else ""
                )
                + f".{_server_message(message)} Collect it then."
            )
        if response.status_code == 410:
            return NotReleased(
                f"there is nothing to collect any more at {self._host}.{_server_message(message)}",
                gone=True,
            )
        if response.status_code == 401:
            return NotReleased(
                f"{self._host} does not accept this key as that of the collection's "
                f"analyst.{_server_message(message)}"
            )
        if response.status_code == 404:
            return NotReleased(
                f"{self._host} does not know this collection; check who serves "
                f"it.{_server_message(message)}"
            )
        if response.status_code in (429, 500, 502, 503, 504):
            return _TemporaryFailure(
                f"{self._host} cannot answer now.{_server_message(message)} Try again."
            )
        return NotReleased(
            f"{self._host} answered with the unexpected status {response.status_code}."
        )

    async def clock_notes(self) -> list[str]:
        """Public notes of all servers about their clocks, in the order of the chain."""
        urls = [hop.url for hop in self._document.terms.hops]
        notes = await asyncio.gather(*(self._clock_of(url) for url in urls))
        return [
            f"{url}: {note}"
            for url, server_notes in zip(urls, notes, strict=True)
            for note in server_notes
        ]

    async def _clock_of(self, url: str) -> list[str]:
        import httpx

        notes: object = None
        leases: object = None
        with suppress(httpx.HTTPError, TimeoutError):
            async with (
                asyncio.timeout(ASKED_SECONDS),
                open_connection() as client,
                client.stream(
                    "GET", f"{url}/v1/collections/{self._document.digest}/state"
                ) as response,
            ):
                answer = await answer_of(response)
                if response.status_code == 200 and answer:
                    notes = answer.get("clock", [])
                    leases = answer.get("leases")
        if not isinstance(notes, list):
            return ["it could not be asked whether its operator changed it."]
        if leases:
            notes = [*notes, leases]
        shown = [
            "".join(letter for letter in str(note) if letter.isprintable())[:LONGEST_NOTE]
            for note in notes
        ]
        return shown[:NOTES] + (
            [f"{len(shown) - NOTES:,} more notes."] if len(shown) > NOTES else []
        )

    async def acknowledge(self, output: str) -> str:
        """Let the shuffler delete the output; return a sentence if that failed."""
        import httpx

        deadline = time.monotonic() + self._patience
        failure = ""
        async with open_connection() as client:
            while True:
                try:
                    headers = {**self._headers, "if-match": f'"{output}"'}
                    async with client.stream(
                        "DELETE", f"{self._url}/release", headers=headers
                    ) as response:
                        pass  # the body is not read: it could be endless
                    if response.status_code in (204, 404, 410):  # 404, 410: deleted already
                        return ""
                    failure = f"it answered {response.status_code}"
                    if response.status_code < 500:
                        break
                except httpx.HTTPError as error:
                    failure = network_error_text(error)
                    if is_untrusted_certificate(error):
                        break
                if time.monotonic() + RETRY_PAUSE_SECONDS > deadline:
                    break
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
        return (
            f"{self._host} did not get the acknowledgement of the release ({failure}); it "
            "stores the sealed messages until its retention ends."
        )


class Fetching(ReleaseLink):
    """Download from the last shuffler of a collection. `first` records which output was fetched."""

    def __init__(
        self,
        collection: Collection,
        token: str,
        patience: float = RETRY_SECONDS,
        first: OutputRecord | None = None,
    ) -> None:
        super().__init__(collection, collection.terms.hops[-1].url, token, patience)
        self.collection = collection
        self._first = first

    async def fetched(self, path: Path) -> FetchedOutput:
        """Download the output into a durable file; raises `NotReleased` without a file."""
        return await self._retried(lambda response: self._store(response, path))

    async def _store(self, response: httpx.Response, path: Path) -> FetchedOutput:
        announced = self._read_announcement(response)
        if self._first is not None:
            self._first.check(announced.output)
        announced = replace(announced, clock=await self.clock_notes())
        line = (json.dumps(asdict(announced)) + "\n").encode()
        with atomic_file(path, "wb") as stream:
            stream.write(line)
            await self._receive(response, announced, stream)
        return FetchedOutput(path, announced, len(line))

    def _read_announcement(self, response: httpx.Response) -> OutputAnnouncement:
        headers = response.headers
        terms = self.collection.terms
        people = _count(headers.get("x-people"))
        left_out = _count(headers.get("x-left-out"))
        output = headers.get("etag", "").strip('"')
        if people is None or left_out is None or not DIGEST.fullmatch(output):
            raise PlanError(
                f"{self._host} does not say how many people's messages it releases, or not "
                "their digest; nothing is estimated."
            )
        if people < terms.minimum:
            raise PlanError(
                f"{self._host} releases the messages of {people:,} people, but this collection "
                f"requires at least {terms.minimum:,}; nothing is estimated, because the "
                "guarantee does not hold for fewer."
            )
        if people + left_out > terms.maximum:
            raise PlanError(
                f"{self._host} releases the messages of {people:,} people, more than the "
                f"{terms.maximum:,} that were allowed."
            )
        announced = OutputAnnouncement(
            self.collection.digest,
            people,
            left_out,
            output,
            countersignature=headers.get("x-countersignature", "")[:LONGEST_SIGNATURE],
        )
        if not announced.is_countersigned(self.collection):
            raise PlanError(
                f"{self._host} releases messages that its witness did not countersign, "
                "although this collection names one: they may be a "
                "second set, whose difference to the first would show what single people "
                "sent. Nothing is fetched; ask its operator."
            )
        return announced

    async def _receive(
        self, response: httpx.Response, announced: OutputAnnouncement, stream: IO[bytes]
    ) -> None:
        """Write boxes as they arrive; raise if they differ from the announcement."""
        size = 0
        digest = hashlib.sha256()
        start = b""
        runs = None
        async for part in response.aiter_bytes():
            size += len(part)
            if runs is None:
                start += part
                if size >= head_size(self.collection):
                    runs = runs_of(self.collection, announced.people, start)
            if runs is not None and size > runs.total:
                break
            digest.update(part)
            stream.write(part)
        runs = runs or runs_of(self.collection, announced.people, start)
        if size != runs.total:
            what = "more" if size > runs.total else "fewer"
            raise PlanError(
                f"{self._host} says that {announced.people:,} people took part, whose "
                f"{sum(runs.lengths):,} messages are "
                f"{runs.total:,} bytes, and sent {what}; nothing is estimated."
            )
        if digest.hexdigest() != announced.output:
            raise PlanError(
                f"what {self._host} sent is not what it announced (the digests differ); "
                "collect it again."
            )


class _TemporaryFailure(MetricShuffleError):
    """A failure after which to try again."""


def _server_message(message: str) -> str:
    return f" It says: {message}" if message else ""


def _count(text: object) -> int | None:
    return (
        int(text)
        if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 16
        else None
    )


def boxes_path(output: str | Path, collection: Collection) -> Path:
    """Path of the downloaded boxes of a collection, until the release is written."""
    file = Path(os.path.realpath(output))
    if not file.parent.is_dir():
        raise InputError(
            f"{output} lies in a folder that does not exist; make {file.parent} first."
        )
    return file.with_name(f"{file.name}.{collection.digest[:16]}.boxes")
