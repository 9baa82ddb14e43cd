"""Later hop of a chain: what it fetches, opens, passes on, rejects, and cannot see."""

from __future__ import annotations

import hashlib
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import httpx
import pytest
from tests.collection.conftest import POSTGRES_SLOWLY, Clock
from tests.collection.forked_shufflers import Forks, Job
from tests.collection.hop_before import (
    PEOPLE,
    Answer,
    Chained,
    HopBefore,
    chained,
    handed_over,
    hop_before,
)
from tests.collection.rounds import HONEST, Round, new_round
from tests.collection.running import Running, post_report, run_aside, running

from metricshuffle.collection.analyst.download import Fetching
from metricshuffle.collection.keys import CollectionKeys, KeyFolder
from metricshuffle.collection.operator.control_api import open_at_all_hops
from metricshuffle.collection.shuffler import upstream as chains
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.upstream import (
    UpstreamLink,
    UpstreamReceipt,
    UpstreamRejected,
    UpstreamUnreachable,
)
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import StoreError
from metricshuffle.collection.store.sql_store import Store

START = 2_000_000_000.0


@pytest.fixture
def hop() -> Iterator[HopBefore]:
    with hop_before() as hop:
        yield hop


@pytest.fixture
def second(tmp_path: Path, clock: Clock, hop: HopBefore) -> Iterator[Shuffler]:
    clock.stop(START)
    store = connect_store(f"sqlite:///{tmp_path / 'second.db'}", clock)
    yield Shuffler(store, KeyFolder.at(tmp_path / "second"), after=hop.url)
    store.close()


def output(shuffler: Shuffler, made: Round) -> bytes:
    return b"".join(shuffler.output(made.digest))


def reason(shuffler: Shuffler, made: Round) -> str:
    status = shuffler.status(made.digest)
    assert status is not None
    return f"{status.state}: {status.reason}"


def files(shuffler: Shuffler) -> set[str]:
    return {path.name for path in shuffler.keys.path.rglob("*") if path.is_file()}


def test_it_fetches_opens_mixes_and_acknowledges(
    store: Store, hop: HopBefore, tmp_path: Path, clock: Clock
) -> None:
    clock.stop(START)
    second = Shuffler(store, KeyFolder.at(tmp_path / "second"), after=hop.url)
    chain = chained(second, hop, tmp_path / "first", START)
    made = chain.made
    assert second.advance(made.digest) == "open"
    assert hop.asked == []  # nobody is asked before the closing time
    clock.ahead = 60
    assert second.advance(made.digest) == "open"
    hop.get = lambda: handed_over(chain.boxes, left_out=3)
    assert second.advance(made.digest) == "released"
    assert made.opened(output(second, made)) == chain.payloads
    boxes = made.split(output(second, made))
    assert boxes == sorted(boxes)
    assert not set(boxes) & set(chain.boxes)
    status = second.status(made.digest)
    assert status is not None
    assert (status.people, status.left_out, status.place) == (PEOPLE, 3, 1)
    row = second.store.row(made.digest)
    assert row is not None
    assert not second.keys.has(row.key)
    assert files(second) == {"operator.token", "owner.id", f"{made.digest}.boxes"}
    path = f"/v1/collections/{made.digest}/release"
    digest = handed_over(chain.boxes).headers["ETag"]
    token = f"Bearer {chain.token}"
    assert hop.asked == [
        ("GET", path, token, ""),
        ("GET", path, token, ""),
        ("DELETE", path, token, digest),
    ]
    second.advance(made.digest)
    assert len(hop.asked) == 3


@pytest.mark.thorough
@pytest.mark.parametrize("status", [401, 404, 429, 500, 503, 301, 302])
def test_whoever_cannot_be_used_now_is_asked_again(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock, status: int
) -> None:
    """A redirection is not followed: the token is for that hop alone."""
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    hop.get = lambda: Answer(status, headers={"Location": f"{hop.url}/elsewhere"})
    for _ in range(2):
        with pytest.raises(UpstreamUnreachable, match=f"answers {status}"):
            second.advance(chain.made.digest)
    assert all("elsewhere" not in path for _, path, _, _ in hop.asked)
    hop.get = lambda: handed_over(chain.boxes)
    assert second.advance(chain.made.digest) == "released"


