"""Random bits: an AES-256-CTR key stream keyed by the operating system.

`Randomness.system()` is the default everywhere. `Randomness.seeded()` runs the same code from a
known key, for simulations and tests; everything made with it must be marked `unsafe_seeded`. The
package has no other source of randomness, and no global one.
"""

from __future__ import annotations

import hashlib
import operator
import os
import threading
from typing import Any, NoReturn, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from metricshuffle.errors import InputError

Words = NDArray[np.uint64]

BUFFER_WORDS = 8192
"""64 KB: fits the second-level cache, and is large enough to hide the cost of a cipher call."""

_ZEROS = bytes(8 * BUFFER_WORDS)
_forks = 0
_starting: dict[tuple[int, int], threading.Lock] = {}
"""Lock for restarting a stream, by process: a forked child cannot wait for its parent's lock."""


def _after_fork() -> None:
    """Count a fork; runs in the child, which has only one thread at this point."""
    global _forks  # a process-wide fact, not a random state
    _forks += 1
    _starting.clear()


if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(after_in_child=_after_fork)


def _process() -> tuple[int, int]:
    """Identify this process: the counter detects os.fork, the process id a fork made in C."""
    return os.getpid(), _forks


def validate_count(count: int) -> int:
    """Return `count` as an integer >= 0, or raise InputError."""
    number = operator.index(count)
    if number < 0:
        raise InputError(f"count must be an integer >= 0, got {count!r}.")
    return number


