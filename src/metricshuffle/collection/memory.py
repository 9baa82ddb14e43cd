"""Protection of a shuffler's memory, which contains keys, from core dumps and swap."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

PR_SET_DUMPABLE = 4
"""Option of prctl (linux/prctl.h); a core dump that is piped to a program ignores the limit."""
MCL_CURRENT = 1
MCL_FUTURE = 2
MCL_ONFAULT = 4
"""Flags of mlockall (asm-generic/mman.h, Linux 4.4): current and future pages, on first use."""
PAGE = 4096


def forbid_memory_dumps() -> None:
    """Forbid core dumps; on Linux also reading the memory from other processes of this user."""
    try:
        import resource
    except ImportError:  # Windows writes none by default
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


@contextlib.contextmanager
def locked_memory() -> Iterator[str]:
    """Keep all memory of this process out of swap inside the context, where this is allowed.

    Yields a sentence that says whether memory is locked. Nothing is locked under a limit, because
    later allocations would fail and end the process. Memory is unlocked afterwards, because the
    process may go on to load libraries that reserve more memory than there is.
    """
    why = _why_not_locked()
    if why:
        yield (
            f"Memory is not locked ({why}): keys of open collections may be written to swap; "
            "turn swap off, or encrypt it."
        )
        return
    try:
        yield "Memory is locked: keys are never written to swap."
    finally:
        ctypes.CDLL(None).munlockall()


def _why_not_locked() -> str:
    if sys.platform != "linux":
        return "this is done on Linux only"
    library = ctypes.CDLL(None, use_errno=True)
    try:
        if limit := _limit(library):
            return (
                f"the limit is {limit:,} bytes and must be unlimited: LimitMEMLOCK=infinity, "
                "or ulimit -l unlimited"
            )
        if library.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0:
            return ""
        return f"the system refuses it: {os.strerror(ctypes.get_errno())}"
    except (OSError, ValueError, AttributeError) as error:
        return f"the system does not offer it: {error}"


def _limit(library: ctypes.CDLL) -> int | None:
    """Bytes that this process may lock after raising the limit; None if it does not apply."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    for wanted in (resource.RLIM_INFINITY, hard):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (wanted, wanted))
            break
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if limit == resource.RLIM_INFINITY or _is_privileged(library, limit) else limit


def _is_privileged(library: ctypes.CDLL, limit: int) -> bool:
    """Return whether the limit does not apply (CAP_IPC_LOCK): a page can be locked with limit 0."""
    import resource

    page = ctypes.create_string_buffer(PAGE)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, limit))
    try:
        is_locked: bool = library.mlock(page, ctypes.c_size_t(PAGE)) == 0
        if is_locked:
            library.munlock(page, ctypes.c_size_t(PAGE))
        return is_locked
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
