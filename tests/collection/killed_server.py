"""`metricshuffle serve` or `mix`, killed at a named point (first argument).

Its tasks of mixers are small, and free again soon.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial

from metricshuffle.cli import main
from metricshuffle.collection.adder import adder_server
from metricshuffle.collection.adder.adder_service import AdderService
from metricshuffle.collection.edge import edge_server
from metricshuffle.collection.mixer import mixer_process, object_mixing
from metricshuffle.collection.mixer.object_mixing import MixerSettings
from metricshuffle.collection.shuffler import server
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.store.part_store import EdgeStore

SMALL_BYTES = 50_000
MIXER_SECONDS = 2.0


def run(point: str) -> None:
    def at(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    for module in (server, edge_server):  # the names by which it is made
        setattr(module, "Shuffler", partial(Shuffler, at=at))  # noqa: B010
    setattr(adder_server, "AdderService", partial(AdderService, at=at))  # noqa: B010
    mixer = partial(mixer_process.Mixer, at=at, seconds=MIXER_SECONDS)
    setattr(mixer_process, "Mixer", mixer)  # noqa: B010
    small = partial(MixerSettings, cut_bytes=SMALL_BYTES, range_bytes=SMALL_BYTES)
    setattr(object_mixing, "MixerSettings", small)  # noqa: B010
    setattr(EdgeStore, "at", staticmethod(at))  # noqa: B010
    main()


if __name__ == "__main__":
    run(sys.argv.pop(1))
