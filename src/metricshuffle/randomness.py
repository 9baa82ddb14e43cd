"""Where random bits come from: an AES-256-CTR key stream keyed by the operating system.

`Randomness.system()` is the default everywhere. `Randomness.seeded()` runs the same machinery from
a known key, for simulations and tests; whatever is made with it must be stamped `unsafe_seeded`.
There is no other source of randomness in this package, and no global one.
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
"""64 KB: fits the second-level cache, and is large enough to hide the cost of a call into the cipher."""

_ZEROS = bytes(8 * BUFFER_WORDS)
_forks = 0
_starting: dict[tuple[int, int], threading.Lock] = {}
"""The lock under which a stream is started anew, one per process: nobody in a forked child can wait for its parent's."""


def _after_fork() -> None:
    """In the child, which has a single thread as yet."""
    global _forks  # a process-wide fact, not a random state
    _forks += 1
    _starting.clear()


if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(after_in_child=_after_fork)


def _process() -> tuple[int, int]:
    """What changes in a forked child: the counter sees os.fork, the process id sees a fork made in C."""
    return os.getpid(), _forks


def validate_count(count: int) -> int:
    """count as an integer >= 0, or a sentence."""
    number = operator.index(count)
    if number < 0:
        raise InputError(f"count must be an integer >= 0, got {count!r}.")
    return number


