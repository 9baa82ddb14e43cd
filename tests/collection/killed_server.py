"""`metricshuffle serve`, killed at a named point of its shuffler (first argument)."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial

from metricshuffle.cli import main
from metricshuffle.collection.adder import adder_server
from metricshuffle.collection.adder.adder_service import AdderService
from metricshuffle.collection.edge import edge_server
from metricshuffle.collection.shuffler import server
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.store.part_store import EdgeStore


def run(point: str) -> None:
    def at(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    for module in (server, edge_server):  # the names by which it is made
        setattr(module, "Shuffler", partial(Shuffler, at=at))  # noqa: B010
    setattr(adder_server, "AdderService", partial(AdderService, at=at))  # noqa: B010
    setattr(EdgeStore, "at", staticmethod(at))  # noqa: B010
    main()


if __name__ == "__main__":
    run(sys.argv.pop(1))
