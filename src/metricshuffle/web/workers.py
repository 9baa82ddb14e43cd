"""Worker processes: jobs have a time limit, can be cancelled, and do not block each other."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import TYPE_CHECKING

from metricshuffle.errors import MetricShuffleError
from metricshuffle.report.template_engine import root, set_root

if TYPE_CHECKING:
    from metricshuffle.web.worker_jobs import JobResult

    Outcome = JobResult | MetricShuffleError

ABANDON_GRACE_SECONDS = 1.0
"""An abandoned job is killed once it has run this long; a shorter job keeps its worker."""
PRELOAD_MODULE = "metricshuffle.web.preload"


class TimeLimitExceeded(MetricShuffleError):
    """A job exceeded its time limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"this took longer than {seconds:g} seconds and was stopped; ask for fewer "
            "cells, or use the command line, which has no limit."
        )


class WorkerDied(MetricShuffleError):
    """A worker ended without a result."""

    def __init__(self) -> None:
        super().__init__(
            "the computation ended without an answer, perhaps for lack of memory; ask for "
            "less and try again."
        )


def serve_jobs(pipe: Connection, prepared: bool, below: str = "") -> None:
    """Main loop of a worker: run one job after the other until the pipe is closed."""
    # Ctrl-C ends the server, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from metricshuffle.web import worker_jobs

    set_root(below)
    if prepared:
        worker_jobs.preload_drawing()
    while True:
        try:
            name, options = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(_outcome(worker_jobs.JOBS[name], options))


def _outcome(job: Callable[..., JobResult], options: Mapping[str, object]) -> Outcome:
    try:
        return job(**options)
    except MetricShuffleError as error:
        return error
    except MemoryError:
        return WorkerDied()
    except Exception as error:
        import traceback

        traceback.print_exc(file=sys.stderr)
        return MetricShuffleError(
            "this is a bug in metricshuffle and not your fault; please report it: "
            f"{type(error).__name__}: {error}"
        )


class _Worker:
    def __init__(self, context: BaseContext, prepared: bool) -> None:
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=serve_jobs, args=(theirs, prepared, root()), daemon=True
        )
        self.process.start()
        theirs.close()

    def end(self) -> None:
        self.process.kill()
        self.pipe.close()

    async def outcome(self) -> Outcome:
        """Wait for its result."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self.pipe.fileno(), ready.set)
        try:
            await ready.wait()
            outcome: Outcome = await asyncio.to_thread(self.pipe.recv)
            return outcome
        except (EOFError, OSError):
            raise WorkerDied from None
        finally:
            if not self.pipe.closed:
                loop.remove_reader(self.pipe.fileno())


class Workers:
    """A few processes that run jobs in turn."""

    def __init__(self, size: int, limit: float, *, prepared: bool = False) -> None:
        self.size = size
        self.limit = limit
        self.prepared = prepared
        self.started = 0
        self._free: asyncio.Queue[_Worker] = asyncio.Queue()
        self._all: set[_Worker] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self) -> None:
        """Start the workers in the background; the first job waits for them."""
        for _ in range(self.size):
            self._start_background(self._start_worker())

    async def _start_worker(self) -> None:
        if self._closed:
            return
        worker = await asyncio.to_thread(_Worker, context(), self.prepared)
        self.started += 1
        self._all.add(worker)
        self._free.put_nowait(worker)

    async def run(self, job: str, **options: object) -> JobResult:
        """Run a job and return its result, or raise its error.

        Cancelling the call ends the job, sooner or later, and frees its worker.
        """
        worker = await self._free.get()
        began = monotonic()
        pending = asyncio.ensure_future(self._send_job(worker, job, options))
        try:
            outcome = await asyncio.wait_for(asyncio.shield(pending), self.limit)
        except asyncio.CancelledError:
            self._start_background(self._abandon_job(worker, pending, began))
            raise
        except TimeoutError:
            pending.cancel()
            self._start_background(self._replace_worker(worker))
            raise TimeLimitExceeded(self.limit) from None
        except (WorkerDied, OSError):
            self._start_background(self._replace_worker(worker))
            raise WorkerDied from None
        self._free.put_nowait(worker)
        if isinstance(outcome, MetricShuffleError):
            raise outcome
        return outcome

    async def _send_job(self, worker: _Worker, job: str, options: Mapping[str, object]) -> Outcome:
        await asyncio.to_thread(worker.pipe.send, (job, options))
        return await worker.outcome()

    async def _abandon_job(
        self, worker: _Worker, pending: asyncio.Future[Outcome], began: float
    ) -> None:
        """Wait a moment for a short job; end a long one."""
        try:
            await asyncio.wait_for(pending, max(0.0, ABANDON_GRACE_SECONDS - (monotonic() - began)))
        except (TimeoutError, WorkerDied, OSError):
            await self._replace_worker(worker)
        else:
            self._free.put_nowait(worker)

    async def _replace_worker(self, worker: _Worker) -> None:
        worker.end()
        self._all.discard(worker)
        await asyncio.to_thread(worker.process.join, 5)
        await self._start_worker()

    def _start_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def close(self) -> None:
        self._closed = True
        for worker in self._all:
            worker.end()
        self._all.clear()


def context() -> BaseContext:
    """Fork server with everything imported; fresh processes where there is none."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    prepared = multiprocessing.get_context("forkserver")
    prepared.set_forkserver_preload([PRELOAD_MODULE])
    return prepared