class _KeyStream:
    """The words of one key, as one process draws them; every use is under its lock.

    A forked child never touches its parent's: it may be in the middle of a draw, with its lock held for ever.
    """

    def __init__(self, key: bytes | None, first_word: int) -> None:
        self.owner = _process()  # before the key: a fork between the two leaves an owner that is wrong, and never a key in two processes
        self.lock = threading.Lock()
        self.handed_out = first_word
        start = (first_word // 2).to_bytes(16, "big")  # a block of the counter is two words
        self._cipher = Cipher(algorithms.AES(os.urandom(32) if key is None else key), modes.CTR(start)).encryptor()
        self._buffer: Words = np.empty(BUFFER_WORDS, dtype=np.uint64)
        self._used = BUFFER_WORDS  # nothing buffered
        if first_word % 2:
            self._generate(self._buffer[:1])

    def _generate(self, out: Words) -> None:
        view = out.view(np.uint8).data
        for start in range(0, len(view), len(_ZEROS)):
            part = view[start : start + len(_ZEROS)]
            self._cipher.update_into(_ZEROS if len(part) == len(_ZEROS) else _ZEROS[: len(part)], part)

    def fill(self, buffer: Words) -> None:
        """Overwrite `buffer` with the next words.

        Words are counted as used before they are copied and erased: whatever interrupts this (an exception of a signal
        handler) may lose words, but no later draw gets an erased or a repeated one.
        """
        self.handed_out += buffer.size
        first, available = self._used, min(buffer.size, BUFFER_WORDS - self._used)
        self._used += available
        buffer[:available] = self._buffer[first : first + available]
        self._buffer[first : first + available] = 0  # a word that was handed out is not kept
        missing = buffer[available:]
        if missing.size >= BUFFER_WORDS:
            self._generate(missing)
        elif missing.size:
            self._generate(self._buffer)
            missing[:] = self._buffer[: missing.size]
            self._buffer[: missing.size] = 0
            self._used = missing.size


class Randomness:
    """A stream of independent uniform 64-bit words; every method is exact (rejection, never a float).

    The stream does not depend on how it is asked for: words(3) then words(5) are words(8). A stream may be shared by threads
    (which then interleave) and used after a fork, by any number of threads at once. A process that was spawned, or another
    interpreter in this one, shares nothing. Copying or pickling is refused, because two copies would give the same noise
    twice: use spawn().
    """

    def __init__(self, key: bytes | None) -> None:
        """Use `system()` or `seeded()`; key=None means keyed by the operating system."""
        if key is not None and len(key) != 32:
            raise InputError(f"a key has 32 bytes, got {len(key)}; use Randomness.system() or Randomness.seeded(seed).")
        self._key = key
        self._children = 0
        self._stream = _KeyStream(key, 0)

    @classmethod
    def system(cls) -> Self:
        """A cryptographically secure stream; a forked child continues with a fresh key."""
        return cls(None)

    @classmethod
    def seeded(cls, seed: int | str) -> Self:
        """A reproducible stream: NOT private, for simulations and tests only.

        A forked child repeats its parent's stream (there is nothing reproducible to tell them apart):
        give each child its own spawn() before forking.
        """
        if isinstance(seed, bool) or not isinstance(seed, int | str):
            raise InputError(f"seed must be an integer or a text, got {seed!r}.")
        return cls(hashlib.sha256(f"metricshuffle seed {type(seed).__name__} {seed}".encode()).digest())

    @property
    def unsafe_seeded(self) -> bool:
        """True if somebody who knows the seed knows the noise."""
        return self._key is not None

    def _current(self) -> _KeyStream:
        """The stream of this process; the first thread that comes after a fork starts it, the others wait for that."""
        stream = self._stream
        if stream.owner == _process():
            return stream
        with _starting.setdefault(_process(), threading.Lock()):  # setdefault is atomic: all threads get one and the same lock
            if self._stream.owner != _process():
                self._stream = _KeyStream(self._key, self._stream.handed_out)
            return self._stream

    def fill(self, buffer: Words) -> None:
        """Overwrite a contiguous uint64 array with the next words of the stream, without allocating."""
        if buffer.dtype != np.uint64 or buffer.ndim != 1 or not buffer.flags.c_contiguous:
            raise InputError(f"buffer must be a contiguous one-dimensional uint64 array, got {buffer.dtype} {buffer.shape}.")
        while True:
            stream = self._current()
            with stream.lock:
                stream.fill(buffer)
            if stream.owner[1] == _forks or self._key is not None:
                return
            # A signal handler forked in the middle of this draw, and we are the child: our parent has these words, too.

    def words(self, count: int) -> Words:
        """The next `count` words of the stream."""
        out = np.empty(validate_count(count), dtype=np.uint64)
        self.fill(out)
        return out

    def below(self, bound: int) -> int:
        """A uniform integer in 0..bound-1, for any bound >= 1, however large.

        Proof: the low bits of fresh words are uniform on 0..2^k-1 with 2^k >= bound; the first such
        number below bound is uniform there. More than half are, so two tries are expected at most.
        """
        limit = operator.index(bound)
        if limit < 1:
            raise InputError(f"bound must be an integer >= 1, got {bound!r}.")
        bits = (limit - 1).bit_length()
        while True:
            number = int.from_bytes(self.words((bits + 63) // 64).tobytes(), "little") & ((1 << bits) - 1)
            if number < limit:
                return number

    def uniform_residues(self, count: int, modulus: int) -> Words:
        """`count` independent uniform elements of 0..modulus-1, for 1 <= modulus <= 2^63.

        Proof: words below the largest multiple of modulus that is at most 2^64 are equally many for each residue.
        """
        size = operator.index(modulus)
        if not 1 <= size <= 2**63:
            raise InputError(f"modulus must be an integer in 1..2^63, got {modulus!r}.")
        total, largest = validate_count(count), np.uint64((1 << 64) // size * size - 1)
        out = self.words(total)
        bad = np.flatnonzero(out > largest)
        while bad.size:
            out[bad] = self.words(bad.size)
            bad = bad[out[bad] > largest]
        out %= np.uint64(size)
        return out

    def shuffled(self, array: NDArray[Any]) -> NDArray[Any]:
        """A copy of `array` in uniformly random order (along its first axis), by exact Fisher-Yates."""
        from metricshuffle import _randomness_kernels

        plain = array.ndim == 1 and array.dtype.itemsize in (1, 2, 4, 8) and not array.dtype.hasobject
        out = array.copy() if plain else np.arange(array.shape[0], dtype=np.uint64)
        bits = out.view(f"u{out.dtype.itemsize}")
        remaining, buffer = bits.size, np.empty(min(BUFFER_WORDS, bits.size + 8), dtype=np.uint64)
        while remaining > 1:
            self.fill(buffer)
            remaining = int(_randomness_kernels.shuffle(bits, remaining, buffer))
        return out if plain else array[out]

    def spawn(self) -> Self:
        """An independent stream; of a seeded stream, the k-th child is always the same."""
        if self._key is None:
            return type(self).system()
        with self._current().lock:
            self._children += 1
            return type(self)(hashlib.sha256(self._key + f" child {self._children}".encode()).digest())

    def __reduce__(self) -> NoReturn:
        raise InputError("a Randomness cannot be copied or pickled, because both copies would give the same noise; use spawn().")

    def __repr__(self) -> str:
        return "Randomness.seeded(...)" if self.unsafe_seeded else "Randomness.system()"
