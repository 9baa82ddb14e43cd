"""Split and joined messages: the same sums, without a link to people."""

from __future__ import annotations

import numpy as np
import pytest
from tests.catalogue.planned_tasks import SENT, load_task, reports_of
from tests.tables import check_all

from metricshuffle.errors import InputError, PlanError
from metricshuffle.protocols.protocol import Layout
from metricshuffle.tasks.message_format import MessageFormat

REFUSED = {
    "unary sum": "encoding='modular'",
    "bounded sum": "encoding='modular'",
    "flipped bits": "encoding='modular'",
    "aggregated sum": "aggregator",
    "vectors of a map": "aggregator",
}
CARRIED = tuple(kind for kind in SENT if kind not in REFUSED)


@check_all("kind", CARRIED)
def test_mixed_messages_have_the_same_sums(kind: str) -> None:
    task = load_task(kind)
    reports = reports_of(kind)
    form = MessageFormat.of(task.protocol)
    payloads = form.split_messages(reports.messages)
    assert payloads.shape == (len(reports), form.messages, form.size)
    draws = np.random.default_rng(3)
    if form.by_pile:  # each pile is mixed by itself
        piles = payloads.reshape(len(reports), form.piles, -1, form.size).swapaxes(0, 1)
        mixed = draws.permutation(piles.reshape(form.piles, -1, form.size), axis=1)
    else:
        mixed = payloads.reshape(-1, form.size)[draws.permutation(len(reports) * form.messages)]
    together = form.join_messages(mixed, len(reports))
    assert together.dtype == reports.messages.dtype
    assert task.protocol.counted(together) == task.protocol.counted(reports.messages)


@check_all("kind", CARRIED)
def test_the_payloads_of_a_person_are_in_the_order_of_their_bytes(kind: str) -> None:
    form = MessageFormat.of(load_task(kind).protocol)
    for person in form.split_messages(reports_of(kind).messages)[:5]:
        rows = [row.tobytes() for row in person]
        each = form.layout.each if form.by_pile else len(rows)
        for start in range(0, len(rows), each):
            assert rows[start : start + each] == sorted(rows[start : start + each])


def test_a_part_is_sent_without_its_pile() -> None:
    form = MessageFormat(Layout(np.dtype("<u2"), 6, 2), by_pile=True)
    [payloads] = form.split_messages(np.array([[300, 2, 257, 1, 0, 513]], dtype="<u2"))
    texts = [row.tobytes() for row in payloads]
    assert (form.size, form.piles, texts) == (
        2,
        2,
        [b"\x01\x01", b"\x02\0", b"\x2c\x01", b"\0\0", b"\x01\0", b"\x01\x02"],
    )
    assert form.parts_of(payloads).tolist() == [257, 2, 300, 0, 1, 513]
    assert form.part_payloads(np.array([257, 513])).tobytes() == texts[0] + texts[5]


@check_all("kind", REFUSED)
def test_what_cannot_be_carried_is_refused_in_words(kind: str) -> None:
    with pytest.raises(InputError, match=REFUSED[kind]):
        MessageFormat.of(load_task(kind).protocol)


def test_the_payload_of_a_sum_is_axis_and_value() -> None:
    form = MessageFormat.of(load_task("sum in shares").protocol)
    assert form.size == 9
    payloads = form.split_messages(
        np.array([[3, 2, 2**40 + 1] + [0] * (form.messages - 3)], dtype="<u8")
    )
    assert {row.tobytes() for row in payloads[0]} == {
        bytes([0]) + value.to_bytes(8, "little") for value in (0, 2, 3, 2**40 + 1)
    }


@check_all("kind", ["sum in shares", "centroid", "vectors of a line"])
def test_missing_messages_and_other_piles_are_refused(kind: str) -> None:
    form = MessageFormat.of(load_task(kind).protocol)
    reports = reports_of(kind)
    payloads = form.split_messages(reports.messages).reshape(-1, form.size)
    with pytest.raises(PlanError, match="some are missing"):
        form.join_messages(payloads[:-1], len(reports))
    wrong = payloads.copy()
    wrong[0, 0] = 255
    with pytest.raises(PlanError, match="complete reports"):
        form.join_messages(wrong, len(reports))
