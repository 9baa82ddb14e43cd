"""`metricshuffle mix`: one of several processes that mix a large collection."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.serve_command import Database, LogFormat, LogOption
from metricshuffle.cli.shared_options import Json

Objects = Annotated[
    str,
    typer.Option(
        "--objects",
        metavar="URL",
        help="Object store of the shuffler: file:///srv/spill or s3://bucket/prefix.",
    ),
]
KeyFolder = Annotated[
    Path,
    typer.Option("--keys", metavar="FOLDER", help="Folder of the shuffler's secret keys."),
]


def mix(
    store: Database,
    objects: Objects,
    keys: KeyFolder,
    log: LogOption = LogFormat.TEXT,
    as_json: Json = False,
) -> None:
    """Operator: help a shuffler to mix large collections, until it is stopped.

    Any number of mixers may run beside `serve --objects`, with the same --store, --objects and
    --keys; what is released is the same bytes for any number of them. A mixer can be killed at any
    time; its task is done by another one after a minute.
    """
    from metricshuffle.cli.console import print_error, say, screen
    from metricshuffle.collection.keys import KeyFolder as Keys
    from metricshuffle.collection.memory import forbid_memory_dumps, locked_memory
    from metricshuffle.collection.mixer.mixer_process import Mixer
    from metricshuffle.collection.mixer.object_store import ObjectStore
    from metricshuffle.collection.shuffler.log_events import JsonLog
    from metricshuffle.collection.store.factory import connect_store
    from metricshuffle.errors import InputError

    objects_here = ObjectStore(objects)
    if not keys.is_dir():
        raise InputError(f"{keys} is not the folder of a shuffler's keys; name that of its serve.")
    forbid_memory_dumps()
    with locked_memory() as locked:
        database = connect_store(store)
        try:
            report = JsonLog(sys.stderr) if log is LogFormat.JSON else print_error
            report(locked)
            mixer = Mixer(database, Keys.at(keys), objects_here, log=report)
            if as_json:
                print(json.dumps({"objects": objects, "pid": os.getpid()}), flush=True)
            else:
                say(screen(), "Waiting for large collections to mix. Stop with Ctrl-C.")
            mixer.run(threading.Event())
        finally:
            database.close()
