"""The analyst's way to what was let go: fetched into a file before it is opened, and acknowledged when the answer is safe."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from metricshuffle.collection.analyst.decryption_pool import BOXES_PER_PART
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
from metricshuffle.collection.shuffler.external_sort import is_sorted
from metricshuffle.collection.signatures import SIGNATURE_BYTES, is_countersigned
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError, MetricShuffleError, PlanError
from metricshuffle.files import atomic_file

if TYPE_CHECKING:
    import httpx

RETRY_SECONDS = 30.0
"""Seconds for which a shuffler that cannot be reached is asked again."""
RETRY_PAUSE_SECONDS = 0.5
BOXES_FORMAT = "metricshuffle-boxes/1"
MAX_HEADER_BYTES = 2**16
NOTES, LONGEST_NOTE = 10, 300
"""About the clock of one shuffler, and letters of each of them, that are written down."""
ASKED_SECONDS = 5.0
"""That a shuffler has to tell them: less than the one that waits for its messages to be read has patience."""
LONGEST_SIGNATURE = 2 * SIGNATURE_BYTES


class NotReleased(MetricShuffleError):
    """The shuffler has not let it go, or never will; `gone` if it had, and has destroyed it since."""

    def __init__(self, sentence: str, *, gone: bool = False) -> None:
        super().__init__(sentence)
        self.gone = gone


@dataclass(frozen=True)
class OutputAnnouncement:
    """What a shuffler says of the boxes that it lets go."""

    collection: str
    people: int
    left_out: int
    output: str
    """SHA-256 of all of them."""
    format: str = BOXES_FORMAT
    countersignature: str = ""
    """Of the witness of the last shuffler, if the collection names one."""
    clock: Sequence[str] = ()
    """What the operators of the shufflers did to their clocks, or that it could not be asked: an address and a sentence each."""

    def is_countersigned(self, collection: Collection) -> bool:
        return is_countersigned(collection, len(collection.terms.hops) - 1, self.output, self.countersignature)


@dataclass(frozen=True)
class FetchedOutput:
    """Boxes in a file of the analyst's, behind a line that says what they are."""

    path: Path
    announced: OutputAnnouncement
    start: int
    """Where the first box begins."""

    @classmethod
    def kept(cls, path: Path, collection: Collection) -> FetchedOutput | None:
        """What an earlier call fetched; None if there is nothing, or something else."""
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
        if announced.format != BOXES_FORMAT or announced.collection != collection.digest or not is_countersigned:
            return None
        output = cls(path, announced, len(line))
        return output if os.path.getsize(path) - len(line) == _output_size(collection, announced.people) else None

    def read_boxes(self, collection: Collection) -> Iterator[bytes]:
        """All boxes, some at a time; refused in the end unless they are those that were announced, in order, and all different."""
        size, digest, last = collection.sealing.box_size(), hashlib.sha256(), b""
        with open(self.path, "rb") as stream:
            stream.seek(self.start)
            while part := stream.read(BOXES_PER_PART * size):
                digest.update(part)
                boxes = np.frombuffer(last + part, dtype=np.uint8).reshape(-1, size)
                if not is_sorted(boxes):
                    raise PlanError(
                        "what the shuffler let go is not in the order of its bytes, or holds a message twice; it was not mixed as this "
                        "collection says, so nothing is estimated."
                    )
                last = part[-size:]
                yield part
        if digest.hexdigest() != self.announced.output:
            raise PlanError(f"{self.path} was changed since it was fetched; delete it and collect again.")


def _output_size(collection: Collection, people: int) -> int:
    return people * collection.terms.messages * collection.sealing.box_size()


