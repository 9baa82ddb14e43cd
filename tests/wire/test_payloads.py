"""Messages that are mixed one by one: taken apart and put together they have the same sums, and no longer say whose they are."""

from __future__ import annotations

import numpy as np
import pytest
from tests.wire.kinds import SENT, load_task, reports_of

from metricshuffle.errors import InputError, PlanError
from metricshuffle.tasks.message_format import MessageFormat

REFUSED = {"unary sum": "encoding='modular'", "bounded sum": "encoding='modular'", "flipped bits": "encoding='modular'",
           "aggregated sum": "aggregator", "vectors of a map": "aggregator"}  # fmt: skip
CARRIED = tuple(kind for kind in SENT if kind not in REFUSED)


@pytest.mark.parametrize("kind", CARRIED)
def test_mixed_messages_have_the_same_sums(kind: str) -> None:
    task, reports = load_task(kind), reports_of(kind)
    form = MessageFormat.of(task.protocol)
    payloads = form.split_messages(reports.messages)
    assert payloads.shape == (len(reports), form.messages, form.size)
    mixed = payloads.reshape(-1, form.size)[np.random.default_rng(3).permutation(len(reports) * form.messages)]
    together = form.join_messages(mixed, len(reports))
    assert together.dtype == reports.messages.dtype
    assert task.protocol.counted(together) == task.protocol.counted(reports.messages)


@pytest.mark.parametrize("kind", CARRIED)
def test_the_payloads_of_a_person_are_in_the_order_of_their_bytes(kind: str) -> None:
    form = MessageFormat.of(load_task(kind).protocol)
    for person in form.split_messages(reports_of(kind).messages)[:5]:
        rows = [row.tobytes() for row in person]
        assert rows == sorted(rows)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_carried_is_refused_in_words(kind: str) -> None:
    with pytest.raises(InputError, match=REFUSED[kind]):
        MessageFormat.of(load_task(kind).protocol)


def test_the_payload_of_a_sum_is_axis_and_value() -> None:
    form = MessageFormat.of(load_task("sum in shares").protocol)
    assert form.size == 9
    payloads = form.split_messages(np.array([[3, 2, 2**40 + 1] + [0] * (form.messages - 3)], dtype="<u8"))
    assert {row.tobytes() for row in payloads[0]} == {bytes([0]) + value.to_bytes(8, "little") for value in (0, 2, 3, 2**40 + 1)}


@pytest.mark.parametrize("kind", ["sum in shares", "centroid", "vectors of a line"])
def test_missing_messages_and_other_piles_are_refused(kind: str) -> None:
    form, reports = MessageFormat.of(load_task(kind).protocol), reports_of(kind)
    payloads = form.split_messages(reports.messages).reshape(-1, form.size)
    with pytest.raises(PlanError, match="some are missing"):
        form.join_messages(payloads[:-1], len(reports))
    wrong = payloads.copy()
    wrong[0, 0] = 255
    with pytest.raises(PlanError, match="complete reports"):
        form.join_messages(wrong, len(reports))
