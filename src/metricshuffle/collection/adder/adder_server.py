"""Server of an adder: one process that listens, stores shares and drives sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from metricshuffle.collection.adder.adder_service import AdderService
from metricshuffle.collection.adder.sum_store import SumStore
from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.memory import forbid_memory_dumps, locked_memory
from metricshuffle.collection.shuffler.log_events import EventLog, Log
from metricshuffle.collection.shuffler.server import (
    ShufflerServer,
    bound_or_none,
    drive_collections,
    folders_of,
    ignore_log_errors,
    run_loop,
)
from metricshuffle.collection.store.factory import open_database
from metricshuffle.errors import InputError, require


@dataclass(frozen=True)
class AdderServer(ShufflerServer):
    """Adder: has keys and a database of its own, and sums one share of every report."""

    def run(self, ready: Callable[[str], None], log: Log) -> None:
        for module in ("granian", "starlette", "httpx"):
            require(module, "service")
        if self.after or self.witness or self.witness_for or self.abandon:
            raise InputError(
                "--after, --witness, --witness-for and --abandon are for shufflers; an adder has "
                "the other adders of a sum."
            )
        from metricshuffle.collection.adder.adder_routes import AdderApplication
        from metricshuffle.collection.adder.share_intake import ShareIntake

        log = EventLog(ignore_log_errors(log))
        forbid_memory_dumps()
        with (
            locked_memory() as locked,
            self.listener.bound() as listening,
            bound_or_none(self.metrics) as metrics,
        ):
            keys = KeyFolder.at(self.keys)
            store = SumStore(open_database(self.store), jump=self.clock_jump)
            try:
                adder = AdderService(store, keys, log=log)
                adder.check_keys()
                log(locked)
                if warning := self.listener.warning(listening):
                    log(warning)
                intake = ShareIntake(store, keys, folders=folders_of(self.store), log=log)
                application = AdderApplication(adder, intake, origins=self.origins, log=log)
                with drive_collections(adder, log):
                    run_loop(
                        self._serve(
                            None,
                            intake,
                            listening,
                            metrics,
                            ready,
                            log,
                            application=application,
                        )
                    )
            finally:
                store.close()
