"""Ranges that are cut, cut again, sorted apart and joined are the output of one sort."""

from __future__ import annotations

import io
import secrets
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.collection.mixers import need_objects
from tests.collection.test_mixing import BOX, SIZE, expected
from tests.tables import check_all

from metricshuffle.collection.mixer import mix_stages
from metricshuffle.collection.mixer.mix_stages import (
    MixStages,
    PartEntry,
    StageIndex,
    box_after,
    part_limits,
    range_of,
)
from metricshuffle.collection.mixer.object_mixing import JoinedRuns
from metricshuffle.collection.mixer.object_store import ObjectStore
from metricshuffle.collection.mixer.sealed_pieces import SealedPieces
from metricshuffle.errors import PlanError


class ObjectsInMemory(ObjectStore):
    """Objects of the same library, without files."""

    @cached_property
    def _backend(self) -> Any:
        from obstore.store import MemoryStore

        return MemoryStore()


def stages(
    messages: int, piles: int = 1, piece_bytes: int = 100, cut_bytes: int = 200
) -> MixStages:
    need_objects()
    objects = ObjectsInMemory("s3://memory/objects")
    pieces = SealedPieces(objects, "d" * 64, "a" * 32, secrets.token_bytes(32))
    return MixStages(
        pieces, SIZE, messages, messages // piles, piles, lambda: None, piece_bytes, cut_bytes
    )


def runs_of_ranges(
    steps: MixStages, cuts: list[StageIndex], ranges: int, parts: int
) -> list[StageIndex]:
    """Sorted ranges in their order; each is cut again into about `parts` parts, unless that is 0.

    Every index is read back from the store.
    """
    cuts = [steps.read_index(steps.write_index("index", cut)) for cut in cuts]
    sorted_ranges = []
    for number in range(ranges):
        whole = PartEntry([piece for cut in cuts for piece in cut.parts[number].pieces])
        split = steps.recut(whole, parts, "recut").parts if parts and whole.rows else [whole]
        sorted_ranges += [steps.sort(part, "sort") for part in split]
    return [steps.read_index(steps.write_index("index", index)) for index in sorted_ranges]


def joined(
    steps: MixStages, indexes: list[StageIndex], reports: int, added: tuple[int, ...] = ()
) -> JoinedRuns:
    owners = [some for index in indexes for some in steps.read_owners(index.repeated)]
    shared = np.unique(np.concatenate([np.empty(0, np.uint64), *owners]))
    return JoinedRuns("attempt", steps, indexes, reports, shared, added)


REPORTS = st.integers(1, 4).flatmap(
    lambda count: st.lists(st.lists(BOX, min_size=count, max_size=count), max_size=40)
)


