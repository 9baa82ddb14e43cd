"""Tallies: same bytes in any order, exact at any size, and small."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogue.planned_tasks import CURATORS, KINDS, SENT, load_task, reports_of, values_of
from tests.tables import check_all

from metricshuffle.encodings import Unary
from metricshuffle.errors import InputError, PlanError
from metricshuffle.protocols import tally as tally_module
from metricshuffle.protocols.tally import (
    MAX_NUMBERS,
    NUMBER_BYTES,
    Batch,
    Shuffled,
    Tally,
    exact_sums,
)
from metricshuffle.queries.user_queries import MAX_ITEMS
from metricshuffle.randomness import Randomness
from metricshuffle.tasks import Task

MERGED = (
    "unary sum",
    "sum in shares",
    "flipped bits",
    "centroid",
    "witch hat",
    "labels",
    "map",
    "users' items",
    "users' histogram",
    "users' mean",
    *CURATORS,
)
"""All three protocols, and a curator's sums and fractions."""
LARGEST = 64 * 2**20
"""Bytes that the numbers of a tally may take."""


@functools.cache
def messages_of(kind: str, people: int = 12) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Messages as clients make them; a curator's come from people with different items."""
    task = load_task(kind)
    inputs = task.query.inputs(values_of(kind, people), task.protocol.step)
    messages = task.protocol.messages(inputs, Randomness.seeded(2))
    if kind == "curator's histogram":
        messages[:, 0] = 1 + np.arange(people) % 5
    return messages


def let_go(kind: str) -> Shuffled:
    """Published batch of few people: with a curator's noise, or the sums as they are."""
    task = load_task(kind)
    tally = task.tally().add(messages_of(kind))
    if task.protocol.trusted in ("curator", "nobody"):
        return task.publish(tally)
    return Shuffled(tally.batch, tally.people, tally.messages, tally.sums, tally.modulus)


@settings(deadline=None, max_examples=25)
@pytest.mark.parametrize("kind", MERGED)
@given(data=st.data())
def test_any_split_in_any_order_gives_the_same_bytes(kind: str, data: st.DataObject) -> None:
    """Random parts, in any order and nesting, by `add` or `merge`."""
    task = load_task(kind)
    messages = messages_of(kind)
    whole = task.tally().add(messages, seeded=True).to_bytes()
    order = data.draw(st.permutations(range(len(messages))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(order)), max_size=4)))
    parts = [
        list(order[start:end]) for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True)
    ]
    tallies = [task.tally().add(messages[part], seeded=True) for part in parts if part]
    while len(tallies) > 1:
        first = tallies.pop(data.draw(st.integers(0, len(tallies) - 1)))
        second = tallies.pop(0)
        before = first.to_bytes(), second.to_bytes()
        tallies.append(first.merge(second))
        assert first.merge(second).to_bytes() == second.merge(first).to_bytes()
        assert (first.to_bytes(), second.to_bytes()) == before
    assert tallies[0].to_bytes() == whole
    grown = task.tally()
    for part in parts:
        grown.add(messages[part], seeded=True)
    assert grown.to_bytes() == whole


@check_all("kind", KINDS)
def test_bytes_are_read_back_as_they_were(kind: str) -> None:
    """from_bytes undoes to_bytes for tallies and batches, and tallies can be extended."""
    task = load_task(kind)
    messages = messages_of(kind)
    tally = task.tally().add(messages)
    back = Tally.from_bytes(tally.to_bytes())
    assert back.to_bytes() == tally.to_bytes()
    assert (back.people, back.messages, dict(back.sums), back.modulus) == (
        tally.people,
        tally.messages,
        dict(tally.sums),
        tally.modulus,
    )
    assert (
        task.tally(tally.to_bytes()).add(messages).to_bytes()
        == task.tally().add(messages).add(messages).to_bytes()
    )
    with pytest.raises(InputError, match=r"does not know its task; read it with task\.tally"):
        back.add(messages)
    shuffled = let_go(kind)
    again = task.read_shuffled(shuffled.to_bytes())
    assert again.to_bytes() == shuffled.to_bytes()
    assert again.reports == len(messages)


def test_merged_tallies_give_the_release_of_all() -> None:
    """Two halves sent as bytes and merged publish like reports that came together."""
    task = load_task("labels")
    reports = reports_of("labels")
    halves = [
        task.tally().add(reports.messages[part]).to_bytes()
        for part in (slice(0, 150), slice(150, None))
    ]
    merged = task.tally(halves[0]).merge(task.tally(halves[1]))
    assert (
        task.publish(merged).to_bytes()
        == task.publish(task.tally().add(reports.messages)).to_bytes()
    )
    with pytest.raises(
        InputError, match="has 150 reports, but the guarantee counts on at least 300"
    ):
        task.publish(task.tally(halves[0]))