class _KeyStream:
    """Stream of the words of one key in one process; a caller holds its lock during every use.

    A forked child never uses its parent's stream: if the fork happened during a draw, the lock
    would never be released in the child.
    """

    def __init__(self, key: bytes | None, first_word: int) -> None:
        # set before the key: a child forked in between is not the owner and makes a new stream
        self.owner = _process()
        self.lock = threading.Lock()
        self.handed_out = first_word
        start = (first_word // 2).to_bytes(16, "big")  # a block of the counter is two words
        self._cipher = Cipher(
            algorithms.AES(os.urandom(32) if key is None else key), modes.CTR(start)
        ).encryptor()
        self._buffer: Words = np.empty(BUFFER_WORDS, dtype=np.uint64)
        self._used = BUFFER_WORDS  # nothing buffered
        if first_word % 2:
            self._generate(self._buffer[:1])

    def _generate(self, out: Words) -> None:
        view = out.view(np.uint8).data
        for start in range(0, len(view), len(_ZEROS)):
            part = view[start : start + len(_ZEROS)]
            self._cipher.update_into(
                _ZEROS if len(part) == len(_ZEROS) else _ZEROS[: len(part)], part
            )

    def fill(self, buffer: Words) -> None:
        """Overwrite `buffer` with the next words.

        Words count as used before they are copied and erased. An interruption (an exception in a
        signal handler) may lose words, but no later draw returns an erased or repeated word.
        """
        self.handed_out += buffer.size
        first = self._used
        available = min(buffer.size, BUFFER_WORDS - self._used)
        self._used += available
        buffer[:available] = self._buffer[first : first + available]
        self._buffer[first : first + available] = 0  # never keep a word that was returned
        missing = buffer[available:]
        if missing.size >= BUFFER_WORDS:
            self._generate(missing)
        elif missing.size:
            self._generate(self._buffer)
            missing[:] = self._buffer[: missing.size]
            self._buffer[: missing.size] = 0
            self._used = missing.size


class Randomness:
    """A stream of independent uniform 64-bit words. Every method is exact (rejection, no floats).

    The stream does not depend on how it is read: words(3) then words(5) equal words(8). Threads may
    share a stream (their draws interleave), and any number of threads may use it after a fork. A
    spawned process or another interpreter shares nothing. Copying and pickling are refused, because
    two copies would give the same noise twice: use spawn().
    """

    def __init__(self, key: bytes | None) -> None:
        """Use `system()` or `seeded()`; key=None means a key from the operating system."""
        if key is not None and len(key) != 32:
            raise InputError(
                f"a key has 32 bytes, got {len(key)}; use Randomness.system() or "
                "Randomness.seeded(seed)."
            )
        self._key = key
        self._children = 0
        self._stream = _KeyStream(key, 0)

    @classmethod
    def system(cls) -> Self:
        """Return a cryptographically secure stream; a forked child continues with a fresh key."""
        return cls(None)

    @classmethod
    def seeded(cls, seed: int | str) -> Self:
        """Return a reproducible stream: NOT private, for simulations and tests only.

        A forked child repeats its parent's stream (nothing reproducible distinguishes them):
        give each child its own stream by spawn() before forking.
        """
        if isinstance(seed, bool) or not isinstance(seed, int | str):
            raise InputError(f"seed must be an integer or a text, got {seed!r}.")
        return cls(
            hashlib.sha256(f"metricshuffle seed {type(seed).__name__} {seed}".encode()).digest()
        )

    @property
    def unsafe_seeded(self) -> bool:
        """True if anyone who knows the seed knows the noise."""
        return self._key is not None

    def _current(self) -> _KeyStream:
        """Return the stream of this process; after a fork the first thread restarts it."""
        stream = self._stream
        if stream.owner == _process():
            return stream
        with _starting.setdefault(
            _process(), threading.Lock()
        ):  # setdefault is atomic: all threads get the same lock
            if self._stream.owner != _process():
                self._stream = _KeyStream(self._key, self._stream.handed_out)
            return self._stream

    def fill(self, buffer: Words) -> None:
        """Overwrite a contiguous uint64 array with the next words, without allocating."""
        if buffer.dtype != np.uint64 or buffer.ndim != 1 or not buffer.flags.c_contiguous:
            raise InputError(
                "buffer must be a contiguous one-dimensional uint64 array, got "
                f"{buffer.dtype} {buffer.shape}."
            )
        while True:
            stream = self._current()
            with stream.lock:
                stream.fill(buffer)
            if stream.owner[1] == _forks or self._key is not None:
                return
            # This is the child of a signal handler that forked during this draw: the parent has
            # these words too.

    def words(self, count: int) -> Words:
        """Return the next `count` words of the stream."""
        out = np.empty(validate_count(count), dtype=np.uint64)
        self.fill(out)
        return out

    def below(self, bound: int) -> int:
        """Return a uniform integer in 0..bound-1, for any bound >= 1, however large.

        Proof: let k be the least number with 2^k >= bound. The low k bits of fresh words are
        uniform on 0..2^k-1, so the first of these numbers below bound is uniform on 0..bound-1.
        More than half of 0..2^k-1 is below bound, so at most two tries are expected.
        """
        limit = operator.index(bound)
        if limit < 1:
            raise InputError(f"bound must be an integer >= 1, got {bound!r}.")
        bits = (limit - 1).bit_length()
        while True:
            number = int.from_bytes(self.words((bits + 63) // 64).tobytes(), "little") & (
                (1 << bits) - 1
            )
            if number < limit:
                return number

    def uniform_residues(self, count: int, modulus: int) -> Words:
        """Return `count` independent uniform elements of 0..modulus-1, for 1 <= modulus <= 2^63.

        Proof: let m be the largest multiple of modulus that is at most 2^64. Words from m on are
        drawn again, and every residue has equally many words below m.
        """
        size = operator.index(modulus)
        if not 1 <= size <= 2**63:
            raise InputError(f"modulus must be an integer in 1..2^63, got {modulus!r}.")
        total = validate_count(count)
        largest = np.uint64((1 << 64) // size * size - 1)
        out = self.words(total)
        bad = np.flatnonzero(out > largest)
        while bad.size:
            out[bad] = self.words(bad.size)
            bad = bad[out[bad] > largest]
        out %= np.uint64(size)
        return out

    def below_each(self, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return independent uniform integers in 0..bounds[i]-1, for 1 <= bounds[i] < 2^63.

        As in `uniform_residues`, words from the largest multiple of their bound on are drawn again,
        after all others.
        """
        if bounds.size and not int(bounds.min()) >= 1:
            raise InputError(f"bounds must be integers >= 1, got {int(bounds.min())}.")
        sizes = bounds.astype(np.uint64)
        # 2^64 mod size = (2^64 - size) mod size; 0 if the size divides 2^64.
        excess = (np.uint64(0) - sizes) % sizes
        largest = np.uint64(2**64 - 1) - excess
        out = self.words(sizes.size)
        bad = np.flatnonzero(out > largest)
        while bad.size:
            out[bad] = self.words(bad.size)
            bad = bad[out[bad] > largest[bad]]
        return (out % sizes).astype(np.int64)

    def shuffled(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of `array` in uniformly random order along its first axis."""
        from metricshuffle import _randomness_kernels

        plain = (
            array.ndim == 1 and array.dtype.itemsize in (1, 2, 4, 8) and not array.dtype.hasobject
        )
        out = array.copy() if plain else np.arange(array.shape[0], dtype=np.uint64)
        bits = out.view(f"u{out.dtype.itemsize}")
        remaining = bits.size
        buffer = np.empty(min(BUFFER_WORDS, bits.size + 8), dtype=np.uint64)
        while remaining > 1:
            self.fill(buffer)
            remaining = int(_randomness_kernels.shuffle(bits, remaining, buffer))
        return out if plain else array[out]

    def spawn(self) -> Self:
        """Return an independent stream; the k-th child of a seeded stream is always the same."""
        if self._key is None:
            return type(self).system()
        with self._current().lock:
            self._children += 1
            return type(self)(
                hashlib.sha256(self._key + f" child {self._children}".encode()).digest()
            )

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "a Randomness cannot be copied or pickled, because both copies would give the "
            "same noise; use spawn()."
        )

    def __repr__(self) -> str:
        return "Randomness.seeded(...)" if self.unsafe_seeded else "Randomness.system()"
