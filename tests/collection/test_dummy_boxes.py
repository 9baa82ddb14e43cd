"""Dummies of shufflers: drawn and sealed once, mixed a pile at a time, and erased unread."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.collection.conftest import POSTGRES_SLOWLY
from tests.collection.forked_shufflers import Forks, Job
from tests.collection.javascript import chromium
from tests.collection.piled_rounds import (
    PEOPLE,
    START,
    PiledChain,
    answer_of,
    counts_of,
    joined_runs,
    payloads_of,
    piled_chain,
    piled_round,
    piled_task,
    released,
    reports_of,
    runs_of,
    values_of,
)
from tests.collection.rounds import Round, put, secrets_of
from tests.collection.running import running
from tests.collection.test_join_in_browser import visited
from tests.collection.test_whole_rounds import collected

from metricshuffle.collection.analyst.collector import InconsistentMessagesError
from metricshuffle.collection.client.client import Client
from metricshuffle.collection.keys import AnalystKey, KeyFolder
from metricshuffle.collection.output_runs import OrderCheck, OutOfOrder, OutputRuns
from metricshuffle.collection.shuffler.collection_failures import LOST_DUMMIES
from metricshuffle.collection.shuffler.collection_mixing import find_dummies
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import StoreError
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import PlanError
from metricshuffle.numerics.types import Integers64
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.tasks.release import Release

__all__ = ["chromium"]

KINDS = ("labels", "thresholds", "items")


def protocol_of(made: Round) -> ShufflerNoise:
    protocol = made.collection.task.protocol
    assert isinstance(protocol, ShufflerNoise)
    return protocol


def dummies_in(made: Round, output: bytes, values: list[object]) -> Integers64:
    """Numbers of dummies of all parts."""
    exact = protocol_of(made).counted(made.collection.task.randomize(values).messages)[0]
    counts = np.concatenate(counts_of(made, output)).astype(np.int64)
    return counts - np.array(exact, dtype=np.int64)


def files(shuffler: Shuffler) -> set[str]:
    names = {path.name for path in shuffler.keys.path.rglob("*") if path.is_file()}
    return {name for name in names if not name.endswith(".lock")}


# Whole rounds


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_of_one_shuffler_is_debiased(kind: str, tmp_path: Path) -> None:
    with piled_chain(tmp_path, kind=kind) as chain:
        made = chain.made
        values = values_of(kind, PEOPLE)
        put(chain.shufflers[0], made, reports_of(made, values))
        output = chain.run()
        assert all(run == sorted(run) for run in runs_of(made, output))
        protocol = protocol_of(made)
        dummies = dummies_in(made, output, values)
        assert dummies.min() >= 0
        assert dummies.max() <= 2 * protocol.radius
        release = released(made, output, tmp_path)
        assert release.shuffled.noise_sets == 1
        assert "whoever runs it and reads a published tally can subtract them" in release.caveat
        assert "files" not in release.caveat
        assert files(chain.shufflers[0]) == {"operator.token", "owner.id", f"{made.digest}.boxes"}


@pytest.mark.parametrize("hops", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_every_hop_of_a_chain_adds_its_own_dummies(hops: int, tmp_path: Path) -> None:
    with piled_chain(tmp_path, hops, "thresholds") as chain:
        made = chain.made
        values = values_of("thresholds", PEOPLE)
        put(chain.shufflers[0], made, reports_of(made, values))
        output = chain.run()
        protocol = protocol_of(made)
        lengths = [len(run) for run in runs_of(made, output)]
        assert lengths == [PEOPLE + 2 * hops * protocol.radius] * 9
        release = released(made, output, tmp_path)
        assert release.shuffled.noise_sets == hops
        exact = np.bincount(np.array(values, dtype=int), minlength=10) / PEOPLE
        covered = [
            low <= share <= high
            for share, (low, high) in zip(exact, intervals(release), strict=True)
        ]
        assert sum(covered) >= 7
        [sentence] = [text for text in release.sentences if "at least one of" in text]
        assert f"of these {hops} shufflers drew its dummies" in sentence
        assert "without noise" not in sentence
        [caveat] = [text for text in release.sentences if "subtract" in text]
        assert f"Each of the {hops} shufflers knows only the dummies that it added" in caveat
        assert release.caveat == caveat


def intervals(release: Release) -> list[tuple[float, float]]:
    """95 % interval of every share."""
    return [tuple(row) for row in np.asarray(release.answer.interval).tolist()]


def test_intervals_of_rounds_cover_the_shares(tmp_path: Path) -> None:
    """Of 5 rounds with 4 shares, 95 % intervals miss 6 or more with a probability below 1e-3."""
    missed = 0
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        with piled_chain(folder) as chain:
            values = values_of("labels", PEOPLE)
            put(chain.shufflers[0], chain.made, reports_of(chain.made, values))
            release = released(chain.made, chain.run(), folder)
        exact = [values.count(label) / PEOPLE for label in "abcd"]
        spans = intervals(release)
        missed += sum(
            not low <= share <= high for share, (low, high) in zip(exact, spans, strict=True)
        )
    assert missed <= 5


def test_a_batch_of_any_size_is_released(tmp_path: Path) -> None:
    with piled_chain(tmp_path) as chain:
        assert chain.made.collection.terms.minimum == 1
        put(chain.shufflers[0], chain.made, reports_of(chain.made, ["c"]))
        assert released(chain.made, chain.run(1), tmp_path, 1).reports == 1


# Piles


def second_of(chain: PiledChain, values: list[object]) -> tuple[Round, list[list[bytes]], Shuffler]:
    """The first hop's output, by pile, and the hop after it."""
    put(chain.shufflers[0], chain.made, reports_of(chain.made, values))
    chain.close()
    assert chain.shufflers[0].advance(chain.made.digest) == "released"
    return chain.made, runs_of(chain.made, chain.output(0), 1), chain.shufflers[1]