@dataclass(frozen=True)
class OutputRecord:
    """A file that says which set of messages of a collection was fetched first. No other one is taken: what differs between two sets of
    one collection is what single people sent.
    """

    path: Path
    collection: Collection

    def check(self, output: str) -> None:
        """Raise if another set was fetched before; nothing is written down."""
        try:
            first_output = self.path.read_bytes().decode("ascii", "replace").strip()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"cannot read {self.path}, which says what was fetched before: {error.strerror or error}.") from None
        if first_output != output:
            raise PlanError(
                f"{self.collection.terms.hops[-1].url} lets go another set of messages of collection {self.collection.digest[:16]} than "
                f"was fetched before (SHA-256 {output[:16]}, before {first_output[:16]}): its shuffler went back to an older copy "
                "of its database "
                "and keys. The difference between the two sets would show what single people sent, with the protection of one "
                f"report alone; the second one is not fetched. Use the release of the first one. ({self.path} says what was fetched.)"
            )

    def note(self, output: str) -> None:
        """Write down, durably and once, what was fetched; raise if that was another set."""
        try:
            with suppress(FileExistsError):
                write_secret(self.path, f"{output}\n".encode())
        except OSError as error:
            raise InputError(f"cannot write {self.path}, which says what was fetched: {error.strerror or error}.") from None
        self.check(output)


