from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, p_value
from tests.tables import check_all

from metricshuffle.accounting.sums.split_and_mix import security_bits, view_penalty
from metricshuffle.encodings import Modular, Packed, packed_vectors
from metricshuffle.encodings.packed_vectors import cheapest_packing
from metricshuffle.errors import ConditionError, DomainError, InputError
from metricshuffle.randomness import Randomness


@st.composite
def encodings(draw: st.DrawFn) -> Packed:
    coordinates = draw(st.integers(1, 9))
    bits = draw(st.integers(1, 62))
    together = draw(st.integers(1, coordinates))
    if draw(st.booleans()):
        return Packed(
            coordinates,
            bits,
            together,
            1,
            draw(st.sampled_from(["aggregator", "curator", "nobody"])),
        )
    return Packed(coordinates, bits, together, draw(st.integers(3, 7)), "shuffler")


def drawn_values(data: st.DataObject, coordinates: int) -> Any:
    people = data.draw(st.integers(0, 5))
    row = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=coordinates, max_size=coordinates)
    return np.array(
        data.draw(st.lists(row, min_size=people, max_size=people)), dtype=np.int64
    ).reshape(people, coordinates)


@settings(deadline=None)
@given(encoding=encodings(), data=st.data(), seed=st.integers(0, 2**32))
def test_sums_are_reconstructed_exactly(encoding: Packed, data: st.DataObject, seed: int) -> None:
    values = drawn_values(data, encoding.coordinates)
    rows = encoding.residues(values, Randomness.seeded(seed))
    assert rows.shape == (len(values), encoding.numbers)
    assert rows.dtype == encoding.type
    assert not rows.size or int(rows.max()) < 2**encoding.bits
    expected = [sum(map(int, column)) % 2**encoding.bits for column in values.T]
    assert encoding.total(rows) == expected
    for row, value in zip(rows, values, strict=True):
        assert encoding.total(row[None, :]) == [int(number) % 2**encoding.bits for number in value]
    piles = encoding.piles(rows)
    assert len(piles) == encoding.groups
    sums: list[int] = []
    for pile in piles:
        assert pile.shape == (len(values) * encoding.shares, encoding.width)
        assert pile.tolist() == sorted(pile.tolist())
        elements = [sum(map(int, column)) % 2**encoding.bits for column in pile.T]
        assert encoding.trusted != "shuffler" or elements[-1] == 0
        sums += elements[: encoding.together]
    assert sums[: encoding.coordinates] == expected
    assert not any(sums[encoding.coordinates :])  # padding


@settings(deadline=None)
@given(encoding=encodings(), data=st.data())
def test_reports_do_not_depend_on_how_people_are_cut_into_chunks(
    encoding: Packed, data: st.DataObject
) -> None:
    values = drawn_values(data, encoding.coordinates)
    cut = data.draw(st.integers(0, len(values)))
    stream = Randomness.seeded("chunks")
    parts = [encoding.residues(values[:cut], stream), encoding.residues(values[cut:], stream)]
    np.testing.assert_array_equal(
        np.concatenate(parts), encoding.residues(values, Randomness.seeded("chunks"))
    )
    assert sum(len(pile) for pile in encoding.piles(parts[0])) == cut * encoding.messages_per_user


def test_more_people_than_one_block_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    encoding = Packed(5, 21, 2, 4, "shuffler")
    values = np.arange(500).reshape(100, 5)
    whole = encoding.residues(values, Randomness.seeded(1))
    for words in (1, 28, 100):
        monkeypatch.setattr(packed_vectors, "WORDS_TOGETHER", words)
        np.testing.assert_array_equal(encoding.residues(values, Randomness.seeded(1)), whole)


class Listed(Randomness):
    """A source that says given words."""

    def __init__(self, given: list[int]) -> None:
        super().__init__(bytes(32))
        self._given = given

    def fill(self, buffer: Any) -> None:
        buffer[:] = self._given[: buffer.size]
        del self._given[: buffer.size]