def test_boxes_of_another_pile_are_not_counted_as_what_they_say(tmp_path: Path) -> None:
    """A first hop swaps a person's messages between two piles; the analyst reads neither."""
    with piled_chain(tmp_path, 2, "thresholds") as chain:
        made, runs, second = second_of(chain, [9] * PEOPLE)  # part 0 of every pile
        key = secrets_of(second, made).private
        first_pile, last_pile = runs[0][3], runs[8][5]
        for run, box, other in ((runs[0], first_pile, last_pile), (runs[8], last_pile, first_pile)):
            run.remove(box)
            run.append(other)
            run.sort()
        with pytest.raises(Exception, match="cannot be opened"):
            made.sealing.open_box(last_pile, key, 1, 0)
        chain.links[0].get = lambda: answer_of(joined_runs(runs))
        assert second.advance(made.digest) == "released", chain.reason(1)
        release = released(made, chain.output(1), tmp_path)
        assert release.collected is not None
        assert release.collected.replaced == 2
        assert any("2 messages could not be read" in text for text in release.sentences)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("doubled", "in two piles, or twice in one"),
        ("moved", "9 piles|messages in pile"),
        ("left out", "messages in pile 1"),
        ("added", "messages in pile 1"),
        ("unsorted", "twice, or out of order"),
        ("twice", "twice, or out of order"),
        ("no dummies", "messages in pile 1"),
    ],
)
def test_what_a_dishonest_hop_hands_over_is_refused(change: str, why: str, tmp_path: Path) -> None:
    with piled_chain(tmp_path, 2, "thresholds") as chain:
        made, runs, second = second_of(chain, values_of("thresholds", PEOPLE))
        box = runs[0][3]
        if change == "doubled":  # into another pile, whose number of messages stays
            runs[8] = sorted([*runs[8][1:], box])
        elif change == "moved":
            runs[0].remove(box)
            runs[8] = sorted([*runs[8], box])
        elif change == "left out":
            runs[0].remove(box)
        elif change == "added":
            runs[0] = sorted([*runs[0], secrets.token_bytes(len(box))])
        elif change == "unsorted":
            runs[4] = runs[4][::-1]
        elif change == "twice":
            runs[4] = sorted([*runs[4][1:], runs[4][2]])
        else:
            runs = [run[:PEOPLE] for run in runs]
        chain.links[0].get = lambda: answer_of(joined_runs(runs))
        assert second.advance(made.digest) == "aborted"
        assert re.search(why, chain.reason(1)), chain.reason(1)
        assert files(second) == {"operator.token", "owner.id"}


def test_a_download_that_ends_within_the_lengths_is_tried_again(tmp_path: Path) -> None:
    with piled_chain(tmp_path, 2, "thresholds") as chain:
        made, runs, second = second_of(chain, values_of("thresholds", PEOPLE))
        whole = answer_of(joined_runs(runs))
        for sent in (0, 5, 71, 72, 100):
            chain.links[0].get = partial(replace, whole, sent=sent)
            with pytest.raises(Exception, match=r"does not answer|interrupted"):
                second.advance(made.digest)
        chain.links[0].get = lambda: answer_of(b"\0" * 5)
        assert second.advance(made.digest) == "aborted"
        assert "how long piles are" in chain.reason(1)


