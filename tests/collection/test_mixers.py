"""Mixers give the bytes of one process, whatever is cut, killed, late, lost or lied about."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.collection.conftest import Clock, NewCollection
from tests.collection.mixers import PIECE_BYTES, SEALED, MixedRound, need_objects
from tests.collection.piled_rounds import payloads_of, values_of
from tests.tables import check_all

from metricshuffle.collection.keys import CollectionKeys
from metricshuffle.collection.mixer.object_mixing import REPORTS_TROUBLE
from metricshuffle.collection.mixer.object_store import ObjectStore
from metricshuffle.collection.store.mix_tasks import MixTasks, NewMixTask
from metricshuffle.collection.store.records import StoreError
from metricshuffle.collection.store.sql_store import Store

LEASE = 60.0


class Killed(BaseException):
    """Ends a mixer as kill -9 does: nothing is given back."""


@pytest.fixture(autouse=True)
def _objects() -> None:
    need_objects()


# The same bytes


@check_all(
    "kind, mixers, sizes, skew",
    [
        ("", 1, (10**6, 10**6), False),
        ("", 3, (40_000, 15_000), False),
        ("", 2, (60_000, 20_000), True),
        ("labels", 2, (4_000, 2_000), False),
        ("thresholds", 4, (20_000, 10_000), True),
    ],
)
def test_the_output_is_that_of_one_process(
    kind: str, mixers: int, sizes: tuple[int, int], skew: bool, tmp_path: Path
) -> None:
    """Whatever the cuts, ranges and mixers, with shared boxes in far ranges and in many reports."""
    mixed = MixedRound(tmp_path / secrets.token_hex(4), kind, sizes)
    reports = mixed.boxes(150)
    if skew:
        reports[:140] = [[b"\x07" * 20 + box[20:] for box in boxes] for boxes in reports[:140]]
    reports[3][0] = reports[80][-1]
    for number in range(30, 60):
        reports[number][0] = reports[30][0]
    mixed.put(reports)
    mixed.seal()
    expected = mixed.output_of_one()
    assert mixed.released(*(mixed.mixer() for _ in range(mixers))) == expected
    row = mixed.store.row(mixed.digest)
    assert row is not None
    assert (row.people, row.left_out) == (118, 32)
    assert mixed.store.mix_tasks.attempt(mixed.digest) is None


@pytest.mark.thorough
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(["", "labels", "thresholds", "items"]),
    st.integers(40, 150),
    st.integers(8_000, 60_000),
    st.integers(8_000, 60_000),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=8),
    st.integers(0, 100),
)
def test_random_collections_give_the_bytes_of_one_process(
    tmp_path: Path,
    kind: str,
    people: int,
    cut: int,
    part: int,
    mixers: int,
    repeats: list[tuple[int, int]],
    skewed: int,
) -> None:
    mixed = MixedRound(tmp_path / secrets.token_hex(4), kind, (cut, part))
    reports = mixed.boxes(people)
    for number in range(min(skewed, people)):
        reports[number] = [b"\xfe" * 12 + box[12:] for box in reports[number]]
    for first, second in repeats:
        reports[first][0] = reports[second][-1]
    mixed.put(reports)
    mixed.seal()
    state = mixed.shuffler.advance(mixed.digest)
    if state == "aborted":
        return
    expected = mixed.output_of_one()
    assert mixed.released(*(mixed.mixer() for _ in range(mixers))) == expected


def test_dummies_are_released_with_peoples_messages_as_the_analyst_expects(tmp_path: Path) -> None:
    mixed = MixedRound(tmp_path, "labels", (2_000, 1_000))
    payloads = payloads_of(mixed.made, values_of("labels", 60))
    keys = mixed.made.collection.keys
    sealing = mixed.made.sealing
    mixed.put(
        [
            [
                sealing.box(payload, place // sealing.each, keys[: sealing.hops])
                for place, payload in enumerate(person)
            ]
            for person in payloads
        ]
    )
    mixed.seal()
    expected = mixed.output_of_one()
    assert mixed.released(mixed.mixer(), mixed.mixer()) == expected
    opened = mixed.made.sealing
    assert opened.piles
    assert len(expected) > 60 * opened.messages * opened.inner_size


def test_small_collections_and_all_without_an_object_store_are_mixed_by_one_process(
    tmp_path: Path,
) -> None:
    mixed = MixedRound(tmp_path)
    mixed.put(mixed.boxes(30))
    row = mixed.store.row(mixed.digest)
    assert row is not None
    settings_ = mixed.shuffler._steps.mixers
    assert settings_ is not None
    assert settings_.takes(row, mixed.made.sealing)
    object.__setattr__(settings_, "least", 30 * mixed.made.sealing.messages + 1)
    mixed.now[0] = SEALED
    assert mixed.shuffler.advance(mixed.digest) == "released"


# Killed, late


def run_killed(mixed: MixedRound, point: str, times: int = 1) -> bool:
    """Let a mixer work until it is killed at a named point; return whether it was."""
    passed = [0]

    def at(reached: str) -> None:
        passed[0] += reached == point
        if passed[0] == times:
            raise Killed

    mixer = mixed.mixer(at)
    try:
        while mixed.shuffler.advance(mixed.digest) == "sealed":
            if not mixer.take():
                return False
    except Killed:
        return True
    return False


POINTS = [
    "claimed",
    *(
        f"{stage}{point}"
        for stage in ("cut", "recut", "sort")
        for point in ("", " written", " index written", " finished")
    ),
]


@pytest.mark.thorough
@check_all("point", POINTS)
def test_whatever_point_a_mixer_is_killed_at_another_one_goes_on(
    point: str, tmp_path: Path
) -> None:
    mixed = MixedRound(tmp_path / secrets.token_hex(4), "", (50_000, 20_000))
    reports = mixed.boxes(60)
    reports[:50] = [[b"\x07" * 20 + box[20:] for box in boxes] for boxes in reports[:50]]
    mixed.put(reports)
    mixed.seal()
    expected = mixed.output_of_one()
    assert run_killed(mixed, point, 2 if point == "claimed" else 1)
    mixed.now[0] += LEASE + 1
    assert mixed.released(mixed.mixer()) == expected


DRIVING = ["attempt started", "sorts planned", "parts planned", "mixing", "written", "renamed"]
DRIVING += ["copied", "compared", "shuffled", "forgetting", "pieces deleted", "keys destroyed"]


@pytest.mark.thorough
@check_all("point", DRIVING)
def test_whatever_point_the_driver_is_killed_at_it_goes_on(point: str, tmp_path: Path) -> None:
    mixed = MixedRound(tmp_path / secrets.token_hex(4), "", (50_000, 20_000))
    reports = mixed.boxes(60)
    reports[:50] = [[b"\x07" * 20 + box[20:] for box in boxes] for boxes in reports[:50]]
    mixed.put(reports)
    mixed.now[0] = SEALED
    killed = [False]

    def at(reached: str) -> None:
        if reached == point and not killed[0]:
            killed[0] = True
            raise Killed

    mixed.at = at
    mixed.shuffler = mixed.started()
    expected = b""
    mixer = mixed.mixer()
    while True:
        try:
            state = mixed.shuffler.advance(mixed.digest)
        except Killed:
            mixed.shuffler = mixed.started()
            continue
        if state == "released":
            break
        expected = expected or mixed.output_of_one()
        mixer.take()
    assert killed == [True]
    assert b"".join(mixed.shuffler.output(mixed.digest)) == expected
    assert mixed.objects.names() == []


def test_what_a_late_mixer_writes_is_never_read(tmp_path: Path) -> None:
    """A zombie: its task was given to another mixer, which has finished, before it goes on."""
    mixed = MixedRound(tmp_path, "", (50_000, 20_000))
    mixed.put(mixed.boxes(60))
    mixed.seal()
    expected = mixed.output_of_one()
    wakes: list[str] = []

    def sleep(reached: str) -> None:
        if reached == "cut index written" and not wakes:
            wakes.append(reached)
            mixed.now[0] += LEASE + 1
            other = mixed.mixer()
            while other.take():
                pass

    zombie = mixed.mixer(sleep)
    assert zombie.take()
    assert wakes
    tasks = mixed.store.mix_tasks
    attempt = tasks.attempt(mixed.digest)
    assert attempt is not None
    named = {task.object for task in tasks.of(mixed.digest, attempt.name) if task.stage == "cut"}
    indexes = {name for name in mixed.objects.names() if "/cut/" in name and name.count("/") == 3}
    assert named < indexes
    assert len(indexes) == len(named) + 1  # the zombie's is litter
    assert mixed.released(mixed.mixer()) == expected


def test_a_mixer_that_is_late_notices_it_and_stops(tmp_path: Path) -> None:
    mixed = MixedRound(tmp_path, "", (10**6, 10**6))
    mixed.put(mixed.boxes(60))
    mixed.seal()
    slow = mixed.mixer(seconds=0.0)
    assert slow.tasks.claim(mixed.keys.names(), LEASE) is not None
    mixed.now[0] += LEASE + 1
    reached: list[str] = []

    def at(point: str) -> None:
        reached.append(point)
        if point == "claimed":
            mixed.now[0] += 1
            assert slow.tasks.claim(mixed.keys.names(), LEASE) is not None

    late = mixed.mixer(at, seconds=0.0)
    assert late.take()
    assert "cut written" not in reached
    assert not mixed.objects.names()


def test_litter_of_a_late_mixer_is_swept(tmp_path: Path) -> None:
    mixed = MixedRound(tmp_path)
    mixed.put(mixed.boxes(30))
    mixed.seal()
    assert mixed.released(mixed.mixer())
    mixed.objects.put(f"{mixed.digest}/attempt/cut/0.late", b"litter")
    mixed.objects.put(f"{'e' * 64}/attempt/cut/0.foreign", b"of another shuffler")
    mixed.shuffler.sweep()
    assert mixed.objects.names() == [f"{'e' * 64}/attempt/cut/0.foreign"]


# Lost, lied about


def damage_first(mixed: MixedRound, part: str, change: Callable[[ObjectStore, str], None]) -> None:
    """Change the first object whose name contains `part`."""
    name = next(name for name in mixed.objects.names() if part in name)
    change(mixed.objects, name)


def flip(objects: ObjectStore, name: str) -> None:
    sealed = objects.get(name)
    objects.put(name, sealed[:30] + bytes([sealed[30] ^ 1]) + sealed[31:])


def lose(objects: ObjectStore, name: str) -> None:
    objects.delete(name.rsplit("/", 1)[0])


@pytest.mark.thorough
@check_all("part", ["/cut/0/", "/cut/0.", "/sort-source/", "/sort/0/", "/sort/0."])
@pytest.mark.parametrize("change", [flip, lose])
def test_after_a_lost_or_changed_object_everything_is_mixed_again(
    part: str, change: Callable[[ObjectStore, str], None], tmp_path: Path
) -> None:
    mixed = MixedRound(tmp_path / secrets.token_hex(4), "", (50_000, 20_000))
    mixed.put(mixed.boxes(60))
    mixed.seal()
    expected = mixed.output_of_one()
    mixer = mixed.mixer()
    tasks = mixed.store.mix_tasks
    first = tasks.attempt(mixed.digest)
    assert first is not None
    done = False
    for _ in range(500):
        try:
            if mixed.shuffler.advance(mixed.digest) == "released":
                break
        except StoreError:
            mixed.shuffler = mixed.started()
        mixer.take()
        if not done and any(part in name for name in mixed.objects.names()):
            if "/sort/" in part and not any(
                task.is_done and task.stage == "sort" for task in tasks.of(mixed.digest, first.name)
            ):
                continue
            damage_first(mixed, part, change)
            done = True
    assert done
    assert b"".join(mixed.shuffler.output(mixed.digest)) == expected


def test_objects_that_are_lost_again_are_trouble_for_the_operator(tmp_path: Path) -> None:
    mixed = MixedRound(tmp_path, "", (50_000, 20_000))
    mixed.put(mixed.boxes(60))
    mixed.seal()
    mixer = mixed.mixer()
    tasks = mixed.store.mix_tasks
    names = []
    for attempt in range(2):
        current = tasks.attempt(mixed.digest)
        assert current is not None
        names.append(current.name)
        while not current.trouble:
            if attempt == len(names) - 1 and any("/cut/0/" in n for n in mixed.objects.names()):
                mixed.objects.delete(f"{mixed.digest}/{current.name}/cut/0")
            mixer.take()
            again = tasks.attempt(mixed.digest)
            assert again is not None
            current = again
            if not current.trouble:
                mixed.shuffler.advance(mixed.digest)
        assert "gone from the object store" in current.trouble
        if attempt == 0:
            assert mixed.shuffler.advance(mixed.digest) == "sealed"
        else:
            with pytest.raises(StoreError, match=r"is mixed again, for the 2\. time: an object"):
                mixed.shuffler.advance(mixed.digest)
    assert len(set(names)) == 2
    assert mixed.released(mixer)


def test_without_mixers_the_operator_is_told(tmp_path: Path) -> None:
    mixed = MixedRound(tmp_path)
    mixed.put(mixed.boxes(30))
    mixed.seal()
    mixed.now[0] += 59
    assert mixed.shuffler.advance(mixed.digest) == "sealed"
    mixed.now[0] += 2
    with pytest.raises(StoreError, match=r"no mixer takes the tasks of collection .*start"):
        mixed.shuffler.advance(mixed.digest)
    mixer = mixed.mixer()
    assert mixer.take()
    assert mixed.released(mixer)


def test_a_store_that_cannot_be_used_now_frees_the_task_and_is_tried_again(tmp_path: Path) -> None:
    mixed = MixedRound(tmp_path)
    mixed.put(mixed.boxes(30))
    mixed.seal()
    expected = mixed.output_of_one()
    (tmp_path / "objects").write_text("a file where a folder was")
    mixer = mixed.mixer()
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot use the object store"):
            mixer.take()
    (tmp_path / "objects").unlink()
    assert mixed.released(mixer) == expected


def test_damaged_reports_are_decided_by_one_process(tmp_path: Path) -> None:
    mixed = MixedRound(tmp_path)
    mixed.put(mixed.boxes(40))
    with mixed.store._database.writing() as db:
        db.execute("UPDATE report_1 SET hidden = zeroblob(length(hidden)) WHERE place = 7")
    mixed.seal()
    while mixed.mixer().take():
        pass
    attempt = mixed.store.mix_tasks.attempt(mixed.digest)
    assert attempt is not None
    assert attempt.trouble == REPORTS_TROUBLE
    assert mixed.shuffler.advance(mixed.digest) == "aborted"
    row = mixed.store.row(mixed.digest)
    assert row is not None
    assert "a stored report is damaged" in row.reason
    assert mixed.objects.names() == []


def test_reports_that_are_missing_are_found_out(tmp_path: Path) -> None:
    mixed = MixedRound(tmp_path)
    mixed.put(mixed.boxes(40))
    with mixed.store._database.writing() as db:
        db.execute("DELETE FROM report_1 WHERE place = 7")
    mixed.seal()
    mixer = mixed.mixer()
    state = "sealed"
    for _ in range(20):
        mixer.take()
        state = mixed.shuffler.advance(mixed.digest)
    assert state == "aborted"
    row = mixed.store.row(mixed.digest)
    assert row is not None
    assert "does not contain the reports that it counted" in row.reason


# Tasks


@pytest.fixture
def sealed(store: Store, clock: Clock, new_collection: NewCollection) -> str:
    """Digest of a sealed collection."""
    keys = CollectionKeys(secrets.token_bytes(64))
    hops = [
        {**keys.party.model_dump(), "url": "http://127.0.0.1:1"},
    ]
    collection = new_collection(hops=[{**hops[0]}])
    store.add(collection, keys.party.key)
    from metricshuffle.collection.store.records import Entry

    entries = [Entry(secrets.token_bytes(16), b"", b"hidden") for _ in range(10)]
    store.put(collection.digest, entries)
    clock.ahead += 101
    assert store.seal(collection.digest) == "sealed"
    return collection.digest


def key_of(store: Store, digest: str) -> list[str]:
    row = store.row(digest)
    assert row is not None
    return [row.key]


CUTS = [NewMixTask("cut", number, number, number + 1) for number in range(4)]


def test_a_task_is_done_once_by_the_mixer_that_has_it(
    store: Store, sealed: str, clock: Clock
) -> None:
    tasks = store.mix_tasks
    attempt = tasks.start(sealed, 8, [*CUTS, NewMixTask("cut", 4, -1, -1)])
    assert tasks.start(sealed, 9, CUTS) == attempt  # there is one already
    keys = key_of(store, sealed)
    assert tasks.claim([]) is None
    assert tasks.claim(["ab" * 32]) is None
    first, second = tasks.claim(keys, 60), tasks.claim(keys, 60)
    assert first is not None
    assert second is not None
    assert (first.task.number, second.task.number) == (0, 1)
    assert tasks.renew(first, 60)
    clock.ahead += 61
    third = tasks.claim(keys, 60)
    assert third is not None
    assert third.task.number == 0
    assert not tasks.finish(first, "object", "digest", 3)
    assert not tasks.renew(first, 60)
    tasks.release(first)
    assert tasks.finish(second, "late, but nobody else has it", "digest", 3)
    assert tasks.finish(third, "object", "digest", 3)
    assert not tasks.finish(third, "other object", "digest", 3)
    stored = {task.number: task.object for task in tasks.of(sealed, attempt.name)}
    assert stored[0] == "object"
    assert stored[1].startswith("late")
    with pytest.raises(StoreError), store._database.writing() as db:
        db.execute("UPDATE mix_task SET object = 'other' WHERE no = 0")


def test_a_task_of_an_older_attempt_changes_nothing(store: Store, sealed: str) -> None:
    tasks = store.mix_tasks
    keys = key_of(store, sealed)
    attempt = tasks.start(sealed, 8, CUTS)
    claimed = tasks.claim(keys)
    assert claimed is not None
    tasks.report(sealed, attempt.name, "an object is gone")
    tasks.report(sealed, attempt.name, "the first reason stays")
    assert tasks.claim(keys) is None
    current = tasks.attempt(sealed)
    assert current is not None
    assert current.trouble == "an object is gone"
    again = tasks.start(sealed, 8, CUTS, after=attempt.name)
    assert (again.tries, again.trouble) == (2, "")
    assert again.name != attempt.name
    assert not tasks.finish(claimed, "object", "digest", 3)
    assert not tasks.renew(claimed)
    tasks.report(sealed, attempt.name, "too late")
    tasks.add(sealed, attempt.name, [NewMixTask("sort", 0, 0, -1)])
    assert [task.is_done for task in tasks.of(sealed, again.name)] == [False] * 4
    current = tasks.attempt(sealed)
    assert current is not None
    assert current.trouble == ""


def test_a_released_task_is_free_at_once(store: Store, sealed: str) -> None:
    tasks = store.mix_tasks
    keys = key_of(store, sealed)
    tasks.start(sealed, 8, CUTS[:1])
    claimed = tasks.claim(keys)
    assert claimed is not None
    assert tasks.claim(keys) is None
    tasks.release(claimed)
    assert tasks.claim(keys) is not None


@pytest.mark.thorough
def test_mixers_that_claim_at_once_get_different_tasks(store: Store, sealed: str) -> None:
    tasks: MixTasks = store.mix_tasks
    many = [NewMixTask("cut", number, number, number + 1) for number in range(60)]
    attempt = tasks.start(sealed, 8, many)
    keys = key_of(store, sealed)
    claimed: list[int] = []
    refused: list[StoreError] = []

    def work() -> None:
        while len(claimed) < len(many):
            try:
                got = tasks.claim(keys)
                if got is None:
                    return
                assert tasks.finish(got, f"object {got.task.number}", "digest", 1)
                claimed.append(got.task.number)
            except StoreError as error:
                refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while (got := tasks.claim(keys)) is not None:  # what another one held for a moment
        claimed.append(got.task.number)
        assert tasks.finish(got, f"object {got.task.number}", "digest", 1)
    assert not refused
    assert sorted(claimed) == list(range(60))
    assert all(task.is_done for task in tasks.of(sealed, attempt.name))
    assert PIECE_BYTES
