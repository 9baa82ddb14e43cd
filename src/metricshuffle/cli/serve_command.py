"""`metricshuffle serve`: the server of a shuffler."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

import typer

from metricshuffle.cli.shared_options import Json

if TYPE_CHECKING:
    from metricshuffle.collection.mixer.object_mixing import MixerSettings
    from metricshuffle.collection.shuffler.server import Listener

Database = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="DATABASE",
        help=(
            "Database for reports until they are shuffled: sqlite:///shuffler.db (created "
            "if missing) or postgresql://user@host/name."
        ),
    ),
]
KeyFolder = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FOLDER",
        help=(
            "Folder for the shuffler's secret keys and the operator's token; it is created "
            "on the first start. An edge has none."
        ),
    ),
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        metavar="ADDRESS",
        help="Address and port to listen on; port 0 selects a free port.",
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option("--certificate", metavar="FILE", help="TLS certificate chain in PEM format."),
]
Key = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="Private key of the TLS certificate in PEM format."),
]
After = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="URL",
        help=(
            "Address of the previous shuffler in a chain; if left out, participants send "
            "their reports here."
        ),
    ),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--origin",
        metavar="URL",
        help=("Site like https://survey.example whose pages may send reports; may be repeated."),
    ),
]

Abandon = Annotated[
    list[str] | None,
    typer.Option(
        "--abandon",
        metavar="DIGEST",
        help=(
            "Abort the collection with this digest, whose keys are missing in the --keys "
            "folder; may be repeated."
        ),
    ),
]

ClockJump = Annotated[
    float,
    typer.Option(
        "--clock-jump",
        metavar="SECONDS",
        help=(
            "Largest accepted jump ahead of the clock; after a larger one nothing is sealed "
            "or destroyed by time until you confirm it."
        ),
    ),
]

WitnessUrl = Annotated[
    str | None,
    typer.Option(
        "--witness",
        metavar="URL",
        help=(
            "Address of another party's shuffler that countersigns one release of each "
            "collection, once."
        ),
    ),
]
WitnessFor = Annotated[
    list[str] | None,
    typer.Option(
        "--witness-for",
        metavar="KEY",
        help=(
            "Be the witness of the shuffler with this key, which its `serve --witness` "
            "prints at start; may be repeated."
        ),
    ),
]
DrainTime = Annotated[
    str,
    typer.Option(
        "--drain",
        metavar="DURATION",
        help=(
            "Time from SIGTERM until it stops listening, like 10s: /readyz answers 503 at "
            "once, and reports are stored until then. A second SIGTERM ends it."
        ),
    ),
]
MetricsAddress = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="ADDRESS",
        help=(
            "Address and port of a page of metrics for Prometheus, like 127.0.0.1:9464; no "
            "number on it depends on reports."
        ),
    ),
]


class LogFormat(StrEnum):
    """Formats of the log."""

    TEXT = "text"
    JSON = "json"


LogOption = Annotated[
    LogFormat,
    typer.Option(
        "--log",
        help="Format of the log on standard error; lines of JSON have times to the minute.",
    ),
]
Role = Annotated[
    Literal["all", "edge", "hub", "adder"],
    typer.Option(
        "--role",
        help=(
            "Run a whole shuffler, or one of the roles of a shuffler on several hosts: an edge "
            "takes reports, the hub has the keys and drives collections. An adder sums shares for "
            "plans that trust an aggregator."
        ),
    ),
]
Hub = Annotated[
    str | None,
    typer.Option("--hub", metavar="URL", help="Edge: address where the hub leases keys."),
]
LeaseListen = Annotated[
    str | None,
    typer.Option(
        "--lease-listen",
        metavar="ADDRESS",
        help="Hub: address and port at which edges lease keys over mutual TLS.",
    ),
]
Identity = Annotated[
    Path | None,
    typer.Option(
        "--identity",
        metavar="FILE",
        help="Edge and hub: certificate and its key, in one PEM file, for leases.",
    ),
]
LeaseCa = Annotated[
    Path | None,
    typer.Option(
        "--lease-ca",
        metavar="FILE",
        help="Edge and hub: certificate of the CA that signs the identities of all of them.",
    ),
]
LeaseSeconds = Annotated[
    float,
    typer.Option(
        "--lease", metavar="SECONDS", help="Hub: time of a lease, which edges renew by thirds."
    ),
]
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help=(
            "Edge and hub: acknowledge reports although the database has no synchronous "
            "standby; they are lost with its disk."
        ),
    ),
]
Openers = Annotated[
    int,
    typer.Option(
        "--openers",
        metavar="N",
        min=0,
        help="Edge: number of processes that open reports; 0 for one a processor.",
    ),
]

Objects = Annotated[
    str | None,
    typer.Option(
        "--objects",
        metavar="URL",
        help=(
            "Let mixers (`metricshuffle mix`) mix large collections over this object store: "
            "file:///srv/spill or s3://bucket/prefix. An edge has none."
        ),
    ),
]
MixersFrom = Annotated[
    int,
    typer.Option(
        "--mixers-from",
        metavar="MESSAGES",
        min=0,
        help="Messages of a collection from which on mixers mix it, with --objects.",
    ),
]
MixerNames = Annotated[
    list[str] | None,
    typer.Option(
        "--mixer",
        metavar="SUBJECT",
        help=(
            "Hub: lease storage keys of sealed collections to the mixer whose identity has this "
            "subject, like commonName=mixer1; may be repeated."
        ),
    ),
]


class Settings(TypedDict):
    """Settings that all roles have."""

    store: str
    keys: Path
    listener: Listener
    after: str | None
    origins: tuple[str, ...]
    abandon: tuple[str, ...]
    clock_jump: float
    witness: str | None
    witness_for: tuple[str, ...]
    drain: float
    metrics: Listener | None
    mixers: MixerSettings | None


def serve(
    store: Database,
    keys: KeyFolder = None,
    listen: Listen = "127.0.0.1:8460",
    certificate: Certificate = None,
    key: Key = None,
    after: After = None,
    origin: Origins = None,
    abandon: Abandon = None,
    clock_jump: ClockJump = 300,
    witness: WitnessUrl = None,
    witness_for: WitnessFor = None,
    drain: DrainTime = "0s",
    metrics: MetricsAddress = None,
    log: LogOption = LogFormat.TEXT,
    role: Role = "all",
    hub: Hub = None,
    lease_listen: LeaseListen = None,
    identity: Identity = None,
    lease_ca: LeaseCa = None,
    lease: LeaseSeconds = 60,
    accept_loss: AcceptLoss = False,
    openers: Openers = 0,
    objects: Objects = None,
    mixers_from: MixersFrom = 10_000_000,
    mixer: MixerNames = None,
    as_json: Json = False,
) -> None:
    """Operator: run a shuffler, which receives sealed reports, mixes them and releases them.

    With --role adder, run one of the servers that sum the reports of a plan together.

    Reports are mixed at the closing time and released to the analyst. The shuffler can be stopped
    or killed at any time, and continues when it is started again. With --json, the first line
    contains the address and is printed once reports are accepted.
    """
    from metricshuffle.cli.console import print_error, say, screen
    from metricshuffle.collection.adder.adder_server import AdderServer
    from metricshuffle.collection.edge.edge_server import EdgeServer, HubServer
    from metricshuffle.collection.hub.lease_server import LeaseIdentity
    from metricshuffle.collection.mixer.object_mixing import MixerSettings
    from metricshuffle.collection.mixer.object_store import ObjectStore
    from metricshuffle.collection.operator.control_api import parse_duration_option
    from metricshuffle.collection.shuffler.drain import checked_drain
    from metricshuffle.collection.shuffler.log_events import JsonLog
    from metricshuffle.collection.shuffler.server import Listener, ShufflerServer, validate_address
    from metricshuffle.collection.witness import checked_key
    from metricshuffle.errors import InputError, require

    for module in ("granian", "starlette", "httpx"):
        require(module, "service")
    if (keys is None) != (role == "edge"):
        raise InputError("--keys FOLDER belongs to every shuffler but an edge, which has no keys.")
    leased = {
        "--hub": hub,
        "--lease-listen": lease_listen,
        "--identity": identity,
        "--lease-ca": lease_ca,
    }
    needed = {
        "all": set(),
        "adder": set(),
        "edge": {"--hub", "--identity", "--lease-ca"},
        "hub": {"--lease-listen", "--identity", "--lease-ca"},
    }[role]
    if objects is not None and role == "edge":
        raise InputError("--objects belongs to the hub, or to a whole shuffler; an edge has none.")
    if mixer and role != "hub":
        raise InputError("--mixer belongs to the hub, which leases keys to mixers.")
    if {name for name, value in leased.items() if value is not None} != needed:
        listed = ", ".join(sorted(needed)) or "none"
        raise InputError(f"--role {role} needs these of {', '.join(leased)}: {listed}.")
    settings: Settings = {
        "store": store,
        "keys": keys or Path(),
        "listener": Listener.of(listen, certificate, key),
        "after": None if after is None else validate_address(after, "--after"),
        "origins": tuple(validate_address(site, "--origin") for site in origin or ()),
        "abandon": tuple(abandon or ()),
        "clock_jump": clock_jump,
        "witness": None if witness is None else validate_address(witness, "--witness"),
        "witness_for": tuple(checked_key(key, "--witness-for") for key in witness_for or ()),
        "drain": checked_drain(parse_duration_option(drain, "--drain")),
        "metrics": None if metrics is None else Listener.of(metrics, option="--metrics"),
        "mixers": None if objects is None else MixerSettings(ObjectStore(objects), mixers_from),
    }
    serving = AdderServer(**settings) if role == "adder" else ShufflerServer(**settings)
    if identity is not None and lease_ca is not None:
        proof = LeaseIdentity(identity, lease_ca)
        if role == "edge":
            address = validate_address(hub or "", "--hub")
            serving = EdgeServer(
                **settings, hub=address, identity=proof, accept_loss=accept_loss, openers=openers
            )
        else:
            serving = HubServer(
                **settings,
                identity=proof,
                lease_listener=Listener.of(lease_listen or ""),
                lease_seconds=lease,
                accept_loss=accept_loss,
                mixer_names=tuple(mixer or ()),
            )

    def ready(url: str) -> None:
        document = {
            "listening": url,
            "pid": os.getpid(),
            "store": store.split(":", 1)[0],
            "keys": str(keys) if keys is not None else None,
        }
        if as_json:
            print(json.dumps(document), flush=True)
        elif keys is None:
            say(screen(), f"Listening on {url} as an edge. Stop with Ctrl-C.")
        else:
            say(
                screen(),
                f"Listening on {url}; the operator's token is in "
                f"{keys / 'operator.token'}. Stop with Ctrl-C.",
            )

    serving.run(ready, JsonLog(sys.stderr) if log is LogFormat.JSON else print_error)
