"""Randomness: one stream, exact integers, safe over forks."""

from __future__ import annotations

import copy
import itertools
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, p_value
from tests.tables import check_all

from metricshuffle import _randomness_kernels as kernels
from metricshuffle.errors import InputError
from metricshuffle.randomness import BUFFER_WORDS, Randomness


def test_the_stream_is_aes_256_in_counter_mode() -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = bytes(range(32))
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * 20_000))
    assert Randomness(key).words(20_000).tobytes() == stream


@check_all(
    "cuts",
    [[3, 5], [BUFFER_WORDS, 1], [0, 7], [BUFFER_WORDS - 1, 2 * BUFFER_WORDS + 3, 9], [1] * 20],
)
def test_the_stream_does_not_depend_on_how_it_is_asked_for(cuts: list[int]) -> None:
    whole = Randomness.seeded("cuts")
    pieces = Randomness.seeded("cuts")
    np.testing.assert_array_equal(
        whole.words(sum(cuts)), np.concatenate([pieces.words(cut) for cut in cuts])
    )


def test_seeds_decide_the_stream_and_are_marked_unsafe() -> None:
    assert Randomness.seeded(1).words(4).tolist() == Randomness.seeded(1).words(4).tolist()
    streams = [Randomness.seeded(seed).words(2).tobytes() for seed in (0, 1, -1, 2**200, "1", "")]
    assert len(set(streams)) == len(streams)
    assert Randomness.seeded(1).unsafe_seeded
    assert Randomness.seeded(1).spawn().unsafe_seeded


def test_system_streams_differ_and_are_not_marked() -> None:
    parent = Randomness.system()
    streams = [parent, parent.spawn(), Randomness.system()]
    assert len({stream.words(2).tobytes() for stream in streams}) == 3
    assert not any(stream.unsafe_seeded for stream in streams)


def test_children_are_independent_of_each_other_and_of_when_they_are_made() -> None:
    early = Randomness.seeded(5)
    late = Randomness.seeded(5)
    late.words(1000)
    first = early.spawn().words(3).tolist()
    assert first == late.spawn().words(3).tolist()
    assert first not in (early.spawn().words(3).tolist(), early.words(3).tolist())