def test_one_seeded_part_marks_the_whole() -> None:
    """Merging keeps the mark of seeded reports, in either order."""
    task = load_task("unary sum")
    messages = messages_of("unary sum", 40)
    seeded = task.tally().add(messages[:3], seeded=True)
    honest = task.tally().add(messages[3:])
    for together in (
        seeded.merge(honest),
        honest.merge(seeded),
        task.tally().merge(honest).merge(seeded),
    ):
        assert together.batch.seeded
        assert together.to_bytes().startswith(b"metricshuffle-tally-seeded/1\n")
        assert "UNSAFE" in str(task.estimate(task.publish(together)))
    assert not honest.batch.seeded


@given(
    values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30),
    copies=st.integers(1, 50),
)
def test_sums_are_exact_beyond_64_bits(values: list[int], copies: int) -> None:
    """Sums of 64-bit numbers are Python's integers, and survive bytes."""
    column = np.array(values * copies, dtype=np.int64).reshape(-1, 1)
    total = copies * sum(values)
    assert exact_sums(column) == [total]
    assert exact_sums(column.view(np.uint64)) == [copies * sum(value % 2**64 for value in values)]
    tally = Tally(Batch("0" * 64), len(column), len(column), {0: exact_sums(column)})
    assert Tally.from_bytes(tally.merge(replace(tally)).to_bytes()).numbers == [2 * total]
    with pytest.raises(InputError, match="cannot be merged with itself"):
        tally.merge(tally)


def test_counts_and_vectors_of_the_largest_numbers() -> None:
    """A hundred million people at the largest number: merging stays exact."""
    task = load_task("users' mean")
    people = 10**8
    few = task.tally().add(np.full((4, 1), 2**63 - 1, dtype=np.int64))
    many = Tally(few.batch, people, people, {0: [people * (2**63 - 1)]}, protocol=task.protocol)
    assert many.merge(few).numbers == [(people + 4) * (2**63 - 1)]
    assert Tally.from_bytes(many.merge(few).to_bytes()).numbers == [(people + 4) * (2**63 - 1)]
    assert Unary(2**62).shuffled_counts(np.full(8, 2**62)).ones == 2**65


def of_many(task: Task, people: int) -> Tally:
    """What a hundred million people leave: every sum as large as it can be."""
    numbers = task.protocol.counted(messages_of_task(task)[:1])
    return Tally(
        Batch(task.digest),
        people,
        people * 100,
        {key: [2**63 * people] * len(row) for key, row in numbers.items()},
    )


def messages_of_task(task: Task) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return next(messages_of(kind) for kind in KINDS if load_task(kind).digest == task.digest)


@check_all("kind", KINDS)
def test_a_tally_does_not_grow_with_the_people(kind: str) -> None:
    """A hundred million people take as many bytes as one, but for digits.

    Far below 64 MB.
    """
    task = load_task(kind)
    alone = len(of_many(task, 1).to_bytes())
    many = len(of_many(task, 10**8).to_bytes())
    assert many - alone <= 16
    assert many < 150_000


