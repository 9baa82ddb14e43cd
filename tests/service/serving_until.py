"""`metricshuffle serve` as it is, killed (as by kill -9) at one of the named points of its shuffler, which is the first word."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial

from metricshuffle.cli import main
from metricshuffle.collection.shuffler import server
from metricshuffle.collection.shuffler.lifecycle import Shuffler


def run(point: str) -> None:
    def at(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(server, "Shuffler", partial(Shuffler, at=at))  # noqa: B010 - the one name by which it is made
    main()


if __name__ == "__main__":
    run(sys.argv.pop(1))