def test_a_message_that_cannot_be_read_does_not_take_the_answer_from_others(tmp_path: Path) -> None:
    with piled_chain(tmp_path, kind="thresholds") as chain:
        made = chain.made
        honest = reports_of(made, [0] * (PEOPLE - 2))  # part 1 of every pile
        payloads = payloads_of(made, [0])[0]
        outside = made.report(payloads=[b"\x02", *payloads[1:]])
        boxes = [secrets.token_bytes(made.sealing.inner_size) for _ in range(9)]
        garbage = made.sealing.closed(boxes, made.collection.keys[-1])
        put(chain.shufflers[0], made, [*honest, outside, garbage])
        release = released(made, chain.run(), tmp_path)
        assert release.collected is not None
        assert (release.collected.replaced, release.reports) == (10, PEOPLE)
        reread = type(release).from_json(release.to_json())
        assert reread.collected == release.collected


@pytest.mark.parametrize("kind", KINDS)
def test_totals_that_cannot_be_give_no_answer(kind: str, tmp_path: Path) -> None:
    with piled_chain(tmp_path, kind=kind) as chain:
        made = chain.made
        put(chain.shufflers[0], made, reports_of(made, values_of(kind, PEOPLE)))
        runs = runs_of(made, chain.run())
        for spoiled in (
            [run[:1] for run in runs],
            [
                *runs[:-1],
                sorted([*runs[-1], *(secrets.token_bytes(len(runs[0][0])) for _ in range(9999))]),
            ],
        ):
            with pytest.raises((PlanError, AssertionError)):
                released(made, joined_runs(spoiled), tmp_path)


def test_a_message_in_two_piles_gives_no_answer(tmp_path: Path) -> None:
    with piled_chain(tmp_path, kind="thresholds") as chain:
        made = chain.made
        put(chain.shufflers[0], made, reports_of(made, values_of("thresholds", PEOPLE)))
        runs = runs_of(made, chain.run())
        runs[3] = sorted([*runs[3][1:], runs[0][5]])
        with pytest.raises(PlanError, match="contains a message twice"):
            released(made, joined_runs(runs), tmp_path)


def test_parts_that_are_all_counted_alike_are_inconsistent(tmp_path: Path) -> None:
    """More messages of one part than people and dummies can have sent: the round is spent."""
    with piled_chain(tmp_path, kind="labels") as chain:
        made = chain.made
        put(chain.shufflers[0], made, reports_of(made, values_of("labels", PEOPLE)))
        [run] = runs_of(made, chain.run())
        key = made.analyst.private.public
        forged = [made.sealing.box(b"\1", 0, [key]) for _ in run]
        with pytest.raises(InconsistentMessagesError, match="the round is spent") as failure:
            released(made, joined_runs([sorted(forged)]), tmp_path)
        assert failure.value.shuffled.people == PEOPLE


def test_reports_that_share_a_box_are_left_out_of_every_pile(tmp_path: Path) -> None:
    with piled_chain(tmp_path, kind="thresholds") as chain:
        made = chain.made
        key = made.collection.keys[-1]
        private = secrets_of(chain.shufflers[0], made).private
        reports = reports_of(made, values_of("thresholds", PEOPLE))
        mine = made.boxes(reports[:1], private)
        theirs = made.boxes(reports_of(made, [5]), private)
        copied = made.sealing.closed([*theirs[:4], mine[0], *theirs[5:]], key)  # in another pile
        put(chain.shufflers[0], made, [*reports, copied])
        output = chain.run()
        row = chain.shufflers[0].store.row(made.digest)
        assert row is not None
        assert (row.people, row.left_out) == (PEOPLE - 1, 2)
        assert len(released(made, output, tmp_path, PEOPLE - 1, 2).sentences)


# Runs of an output


def test_an_output_without_its_lengths_is_refused(tmp_path: Path) -> None:
    with piled_chain(tmp_path, kind="thresholds") as chain:
        for head in (b"", b"\0" * 71, b"\0" * 73):
            with pytest.raises(PlanError, match="how long"):
                OutputRuns.of(chain.made.collection, 0, PEOPLE, head)
        with pytest.raises(PlanError, match="messages in pile 1"):
            OutputRuns.of(chain.made.collection, 0, PEOPLE, b"\xff" * 72)