@pytest.mark.thorough
def test_what_is_cut_short_is_fetched_again(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock
) -> None:
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    for sent in (0, 10, 1000, len(b"".join(chain.boxes)) - 1):
        hop.get = lambda sent=sent: handed_over(chain.boxes, sent=sent)  # type: ignore[misc]
        with pytest.raises(UpstreamUnreachable):
            second.advance(chain.made.digest)
        assert not any("fetched" in name for name in files(second))
    hop.get = lambda: handed_over(chain.boxes)
    assert second.advance(chain.made.digest) == "released"
    assert chain.made.opened(output(second, chain.made)) == chain.payloads


def test_a_hop_that_trickles_is_not_listened_to(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    hop.get = lambda: handed_over(chain.boxes)
    monkeypatch.setattr("metricshuffle.collection.shuffler.upstream.MIN_BYTES_PER_SECOND", 10**12)
    monkeypatch.setattr("metricshuffle.collection.shuffler.upstream.BASE_DOWNLOAD_SECONDS", 0.0)
    with pytest.raises(UpstreamUnreachable, match="too slow"):
        second.advance(chain.made.digest)
    assert not any("fetched" in name for name in files(second))
    monkeypatch.undo()
    assert second.advance(chain.made.digest) == "released"


def test_a_hop_that_gave_up_ends_the_chain(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock
) -> None:
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    hop.get = lambda: Answer(410, b'{"error": "this collection was aborted: not\\u0000 enough."}')
    assert second.advance(chain.made.digest) == "aborted"
    assert (
        reason(second, chain.made)
        == "aborted: the shuffler before this one gave up: this collection was aborted: not enough."
    )
    assert files(second) == {"operator.token", "owner.id"}


@pytest.mark.thorough
def test_a_hop_that_never_lets_go_is_not_waited_for_for_ever(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock
) -> None:
    chain = chained(second, hop, tmp_path / "first", START, retention=1000)
    clock.ahead = 1059
    assert second.advance(chain.made.digest) == "open"
    clock.ahead = 1060
    assert second.advance(chain.made.digest) == "aborted"
    assert "did not release it in time" in reason(second, chain.made)


# What a hop that cheats can do


def without(boxes: list[bytes], count: int) -> list[bytes]:
    """The same without so many of them, drawn at random."""
    kept = list(boxes)
    for _ in range(count):
        kept.pop(secrets.randbelow(len(kept)))
    return kept


def injected(chain: Chained, count: int) -> list[bytes]:
    """Messages of the hop's own, sealed as everybody's are."""
    made = chain.made
    analyst, last, _ = made.collection.keys
    form = made.sealing
    return [
        last.sealed(analyst.sealed(secrets.token_bytes(form.payload), form.info(0)), form.info(1))
        for _ in range(count)
    ]


def swapped(boxes: list[bytes]) -> list[bytes]:
    place = secrets.randbelow(len(boxes) - 1)
    return [*boxes[:place], boxes[place + 1], boxes[place], *boxes[place + 2 :]]


def flipped(boxes: list[bytes]) -> list[bytes]:
    place = secrets.randbelow(len(boxes))
    return sorted(
        [*boxes[:place], boxes[place][:-1] + bytes([boxes[place][-1] ^ 1]), *boxes[place + 1 :]]
    )


CHEATS: dict[str, tuple[Callable[[Chained], Answer], str]] = {
    "drops a message": (lambda chain: handed_over(without(chain.boxes, 1)), "fewer messages"),
    "adds a message": (
        lambda chain: handed_over(sorted(chain.boxes + injected(chain, 1))),
        "more messages",
    ),
    "doubles a message": (
        lambda chain: handed_over(
            sorted(without(chain.boxes, 1) + [secrets.choice(chain.boxes)] * 2)
        ),
        "more messages",
    ),
    "doubles one in place of another": (
        lambda chain: handed_over(
            sorted([*(kept := without(chain.boxes, 1)), secrets.choice(kept)])
        ),
        "twice, or out of order",
    ),
    "hands over another order": (
        lambda chain: handed_over(swapped(chain.boxes)),
        "twice, or out of order",
    ),
    "drops people below the minimum": (
        lambda chain: handed_over(
            without(chain.boxes, chain.made.sealing.messages * (PEOPLE - HONEST + 1)),
            people=HONEST - 1,
        ),
        f"{HONEST - 1} people's messages",
    ),
    "claims more people than may take part": (
        lambda chain: handed_over(chain.boxes, people=401),
        "401 people's messages",
    ),
    "claims people it has not": (
        lambda chain: handed_over(chain.boxes, people=PEOPLE + 1),
        "fewer messages",
    ),
    "does not say how many": (
        lambda chain: Answer(200, b"".join(chain.boxes)),
        "does not say how many",
    ),
}
"""Detected cheats and their errors.

The first three could be detected by their number, the next two by their order.
"""

UNSEEN: dict[str, Callable[[Chained], Answer]] = {
    "drops people": lambda chain: handed_over(
        without(chain.boxes, 2 * chain.made.sealing.messages), people=PEOPLE - 2
    ),
    "exchanges people for its own": lambda chain: handed_over(
        sorted(
            without(chain.boxes, count := 5 * chain.made.sealing.messages) + injected(chain, count)
        )
    ),
    "exchanges all but one person for its own": lambda chain: handed_over(
        sorted(
            chain.boxes[: chain.made.sealing.messages]
            + injected(chain, (PEOPLE - 1) * chain.made.sealing.messages)
        )
    ),
    "adds people of its own": lambda chain: handed_over(
        sorted(chain.boxes + injected(chain, chain.made.sealing.messages)), people=PEOPLE + 1
    ),
    "spoils a message": lambda chain: handed_over(flipped(chain.boxes)),
    "says that people were left out": lambda chain: handed_over(chain.boxes, left_out=7),
}
"""Cheats that no later hop can detect: a formally correct hop may choose the messages.

The analyst detects a spoiled message.
"""


@pytest.mark.parametrize("cheat", ["drops a message", "doubles one in place of another"])
def test_a_cheating_hop_is_refused(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock, cheat: str
) -> None:
    check_refused(second, hop, tmp_path, clock, cheat)


@pytest.mark.thorough
@pytest.mark.parametrize("cheat", CHEATS)
def test_what_a_cheating_hop_does_is_refused(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock, cheat: str
) -> None:
    check_refused(second, hop, tmp_path, clock, cheat)


def check_refused(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock, cheat: str
) -> None:
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    answer, why = CHEATS[cheat]
    hop.get = lambda: answer(chain)
    assert second.advance(chain.made.digest) == "aborted"
    assert why in reason(second, chain.made)
    assert files(second) == {"operator.token", "owner.id"}
    assert all(method == "GET" for method, *_ in hop.asked)


@pytest.mark.thorough
@pytest.mark.parametrize("cheat", UNSEEN)
def test_what_a_cheating_hop_does_unseen(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock, cheat: str
) -> None:
    """Documents why every hop of a chain must be honest about what it drops."""
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    hop.get = lambda: UNSEEN[cheat](chain)
    assert second.advance(chain.made.digest) == "released"


@pytest.mark.parametrize(
    "attempts",
    [pytest.param(10, marks=pytest.mark.thorough), pytest.param(100, marks=pytest.mark.slow)],
)
def test_how_often_a_cheating_hop_is_seen(
    second: Shuffler, hop: HopBefore, tmp_path: Path, attempts: int
) -> None:
    """Every drawn attempt of each kind that is seen, and none of the others."""
    chain = chained(second, hop, tmp_path / "first", START)
    seen = {}
    link = UpstreamLink(chain.made.collection, 1)
    for cheat, answer in {**{name: cheat[0] for name, cheat in CHEATS.items()}, **UNSEEN}.items():
        seen[cheat] = 0
        for _ in range(attempts):
            hop.get = lambda answer=answer: answer(chain)  # type: ignore[misc]
            try:
                link.fetch(tmp_path / "fetched", chain.token)
            except UpstreamRejected:
                seen[cheat] += 1
    assert seen == {**dict.fromkeys(CHEATS, attempts), **dict.fromkeys(UNSEEN, 0)}


@pytest.mark.thorough
def test_bytes_that_are_not_those_announced_are_fetched_again(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock
) -> None:
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    for announced in ("0" * 64, "", "x"):
        hop.get = lambda announced=announced: handed_over(chain.boxes, announced=announced)  # type: ignore[misc]
        with pytest.raises(UpstreamUnreachable, match="other bytes than it announced"):
            second.advance(chain.made.digest)
    hop.get = lambda: handed_over(chain.boxes)
    assert second.advance(chain.made.digest) == "released"


# What people can do


@pytest.mark.thorough
def test_messages_that_do_not_open_or_are_twice_inside_spoil_nobody_elses(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock
) -> None:
    """Each is replaced by an unreadable one, the same in every run; others are unaffected."""
    chain = chained(second, hop, tmp_path / "first", START)
    made = chain.made
    form = chain.made.sealing
    analyst, last, _ = made.collection.keys
    inner = analyst.sealed(secrets.token_bytes(form.payload), form.info(0))
    garbage = [
        secrets.token_bytes(form.box_size(1)),
        last.sealed(b"x" * form.box_size(0), form.info(0)),
        *injected(chain, 1),
    ]
    garbage[2] = garbage[2][:-1] + bytes([garbage[2][-1] ^ 1])
    # A client's chain of boxes, each with the content that a public rule would put for the last.
    for _ in range(3):
        content = hashlib.shake_256(b"metricshuffle stand-in\0" + garbage[-1]).digest(
            form.box_size(0)
        )
        garbage.append(last.sealed(content, form.info(1)))
    copies = [last.sealed(inner, form.info(1)) for _ in range(3)]
    boxes = sorted([*chain.boxes[9:], *garbage, *copies])
    hop.get = lambda: handed_over(boxes)
    clock.ahead = 60

    stopped: list[bytes] = []

    def at(point: str) -> None:
        if point == "renamed" and not stopped:
            stopped.append(second.outputs.boxes(made.digest).read_bytes())
            raise OSError("stopped")

    with pytest.raises(StoreError, match="stopped"):
        Shuffler(second.store, second.keys, after=hop.url, at=at).advance(made.digest)
    assert second.advance(made.digest) == "released"
    released = made.split(output(second, made))
    assert b"".join(released) == stopped[0]
    assert len(released) == len(set(released)) == len(boxes)
    opened = []
    for box in released:
        try:
            opened.append(form.open_box(box, made.analyst.private))
        except Exception:
            opened.append(b"")
    assert opened.count(b"") == 9
    assert inner not in released
    assert len({*opened} & {*chain.payloads}) == len(chain.boxes) - 9


# Acknowledging


def test_a_hop_that_cannot_be_told_delays_nothing_and_is_told_later(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock
) -> None:
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    hop.get = lambda: handed_over(chain.boxes)
    hop.delete = lambda: Answer(503)
    with pytest.raises(UpstreamUnreachable):
        second.advance(chain.made.digest)
    row = second.store.row(chain.made.digest)
    assert row is not None
    assert row.state == "released"
    assert not second.keys.has(row.key)
    assert f"{chain.made.digest}.owed" in files(second)
    second.store.acknowledge(chain.made.digest)
    with pytest.raises(UpstreamUnreachable):
        second.advance(chain.made.digest)
    row = second.store.row(chain.made.digest)
    assert row is not None
    assert row.state == "purged"
    assert files(second) == {"operator.token", "owner.id", f"{chain.made.digest}.owed"}
    hop.delete = lambda: Answer(204)
    assert second.advance(chain.made.digest) == "purged"
    assert [method for method, *_ in hop.asked].count("DELETE") == 3
    assert files(second) == {"operator.token", "owner.id"}


@pytest.mark.thorough
@pytest.mark.parametrize("status", [401, 404, 410, 412])
def test_a_hop_that_does_not_want_to_hear_it_is_left_alone(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock, status: int
) -> None:
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    hop.get = lambda: handed_over(chain.boxes)
    hop.delete = lambda: Answer(status)
    assert second.advance(chain.made.digest) == "released"
    second.advance(chain.made.digest)
    assert [method for method, *_ in hop.asked].count("DELETE") == 1
    assert files(second) == {"operator.token", "owner.id", f"{chain.made.digest}.boxes"}


@pytest.mark.thorough
@pytest.mark.parametrize("keeps_file", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_no_second_set_of_messages_is_taken_from_the_hop_before(
    store: Store, hop: HopBefore, tmp_path: Path, clock: Clock, keeps_file: bool, same: bool
) -> None:
    """After an interruption the previous hop restored a snapshot and offers another set."""
    clock.stop(START)
    ended: list[str] = []

    def at(point: str) -> None:
        if point == "owed" and not ended:
            ended.append(point)
            raise KeyboardInterrupt

    second = Shuffler(store, KeyFolder.at(tmp_path / "second"), after=hop.url, at=at)
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    hop.get = lambda: handed_over(chain.boxes)
    with pytest.raises(KeyboardInterrupt):
        second.advance(chain.made.digest)
    fewer = sorted(chain.boxes)[: -chain.made.collection.terms.messages]
    hop.get = lambda: handed_over(
        chain.boxes if same else fewer, people=PEOPLE if same else PEOPLE - 1
    )
    if not keeps_file:
        second.outputs.fetched(chain.made.digest).unlink()
    assert second.advance(chain.made.digest) == ("released" if same or keeps_file else "aborted")
    if same or keeps_file:
        assert chain.made.opened(output(second, chain.made)) == chain.payloads
    else:
        assert "another set of messages than before" in reason(second, chain.made)


@pytest.mark.parametrize("lost", ["fetched", "owed"])
def test_what_was_fetched_and_is_lost_is_given_up(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock, lost: str
) -> None:
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    hop.get = lambda: handed_over(chain.boxes)

    def at(point: str) -> None:
        if point == "sealed":
            (second.outputs.path / f"{chain.made.digest}.{lost}").unlink()

    assert (
        Shuffler(second.store, second.keys, after=hop.url, at=at).advance(chain.made.digest)
        == "aborted"
    )
    assert "is lost here" in reason(second, chain.made)
    assert files(second) == {"operator.token", "owner.id"}


@pytest.mark.thorough
def test_what_was_fetched_and_is_damaged_here_is_given_up(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock
) -> None:
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    hop.get = lambda: handed_over(chain.boxes)

    def at(point: str) -> None:
        if point == "sealed":
            path = second.outputs.fetched(chain.made.digest)
            path.write_bytes(path.read_bytes()[:-7])

    assert (
        Shuffler(second.store, second.keys, after=hop.url, at=at).advance(chain.made.digest)
        == "aborted"
    )
    assert "is damaged here" in reason(second, chain.made)


def test_the_token_is_not_printed() -> None:
    assert "secret" not in repr(UpstreamReceipt(1, 0, "0" * 64, "secret"))
    assert UpstreamReceipt.read(b"\x00random") is None
    assert UpstreamReceipt.read(b'{"people": 1}') is None
    assert UpstreamReceipt.read(UpstreamReceipt(1, 0, "ab", "t").data()) == UpstreamReceipt(
        1, 0, "ab", "t"
    )


# Kills, and real shufflers


POINTS = [
    "opening",
    "opened",
    "fetching",
    "replace .fetched",
    "fetched",
    "link .owed",
    "owed",
    "sealed",
    "mixing",
    "written",
    "synced",
    "renamed",
    "copied",
    "compared",
    "shuffled",
    "forgotten",
    "unlink .fetched",
    "keys destroyed",
    "erased",
    "checked",
    "released",
    "acknowledging",
    "acknowledged",
    "unlink .owed",
]


@pytest.mark.thorough
@POSTGRES_SLOWLY
def test_a_later_hop_is_killed_at_every_point(
    tmp_path: Path, hop: HopBefore, new_store_url: Callable[[], str]
) -> None:
    with Forks() as forks:
        for number, point in enumerate(POINTS):
            folder = tmp_path / f"case{number}"
            url = new_store_url()
            folder.mkdir()
            store = connect_store(url, lambda: START)
            second = Shuffler(store, KeyFolder.at(folder / "keys"), after=hop.url)
            chain = chained(second, hop, tmp_path / "first", START, is_open=False)
            store.close()
            hop.get = lambda boxes=chain.boxes: handed_over(boxes)  # type: ignore[misc]
            hop.asked.clear()
            (folder / "served").write_bytes(chain.made.collection.served)
            job = Job(url, str(folder), START, START + 60, after=hop.url)
            assert forks.ended(replace(job, kill_at=point)) == [signal.SIGKILL], point
            assert forks.ended(job) == [0], point
            store = connect_store(url, lambda: START)
            row = store.row(chain.made.digest)
            assert row is not None
            assert (row.state, row.people) == ("released", PEOPLE)
            released = b"".join(store.output(chain.made.digest))
            store.close()
            assert chain.made.opened(released) == chain.payloads
            assert second.outputs.boxes(chain.made.digest).read_bytes() == released
            names = {
                name for name in files(second) if ".part" not in name and not name.endswith(".lock")
            }
            assert names == {"operator.token", "owner.id", f"{chain.made.digest}.boxes"}, point
            assert "DELETE" in [method for method, *_ in hop.asked], point


@pytest.mark.thorough
def test_three_shufflers_in_three_processes(tmp_path: Path) -> None:
    """Each is killed once; all messages arrive once, and the first two hops delete them."""
    with ExitStack() as stack:
        hops: list[Running] = []
        for place in range(3):
            options = ("--after", hops[-1].url) if hops else ()
            folder = tmp_path / f"hop{place}"
            hops.append(
                stack.enter_context(
                    running(folder, f"sqlite:///{folder / 'shuffler.db'}", *options)
                )
            )
        operators = [hop.operator for hop in hops]
        made = new_round([(hop.new_hop(), hop.url) for hop in operators], seconds=12)
        open_at_all_hops(operators, made.collection, ())
        payloads = [made.payloads() for _ in range(PEOPLE)]
        assert set(
            post_report(
                made.collection.url, [made.report(payloads=mine) for mine in payloads]
            ).statuses
        ) == {204}
        for hop in hops:
            hop.end(signal.SIGKILL)
            hop.start()
        deadline = time.monotonic() + 90
        digest = made.digest
        headers = {"Authorization": f"Bearer {made.analyst.token}"}
        with httpx.Client(headers=headers, timeout=30) as client:
            url = f"{hops[2].url}/v1/collections/{digest}/release"
            while (response := client.get(url)).status_code == 425 and time.monotonic() < deadline:
                if hops[1].process.poll() is None and secrets.randbelow(40) == 0:
                    hops[1].end(signal.SIGKILL)
                    hops[1].start()
                time.sleep(0.1)
            assert response.status_code == 200
            assert response.headers["x-people"] == str(PEOPLE)
            assert made.opened(response.content) == sorted(
                payload for mine in payloads for payload in mine
            )
            assert (
                client.delete(url, headers={"If-Match": response.headers["etag"]}).status_code
                == 204
            )

        def states() -> list[str]:
            return [operator.status(digest)["state"] for operator in operators]

        while states() != ["purged"] * 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert states() == ["purged"] * 3
        for hop in hops:
            left = {
                path.name
                for path in hop.keys.rglob("*")
                if path.is_file() and path.suffix != ".lock"
            }
            assert left == {"operator.token", "owner.id"}


# --- hops that answer without end, or drop by drop ---


MANY = 64 * 2**20
"""Bytes after which an endless answer of these tests ends."""


def endless(sent: list[int]) -> Callable[[], Iterator[bytes]]:
    """Blanks, and how many bytes of them somebody was there to take."""

    def pieces() -> Iterator[bytes]:
        for piece in repeat(b" " * 2**16, MANY // 2**16):
            yield piece
            sent.append(len(piece))

    return pieces


def test_a_hop_that_sends_drop_by_drop_is_not_listened_to(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit is checked at every read, not at every full chunk."""
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    whole = handed_over(chain.boxes)

    def drops() -> Iterator[bytes]:
        for byte in whole.body[:400]:
            time.sleep(0.01)
            yield bytes([byte])

    monkeypatch.setattr(chains, "BASE_DOWNLOAD_SECONDS", 0.2)
    monkeypatch.setattr(chains, "MIN_BYTES_PER_SECOND", 10**12)
    hop.get = lambda: Answer(200, headers=whole.headers, pieces=drops)
    begun = time.monotonic()
    with pytest.raises(UpstreamUnreachable, match="too slow"):
        second.advance(chain.made.digest)
    assert time.monotonic() - begun < 2  # (all drops take four seconds)


@pytest.mark.parametrize("more", [0, 7])
def test_a_message_that_is_twice_where_two_pieces_meet_is_seen(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock, more: int
) -> None:
    """The first piece ends with a box, or some bytes behind one; the next box is the same again."""
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    boxes = [*chain.boxes[:10], chain.boxes[9], *chain.boxes[11:]]
    whole = handed_over(boxes)
    cut = 10 * len(boxes[0]) + more

    def pieces() -> Iterator[bytes]:
        yield whole.body[:cut]
        time.sleep(0.2)
        yield whole.body[cut:]

    hop.get = lambda: Answer(200, headers=whole.headers, pieces=pieces)
    assert second.advance(chain.made.digest) == "aborted"
    assert "twice, or out of order" in second.status(chain.made.digest).reason  # type: ignore[union-attr]


def test_a_reason_without_end_is_no_reason(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock
) -> None:
    chain = chained(second, hop, tmp_path / "first", START)
    sent = list[int]()
    clock.ahead = 60
    hop.get = lambda: Answer(410, pieces=endless(sent))
    assert second.advance(chain.made.digest) == "aborted"
    assert (
        second.status(chain.made.digest).reason  # type: ignore[union-attr]
        == "the shuffler before this one gave up: it does not say why."
    )
    assert sum(sent) < MANY / 2  # (what lies in buffers of the system counts as taken)


def test_an_answer_without_end_to_what_is_owed_is_not_read(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock
) -> None:
    chain = chained(second, hop, tmp_path / "first", START)
    sent = list[int]()
    clock.ahead = 60
    hop.get = lambda: handed_over(chain.boxes)
    hop.delete = lambda: Answer(200, pieces=endless(sent))
    assert second.advance(chain.made.digest) == "released"
    assert [method for method, *_ in hop.asked] == ["GET", "DELETE"]
    assert sum(sent) < MANY / 2


def test_an_answer_without_end_to_the_analyst_is_not_read(hop: HopBefore) -> None:
    sent = list[int]()
    collection = new_round([(CollectionKeys(b"k" * 64).party, hop.url)]).collection
    hop.delete = lambda: Answer(410, pieces=endless(sent))
    assert run_aside(Fetching(collection, "token", patience=0).acknowledge("0" * 64)) == ""
    assert sum(sent) < MANY / 2