@check_all(
    ("encoding", "values"),
    [
        (Packed(1, 1, 1, 3, "shuffler"), [[0], [1], [-1]]),
        (Packed(1, 2, 1, 3, "shuffler"), [[0], [1], [3], [-2]]),
        (Packed(2, 1, 1, 3, "shuffler"), [[0, 1], [1, 1]]),
        (Packed(2, 1, 2, 4, "shuffler"), [[1, 0], [0, 0]]),
        (Packed(3, 1, 2, 3, "shuffler"), [[1, 0, 1]]),
    ],
)
def test_the_law_of_the_shares_is_uniform_over_those_with_the_right_sum(
    encoding: Packed, values: list[list[int]]
) -> None:
    """Over all random bits, every report with the right sums occurs once, and no other."""
    modulus = 2**encoding.bits
    free = encoding.groups * (encoding.shares - 1) * encoding.width * encoding.bits
    for value in values:
        wanted = np.zeros(encoding.groups * encoding.together, dtype=int)
        wanted[: encoding.coordinates] = np.array(value) % modulus
        sums = [
            [*group, 0] for group in wanted.reshape(encoding.groups, encoding.together).tolist()
        ]
        possible = [
            [
                element
                for element in product(
                    product(range(modulus), repeat=encoding.width), repeat=encoding.shares
                )
                if [sum(part) % modulus for part in zip(*element, strict=True)] == group
            ]
            for group in sums
        ]
        rows = encoding.residues(np.array([value] * 2**free), Listed(list(range(2**free))))
        found = Counter(map(tuple, rows.tolist()))
        hoped = {tuple(np.array(elements).reshape(-1).tolist()) for elements in product(*possible)}
        assert found == dict.fromkeys(hoped, 1)
        assert len(hoped) == 2**free


@check_all("bits", [2, 21, 33])
def test_every_share_is_uniform_and_so_is_a_pair_of_them(bits: int) -> None:
    encoding = Packed(3, bits, 2, 4, "shuffler")
    rows = encoding.residues(np.full((20_000, 3), 5), Randomness.seeded("uniform")).astype(np.int64)
    top = rows >> (bits - 2)
    low = rows & 3
    for column in range(encoding.numbers):
        assert p_value(top[:, column], [0.25] * 4) > TOO_UNLIKELY
        assert p_value(low[:, column], [0.25] * 4) > TOO_UNLIKELY
        for other in range(column):
            assert p_value(4 * top[:, column] + top[:, other], [1 / 16] * 16) > TOO_UNLIKELY


def test_a_missing_or_damaged_share_is_refused() -> None:
    encoding = Packed(7, 20, 2, 5, "shuffler")
    values = np.arange(70).reshape(10, 7)
    rows = encoding.residues(values, Randomness.seeded("lost"))
    for group in range(encoding.groups):
        for share in range(encoding.shares):
            first = (group * encoding.shares + share) * encoding.width
            lost = rows.copy()
            lost[3, first : first + encoding.width] = 0
            with pytest.raises(DomainError, match=f"missing or damaged in group {group + 1} of 4"):
                encoding.total(lost)
    wrong = rows.copy()
    wrong[4, 6] = 2**20
    for job in (encoding.total, encoding.piles):
        with pytest.raises(DomainError, match=r"0\.\.1048575, got 1048576 in report 4 .*damaged"):
            job(wrong)
    for shaped in (rows[:, :-1], rows[0], rows.astype(np.uint64), rows.astype(np.int64)):
        with pytest.raises(InputError, match=r"rows of 60 residues of type <u4"):
            encoding.total(shaped)


def test_sums_do_not_overflow_whatever_the_number_of_people() -> None:
    encoding = Packed(2, 62, 2, 1, "aggregator")
    rows = np.full((1000, 2), 2**62 - 1, dtype="<u8")
    assert encoding.total(rows) == [(1000 * (2**62 - 1)) % 2**62] * 2
    assert encoding.total(rows[:0]) == [0, 0]


def test_sizes() -> None:
    encoding = Packed(386, 21, 8, 16, "shuffler")
    assert (encoding.groups, encoding.width, encoding.group_bits) == (49, 9, 189)
    assert (encoding.messages_per_user, encoding.bits_per_message, encoding.bits_per_user) == (
        784,
        195,
        784 * 195,
    )
    assert (encoding.numbers, encoding.type) == (784 * 9, np.dtype("<u4"))
    added = Packed(386, 21, 386, 1, "aggregator")
    assert (added.groups, added.messages_per_user, added.numbers, added.bits_per_user) == (
        1,
        1,
        386,
        386 * 21,
    )
    assert [Packed(1, bits, 1, 1, "nobody").type.itemsize for bits in (1, 16, 17, 32, 33, 62)] == [
        2,
        2,
        4,
        4,
        8,
        8,
    ]


def test_to_an_aggregator_go_the_residues_themselves() -> None:
    values = np.array([[-1, 5, 2**40], [7, 8, 9]])
    rows = Packed(3, 10, 2, 1, "aggregator").residues(values, Listed([]))  # reads no randomness
    assert rows.tolist() == [[1023, 5, 0, 0], [7, 8, 9, 0]]


def test_centred_is_that_of_one_residue() -> None:
    encoding = Packed(3, 8, 2, 3, "shuffler")
    for total in range(256):
        assert encoding.centred(total, -50, 100) == Modular(256, 1, "aggregator").centred(
            total, -50, 100
        )
    assert encoding.centred(250, -50, 100) == -6