@pytest.mark.parametrize("columns", [1, 3, 200])
def test_the_largest_tally_there_is(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A curator's rows take at most 16 bytes per number, so 64 MB; more is rejected.

    With fewer numbers allowed, and the longest keys there are, because every number and every row
    takes the same bytes.
    """
    assert MAX_NUMBERS * NUMBER_BYTES == LARGEST
    monkeypatch.setattr(tally_module, "MAX_NUMBERS", 2**12)
    rows = 2**12 // (columns + 1)
    full = Tally(Batch("0" * 64), 0, 0, {}).merge(
        Tally(
            Batch("0" * 64),
            10**8,
            10**8,
            {MAX_ITEMS - row: [2**90] * columns for row in range(rows)},
        )
    )
    assert len(full.to_bytes()) <= 2**12 * NUMBER_BYTES + 500
    with pytest.raises(InputError, match="let everybody draw the same number of items"):
        full.merge(Tally(Batch("0" * 64), 1, 1, {1: [1] * columns}))


def test_many_numbers_of_items_are_read_back() -> None:
    """A header of many rows is longer than that of a file of reports may be."""
    tally = Tally(Batch("0" * 64), 10**6, 10**6, {size: [size] for size in range(1, 100_000)})
    assert Tally.from_bytes(tally.to_bytes()).to_bytes() == tally.to_bytes()


def test_tallies_that_do_not_belong_together() -> None:
    """Other tasks, rounds, widths and moduli, and what is no tally, are refused in words."""
    task = load_task("two rounds")
    other = load_task("local sum")
    messages = messages_of("local sum")
    with pytest.raises(PlanError, match="for another task"):
        task.tally().merge(other.tally().add(messages))
    with pytest.raises(PlanError, match="in round 2, and not in round 1; rounds are not mixed"):
        task.tally(round=1).merge(task.tally(round=2))
    with pytest.raises(PlanError, match="for another task"):
        task.tally(other.tally().add(messages).to_bytes())
    with pytest.raises(InputError, match="only tallies can be merged, got Shuffled"):
        other.tally().merge(Shuffled(other.tally().batch, 0, 0, {}))  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="a row of 2 sums cannot be added to one of 1"):
        other.tally().add(messages).merge(
            Tally(Batch(other.digest), 1, 1, {0: [1, 2]}, other.protocol.tally_modulus)
        )
    with pytest.raises(PlanError, match="different moduli"):
        other.tally().add(messages).merge(Tally(Batch(other.digest), 1, 1, {0: [1]}, 7))
    with pytest.raises(PlanError, match="another modulus than this task's protocol"):
        other.tally(Tally(Batch(other.digest), 1, 1, {0: [1]}, 7).to_bytes())
    with pytest.raises(InputError, match="publish needs a Tally"):
        task.publish(3)  # type: ignore[arg-type]


@check_all("kind", ["unary sum", "labels", "curator's histogram"])
def test_every_byte_of_a_tally_counts(kind: str) -> None:
    """Flipped bytes, cuts and additions are rejected, for tallies and batches."""
    task = load_task(kind)
    tally = task.tally().add(messages_of(kind))
    shuffled = let_go(kind)
    for whole, read in ((tally.to_bytes(), task.tally), (shuffled.to_bytes(), task.read_shuffled)):
        for place in range(len(whole)):
            with pytest.raises(PlanError):
                read(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(PlanError):
                read(whole[:place])
        with pytest.raises(PlanError):
            read(whole + b"\0")


def test_a_raw_tally_is_no_shuffled_batch() -> None:
    """What the shuffler has not let go is another format, and neither is taken for the other."""
    task = load_task("curator's sum")
    tally = task.tally().add(messages_of("curator's sum"))
    with pytest.raises(
        PlanError, match="this is not a shuffled batch: it begins with 'metricshuffle-tally/1'"
    ):
        task.read_shuffled(tally.to_bytes())
    with pytest.raises(
        PlanError, match="this is not a tally: it begins with 'metricshuffle-shuffled/3'"
    ):
        task.tally(
            Shuffled(
                tally.batch, tally.people, tally.messages, tally.sums, tally.modulus
            ).to_bytes()
        )
    with pytest.raises(InputError, match="reports must be shuffled first"):
        task.estimate(tally)  # type: ignore[arg-type]


def test_a_curator_adds_noise_when_it_publishes_and_only_then() -> None:
    """The tally is exact; two publications differ, and each spends privacy."""
    task = load_task("curator's sum")
    messages = messages_of("curator's sum", 40)
    tally = task.tally().add(messages)
    assert tally.numbers == [int(messages.sum())]
    published = {tuple(task.publish(tally).numbers) for _ in range(40)}
    assert len(published) > 3
    assert task.publish(tally, Randomness.seeded(3)).batch.seeded


@check_all("kind", SENT)
def test_sums_that_no_batch_has_are_refused(kind: str) -> None:
    """Impossible numbers of sums, rows, people or counts are rejected."""
    task = load_task(kind)
    shuffled = task.shuffle(reports_of(kind))
    numbers = shuffled.numbers
    strange: list[dict[int, list[int]]] = [
        {0: [*numbers, 0]},
        {0: []},
        {1: numbers},
        {0: numbers, 1: numbers},
        {},
    ]
    for sums in strange:
        with pytest.raises(PlanError):
            task.estimate(replace(shuffled, sums=sums))
    if task.protocol.kind != "noisy-answers":
        with pytest.raises(PlanError):
            task.estimate(replace(shuffled, sums={0: [-1, *shuffled.numbers[1:]]}))
        with pytest.raises(PlanError):
            task.estimate(replace(shuffled, sums={0: [2**64, *shuffled.numbers[1:]]}))
