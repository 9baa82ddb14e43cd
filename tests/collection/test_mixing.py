"""Mixing returns the sorted multiset of the boxes, for any order and little memory."""

from __future__ import annotations

import hashlib
import io
import os
import random
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.tables import check_all

from metricshuffle.collection.shuffler import external_sort
from metricshuffle.collection.shuffler.external_sort import ExternalSort, SortResult
from metricshuffle.errors import PlanError

SIZE = 12
ROOMY = external_sort.SORT_MEMORY_BYTES


def mixed(
    reports: Iterable[bytes], messages: int, size: int = SIZE, memory: int = ROOMY
) -> tuple[bytes, SortResult]:
    reports = list(reports)
    stream = io.BytesIO(b"left of an interrupted run, and longer than what is written now" * 100)
    told = ExternalSort(lambda: reports, size, messages, len(reports), memory).written(stream)
    assert hashlib.sha256(stream.getvalue()).hexdigest() == told.digest
    return stream.getvalue(), told


def expected(reports: list[bytes], size: int = SIZE) -> tuple[bytes, frozenset[int]]:
    """By definition: reports with duplicate boxes are left out, other boxes are sorted."""
    apart = [
        [report[start : start + size] for start in range(0, len(report), size)]
        for report in reports
    ]
    count = Counter(box for boxes in apart for box in boxes)
    shared = frozenset(
        number for number, boxes in enumerate(apart) if any(count[box] > 1 for box in boxes)
    )
    return b"".join(
        sorted(box for number, boxes in enumerate(apart) if number not in shared for box in boxes)
    ), shared


# Boxes that agree in their first eight bytes, end in zeros, or are equal, far more often than
# random ones would.
BOX = st.tuples(
    st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\x80" * 8, b"abcdefgh"]),
    st.binary(min_size=4, max_size=4),
).map(b"".join)
BOX |= st.tuples(st.binary(min_size=1, max_size=3)).map(
    lambda start: start[0].ljust(SIZE, b"\0")
) | st.binary(min_size=SIZE, max_size=SIZE)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda count: st.lists(st.lists(BOX, min_size=count, max_size=count), max_size=40)
    ),
    st.integers(1, 3000),
)
@example([[b"\0" * SIZE], [b"\0" * (SIZE - 1) + b"\1"]], 1)
@example([[b"b" * SIZE], [b"a" * SIZE], [b"b" * SIZE]], 1)
def test_it_is_the_sorted_multiset(boxes: list[list[bytes]], memory: int) -> None:
    reports = [b"".join(report) for report in boxes]
    output, told = mixed(reports, len(boxes[0]) if boxes else 1, memory=memory)
    assert (output, told.shared) == expected(reports)
    assert told.reports == len(reports)
    assert told.people == len(reports) - len(told.shared)
    assert (
        ExternalSort(
            lambda: reports, SIZE, len(boxes[0]) if boxes else 1, len(reports), memory
        ).distinct()
        == told.people
    )


@check_all("memory", [ROOMY, 20_000, 3_000])
def test_the_order_of_reports_and_of_boxes_in_them_says_nothing(memory: int) -> None:
    source = random.Random(5)  # a fixed order is shuffled; nothing secret
    reports = [[source.randbytes(SIZE) for _ in range(7)] for _ in range(60)]
    reports[13][2] = reports[40][6]
    outputs = set()
    for _ in range(20):
        source.shuffle(reports)
        for boxes in reports:
            source.shuffle(boxes)
        output, told = mixed([b"".join(boxes) for boxes in reports], 7, memory=memory)
        assert len(told.shared) == 2
        outputs.add(output)
    assert len(outputs) == 1


def test_few_bytes_of_memory_need_several_ranges_and_give_the_same() -> None:
    reports = [os.urandom(5 * SIZE) for _ in range(400)]
    whole, _ = mixed(reports, 5)
    ranges = {}
    for memory in (100_000, 50_000, 10_000, 2_000):
        mixing_ = ExternalSort(lambda: reports, SIZE, 5, len(reports), memory)
        ranges[memory] = len(mixing_._ranges())
        most = max(len(mixing_._between(*limits)[0]) for limits in mixing_._ranges())
        assert most * (SIZE + external_sort.BOX_OVERHEAD_BYTES) < 1.5 * memory
        assert mixed(reports, 5, memory=memory)[0] == whole
    assert 1 == ranges[100_000] < ranges[50_000] < ranges[10_000] < ranges[2_000]


def test_whoever_chooses_the_first_bytes_does_not_choose_how_much_memory_it_takes() -> None:
    """Passes by the first byte alone would keep all of these at once."""
    reports = [b"\x07" * 8 + os.urandom(4) for _ in range(2_000)]
    mixing_ = ExternalSort(lambda: reports, SIZE, 1, len(reports), 20_000)
    most = max(len(mixing_._between(*limits)[0]) for limits in mixing_._ranges())
    assert most * (SIZE + external_sort.BOX_OVERHEAD_BYTES) < 1.5 * 20_000
    assert mixed(reports, 1, memory=20_000)[0] == expected(reports)[0]


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda count: st.lists(st.lists(BOX, min_size=count, max_size=count), max_size=40)
    ),
    st.integers(1, 3000),
)
def test_many_boxes_with_the_same_first_bytes_are_sorted_in_place(
    boxes: list[list[bytes]], memory: int
) -> None:
    """With so small a batch every tie is one of many."""
    reports = [b"".join(report) for report in boxes]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(external_sort, "BATCH_BYTES", 2 * SIZE)
        output, told = mixed(reports, len(boxes[0]) if boxes else 1, memory=memory)
    assert (output, told.shared) == expected(reports)