@check_all(
    ("wrong", "said"),
    [
        ((0, 8, 1, 3, "shuffler"), "coordinates"),
        ((True, 8, 1, 3, "shuffler"), "coordinates"),
        ((4, 63, 1, 3, "shuffler"), "bits"),
        ((4, 0, 1, 3, "shuffler"), "bits"),
        ((4, 8, 5, 3, "shuffler"), "together"),
        ((4, 8, 0, 3, "shuffler"), "together"),
        ((4, 8, 1, 2, "shuffler"), "shares >= 3"),
        ((4, 8, 1, 3, "aggregator"), "shares = 1"),
        ((4, 8, 1, 0, "aggregator"), "shares"),
        ((4, 8, 1, 3, "friend"), "trusted"),
        ((40, 30, 33, 3, "shuffler"), "1000 bits"),
        ((4, 8.0, 1, 3, "shuffler"), "bits"),
    ],
)
def test_what_cannot_be_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Packed(*wrong)


def test_values_that_do_not_fit_are_refused() -> None:
    encoding = Packed(3, 8, 2, 3, "shuffler")
    stream = Randomness.seeded(0)
    wrong: list[Any] = [
        np.zeros((2, 2), dtype=int),
        np.zeros(3, dtype=int),
        np.zeros((2, 3)),
        np.zeros((2, 3), dtype=np.uint64),
    ]
    for values in wrong:
        with pytest.raises(InputError, match="3 for each person"):
            encoding.residues(values, stream)


def added_by_mixing(honest: int, encoding: Packed, epsilon: float) -> Fraction:
    sigma = security_bits(honest, encoding.shares, 2**encoding.group_bits)
    return encoding.groups * Fraction(view_penalty(epsilon, sigma))


@check_all(
    ("honest", "coordinates", "bits"),
    [(500, 36, 19), (2000, 63, 16), (19, 3, 62), (100, 1, 8), (40, 20, 62)],
)
def test_cheapest_is_the_cheapest_of_all(honest: int, coordinates: int, bits: int) -> None:
    """Against every number of coordinates together and every number of shares, one by one."""
    best: list[tuple[int, Packed]] = []
    for together in range(1, min(16, coordinates) + 1):
        if bits * (together + 1) <= 1000:
            encoding = Packed(coordinates, bits, together, 3, "shuffler")
            while added_by_mixing(honest, encoding, 10.0) > Fraction(1e-6):
                encoding = replace(encoding, shares=encoding.shares + 1)
            best.append((encoding.messages_per_user * (encoding.bits_per_message + 384), encoding))
    chosen = cheapest_packing(honest, coordinates, bits, 10.0, 1e-6)
    assert chosen == min(best, key=lambda pair: pair[0])[1]
    assert added_by_mixing(honest, chosen, 10.0) <= Fraction(1e-6)


@check_all(
    ("honest", "coordinates", "bits", "shares", "sealed"),
    [
        (500, 36, 19, 24, 8.0),
        (2000, 63, 16, 19, 10.0),
        (2000, 229, 16, 19, 36.0),
        (100_000, 341, 21, 16, 48.0),
        (100_000, 386, 21, 16, 54.0),
    ],
)
def test_what_eight_together_cost(
    honest: int, coordinates: int, bits: int, shares: int, sealed: float
) -> None:
    """Shares and kilobytes per person without the check, computed independently.

    The check costs at most two shares and an eighth of the bytes.
    """
    with_check = packed_vectors._fewest_shares(
        honest, Packed(coordinates, bits, 8, 3, "shuffler"), 10.0, 1e-6
    )
    assert shares <= with_check <= shares + 2
    best = cheapest_packing(honest, coordinates, bits, 10.0, 1e-6)
    cost = best.messages_per_user * (best.bits_per_message + 384) / 8000
    assert 0.9 * sealed < cost < 1.125 * sealed


def test_the_security_of_eight_packed_residues() -> None:
    encoding = Packed(7, 16, 7, 19, "shuffler")  # seven and the check
    assert security_bits(2000, encoding.shares, 2**encoding.group_bits) == pytest.approx(
        40.481661, abs=1e-6
    )


def test_cheapest_refuses_what_it_cannot_promise() -> None:
    for delta in (0.0, 1.0, -1.0, float("nan"), "x"):
        with pytest.raises(InputError, match="delta"):
            cheapest_packing(100, 10, 10, 1.0, delta)  # type: ignore[arg-type]
    for epsilon in (-1.0, float("nan")):
        with pytest.raises(InputError, match="epsilon"):
            cheapest_packing(100, 10, 10, epsilon, 1e-6)
    with pytest.raises(InputError, match="coordinates"):
        cheapest_packing(100, 0, 10, 1.0, 1e-6)
    with pytest.raises(InputError, match="bits"):
        cheapest_packing(100, 10, 63, 1.0, 1e-6)
    with pytest.raises(ConditionError, match="19 honest"):
        cheapest_packing(18, 10, 10, 1.0, 1e-6)
