"""Tallies: same bytes in any order, no overflow, and rejection of damage."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogue.small_plans import SMALL, plan_of, values_of
from tests.tables import check_all

from metricshuffle.encodings.binary_frame import Frame
from metricshuffle.errors import InputError, PlanError
from metricshuffle.protocols.tally import MAX_NUMBERS, Batch, Shuffled, Tally, exact_sums
from metricshuffle.randomness import Randomness

BATCH = Batch("task", 1)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([np.int64, np.uint64, np.int32, np.uint8]),
    st.integers(1, 4),
    st.lists(st.integers(0, 2**64 - 1), min_size=0, max_size=40),
)
def test_sums_of_columns_are_exact(kind: Any, width: int, numbers: list[int]) -> None:
    """For every type of whole number, at both ends of its range: as Python adds them."""
    limits = np.iinfo(kind)
    rows = len(numbers) // width
    wrapped = [
        limits.min + number % (int(limits.max) - int(limits.min) + 1)
        for number in numbers[: rows * width]
    ]
    table = np.array(wrapped, dtype=kind).reshape(rows, width)
    assert exact_sums(table) == [sum(int(row[column]) for row in table) for column in range(width)]


@check_all("extreme", [2**63 - 1, -(2**63)])
def test_the_largest_messages_do_not_overflow(extreme: int) -> None:
    """A thousand messages of 64 bits add up to more than 64 bits, in both directions."""
    table = np.full((1000, 2), extreme, dtype=np.int64)
    assert exact_sums(table) == [1000 * extreme] * 2
    largest = np.full((1000, 1), 2**64 - 1, dtype=np.uint64)
    assert exact_sums(largest) == [1000 * (2**64 - 1)]
    tally = Tally(BATCH, 1000, 2000, {0: exact_sums(table)})
    assert Tally.from_bytes(tally.to_bytes()).sums == {0: [1000 * extreme] * 2}


@check_all("name", SMALL)
def test_any_way_of_adding_up_gives_the_same_bytes(name: str) -> None:
    """Every protocol: all at once, in parts, merged in any order, and through bytes in between."""
    task = plan_of(name).task
    inputs = task.query.inputs(values_of(name), task.protocol.step)
    messages = task.protocol.messages(inputs, Randomness.seeded(4))
    whole = task.tally().add(messages)
    pieces = np.array_split(messages, 4)
    step_by_step = task.tally()
    for piece in pieces:
        step_by_step.add(piece)
    assert step_by_step.to_bytes() == whole.to_bytes()
    tallies = [task.tally(task.tally().add(piece).to_bytes()) for piece in pieces]
    for order in itertools.permutations(range(4), 4):
        merged = tallies[order[0]]
        for index in order[1:]:
            merged = merged.merge(tallies[index])
        assert merged.to_bytes() == whole.to_bytes()
    pairs = tallies[0].merge(tallies[3]).merge(tallies[2].merge(tallies[1]))
    assert pairs.to_bytes() == whole.to_bytes()
    assert (whole.people, whole.messages) == (plan_of(name).users, messages.size)
    assert tallies[0].people == len(pieces[0])  # merging leaves both sides as they were


def test_a_seed_anywhere_marks_the_whole() -> None:
    """Also after merging and after a trip through bytes, whose format tells it."""
    task = plan_of("sum").task
    messages = task.protocol.messages(
        task.query.inputs(values_of("sum"), 1.0), Randomness.seeded(0)
    )
    honest = task.tally().add(messages[:20])
    seeded = task.tally().add(messages[20:], seeded=True)
    assert not honest.batch.seeded
    for merged in (
        honest.merge(seeded),
        seeded.merge(honest),
        task.tally(honest.merge(seeded).to_bytes()),
    ):
        assert merged.batch.seeded
        assert Tally.from_bytes(merged.to_bytes()).batch.seeded
    cleared = honest.merge(seeded).to_bytes().replace(b"tally-seeded/1", b"tally/1", 1)
    with pytest.raises(PlanError):
        Tally.from_bytes(cleared)


def test_tallies_of_other_tasks_rounds_and_protocols_are_not_mixed() -> None:
    """Nor is a tally of unknown origin added to."""
    tally = Tally(BATCH, 1, 1, {0: [1]})
    with pytest.raises(PlanError, match="another task"):
        tally.merge(Tally(Batch("other", 1), 1, 1, {0: [1]}))
    with pytest.raises(PlanError, match="round 2, and not in round 1"):
        tally.merge(Tally(Batch("task", 2), 1, 1, {0: [1]}))
    with pytest.raises(PlanError, match="another protocol"):
        tally.merge(Tally(BATCH, 1, 1, {0: [1, 2]}))
    with pytest.raises(InputError, match="only tallies"):
        tally.merge(Shuffled(BATCH, 1, 1, {0: [1]}))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="does not know its task"):
        Tally.from_bytes(tally.to_bytes()).add(np.zeros((1, 1), dtype=np.int64))
    with pytest.raises(PlanError, match="one row of sums"):
        _ = Tally(BATCH, 1, 1, {1: [1], 2: [1]}).numbers


def test_residues_stay_below_the_modulus() -> None:
    """However many are added."""
    tally = Tally(BATCH, 1, 1, {0: [100]}, 101)
    for _ in range(5):
        tally = tally.merge(Tally(BATCH, 1, 1, {0: [100]}, 101))
    assert tally.sums == {0: [600 % 101]}
    assert tally.people == 6


def test_users_of_too_many_sizes_are_told_so() -> None:
    """A row of sums for every number of items must not fill the memory."""
    width = 2**12
    rows = {size: [1] * width for size in range(1, MAX_NUMBERS // width + 1)}
    tally = Tally(BATCH, 1, 1, rows)
    with pytest.raises(InputError, match="so many different numbers of items"):
        tally.merge(Tally(BATCH, 1, 1, {10**6: [1] * width}))


def framed(header: dict[str, Any], body: bytes = b"") -> bytes:
    return Frame("metricshuffle-tally/1", header, body).to_bytes()


GOOD = {"task": "task", "round": 1, "people": 2, "messages": 2, "modulus": None, "rows": [[0, 1]]}


@check_all(
    "damage",
    [
        {"task": 3},
        {"task": None},
        {"round": 0},
        {"round": "1"},
        {"people": -1},
        {"people": True},
        {"people": 2.0},
        {"people": 2**70},
        {"messages": None},
        {"modulus": 1},
        {"modulus": "many"},
        {"rows": None},
        {"rows": [[0]]},
        {"rows": [[0, 2]]},
        {"rows": [[0, 0]]},
        {"rows": [[-1, 1]]},
        {"rows": [["0", 1]]},
        {"rows": [[0, True]]},
        {"rows": [[0, 1], [1, 1]]},
        {"rows": []},
        {"rows": {"0": 1}},
    ],
)
def test_headers_that_do_not_fit_are_refused(damage: dict[str, Any]) -> None:
    """With a right checksum: every field is looked at."""
    body = (7).to_bytes(16, "little", signed=True)
    assert Tally.from_bytes(framed(GOOD, body)).sums == {0: [7]}
    with pytest.raises(PlanError, match="a tally is damaged"):
        Tally.from_bytes(framed(GOOD | damage, body))


def test_two_rows_of_the_same_name_are_refused() -> None:
    """The second would silently take the place of the first."""
    body = b"".join(number.to_bytes(16, "little", signed=True) for number in (7, 8))
    with pytest.raises(PlanError, match="a tally is damaged"):
        Tally.from_bytes(framed(GOOD | {"rows": [[0, 1], [0, 1]]}, body))


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    """In every byte of a tally."""
    whole = bytearray(Tally(BATCH, 3, 3, {0: [5, -2]}).to_bytes())
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        with pytest.raises(PlanError):
            Tally.from_bytes(bytes(damaged))


def test_a_sum_beyond_what_is_written_is_a_sentence() -> None:
    """Merging two largest tallies is an error, not a traceback."""
    huge = Tally(BATCH, 1, 1, {0: [2**127 - 1]})
    assert Tally.from_bytes(huge.to_bytes()).sums == {0: [2**127 - 1]}
    with pytest.raises(PlanError, match="too large"):
        huge.merge(replace(huge)).to_bytes()
