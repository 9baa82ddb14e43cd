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
    Path | None,
    typer.Option(
        "--keys",
        metavar="FOLDER",
        help="Folder of the shuffler's secret keys, on its machine; elsewhere use --hub.",
    ),
]
Hub = Annotated[
    str | None,
    typer.Option(
        "--hub",
        metavar="URL",
        help="Address where the hub leases keys to mixers that its --mixer names.",
    ),
]
Identity = Annotated[
    Path | None,
    typer.Option(
        "--identity", metavar="FILE", help="Certificate and its key, in one PEM file, for --hub."
    ),
]
LeaseCa = Annotated[
    Path | None,
    typer.Option(
        "--lease-ca", metavar="FILE", help="Certificate of the CA that signs the hub's identity."
    ),
]


def mix(
    store: Database,
    objects: Objects,
    keys: KeyFolder = None,
    hub: Hub = None,
    identity: Identity = None,
    lease_ca: LeaseCa = None,
    log: LogOption = LogFormat.TEXT,
    as_json: Json = False,
) -> None:
    """Operator: help a shuffler to mix large collections, until it is stopped.

    Any number of mixers may run beside `serve --objects`, with the same --store and --objects; what
    is released is the same bytes for any number of them. A mixer can be killed at any time; its
    task is done by another one after a minute. On the machine of the shuffler it has the same
    --keys; on another one it leases keys from the hub (--hub, --identity and --lease-ca).
    """
    from metricshuffle.cli.console import print_error, say, screen
    from metricshuffle.collection.hub.lease_server import HubLink, LeaseIdentity
    from metricshuffle.collection.keys import KeyFolder as Keys
    from metricshuffle.collection.memory import forbid_memory_dumps, locked_memory
    from metricshuffle.collection.mixer.leased_mixer import LeasedMixer
    from metricshuffle.collection.mixer.mixer_process import Mixer
    from metricshuffle.collection.mixer.object_store import ObjectStore
    from metricshuffle.collection.shuffler.log_events import JsonLog
    from metricshuffle.collection.shuffler.server import validate_address
    from metricshuffle.collection.store.factory import connect_store
    from metricshuffle.errors import InputError

    opened_objects = ObjectStore(objects)
    is_leased = None not in (hub, identity, lease_ca)
    if (keys is None) != is_leased or (keys is not None and (hub or identity or lease_ca)):
        raise InputError(
            "a mixer has --keys FOLDER on the machine of the shuffler, or else all of --hub, "
            "--identity and --lease-ca."
        )
    if keys is not None and not keys.is_dir():
        raise InputError(f"{keys} is not the folder of a shuffler's keys; name that of its serve.")
    report = JsonLog(sys.stderr) if log is LogFormat.JSON else print_error

    def announce() -> None:
        if as_json:
            print(json.dumps({"objects": objects, "pid": os.getpid()}), flush=True)
        else:
            say(screen(), "Waiting for large collections to mix. Stop with Ctrl-C.")

    if hub is not None and identity is not None and lease_ca is not None:
        address = validate_address(hub, "--hub")
        leased = LeasedMixer(
            store, objects, HubLink(address, LeaseIdentity(identity, lease_ca)), report
        )
        announce()
        leased.run(threading.Event())
        return
    forbid_memory_dumps()
    with locked_memory() as locked:
        database = connect_store(store)
        try:
            report(locked)
            mixer = Mixer(database, Keys.at(keys or ""), opened_objects, log=report)
            announce()
            mixer.run(threading.Event())
        finally:
            database.close()
