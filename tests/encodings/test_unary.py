from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metricshuffle.encodings import ShuffledBits, Unary
from metricshuffle.errors import DomainError, InputError
from metricshuffle.randomness import Randomness


@settings(deadline=None)  # the first call compiles the shuffle
@given(length=st.integers(1, 60), data=st.data())
def test_every_message_set_has_equal_length(length: int, data: st.DataObject) -> None:
    encoding = Unary(length)
    randomness = Randomness.seeded(1)
    for count in data.draw(st.lists(st.integers(0, length), min_size=1, max_size=5)):
        messages = encoding.messages(count, randomness)
        assert messages.dtype == np.uint8
        assert messages.shape == (encoding.messages_per_user,)
        assert (
            encoding.bits_per_user
            == encoding.messages_per_user * encoding.bits_per_message
            == length
        )
        assert set(messages.tolist()) <= {0, 1}
        assert messages.sum() == count


@settings(deadline=None)  # the first call compiles the shuffle
@given(length=st.integers(1, 40), data=st.data())
def test_counting_is_the_same_as_sending(length: int, data: st.DataObject) -> None:
    encoding = Unary(length)
    randomness = Randomness.seeded(2)
    counts = data.draw(st.lists(st.integers(0, length), max_size=6))
    sent = np.array(
        [encoding.messages(count, randomness) for count in counts], dtype=np.uint8
    ).reshape(-1)
    expected = ShuffledBits(sum(counts), len(counts) * length, len(counts))
    assert encoding.shuffled(randomness.shuffled(sent)) == expected
    assert encoding.shuffled_counts(np.array(counts, dtype=np.int64)) == expected


def test_client_order_is_uniform() -> None:
    encoding = Unary(4)
    randomness = Randomness.seeded(3)
    rounds = 3000
    codes = [int(encoding.messages(2, randomness) @ np.array([8, 4, 2, 1])) for _ in range(rounds)]
    seen = np.array([codes.count(code) for code in (3, 5, 6, 9, 10, 12)])
    assert seen.sum() == rounds
    # chi-squared with 5 degrees of freedom: 30 is exceeded with probability 1.5e-5
    assert ((seen - rounds / 6) ** 2 / (rounds / 6)).sum() < 30


def test_one_user_and_huge_lengths() -> None:
    assert Unary(1).messages(1, Randomness.seeded(4)).tolist() == [1]
    assert Unary(1).shuffled_counts(np.array([0])) == ShuffledBits(0, 1, 1)
    huge = 2**62 - 1
    assert Unary(huge).shuffled_counts(np.full(9, huge)).ones == 9 * huge


def test_mistakes_are_sentences() -> None:
    for length in (0, -1, 1.0, True):
        with pytest.raises(InputError, match="length"):
            Unary(length)  # type: ignore[arg-type]
    with pytest.raises(DomainError, match=r"0\.\.5"):
        Unary(5).messages(6, Randomness.seeded(5))
    with pytest.raises(DomainError, match=r"got -1\.\.3"):
        Unary(5).shuffled_counts(np.array([3, -1]))
    with pytest.raises(DomainError):
        Unary(5).shuffled_counts(np.array([2**64 - 1], dtype=np.uint64))
    with pytest.raises(InputError, match="integers"):
        Unary(5).shuffled_counts(np.array([0.5]))
    with pytest.raises(InputError, match="whole number"):
        Unary(5).messages(2.0, Randomness.seeded(5))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="incomplete"):
        Unary(5).shuffled(np.zeros(7, dtype=np.uint8))
    with pytest.raises(InputError, match="zeros and ones"):
        Unary(5).shuffled(np.full(5, 2, dtype=np.uint8))
    with pytest.raises(InputError, match="ones"):
        ShuffledBits(6, 5, 1)