class Fetching:
    """The last shuffler of a collection, asked by its analyst. `first` remembers which output of it was fetched."""

    def __init__(self, collection: Collection, token: str, patience: float = RETRY_SECONDS, first: OutputRecord | None = None) -> None:
        self.collection, self._patience, self._first = collection, patience, first
        self._headers = {"authorization": f"Bearer {token}", "accept-encoding": "identity"}
        self._host = collection.terms.hops[-1].url
        self._url = f"{self._host}/v1/collections/{collection.digest}"

    async def fetched(self, path: Path) -> FetchedOutput:
        """What was let go, in a file that is durable; `NotReleased` if it was not, and then there is no file."""
        deadline = time.monotonic() + self._patience
        async with open_connection() as client:
            while True:
                try:
                    return await self._attempt(client, path)
                except _TemporaryFailure as error:
                    if time.monotonic() + RETRY_PAUSE_SECONDS > deadline:
                        raise NotReleased(str(error)) from None
                await asyncio.sleep(RETRY_PAUSE_SECONDS)

    async def _attempt(self, client: httpx.AsyncClient, path: Path) -> FetchedOutput:
        import httpx

        try:
            async with client.stream("GET", f"{self._url}/release", headers=self._headers) as response:
                if response.status_code != 200:
                    raise await self._refusal(response)
                announced = self._read_announcement(response)
                if self._first is not None:
                    self._first.check(announced.output)
                announced = replace(announced, clock=await self._clock_notes())
                line = (json.dumps(asdict(announced)) + "\n").encode()
                with atomic_file(path, "wb") as stream:
                    stream.write(line)
                    await self._receive(response, announced, stream)
                return FetchedOutput(path, announced, len(line))
        except httpx.HTTPError as error:
            if is_untrusted_certificate(error):
                raise NotReleased(unreachable_text(self._host, error)) from None
            raise _TemporaryFailure(f"{unreachable_text(self._host, error)} Try again.") from None

    async def _refusal(self, response: httpx.Response) -> MetricShuffleError:
        message, terms = await read_error(response), self.collection.terms
        if response.status_code == 425:
            return NotReleased(
                f"this collection is not released yet: it closes at {terms.closes} and then needs {terms.minimum:,} reports"
                + (f", or waits for them until {terms.extends}" if terms.extends != terms.closes else "")
                + f".{_server_message(message)} Collect it then."
            )
        if response.status_code == 410:
            return NotReleased(f"there is nothing to collect any more at {self._host}.{_server_message(message)}", gone=True)
        if response.status_code == 401:
            return NotReleased(f"{self._host} does not take this key for that of the collection's analyst.{_server_message(message)}")
        if response.status_code == 404:
            return NotReleased(f"{self._host} does not know this collection; check who serves it.{_server_message(message)}")
        if response.status_code in (429, 500, 502, 503, 504):
            return _TemporaryFailure(f"{self._host} cannot answer now.{_server_message(message)} Try again.")
        return NotReleased(f"{self._host} answered with the status {response.status_code}, which no shuffler does.")

    def _read_announcement(self, response: httpx.Response) -> OutputAnnouncement:
        headers, terms = response.headers, self.collection.terms
        people, left_out = _count(headers.get("x-people")), _count(headers.get("x-left-out"))
        output = headers.get("etag", "").strip('"')
        if people is None or left_out is None or not DIGEST.fullmatch(output):
            raise PlanError(f"{self._host} does not say how many people's messages it lets go, or not which; nothing is estimated.")
        if people < terms.minimum:
            raise PlanError(
                f"{self._host} lets go the messages of {people:,} people, and this collection promised {terms.minimum:,} at least; nothing "
                "is estimated, because fewer hide less than was promised."
            )
        if people + left_out > terms.maximum:
            raise PlanError(f"{self._host} lets go the messages of {people:,} people, more than the {terms.maximum:,} that were allowed.")
        announced = OutputAnnouncement(
            self.collection.digest, people, left_out, output, countersignature=headers.get("x-countersignature", "")[:LONGEST_SIGNATURE]
        )
        if not announced.is_countersigned(self.collection):
            raise PlanError(
                f"{self._host} lets go messages that its witness did not countersign, although this collection names one: they may be a "
                "second set, whose difference to the first would show what single people sent. Nothing is fetched; ask its operator."
            )
        return announced

    async def _clock_notes(self) -> list[str]:
        """What every shuffler says publicly of its clock, in the order of the chain."""
        notes = await asyncio.gather(*(self._clock_of(hop.url) for hop in self.collection.terms.hops))
        return [f"{hop.url}: {note}" for hop, said in zip(self.collection.terms.hops, notes, strict=True) for note in said]

    async def _clock_of(self, url: str) -> list[str]:
        import httpx

        said: Any = None
        with suppress(httpx.HTTPError, TimeoutError):
            async with (
                asyncio.timeout(ASKED_SECONDS),
                open_connection() as client,
                client.stream("GET", f"{url}/v1/collections/{self.collection.digest}/state") as response,
            ):
                answer = await answer_of(response)
                said = answer.get("clock", []) if response.status_code == 200 and answer else None
        if not isinstance(said, list):
            return ["it could not be asked whether its operator changed it."]
        shown = ["".join(letter for letter in str(note) if letter.isprintable())[:LONGEST_NOTE] for note in said]
        return shown[:NOTES] + ([f"{len(shown) - NOTES:,} more notes."] if len(shown) > NOTES else [])

    async def _receive(self, response: httpx.Response, announced: OutputAnnouncement, stream: IO[bytes]) -> None:
        """Write the boxes down while they come; refused unless they are as many, and those, that were announced."""
        size, digest, expected = 0, hashlib.sha256(), _output_size(self.collection, announced.people)
        async for part in response.aiter_bytes():
            size += len(part)
            if size > expected:
                break
            digest.update(part)
            stream.write(part)
        each = self.collection.terms.messages
        if size != expected:
            what = "more" if size > expected else "fewer"
            raise PlanError(
                f"{self._host} says that {announced.people:,} people took part, whose {announced.people * each:,} messages are "
                f"{expected:,} bytes, and sent {what}; nothing is estimated."
            )
        if digest.hexdigest() != announced.output:
            raise PlanError(f"what {self._host} sent is not what it announced (the digests differ); collect it again.")

    async def acknowledge(self, output: str) -> str:
        """Tell the shuffler that its output is safe, which it may then destroy; a sentence if it could not be told."""
        import httpx

        deadline, failure = time.monotonic() + self._patience, ""
        async with open_connection() as client:
            while True:
                try:
                    headers = {**self._headers, "if-match": f'"{output}"'}
                    async with client.stream("DELETE", f"{self._url}/release", headers=headers) as response:
                        pass  # (its status says all; a body could be without end)
                    if response.status_code in (204, 404, 410):  # (or it has destroyed it already)
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
            f"{self._host} could not be told that the release is safe ({failure}); it keeps the sealed messages until its retention ends."
        )


class _TemporaryFailure(MetricShuffleError):
    """To be tried again."""


def _server_message(message: str) -> str:
    return f" It says: {message}" if message else ""


def _count(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 16 else None


def boxes_path(output: str | Path, collection: Collection) -> Path:
    """Where the boxes of a collection wait until the release is written."""
    file = Path(os.path.realpath(output))
    if not file.parent.is_dir():
        raise InputError(f"{output} lies in a folder that does not exist; make {file.parent} first.")
    return file.with_name(f"{file.name}.{collection.digest[:16]}.boxes")