def most_allocated(
    reports: Callable[[], Iterable[bytes]], size: int, count: int, memory: int
) -> int:
    """Peak bytes as Python and numpy count their allocations."""

    class Nowhere(io.RawIOBase):
        def write(self, data: Any) -> int:
            return len(data)

        def seek(self, *_: int) -> int:
            return 0

        def truncate(self, *_: Any) -> int:
            return 0

    mixed(
        [bytes([number]) * SIZE for number in range(100)], 1, memory=1000
    )  # (what is loaded at the first use is not of interest)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert ExternalSort(reports, size, 1, count, memory).written(Nowhere()).people == count  # type: ignore[arg-type]
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("start", [b"", b"chosen by somebody who knows how boxes are sorted"])
@pytest.mark.parametrize(("size", "count"), [(1000, 4000), (110, 10_000)])
def test_what_is_allocated_is_bounded_as_told(
    size: int, count: int, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few large and many small boxes, in a quarter of their size and in all of it.

    Half of them share a prefix. Some batches are being read and written besides.
    """
    monkeypatch.setattr(external_sort, "BATCH_BYTES", 2**16)
    whole = count * (size + external_sort.BOX_OVERHEAD_BYTES)

    def reports() -> Iterator[bytes]:
        source = random.Random(7)  # the same in every pass; nothing secret
        for number in range(count):
            box = source.randbytes(size)
            yield start + box[len(start) :] if number % 2 else box

    for memory in (whole // 4, whole):
        assert (
            most_allocated(reports, size, count, memory)
            < 1.4 * memory + 8 * external_sort.BATCH_BYTES
        )


def test_a_shared_box_in_the_last_range_takes_its_reports_out_of_the_first() -> None:
    reports = [bytes([number]) * SIZE + b"\xf0" + os.urandom(SIZE - 1) for number in range(100)]
    reports[3] = reports[3][:SIZE] + reports[80][SIZE:]
    for memory in (ROOMY, 3_000, 1_000):
        output, told = mixed(reports, 2, memory=memory)
        assert told.shared == {3, 80}
        assert (output, told.shared) == expected(reports)


def test_more_reports_than_announced_are_mixed_all_the_same() -> None:
    reports = [os.urandom(3 * SIZE) for _ in range(50)]
    stream = io.BytesIO()
    told = ExternalSort(lambda: reports, SIZE, 3, 4).written(stream)
    assert told.reports == 50
    assert stream.getvalue() == expected(reports)[0]


def test_reports_that_change_meanwhile_or_have_another_length_are_refused() -> None:
    with pytest.raises(PlanError, match="another length"):
        mixed([os.urandom(3 * SIZE), os.urandom(2 * SIZE)], 3)
    reads = iter(range(1, 1000))
    with pytest.raises(PlanError, match="changed"):
        ExternalSort(
            lambda: [os.urandom(SIZE) for _ in range(300 + next(reads))], SIZE, 1, 300, 4_000
        ).written(io.BytesIO())


LARGE = """
import sys, time
from metricshuffle.collection.shuffler.external_sort import ExternalSort as Mixing, is_sorted as is_in_order
import numpy as np
people, messages, size, memory = map(int, sys.argv[1:5])
def reports():
    draws = np.random.Generator(np.random.SFC64(7))
    for _ in range(people // 1000):
        block = draws.bytes(1000 * messages * size)
        for start in range(0, len(block), messages * size):
            yield block[start : start + messages * size]
class Checked:
    last, length = b"", 0
    def seek(self, _): pass
    def truncate(self): pass
    def write(self, chunk):
        self.length += len(chunk)
        assert is_in_order(np.frombuffer(self.last + chunk, np.uint8).reshape(-1, size))
        self.last = chunk[-size:]
def resident(kind):
    [peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith(kind)]
    return int(peak) / 1e6
base = resident("VmHWM")  # (of this process alone: ru_maxrss starts with that of the process that started it)
stream, start = Checked(), time.perf_counter()
told = Mixing(reports, size, messages, people, memory).written(stream)
assert told.people == people and stream.length == people * messages * size
print(told.digest, time.perf_counter() - start, resident("VmHWM") - base)
"""  # noqa: E501


def large(people: int, memory: int) -> tuple[str, float, float]:
    """Digest, seconds and peak gigabytes in a separate process.

    Ten boxes of 110 bytes per person.
    """
    program = [sys.executable, "-c", LARGE, str(people), "10", "110", str(memory)]
    digest, seconds, gigabytes = subprocess.run(
        program, capture_output=True, text=True, check=True
    ).stdout.split()
    return digest, float(seconds), float(gigabytes)


@pytest.mark.thorough
def test_memory_is_bounded_as_told() -> None:
    """110 MB of boxes in 40 MB, and some batches of 4 MB that are read and written.

    The base memory of Python and numpy is not counted.
    """
    whole, _, roomy = large(100_000, ROOMY)
    parts, _, narrow = large(100_000, 40_000_000)
    assert parts == whole
    assert narrow < 0.09 < 0.13 < roomy


@pytest.mark.slow
def test_a_million_reports_in_a_minute_and_two_gigabytes() -> None:
    digest, seconds, gigabytes = large(1_000_000, ROOMY)
    assert seconds < 60
    assert gigabytes < 2
    assert large(1_000_000, 300_000_000)[0] == digest
