"""The memory of a shuffler, which holds keys: it is neither dumped nor, where the system allows it, written to swap."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

PR_SET_DUMPABLE = 4
"""Of prctl (linux/prctl.h): a core that is piped to a program does not ask the limit."""
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
"""Of mlockall (asm-generic/mman.h, Linux 4.4): what is there, what comes, each page when it is first used and no sooner."""
PAGE = 4096


def forbid_memory_dumps() -> None:
    """No file with this process's memory is written when it crashes; on Linux no other process of this user reads it."""
    try:
        import resource
    except ImportError:  # (Windows writes none unless it is told to)
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


@contextlib.contextmanager
def locked_memory() -> Iterator[str]:
    """Keep all memory of this process out of swap meanwhile, where that may be done without a limit; a sentence that says which it is.

    Nothing is locked under a limit: what is needed later would be refused then, and the process would fail. It is unlocked afterwards,
    because a process that goes on may need libraries that reserve more memory than there is.
    """
    why = _why_not_locked()
    if why:
        yield f"Memory is not locked ({why}): keys of open collections may be written to swap; turn it off, or encrypt it."
        return
    try:
        yield "Memory is locked: keys are never written to swap."
    finally:
        import ctypes

        ctypes.CDLL(None).munlockall()


def _why_not_locked() -> str:
    if sys.platform != "linux":
        return "this is done on Linux only"
    import ctypes
    import os

    library = ctypes.CDLL(None, use_errno=True)
    try:
        if limit := _limit(library):
            return f"the limit is {limit:,} bytes, and has to be unlimited: LimitMEMLOCK=infinity, or ulimit -l unlimited"
        if library.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0:
            return ""
        return f"the system refuses it: {os.strerror(ctypes.get_errno())}"
    except (OSError, ValueError, AttributeError) as wrong:
        return f"the system does not offer it: {wrong}"


def _limit(library: Any) -> int | None:
    """Bytes that this process may lock; None if there is no limit, because it may raise it, or because it is privileged."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    for wanted in (resource.RLIM_INFINITY, hard):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (wanted, wanted))
            break
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if limit == resource.RLIM_INFINITY or _is_privileged(library, limit) else limit


def _is_privileged(library: Any, limit: int) -> bool:
    """Whether the limit does not concern this process (CAP_IPC_LOCK, as the system sees it): where nothing may be locked, a page can be."""
    import ctypes
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