def feed_all(check: OrderCheck, output: bytes, step: int) -> None:
    for start in range(0, len(output), step):
        check.feed(output[start : start + step])


def test_runs_are_checked_in_pieces_of_any_size() -> None:
    runs = [sorted(secrets.token_bytes(60) for _ in range(count)) for count in (5, 0, 1, 7)]
    whole = joined_runs(runs)
    form = OutputRuns((5, 0, 1, 7), 60, whole[:32])
    for step in (1, 7, 59, 60, 61, 400, 10_000):
        feed_all(OrderCheck(form), whole, step)
        swapped = [runs[0], runs[1], runs[2], [*runs[3][:5], runs[3][6], runs[3][5]]]
        with pytest.raises(OutOfOrder):
            feed_all(OrderCheck(form), joined_runs(swapped), step)


# Drawn once


def test_of_two_processes_one_set_counts(tmp_path: Path) -> None:
    """Both draw at once, without the lock that keeps them apart; the second one lets go of its."""
    with piled_chain(tmp_path, kind="thresholds") as chain:
        made = chain.made
        put(chain.shufflers[0], made, reports_of(made, values_of("thresholds", PEOPLE)))
        chain.close()
        drawn = threading.Barrier(2)
        states: list[object] = []

        def wait_once_drawn(point: str) -> None:
            if point == "drawn":
                drawn.wait(30)

        def drive() -> None:
            store = connect_store(f"sqlite:///{tmp_path / '0.db'}", lambda: chain.now[0])
            shuffler = Shuffler(store, KeyFolder.at(tmp_path / "keys0"), at=wait_once_drawn)
            row = store.row(made.digest)
            assert row is not None
            states.append(shuffler._steps._open(row, made.collection))
            store.close()

        threads = [threading.Thread(target=drive) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert states == [True, True]
        left = chain.shufflers[0].outputs.dummies(made.digest)
        assert len(left) == 1
        output = chain.run()
        radius = protocol_of(made).radius
        assert [len(run) for run in runs_of(made, output)] == [PEOPLE + 2 * radius] * 9


def test_dummies_are_drawn_once_though_sealing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that an edge holds, or a lost connection: nothing is drawn again, nothing piles up."""
    with piled_chain(tmp_path) as chain:
        made = chain.made
        shuffler = chain.shufflers[0]
        put(shuffler, made, reports_of(made, values_of("labels", PEOPLE)))
        chain.close()

        def fail(*_: object) -> str:
            raise StoreError("it cannot be sealed now.")

        seal = shuffler.store.seal
        drawn = set()
        monkeypatch.setattr(shuffler.store, "seal", fail)
        for _ in range(3):
            with pytest.raises(StoreError, match="sealed now"):
                shuffler.advance(made.digest)
            [path] = shuffler.outputs.dummies(made.digest)
            drawn.add(path.read_bytes())
        monkeypatch.setattr(shuffler.store, "seal", seal)
        assert len(drawn) == 1
        assert len(counts_of(made, chain.run())) == 1


@pytest.mark.parametrize("damage", ["deleted", "changed", "another"])
def test_dummies_that_are_lost_are_not_drawn_again(damage: str, tmp_path: Path) -> None:
    with piled_chain(tmp_path) as chain:
        made = chain.made
        shuffler = chain.shufflers[0]
        put(shuffler, made, reports_of(made, values_of("labels", PEOPLE)))
        chain.close()
        row = shuffler.store.row(made.digest)
        assert row is not None
        assert shuffler._steps._open(row, made.collection)
        [path] = shuffler.outputs.dummies(made.digest)
        data = path.read_bytes()
        path.unlink()
        if damage == "changed":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        elif damage == "another":
            keys = secrets_of(shuffler, made)
            shuffler._steps._dummy_boxes(row, made.collection, keys).write(
                shuffler.outputs, do_nothing
            )
        assert shuffler.advance(made.digest) == "aborted"
        assert LOST_DUMMIES in chain.reason(0)
        assert files(shuffler) == {"operator.token", "owner.id"}


def test_nothing_is_drawn_before_the_end_and_too_few_reports_keep_nothing(tmp_path: Path) -> None:
    with piled_chain(tmp_path, colluders=2) as chain:
        made = chain.made
        put(chain.shufflers[0], made, reports_of(made, ["a", "b"]))
        assert chain.shufflers[0].advance(made.digest) == "open"
        assert not chain.shufflers[0].outputs.dummies(made.digest)
        chain.close()
        assert chain.shufflers[0].advance(made.digest) == "aborted"
        assert files(chain.shufflers[0]) == {"operator.token", "owner.id"}


def test_a_database_rejects_another_digest_once_it_is_sealed(tmp_path: Path) -> None:
    with piled_chain(tmp_path) as chain:
        made = chain.made
        shuffler = chain.shufflers[0]
        put(shuffler, made, reports_of(made, values_of("labels", PEOPLE)))
        chain.run()
        with (
            pytest.raises(Exception, match="dummies are drawn once"),
            shuffler.store._database.writing() as db,
        ):
            db.execute("UPDATE collection SET dummies = 'other'")


# Secrecy


def test_dummies_are_encrypted_and_nothing_says_which_they_are(tmp_path: Path) -> None:
    with piled_chain(tmp_path, kind="thresholds") as chain:
        made = chain.made
        shuffler = chain.shufflers[0]
        put(shuffler, made, reports_of(made, values_of("thresholds", PEOPLE)))
        chain.close()
        row = shuffler.store.row(made.digest)
        assert row is not None
        shuffler._steps._open(row, made.collection)
        [path] = shuffler.outputs.dummies(made.digest)
        secret = path.read_bytes()
        keys = secrets_of(shuffler, made)
        boxes = list(shuffler._steps._dummy_boxes(row, made.collection, keys).read(path)[1]())
        assert len(boxes) == 18 * protocol_of(made).radius
        assert not any(box in secret for _, box in boxes)
        output = chain.run()
        assert all(box in output for _, box in boxes)
        assert {len(box) for run in runs_of(made, output) for box in run} == {len(boxes[0][1])}
        stored = b"".join(file.read_bytes() for file in tmp_path.glob("0.db*"))
        for chunk in (secret[:64], secret[32:96], b"".join(box for _, box in boxes[:5])):
            assert chunk not in stored


def test_dummies_look_like_reports(tmp_path: Path) -> None:
    """Both start with fresh public keys, whose bits are as good as fair, and have one length."""
    with piled_chain(tmp_path, kind="thresholds") as chain:
        made = chain.made
        shuffler = chain.shufflers[0]
        keys = secrets_of(shuffler, made)
        row = shuffler.store.row(made.digest)
        assert row is not None
        _, *drawn = shuffler._steps._dummy_boxes(row, made.collection, keys)._sealed()
        people = made.boxes(reports_of(made, values_of("thresholds", PEOPLE)), keys.private)
        assert len(drawn) > 50
        for boxes in (drawn, people):
            assert {len(box) for box in boxes} == {made.sealing.inner_size}
            bits = np.unpackbits(np.frombuffer(b"".join(box[:31] for box in boxes), np.uint8))
            assert abs(2.0 * bits.mean() - 1.0) < 6.0 / bits.size**0.5


# Kills

DRAWING = [
    "drawing",
    "dummies written",
    "dummies synced",
    "dummies renamed",
    "dummies settled",
    "drawn",
    "sealed",
    "mixing",
    "written",
    "renamed",
    "copied",
    "shuffled",
    "forgotten",
    "unlink .dummies",
    "keys destroyed",
]
QUICK = ("dummies renamed",)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


@dataclass(frozen=True)
class Case:
    made: Round
    job: Job
    values: list[object]

    @property
    def keys(self) -> Path:
        return Path(self.job.folder) / "keys"

    def check_between(self) -> bytes | None:
        """What counts is there, or the collection is open; return the output if there is one."""
        store = connect_store(self.job.url, lambda: self.job.closed)
        row = store.row(self.made.digest)
        store.close()
        assert row is not None
        shuffler = Shuffler(store, KeyFolder.at(self.keys))
        output = shuffler.outputs.boxes(self.made.digest)
        if row.state == "open":
            assert row.dummies == ""
            assert not output.exists()
        elif row.state == "sealed":
            assert find_dummies(shuffler.outputs, row.digest, row.dummies) is not None
        return output.read_bytes() if output.exists() else None

    def check(self, before: bytes | None) -> None:
        store = connect_store(self.job.url, lambda: self.job.closed)
        row = store.row(self.made.digest)
        assert row is not None
        output = b"".join(store.output(self.made.digest))
        store.close()
        assert (row.state, row.reason, row.people) == ("released", "", len(self.values))
        assert before in (None, output)
        radius = protocol_of(self.made).radius
        assert [len(run) for run in runs_of(self.made, output)] == [
            len(self.values) + 2 * radius
        ] * 9
        dummies = dummies_in(self.made, output, self.values)
        assert dummies.min() >= 0
        assert dummies.max() <= 2 * radius
        names = {path.name for path in self.keys.rglob("*") if path.is_file()}
        assert not {name for name in names if "dummies" in name or name.endswith(".key")}


def new_case(url: str, folder: Path, number: int) -> Case:
    folder.mkdir()
    keys = KeyFolder.at(folder / "keys").new()
    start = START + 100 * number
    made = piled_round(
        [(keys.party, "http://127.0.0.1:1")], "thresholds", start, split=(number, 16)
    )
    values = values_of("thresholds", 12)
    (folder / "served").write_bytes(made.collection.served)
    (folder / "reports").write_text("\n".join(report.hex() for report in reports_of(made, values)))
    return Case(made, Job(url, str(folder), start, start + 60), values)


def check_kill(point: str, number: int, url: str, folder: Path, forks: Forks) -> None:
    case = new_case(url, folder / f"case{number}", number)
    assert forks.ended(replace(case.job, kill_at=point)) == [9], point
    before = case.check_between()
    assert forks.ended(case.job) == [0], point
    case.check(before)


def test_a_kill_leaves_one_set_of_dummies(tmp_path: Path, forks: Forks) -> None:
    for number, point in enumerate(QUICK, 1):
        check_kill(point, number, f"sqlite:///{tmp_path / 'store.db'}", tmp_path, forks)


@pytest.mark.thorough
@POSTGRES_SLOWLY
def test_a_kill_at_every_point_leaves_one_set_of_dummies(
    store_url: str, tmp_path: Path, forks: Forks
) -> None:
    for number, point in enumerate(DRAWING, 1):
        check_kill(point, number, store_url, tmp_path, forks)


# Collections


def test_earlier_clients_refuse_a_collection_with_piles(tmp_path: Path) -> None:
    with piled_chain(tmp_path, kind="thresholds") as chain:
        collection = chain.made.collection
        terms = collection.terms
        assert (terms.format, terms.piles) == ("metricshuffle-collection/2", 9)
        collection.verify()
        served = collection.served.decode()
        for old, new in (
            ('"piles":9,', '"piles":3,'),
            ("metricshuffle-collection/2", "metricshuffle-collection/1"),
        ):
            assert served.count(old)
            other = served.replace(old, new, 1) if old in served else served
            with pytest.raises(PlanError):
                Collection(other.encode()).check()


def test_more_sets_of_dummies_than_a_tally_takes_are_refused(tmp_path: Path) -> None:
    with piled_chain(tmp_path, 2) as chain:
        hops = [(hop, hop.url) for hop in chain.made.collection.terms.hops]
        piled_round(hops, split=(1, 8))
        with pytest.raises(PlanError, match="in 8 parts"):
            piled_round(hops, split=(1, 9))


# A live round

OPEN_SECONDS = 20


@pytest.mark.thorough
def test_a_live_round_of_the_command_line_and_a_browser(chromium: Any, tmp_path: Path) -> None:
    key = AnalystKey.new()
    values = values_of("thresholds", PEOPLE - 1)
    (tmp_path / "values.csv").write_text("v\n" + "".join(f"{value}\n" for value in values))
    with running(tmp_path, f"sqlite:///{tmp_path / 'shuffler.db'}") as server:
        collection = server.opened(piled_task("thresholds"), lasts=OPEN_SECONDS, analyst=key)
        with Client(collection, tmp_path / "out.box") as client:
            assert client.submit_many(tmp_path / "values.csv", column="v").stored == PEOPLE - 1
        with visited(chromium, f"{server.url}/join/{collection.digest}") as page:
            assert "adds messages of its own" in page.content()
            page.fill("#value", "9")
            page.click("#make")
            page.wait_for_selector("#ready:visible")
            shown = page.locator("#messages li").all_inner_texts()
            assert shown == [f"{place + 1}: 0" for place in range(9)]
            page.click("#send")
            page.wait_for_selector("#done:visible")
        release = collected(key, collection, tmp_path / "release.json")
        log = server.log
    assert release.reports == PEOPLE
    assert release.collected is not None
    assert (release.collected.replaced, release.shuffled.noise_sets) == (0, 1)
    exact = np.bincount([*np.array(values, dtype=int), 9], minlength=10) / PEOPLE
    errors = np.asarray(release.standard_error)
    assert np.all(np.abs(np.array(release.value["share"]) - exact) <= 7.0 * errors)
    assert Release.load(tmp_path / "release.json").sentences == release.sentences
    assert "dumm" not in log