@settings(max_examples=100, deadline=None)
@given(
    REPORTS,
    st.integers(1, 4),
    st.sampled_from([1, 2, 5, 40]),
    st.sampled_from([0, 0, 2, 3, 9]),
    st.integers(SIZE, 300),
)
@example([[b"\0" * SIZE], [b"\0" * (SIZE - 1) + b"\1"]], 1, 3, 2, 20)
@example([[b"\xff" * SIZE]] * 30 + [[b"\xfe" * SIZE]], 2, 2, 9, 20)
@example([[b"b" * SIZE, b"a" * SIZE], [b"c" * SIZE, b"a" * SIZE]], 2, 40, 0, 20)
def test_the_joined_ranges_are_the_sorted_multiset(
    boxes: list[list[bytes]], cuts: int, ranges: int, parts: int, piece_bytes: int
) -> None:
    """For every number of cuts, ranges and parts, and every size of pieces."""
    reports = [b"".join(report) for report in boxes]
    steps = stages(len(boxes[0]) if boxes else 1, 1, piece_bytes, 3 * piece_bytes)
    indexes = [
        steps.cut(reports[number::cuts], number, ranges, f"cut/{number}") for number in range(cuts)
    ]
    assert sum(index.rows for index in indexes) == len(reports) * steps.messages
    runs = joined(steps, runs_of_ranges(steps, indexes, ranges, parts), len(reports))
    output, shared = expected(reports)
    stream = io.BytesIO(b"left of an interrupted run" * 99)
    runs.written(stream)
    assert stream.getvalue() == output
    assert len(runs.shared) == len(shared)
    numbers = {(owner >> 32) + cuts * (owner % 2**32) for owner in runs.shared.tolist()}
    assert numbers == shared


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(BOX, min_size=6, max_size=6), min_size=1, max_size=25),
    st.lists(st.tuples(st.integers(0, 2), st.binary(min_size=SIZE, max_size=SIZE)), max_size=20),
    st.integers(1, 3),
    st.sampled_from([1, 4, 9]),
    st.sampled_from([0, 2, 5]),
)
def test_piles_are_mixed_apart_with_dummies_as_one_more_cut(
    boxes: list[list[bytes]],
    dummies: list[tuple[int, bytes]],
    cuts: int,
    ranges: int,
    parts: int,
) -> None:
    """Three piles of two messages; a box that occurs in two piles is shared all the same."""
    reports = [b"".join(report) for report in boxes]
    taken = {box for report in boxes for box in report}
    chosen = {box: pile for pile, box in dummies if box not in taken}
    dummies = [(pile, box) for box, pile in chosen.items()]
    steps = stages(6, 3)
    indexes = [
        steps.cut(reports[number::cuts], number, ranges, f"cut/{number}") for number in range(cuts)
    ]
    indexes.append(steps.cut_dummies(dummies, ranges, "cut/dummies"))
    added = tuple(sum(pile == number for pile, _ in dummies) for number in range(3))
    runs = joined(steps, runs_of_ranges(steps, indexes, ranges, parts), len(reports), added)
    _, shared = expected(reports)
    piles = [
        sorted(
            [
                box
                for place, report in enumerate(boxes)
                for box in report[2 * pile : 2 * pile + 2]
                if place not in shared
            ]
            + [box for number, box in dummies if number == pile]
        )
        for pile in range(3)
    ]
    head = b"".join(len(pile).to_bytes(8, "little") for pile in piles)
    stream = io.BytesIO()
    runs.written(stream)
    assert stream.getvalue() == head + b"".join(box for pile in piles for box in pile)


def test_a_box_of_many_owners_takes_no_memory_for_its_copies() -> None:
    """Its part has owners alone, and nothing else of the range is lost."""
    one = b"\x42" * SIZE
    others = [b"\x42" + secrets.token_bytes(SIZE - 1) for _ in range(200)]
    steps = stages(1, piece_bytes=10_000, cut_bytes=10**6)
    cut = steps.cut([one] * 3000 + others, 0, 1, "cut")
    parts = steps.recut(cut.parts[0], 8, "recut").parts
    [single] = [part for part in parts if part.single]
    assert single.single_box == one
    assert single.rows == 3000
    sizes = [len(steps.pieces.objects.get(piece.name)) - 16 for piece in single.pieces]
    assert sum(sizes) == 3000 * 9
    assert max(part.rows for part in parts if not part.single) < 200
    runs = joined(steps, runs_of_ranges(steps, [cut], 1, 8), 3200)
    stream = io.BytesIO()
    runs.written(stream)
    assert stream.getvalue() == b"".join(sorted(others))
    assert len(runs.shared) == 3000


