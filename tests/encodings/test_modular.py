from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metricshuffle.encodings import Modular, modulus_for
from metricshuffle.errors import DomainError, InputError
from metricshuffle.randomness import Randomness

int64 = st.integers(-(2**63), 2**63 - 1)
moduli = st.one_of(st.integers(2, 40), st.integers(2, 2**62), st.just(2**62), st.just(2**62 - 1))


@st.composite
def encodings(draw: st.DrawFn) -> Modular:
    if draw(st.booleans()):
        return Modular(draw(moduli), 1, "aggregator")
    return Modular(draw(moduli), draw(st.integers(3, 12)), "shuffler")


@given(encoding=encodings(), values=st.lists(int64, max_size=8), seed=st.integers(0, 2**32))
def test_sum_is_reconstructed_exactly(encoding: Modular, values: list[int], seed: int) -> None:
    records = encoding.shares(np.array(values, dtype=np.int64), Randomness.seeded(seed))
    for row, value in zip(records, values, strict=True):
        assert encoding.total(row) == value % encoding.modulus
    multiset = encoding.shuffled(records)
    assert sorted(records.reshape(-1).tolist()) == multiset.tolist()
    assert encoding.total(multiset) == sum(values) % encoding.modulus


@given(
    encoding=encodings(), values=st.lists(int64, min_size=1, max_size=8), seed=st.integers(0, 2**32)
)
def test_every_message_has_equal_length(encoding: Modular, values: list[int], seed: int) -> None:
    records = encoding.shares(np.array(values, dtype=np.int64), Randomness.seeded(seed))
    assert records.dtype == np.uint64
    assert records.shape == (len(values), encoding.messages_per_user)
    assert (
        int(records.max()) < encoding.modulus <= 2**encoding.bits_per_message < 2 * encoding.modulus
    )
    assert encoding.bits_per_user == encoding.messages_per_user * encoding.bits_per_message
    lengths = {
        len(f"{residue:0{encoding.bits_per_message}b}") for residue in records.reshape(-1).tolist()
    }
    assert lengths == {encoding.bits_per_message}


@given(
    users=st.integers(1, 10**6),
    span=st.integers(0, 10**4),
    radius=st.integers(0, 10**6),
    data=st.data(),
)
def test_window_survives_the_modulus(
    users: int, span: int, radius: int, data: st.DataObject
) -> None:
    modulus = modulus_for(users, span, radius)
    offset = data.draw(st.integers(-(10**9), 10**9))
    low = offset - radius
    high = offset + users * span + radius
    assert modulus == max(2, high - low + 1)
    wider = Modular(modulus + data.draw(st.integers(0, 10)), 1, "aggregator")
    for value in (low, high, data.draw(st.integers(low, high))):
        assert wider.centred(value % wider.modulus, low, high) == value
    # outside the window the nearest representative is returned, on both sides, and nothing is
    # clipped
    spare = wider.modulus - (high - low + 1)
    assert wider.centred((low - spare // 2) % wider.modulus, low, high) == low - spare // 2
    assert (
        wider.centred((high + (spare + 1) // 2) % wider.modulus, low, high)
        == high + (spare + 1) // 2
    )


def test_every_column_of_shares_is_uniform_and_pairs_are_independent() -> None:
    modulus = 5
    messages = 4
    users = 20_000
    values = np.where(np.arange(users) % 2 == 0, 3, -1)
    records = Modular(modulus, messages, "shuffler").shares(values, Randomness.seeded(8))
    for first in range(messages):
        for second in range(first):
            cells = np.bincount(
                (records[:, first] * np.uint64(modulus) + records[:, second]).astype(np.int64),
                minlength=modulus**2,
            )
            expected = users / modulus**2
            # chi-squared with 24 degrees of freedom: 70 is exceeded with probability 2e-6
            assert ((cells - expected) ** 2 / expected).sum() < 70


def test_sums_of_huge_residues_do_not_overflow() -> None:
    encoding = Modular(2**62, 3, "shuffler")
    residues = np.full(1001, 2**62 - 1, dtype=np.uint64)
    assert encoding.total(residues) == (1001 * (2**62 - 1)) % 2**62
    extremes = np.array([-(2**63), 2**63 - 1, 0], dtype=np.int64)
    assert encoding.total(encoding.shares(extremes, Randomness.seeded(9))) == -1 % 2**62


def test_one_user_and_none() -> None:
    encoding = Modular(1000, 3, "shuffler")
    assert (
        encoding.total(encoding.shuffled(encoding.shares(np.array([-7]), Randomness.seeded(1))))
        == 993
    )
    assert encoding.centred(993, -10, 10) == -7
    assert encoding.shares(np.array([], dtype=np.int64), Randomness.seeded(1)).shape == (0, 3)
    assert encoding.total(np.array([], dtype=np.uint64)) == 0
    assert Modular(1000, 1, "aggregator").shares(np.array([-7]), Randomness.seeded(1)).tolist() == [
        [993]
    ]


def test_bits() -> None:
    assert [
        Modular(m, 1, "aggregator").bits_per_message for m in (2, 3, 4, 5, 2**20, 2**20 + 1, 2**62)
    ] == [1, 2, 2, 3, 20, 21, 62]
    assert Modular(1_000_001, 10, "shuffler").bits_per_user == 200
    assert modulus_for(1000, 1000, 100) == 1_000_201
    assert modulus_for(1, 0, 0) == 2


def test_mistakes_are_sentences() -> None:
    for modulus in (1, 2**62 + 1, 10.0, True, math.nan):
        with pytest.raises(InputError, match="modulus"):
            Modular(modulus, 3, "shuffler")  # type: ignore[arg-type]
    for messages in (1, 2, 0, 3.0):
        with pytest.raises(InputError, match="messages"):
            Modular(100, messages, "shuffler")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="aggregator"):
        Modular(100, 3, "aggregator")
    with pytest.raises(
        InputError,
        match="trusted must be one of nobody, shuffler, aggregator, curator, got 'pigeon'",
    ):
        Modular(100, 3, "pigeon")  # type: ignore[arg-type]
    encoding = Modular(100, 3, "shuffler")
    with pytest.raises(InputError, match="integers"):
        encoding.shares(np.array([0.5]), Randomness.seeded(1))
    with pytest.raises(DomainError, match="64 bits"):
        encoding.shares(np.array([2**63], dtype=np.uint64), Randomness.seeded(1))
    with pytest.raises(DomainError, match="damaged"):
        encoding.total(np.array([100], dtype=np.uint64))
    with pytest.raises(InputError, match="uint64"):
        encoding.total(np.array([-1]))
    with pytest.raises(InputError, match="3 residues"):
        encoding.shuffled(np.zeros((2, 4), dtype=np.uint64))
    with pytest.raises(InputError, match="window"):
        encoding.centred(3, 0, 100)
    with pytest.raises(InputError, match="window"):
        encoding.centred(3, 5, 4)
    with pytest.raises(DomainError, match="total"):
        encoding.centred(100, 0, 50)
    with pytest.raises(InputError, match="users must be a whole number"):
        modulus_for(10.0, 1, 1)  # type: ignore[arg-type]
    for bad in ((0, 1, 1), (1, -1, 1), (1, 1, -1), (2**40, 2**40, 0)):
        with pytest.raises(InputError):
            modulus_for(*bad)
