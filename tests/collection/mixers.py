"""Collections that mixers mix over a folder of objects, in this process."""

from __future__ import annotations

import importlib.util
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.collection.conftest import missing
from tests.collection.piled_rounds import START, piled_round
from tests.collection.rounds import Round, new_round, secrets_of

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.mixer.mixer_process import Mixer
from metricshuffle.collection.mixer.object_mixing import MixerSettings
from metricshuffle.collection.mixer.object_store import ObjectStore
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.mix_tasks import TASK_SECONDS
from metricshuffle.collection.store.records import Entry, Verdict
from metricshuffle.collection.store.sql_store import Store

SEALED = START + 61
PIECE_BYTES = 2_000


def need_objects() -> None:
    """Skip a test where the object store's library is missing, or fail in CI."""
    if importlib.util.find_spec("obstore") is None:
        missing("this test needs the extra for object stores: pip install obstore")


@dataclass
class MixedRound:
    """Shuffler with an object store, and a collection of it whose boxes a test chooses."""

    folder: Path
    kind: str = ""
    """Kind of a collection with piles; '' without."""
    sizes: tuple[int, int] = (20_000, 10_000)
    """Bytes of a cut and of a range."""
    url: str = ""
    """Database; '' for a file in the folder."""
    objects_url: str = ""
    at: Callable[[str], None] = do_nothing
    now: list[float] = field(default_factory=lambda: [START])
    made: Round = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.url = self.url or f"sqlite:///{self.folder / 'shuffler.db'}"
        self.objects = ObjectStore(self.objects_url or f"file://{self.folder / 'objects'}")
        self.keys = KeyFolder.at(self.folder / "keys")
        self.store = self.connect()
        self.shuffler = self.started()
        hops = [(self.shuffler.new_party(), "http://127.0.0.1:1")]
        self.made = (
            piled_round(hops, self.kind, now=START) if self.kind else new_round(hops, now=START)
        )
        assert self.shuffler.open(self.made.collection.served)

    def connect(self) -> Store:
        return connect_store(self.url, lambda: self.now[0])

    def started(self) -> Shuffler:
        cuts, ranges = self.sizes
        settings = MixerSettings(self.objects, 0, cuts, ranges, PIECE_BYTES)
        return Shuffler(self.store, self.keys, mixers=settings, at=self.at)

    def mixer(self, at: Callable[[str], None] = do_nothing, seconds: float = TASK_SECONDS) -> Mixer:
        return Mixer(self.connect(), self.keys, self.objects, seconds, PIECE_BYTES, at)

    @property
    def digest(self) -> str:
        return self.made.digest

    def boxes(self, people: int) -> list[list[bytes]]:
        """Random boxes, which a shuffler cannot tell from sealed ones."""
        sealing = self.made.sealing
        return [
            [secrets.token_bytes(sealing.inner_size) for _ in range(sealing.messages)]
            for _ in range(people)
        ]

    def put(self, reports: Sequence[Sequence[bytes]]) -> None:
        keys = secrets_of(self.shuffler, self.made)
        entries = []
        for boxes in reports:
            tag = secrets.token_bytes(16)
            entries.append(Entry(tag, b"", keys.hidden(tag, b"".join(boxes))))
        verdicts = self.store.put(self.digest, entries)
        assert set(verdicts) == {Verdict.STORED}

    def seal(self) -> None:
        """Take the first step after the closing time: dummies are drawn, mixers get tasks."""
        self.now[0] = SEALED
        assert self.shuffler.advance(self.digest) == "sealed"

    def output_of_one(self) -> bytes:
        """Output that one process writes for the sealed collection, from a copy of everything."""
        copy = self.folder / f"copy-{secrets.token_hex(4)}"
        copy.mkdir()
        for name in ("shuffler.db", "shuffler.db-wal"):
            if (self.folder / name).exists():
                shutil.copy(self.folder / name, copy / name)
        ignored = shutil.ignore_patterns("*.lock", "objects")
        shutil.copytree(self.folder / "keys", copy / "keys", ignore=ignored)
        store = connect_store(f"sqlite:///{copy / 'shuffler.db'}", lambda: self.now[0])
        one = Shuffler(store, KeyFolder.at(copy / "keys"))
        assert one.advance(self.digest) == "released"
        output = b"".join(one.output(self.digest))
        store.close()
        return output

    def released(self, *mixers: Mixer) -> bytes:
        """Let mixers take tasks in turn until the collection is released; return the output."""
        while self.shuffler.advance(self.digest) != "released":
            worked = [mixer.take() for mixer in mixers]
            assert any(worked), self.store.mix_tasks.attempt(self.digest)
        assert self.objects.names() == []
        return b"".join(self.shuffler.output(self.digest))