@pytest.mark.parametrize("fork", ["os.fork()", "ctypes.PyDLL(None).fork()"])
@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_child_does_not_repeat_its_parent(fork: str) -> None:
    script = f"""
import ctypes, os, sys
from metricshuffle.randomness import Randomness
system, seeded = Randomness.system(), Randomness.seeded(1)
system.words(1), seeded.words(1)  # both buffers now hold words that were not handed out
child = {fork}
line = system.words(4).tobytes().hex() + " " + seeded.words(4).tobytes().hex() + "\\n"
os.write(1, line.encode())
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""
    lines = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(lines) == 4
    assert lines[0] != lines[2]
    assert lines[1] == lines[3]  # a seeded stream is reproducible in a child too


def test_copies_are_refused() -> None:
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InputError, match="spawn"):
            duplicate(Randomness.seeded(1))


def test_words_are_fair_bits_in_every_position() -> None:
    words = Randomness.seeded("bits").words(40_000)
    for position in range(64):
        ones = int(((words >> np.uint64(position)) & np.uint64(1)).sum())
        assert abs(ones - 20_000) < 6 * 100  # six standard deviations


@check_all("bound", [1, 2, 3, 5, 7, 64, 100])
def test_below_is_uniform_for_small_bounds(bound: int) -> None:
    stream = Randomness.seeded(bound)
    draws = np.array([stream.below(bound) for _ in range(6000)])
    assert set(draws.tolist()) == set(range(bound))
    if bound > 1:
        assert p_value(draws, [1 / bound] * bound) > TOO_UNLIKELY


@settings(deadline=None)
@given(st.integers(min_value=1, max_value=2**300))
def test_below_stays_below_any_bound(bound: int) -> None:
    stream = Randomness.seeded(bound)
    assert all(0 <= stream.below(bound) < bound for _ in range(5))


def test_below_a_large_bound_is_uniform_in_its_leading_part() -> None:
    stream = Randomness.seeded("large")
    bound = 3 * 2**128
    draws = np.array([stream.below(bound) >> 128 for _ in range(6000)])
    assert p_value(draws, [1 / 3] * 3) > TOO_UNLIKELY


@settings(deadline=None)
@given(st.integers(min_value=1, max_value=2**63), st.data())
def test_rejection_leaves_equally_many_words_for_each_value(
    bound: int, data: st.DataObject
) -> None:
    value = data.draw(st.integers(min_value=0, max_value=bound - 1))
    refused = 2**64 % bound
    lowest = -(-(value * 2**64 + refused) // bound)
    highest = ((value + 1) * 2**64 - 1) // bound
    assert highest - lowest + 1 == 2**64 // bound  # the same for every value: exactly uniform
    width = np.uint64(bound)
    for word in (lowest, highest, (lowest + highest) // 2):
        assert not kernels.rejected(np.uint64(word), width)
        assert int(kernels.multiply_high(np.uint64(word), width)) == value
    for word in (lowest - 1, highest + 1):
        if 0 <= word < 2**64:
            assert (
                kernels.rejected(np.uint64(word), width)
                or int(kernels.multiply_high(np.uint64(word), width)) != value
            )


@check_all("modulus", [1, 2, 3, 10, 1000])
def test_residues_are_uniform(modulus: int) -> None:
    draws = Randomness.seeded("residues").uniform_residues(200_000, modulus)
    assert draws.dtype == np.uint64
    assert int(draws.max()) < modulus
    if modulus > 1:
        assert p_value(draws, [1 / modulus] * modulus) > TOO_UNLIKELY


def test_residues_reject_where_taking_the_remainder_would_be_biased() -> None:
    modulus = (
        2**63 - 2**61
    )  # 2^64 = 2 modulus + 2^62: without rejection the low third would be hit half as often again
    draws = Randomness.seeded("biased").uniform_residues(60_000, modulus)
    thirds = draws // np.uint64(modulus // 3)
    assert p_value(thirds, [1 / 3] * 3) > TOO_UNLIKELY
    remainders = Randomness.seeded("biased").words(60_000) % np.uint64(modulus)
    assert p_value(remainders // np.uint64(modulus // 3), [1 / 3] * 3) < TOO_UNLIKELY


def test_shuffles_of_four_are_uniform_over_all_permutations() -> None:
    stream = Randomness.seeded("shuffle")
    number = {order: index for index, order in enumerate(itertools.permutations(range(4)))}
    four = np.arange(4, dtype=np.int8)
    draws = np.array([number[tuple(stream.shuffled(four).tolist())] for _ in range(12_000)])
    assert p_value(draws, [1 / 24] * 24) > TOO_UNLIKELY


@check_all(
    "array",
    [
        np.arange(30_000),
        np.linspace(0, 1, 50),
        np.array([True, False] * 9),
        np.arange(20).reshape(10, 2),
    ],
)
def test_a_shuffle_keeps_every_entry_and_leaves_the_input_alone(array: NDArray[Any]) -> None:
    before = array.copy()
    after = Randomness.seeded(3).shuffled(array)
    np.testing.assert_array_equal(array, before)
    assert after.dtype == array.dtype
    assert sorted(after.tolist()) == sorted(array.tolist())
    assert after.tolist() != array.tolist()


def test_each_entry_of_a_long_shuffle_lands_anywhere() -> None:
    stream = Randomness.seeded("long")
    places = np.concatenate(
        [np.flatnonzero(stream.shuffled(np.arange(BUFFER_WORDS + 100)) == 7) for _ in range(2000)]
    )
    assert p_value(places // 829, [829 / 8292] * 10) > TOO_UNLIKELY


def test_nothing_is_asked_and_nothing_comes() -> None:
    stream = Randomness.seeded(0)
    assert (
        stream.words(0).size
        == stream.uniform_residues(0, 5).size
        == stream.shuffled(np.empty(0)).size
        == 0
    )


def test_wrong_arguments_are_refused_in_words() -> None:
    stream = Randomness.seeded(0)
    with pytest.raises(InputError, match="bound"):
        stream.below(0)
    with pytest.raises(InputError, match="modulus"):
        stream.uniform_residues(1, 2**63 + 1)
    with pytest.raises(InputError, match="count"):
        stream.words(-1)
    with pytest.raises(InputError, match="contiguous"):
        stream.fill(np.empty(8, dtype=np.uint64)[::2])
    with pytest.raises(InputError, match="seed"):
        Randomness.seeded(1.5)  # type: ignore[arg-type]
