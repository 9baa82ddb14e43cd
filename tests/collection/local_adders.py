"""Adders without a network: their services, stores and clocks, and what they send to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.collection.sums import new_sum, sealed_value

from metricshuffle.collection.adder import adder_service
from metricshuffle.collection.adder.adder_link import AdderRefused, AdderUnreachable
from metricshuffle.collection.adder.adder_service import AdderService, tickets_of
from metricshuffle.collection.adder.share_intake import ShareOpener
from metricshuffle.collection.adder.sum_signatures import NameList, SumStatement
from metricshuffle.collection.adder.sum_store import SumStore
from metricshuffle.collection.adder.sum_terms import AdderParty, SumCollection
from metricshuffle.collection.keys import AnalystKey, KeyFolder
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.store.factory import open_database
from metricshuffle.collection.store.records import Verdict

START = 2_000_000_000.0


@dataclass
class LocalAdder:
    """One adder: its folder, store and service; `now` is its clock."""

    folder: Path
    url: str
    now: float = START
    said: list[str] = field(default_factory=list)
    reachable: bool = True
    at: Callable[[str], None] = do_nothing
    address: str = ""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Start as a new process would."""
        address = self.address or f"sqlite:///{self.folder / 'adder.db'}"
        self.store = SumStore(open_database(address), lambda: self.now)
        self.keys = KeyFolder.at(self.folder / "keys")
        self.service = AdderService(self.store, self.keys, at=self.at, log=self.said.append)

    def restart(self) -> None:
        self.store.close()
        self.start()

    def party(self) -> AdderParty:
        key = self.service.new_party().key
        return AdderParty(url=self.url, key=key, signature=self.service.signing.public)

    def put(self, digest: str, body: bytes) -> Verdict:
        row = self.service.row(digest)
        keys = self.keys.of(row.key)
        if keys is None:
            return Verdict.CLOSED
        return self.store.put(digest, [ShareOpener.of(row, keys).entry(body)])[0]

    def names(self, digest: str) -> list[bytes]:
        place = self.service.row(digest).place
        lists = self.store.name_lists(digest, self.service.row(digest).phase)
        data = lists[place].names
        return [data[start : start + 32] for start in range(0, len(data), 32)]

    def state(self, digest: str) -> str:
        return self.service.row(digest).state


@dataclass
class DirectLink:
    """Link that calls the other adder; replaces HTTP. `changed` may replace what is sent."""

    url: str
    digest: str
    adders: dict[str, LocalAdder]

    def check_state(self) -> None:
        self._taken(lambda service, row: True)

    def _taken(self, take: Callable[[AdderService, Any], bool]) -> None:
        adder = self.adders[self.url]
        if not adder.reachable:
            raise AdderUnreachable(f"the adder {self.url} does not answer.")
        row = adder.service.row(self.digest)
        if row.state == "aborted":
            raise AdderRefused(f"the adder {self.url} says: aborted.", "has aborted this sum")
        if not take(adder.service, row):
            raise AdderRefused(
                f"the adder {self.url} says: another one.",
                "has another list or set of this adder from before",
            )

    def send_names(self, names: NameList) -> None:
        self._taken(lambda service, row: service.take_list(row, names))

    def send_statement(self, statement: SumStatement) -> None:
        self._taken(lambda service, row: service.take_statement(row, statement))


class Adders:
    """Adders of one sum."""

    def __init__(
        self, folder: Path, count: int, patch: Any, stores: Sequence[str] | None = None
    ) -> None:
        """Create adders in a folder, with databases at `stores` or files of their own."""
        addresses = stores or [""] * count
        self.all = [
            LocalAdder(folder / f"adder-{place}", f"https://adder-{place}.example", address=address)
            for place, address in enumerate(addresses)
        ]
        by_url = {adder.url: adder for adder in self.all}
        patch.setattr(
            adder_service, "AdderLink", lambda url, digest: DirectLink(url, digest, by_url)
        )
        self.analyst = AnalystKey.new()

    def opened(
        self, *, tickets: Sequence[bytes] = (), start: float | None = None, **terms: Any
    ) -> SumCollection:
        collection = new_sum(
            [adder.party() for adder in self.all],
            self.analyst,
            start=self.all[0].now - 10 if start is None else start,
            admission="tickets" if tickets else "open",
            **terms,
        )
        for place, adder in enumerate(self.all):
            assert adder.service.open(collection.served, tickets_of(tickets, place))
        return collection

    def send(
        self, collection: SumCollection, boxes: bytes, to: Sequence[int] | None = None
    ) -> list[Verdict]:
        """Deliver a report to some of the adders."""
        bodies = collection.shares.bodies(boxes)
        places = range(len(self.all)) if to is None else to
        return [self.all[place].put(collection.digest, bodies[place]) for place in places]

    def report(self, collection: SumCollection, value: int, **of: Any) -> bytes:
        boxes = sealed_value(collection, value, **of)
        self.send(collection, boxes)
        return boxes

    def wait(self, seconds: float) -> None:
        for adder in self.all:
            adder.now += seconds

    def advance(self, digest: str, rounds: int = 4) -> list[str]:
        """Drive all adders in turn; return their states."""
        for _ in range(rounds):
            for adder in self.all:
                try:
                    adder.service.advance(digest)
                except AdderUnreachable as error:
                    adder.said.append(str(error))
        return [adder.state(digest) for adder in self.all]

    def sum(self, collection: SumCollection) -> list[int]:
        """Sum of the totals of all adders, as the analyst computes it."""
        form = collection.shares
        total = [0] * form.length
        for adder in self.all:
            row = adder.service.row(collection.digest)
            assert row.total is not None
            data = self.analyst.private.opened(row.total, form.total_info(row.place))
            numbers = form.unpacked(data).tolist()
            total = [
                (mine + more) % form.modulus for mine, more in zip(total, numbers, strict=True)
            ]
        return total

    def close(self) -> None:
        for adder in self.all:
            adder.store.close()