def test_a_dummy_stays_although_two_people_sent_the_same_box() -> None:
    """One that equals the box of a person who stays is an error, as in one process."""
    one, other, third = (bytes([number]) * SIZE for number in (1, 2, 3))
    for dummy, parts in ((one, 0), (one, 3), (other, 0), (other, 3)):
        steps = stages(1, piece_bytes=50)
        cuts = [steps.cut([one] * 9 + [other, third], 0, 1, "cut")]
        cuts.append(steps.cut_dummies([(0, dummy)], 1, "dummies"))
        runs = joined(steps, runs_of_ranges(steps, cuts, 1, parts), 11, (1,))
        assert len(runs.shared) == 9
        stream = io.BytesIO()
        if dummy == other:
            with pytest.raises(PlanError, match="changed while"):
                runs.written(stream)
            continue
        runs.written(stream)
        assert stream.getvalue() == (3).to_bytes(8, "little") + one + other + third


def test_skewed_boxes_are_cut_into_parts_of_about_equal_size() -> None:
    boxes = [b"chosen" + secrets.token_bytes(SIZE - 6) for _ in range(4000)]
    steps = stages(1, piece_bytes=100_000, cut_bytes=10**6)
    cut = steps.cut(boxes, 0, 10, "cut")
    assert sorted(part.rows for part in cut.parts)[-2:] == [0, 4000]
    parts = steps.recut(
        cut.parts[range_of(np.frombuffer(boxes[0], np.uint8)[None], 10)[0]], 10, "x"
    )
    assert len(parts.parts) == 10
    assert all(250 < part.rows < 600 for part in parts.parts)


def test_ranges_are_of_equal_width_and_in_the_order_of_bytes() -> None:
    boxes = np.frombuffer(secrets.token_bytes(SIZE * 1000), np.uint8).reshape(-1, SIZE)
    for ranges in (1, 2, 7, 4096):
        numbers = range_of(boxes, ranges)
        order = sorted(range(1000), key=lambda place: boxes[place].tobytes())
        assert (np.diff(numbers[order]) >= 0).all()
        exact = [int.from_bytes(box[:4].tobytes(), "big") * ranges >> 32 for box in boxes]
        assert numbers.tolist() == exact
    assert range_of(np.array([[1], [255]], np.uint8), 256).tolist() == [1, 255]


@check_all("size", [1, 2, 5])
def test_limits_between_parts_are_boxes_of_the_sample(size: int) -> None:
    highest = b"\xff" * size
    sample = np.array(
        sorted([b"\x01" * size, *[b"\x02" * size] * 50, highest, highest]), f"S{size}"
    )
    starts, singles = part_limits(sample, 10, size)
    after = box_after(b"\x02" * size)
    assert starts == [b"\x02" * size, after]
    assert singles == ["", (b"\x02" * size).hex(), ""]
    assert part_limits(np.array([highest] * 9, f"S{size}"), 4, size) == (
        [highest],
        ["", highest.hex()],
    )
    assert part_limits(np.empty(0, f"S{size}"), 4, size) == ([], [""])


def test_the_box_after_another_one_is_the_next_in_the_order_of_bytes() -> None:
    assert box_after(b"\x00\xff") == b"\x01\x00"
    assert box_after(b"\x01\x02") == b"\x01\x03"
    assert box_after(b"\xff\xff") is None


def test_a_report_of_another_length_or_too_many_piles_are_refused() -> None:
    steps = stages(2)
    with pytest.raises(PlanError, match="another length"):
        steps.cut([b"\0" * (2 * SIZE), b"\0" * SIZE], 0, 1, "cut")
    with pytest.raises(PlanError, match="up to 256 piles"):
        stages(257, 257)


def test_a_run_out_of_order_or_of_another_length_is_not_released() -> None:
    steps = stages(1, piece_bytes=10_000)
    reports = [secrets.token_bytes(SIZE) for _ in range(50)]
    index = steps.cut(reports, 0, 1, "cut")
    [run] = runs_of_ranges(steps, [index], 1, 0)
    with pytest.raises(PlanError, match="changed while"):
        joined(steps, [run], 51).written(io.BytesIO())
    with pytest.raises(PlanError, match="changed while"):
        joined(steps, [run, run], 100).written(io.BytesIO())
    assert mix_stages.OWNERS_PER_CUT > 50
