"""Random stream used after a fork by several threads: no lost words, no deadlock.

Everything runs in a process of its own, which forks: the one that runs the tests has threads that a
fork would not survive.
"""

from __future__ import annotations

import subprocess
import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.randomness import BUFFER_WORDS, Randomness, _KeyStream

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork")

PREPARED = """
import ctypes, os, signal, sys, threading, warnings
import numpy as np
from metricshuffle.randomness import BUFFER_WORDS, Randomness
warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads, which is what is tested here
sys.setswitchinterval(1e-6)  # threads take turns as often as they can
FORK = os.fork if sys.argv[1] == "os.fork" else ctypes.PyDLL(None).fork

def child_says(work):
    '''What work() returns in a forked child, as a file that can be read when it is done.'''
    read, write = os.pipe()
    child = FORK()
    if child:
        os.close(write)
        return os.fdopen(read, "rb")
    signal.alarm(30)  # a deadlock ends the child, and nothing was said
    try:
        said = work()
        with os.fdopen(write, "wb") as pipe:
            pipe.write(said)
    finally:
        os._exit(0)
"""  # noqa: E501

DRAWN_BY_THREADS = (
    PREPARED
    + """
THREADS, CHILDREN, EACH = 8, 200 if FORK is os.fork else 50, (3, 20)
streams = [Randomness.system() for _ in range(12)]
for stream in streams[::2]: stream.words(1)  # every other buffer holds words that were not handed out
expected = THREADS * len(streams) * sum(EACH)

def drawn_by_threads():
    together, drawn = threading.Barrier(THREADS), [b""] * THREADS
    def draw(place):
        parts = []
        for stream in streams:  # the first use of each is a race of all threads
            together.wait()
            parts += [stream.words(count).tobytes() for count in EACH]
        drawn[place] = b"".join(parts)
    threads = [threading.Thread(target=draw, args=(place,)) for place in range(THREADS)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return b"".join(drawn)

waiting = [child_says(drawn_by_threads) for _ in range(CHILDREN)]
words, wrong = [stream.words(expected) for stream in streams], 0
for pipe in waiting:
    said = np.frombuffer(pipe.read(), dtype=np.uint64)
    wrong += said.size != expected  # a thread raised an exception, or the child never came to an end
    words.append(said)
everything = np.concatenate(words)
print(wrong, int((everything == 0).sum()), everything.size - np.unique(everything).size)
"""  # noqa: E501
)

FORKED_WHILE_OTHERS_DRAW = (
    PREPARED
    + """
streams = [Randomness.system(), Randomness.seeded(1)]
stop = threading.Event()

def busy(stream):
    while not stop.is_set():
        stream.words(BUFFER_WORDS // 2 + 1)
        stream.spawn()

threads = [threading.Thread(target=busy, args=(stream,)) for stream in streams * 2]
for thread in threads: thread.start()

def drawn():
    for stream in streams: stream.spawn()
    return b"".join(stream.words(2 * BUFFER_WORDS).tobytes() for stream in streams)

waiting = [child_says(drawn) for _ in range(60)]
deadlocked, zeros, first_words = 0, 0, set()
for pipe in waiting:
    words = np.frombuffer(pipe.read(), dtype=np.uint64)
    deadlocked += words.size != 4 * BUFFER_WORDS
    zeros += int((words == 0).sum())
    first_words.add(int(words[0]) if words.size else 0)
stop.set()
for thread in threads: thread.join()
print(deadlocked, zeros, 60 - len(first_words))
"""
)

FORKED_IN_THE_MIDDLE = (
    PREPARED
    + """
from metricshuffle.randomness import _KeyStream
stream, whole = Randomness.system(), _KeyStream.fill
children = []

def forks_before_it_returns(self, buffer):  # as a signal handler may
    whole(self, buffer)
    if not children:
        children.append(os.fork())

_KeyStream.fill = forks_before_it_returns
read, write = os.pipe()
words = stream.words(100).tobytes() + stream.words(100).tobytes()
if children[0] == 0:
    os.write(write, words)
    os._exit(0)
os.waitpid(children[0], 0)
theirs = os.read(read, len(words))
both = np.frombuffer(words + theirs, dtype=np.uint64)
print(int(len(theirs) != len(words)), int((both == 0).sum()), both.size - np.unique(both).size)
"""
)


@pytest.mark.parametrize("fork", ["os.fork", "fork in C"])
@pytest.mark.parametrize(
    "script",
    [DRAWN_BY_THREADS, FORKED_WHILE_OTHERS_DRAW],
    ids=["threads of a child", "threads of the parent"],
)
def test_no_word_is_lost_erased_or_repeated(script: str, fork: str) -> None:
    if script == FORKED_WHILE_OTHERS_DRAW and fork != "os.fork":
        pytest.skip("a fork in C beside other threads leaves Python's own locks held")
    assert printed(script, fork) == "0 0 0"


def test_a_fork_in_the_middle_of_a_draw() -> None:
    assert printed(FORKED_IN_THE_MIDDLE, "os.fork") == "0 0 0"


def printed(script: str, fork: str) -> str:
    """Three counts: children that failed, words that are zero, words that are repeated."""
    ended = subprocess.run(
        [sys.executable, "-c", script, fork],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ended.stderr == ""
    return ended.stdout.strip()


DRAW = _KeyStream.fill.__code__
LINES = sorted(
    {
        line - DRAW.co_firstlineno
        for _, _, line in DRAW.co_lines()
        if line is not None and line > DRAW.co_firstlineno
    }
)


@check_all("line", LINES)
@check_all("asked", [10, BUFFER_WORDS - 7, 3 * BUFFER_WORDS])
def test_a_draw_that_is_interrupted_anywhere_leaves_no_erased_or_repeated_word(
    line: int, asked: int
) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is not DRAW:
            return None
        if event == "line" and frame.f_lineno - DRAW.co_firstlineno == line:
            raise Interrupted
        return interrupt

    stream = Randomness.seeded("interrupted")
    before = stream.words(100)
    tracing = sys.gettrace()
    sys.settrace(interrupt)
    try:
        stream.words(asked)
    except Interrupted:
        pass
    finally:
        sys.settrace(tracing)
    after = np.concatenate([before, stream.words(50), stream.words(2 * BUFFER_WORDS)])
    assert np.all(after != 0)
    assert np.unique(after).size == after.size
