"""Collector of a sum: the totals of all adders, compared, added up and estimated from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from metricshuffle.collection.adder.share_boxes import Residues, add_residues
from metricshuffle.collection.adder.sum_signatures import InvalidList, SumStatement
from metricshuffle.collection.adder.sum_terms import SumCollection
from metricshuffle.collection.analyst.collector import ReleaseCollector, batch_id
from metricshuffle.collection.analyst.download import (
    RETRY_SECONDS,
    FetchedOutput,
    OutputAnnouncement,
    ReleaseLink,
)
from metricshuffle.collection.client.http_client import DIGEST
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.sealed_boxes import NotOpened
from metricshuffle.errors import PlanError
from metricshuffle.models import parse_json
from metricshuffle.protocols.tally import Tally
from metricshuffle.tasks.collection_summary import Collected, Part
from metricshuffle.tasks.release import Release

if TYPE_CHECKING:
    import httpx

TOTALS_FORMAT = "metricshuffle-totals/1"
ANSWER_OVERHEAD_BYTES = 10_000
"""Bytes of an adder's answer beside its total."""


@dataclass(frozen=True)
class AdderTotal:
    """Answer of one adder: the set that it summed, the signatures of all, and its total."""

    statements: tuple[SumStatement, ...]
    residues: Residues

    @property
    def subject(self) -> tuple[str, int]:
        """The set that was summed: the hash of its names, and their number."""
        return self.statements[0].subject


@dataclass(frozen=True)
class FetchedTotals(FetchedOutput):
    """Totals of all adders, which are not written to a file before they are added up."""

    totals: tuple[AdderTotal, ...] = ()


class TotalLink(ReleaseLink):
    """Link to the adder at a place."""

    def __init__(
        self,
        collection: SumCollection,
        place: int,
        key: AnalystKey,
        patience: float = RETRY_SECONDS,
    ) -> None:
        super().__init__(collection, collection.terms.adders[place].url, key.token, patience)
        self._key = key
        self._sum = collection
        self._place = place

    async def total(self) -> AdderTotal:
        """Fetch the total; raises `NotReleased`, or PlanError if the answer cannot be used."""
        return await self._retried(self._read)

    async def _read(self, response: httpx.Response) -> AdderTotal:
        data = b""
        largest = 2 * self._sum.shares.share_size + ANSWER_OVERHEAD_BYTES
        async for part in response.aiter_bytes():
            data += part
            if len(data) > largest:
                raise PlanError(f"{self._host} sends more than a total of this sum.")
        content = parse_json(data.decode("utf-8", "replace"), "an answer of an adder")
        try:
            people = content["people"]
            names = content["names"]
            signatures = content["signatures"]
            if (
                type(people) is not int
                or not DIGEST.fullmatch(names)
                or len(signatures) != len(self._sum.terms.adders)
                or content["adder"] != self._place
            ):
                raise ValueError
            statements = tuple(
                SumStatement(place, names, people, str(signature))
                for place, signature in enumerate(signatures)
            )
            for statement in statements:
                statement.check(self._sum)
            form = self._sum.shares
            sealed = bytes.fromhex(content["total"])
            residues = form.unpacked(self._key.private.opened(sealed, form.total_info(self._place)))
        except InvalidList:
            raise PlanError(
                f"{self._host} releases a total whose set of reports was not signed by all adders "
                "of this sum; nothing is estimated."
            ) from None
        except (KeyError, TypeError, ValueError, NotOpened):
            raise PlanError(
                f"{self._host} does not answer with a total of this sum; nothing is estimated."
            ) from None
        return AdderTotal(statements, residues)


class SumCollecting(ReleaseCollector):
    """Collector of the totals of all adders of a sum."""

    def __init__(
        self,
        key: AnalystKey,
        collection: SumCollection,
        patience: float = RETRY_SECONDS,
        key_file: Path | None = None,
    ) -> None:
        super().__init__(key, [collection], patience, key_file)
        self.collection = collection

    def _links(self) -> list[TotalLink]:
        return [
            TotalLink(self.collection, place, self._key, self._patience)
            for place in range(len(self.collection.terms.adders))
        ]

    async def fetched(self, output: str | Path) -> Sequence[FetchedTotals]:
        """Fetch the totals of all adders, and record the set of reports; no other one is used."""
        links = self._links()
        totals = tuple(await asyncio.gather(*(link.total() for link in links)))
        check_same_set(self.collection, totals)
        hashed, people = totals[0].subject
        announced = OutputAnnouncement(
            self.collection.digest,
            people,
            0,
            hashed,
            TOTALS_FORMAT,
            clock=await links[0].clock_notes(),
        )
        self._first_output(output, self.collection).note(hashed)
        return [FetchedTotals(Path(output), announced, 0, totals)]

    def release(self, files: Sequence[FetchedOutput]) -> Release:
        """Add the totals up and estimate."""
        [fetched] = files
        if not isinstance(fetched, FetchedTotals):
            raise PlanError("these are not the totals of a sum.")
        collection = self.collection
        terms = collection.terms
        announced = fetched.announced
        tally = summed_tally(
            collection, [total.residues for total in fetched.totals], announced.people
        )
        shuffled = self.task.publish(tally, batches=[batch_id(collection)])
        part = Part(
            digest=collection.digest,
            output=announced.output,
            people=announced.people,
            clock=tuple(announced.clock),
        )
        collected = Collected.of(
            self.task,
            (part,),
            hops=tuple(adder.url for adder in terms.adders),
            colluders=terms.colluders,
            admission=terms.admission,
            apart=terms.apart,
        )
        return self.task.estimate(shuffled, collected=collected)

    async def acknowledge(self, files: Sequence[FetchedOutput]) -> list[str]:
        """Let all adders delete their totals; return problems as sentences."""
        troubles = [
            await link.acknowledge(file.announced.output)
            for file in files
            for link in self._links()
        ]
        return [trouble for trouble in troubles if trouble]


def check_same_set(collection: SumCollection, totals: Sequence[AdderTotal]) -> None:
    """Raise unless all adders summed the same reports, and enough of them."""
    subjects = {total.subject for total in totals}
    if len(subjects) > 1:
        raise PlanError(
            "the adders summed different sets of reports, so their totals do not belong together; "
            "nothing is estimated. Ask their operators: at least one of them did not follow the "
            "protocol."
        )
    [(_, people)] = subjects
    terms = collection.terms
    if not terms.minimum <= people <= terms.maximum:
        raise PlanError(
            f"the adders summed {people:,} reports, and this sum has {terms.minimum:,} to "
            f"{terms.maximum:,}; nothing is estimated."
        )


def summed_tally(collection: SumCollection, totals: Sequence[Residues], people: int) -> Tally:
    """Tally of all reports: the totals of the adders, added up modulo the modulus."""
    form = collection.shares
    total = np.zeros(form.length, dtype=np.uint64)
    for residues in totals:
        total = add_residues(total, residues, form.modulus)
    protocol = collection.task.protocol
    layout = protocol.layout
    row = total.astype(layout.type).reshape(1, layout.numbers)
    batch = collection.task.batch(collection.terms.round)
    return Tally(
        batch, people, people * layout.numbers, dict(protocol.counted(row)), protocol.modulus
    )
