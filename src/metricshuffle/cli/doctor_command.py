"""`metricshuffle doctor`: what is installed, what it enables, and how to get the rest.

Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.shared_options import Json

if TYPE_CHECKING:
    from metricshuffle.cli.table_layout import TableLayout

VERSION_SECONDS = 0.6
"""Time limit for asking all programs for their versions; slower ones are listed without."""
UNUSED = "nothing in this version"


@dataclass(frozen=True)
class InstalledPart:
    """An optional or required component."""

    kind: str
    name: str
    found: bool
    version: str | None
    where: str | None
    enables: str
    get: str
    """How to install it; empty if it is installed."""


# extra -> (its distributions, what they enable); tests compare this with pyproject.toml
EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "report": (
        ("jinja2", "vl-convert-python"),
        "pages and pictures: report, map, amplify --plot; of metricshuffle-papers: "
        "reproduce all, users compare --plot",
    ),
    "geo": (
        ("pyproj",),
        "places in degrees: plan --box; of metricshuffle-papers: users compare with "
        "latitude and longitude",
    ),
    "h3": (("h3",), "cells of H3 as zones: plan --h3"),
    "s2": (("s2sphere",), "cells of S2 as zones (Python)"),
    "tables": (("pyarrow",), "Parquet files as input"),
    "transport": (("POT",), "the earth mover's distance on any metric (Python)"),
    "compose": (
        ("dp-accounting",),
        "events and loss distributions for dp-accounting (Python)",
    ),
    "client": (
        ("httpx", "cryptography"),
        "taking part in collections and collecting them: submit, collect",
    ),
    "service": (
        ("httpx", "cryptography", "starlette", "granian", "uvloop", "jinja2", "segno"),
        "the shuffler over a network: serve, collection, join-page",
    ),
    "postgres": (("psycopg",), "serve --store postgresql://..."),
    "objects": (("obstore",), "several mixers for large collections: serve --objects, mix"),
    "web": (
        (
            "starlette",
            "granian",
            "uvloop",
            "jinja2",
            "vl-convert-python",
            "python-multipart",
            "httpx",
            "segno",
        ),
        "the planner page in a browser: web",
    ),
    "spark": (("pyspark", "pyarrow"), "plans on a cluster: run --spark"),
    "opendp": (("opendp",), "measurements of OpenDP (Python)"),
    "flower": (("flwr",), "an accountant for rounds of Flower (Python)"),
    "sql": (("duckdb", "pyarrow"), "plans in SQL (Python)"),
}
# library -> what it enables; all are optional
LIBRARIES = {
    "pandas": "data frames as input and output (Python)",
    "polars": "data frames as input and output (Python)",
    "altair": "plot() returns charts that can be changed (Python)",
    "duckdb": "relations as input (Python)",
}
CORE = ("numpy", "scipy", "numba", "cryptography", "pydantic", "typer", "rich")
# name -> (programs, of which the first that exists counts; option for its version; what it enables;
# Debian package)
PROGRAMS: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    "Chromium": (
        ("chromium", "chromium-browser", "google-chrome"),
        "--version",
        "opens the pages that are written here",
        "chromium",
    ),
    "Firefox": (
        ("firefox", "firefox-esr"),
        "--version",
        "opens the pages that are written here",
        "firefox-esr",
    ),
    "PostgreSQL server": (
        ("postgres", "pg_ctlcluster"),
        "--version",
        "can store the reports of collections (serve --store)",
        "postgresql",
    ),
    "PostgreSQL client": (
        ("psql",),
        "--version",
        f"{UNUSED} (to look into such a store)",
        "postgresql-client",
    ),
    "Node": (("node", "nodejs"), "--version", "builds and tests the JavaScript client", "nodejs"),
    "Java": (("java",), "-version", "Spark runs on it", "default-jre-headless"),
    "Spark": (("spark-submit",), "--version", UNUSED, ""),
}


Database = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="DATABASE",
        help=(
            "Instead of this machine, check the settings of a PostgreSQL database for reports: "
            "postgresql://user@host/name."
        ),
    ),
]


Objects = Annotated[
    str | None,
    typer.Option(
        "--objects",
        metavar="URL",
        help=(
            "Instead of this machine, check an object store for mixers, by an object that is "
            "written and deleted: file:///srv/spill or s3://bucket/prefix."
        ),
    ),
]


def doctor(store: Database = None, objects: Objects = None, as_json: Json = False) -> None:
    """Show which extras, browsers, databases and more are installed, and how to get the rest.

    With --store or --objects, show which settings of a database or an object store should be
    changed; the exit code is 1 if there are any.
    """
    import json

    if store is not None or objects is not None:
        _check_stores(store, objects, as_json=as_json)
        return
    parts = [*machine(), *compiled(), *extras(), *libraries(), *programs()]
    if as_json:
        print(json.dumps({"parts": [asdict(part) for part in parts]}))
        return
    from metricshuffle.cli.console import say, screen

    console = screen()
    console.print(doctor_table(parts))
    missing = [part for part in parts if not part.found and not part.enables.startswith(UNUSED)]
    if missing:
        say(
            console,
            "",
            "Everything that is missing is optional: plan, run, amplify and the other commands "
            "work without it. To install it:",
        )
        say(console, *(f"  {part.name}: {part.get}" for part in missing))


def _check_stores(store: str | None, objects: str | None, *, as_json: bool) -> None:
    """Print which settings of a database and of an object store should be changed."""
    import json

    from metricshuffle.cli.console import say, screen

    warnings = []
    names = []
    if store is not None:
        from metricshuffle.collection.store.factory import database_warnings

        warnings += database_warnings(store)
        names.append("database")
    if objects is not None:
        from metricshuffle.collection.mixer.object_store import ObjectStore

        warnings += ObjectStore(objects).setting_warnings()
        names.append("object store")
    if as_json:
        print(json.dumps({"warnings": warnings}))
    else:
        fine = f"All settings of this {' and this '.join(names)} are as they should be."
        say(screen(), *(warnings or [fine]))
    if warnings:
        raise typer.Exit(1)


def doctor_table(parts: list[InstalledPart]) -> TableLayout:
    """Build one row per component."""
    from metricshuffle.cli.table_layout import Column, Line, TableLayout

    columns = (
        Column("", once=True),
        Column("what", heads=True),
        Column("found", wraps=True),
        Column("for", wraps=True),
    )
    lines = tuple(
        Line(
            (part.kind, part.name, (part.version or "yes") if part.found else "-", part.enables),
            "" if part.found else "dim",
        )
        for part in parts
    )
    return TableLayout(columns, lines)


def machine() -> Iterator[InstalledPart]:
    """Python, the processors, the randomness, and the required libraries."""
    import os
    import platform
    import sqlite3
    import sys

    from metricshuffle import __version__
    from metricshuffle.numerics.threads import usable_cores

    yield InstalledPart(
        "core", "metricshuffle", True, __version__, str(Path(__file__).parents[1]), "", ""
    )
    yield InstalledPart(
        "core",
        "Python",
        True,
        platform.python_version(),
        sys.executable,
        "3.11 or newer is needed",
        "",
    )
    yield InstalledPart("core", "processors", True, str(usable_cores()), None, "", "")
    try:
        byte_count: int | None = len(os.urandom(32))
    except NotImplementedError:
        byte_count = None
    yield InstalledPart(
        "core",
        "randomness",
        byte_count == 32,
        "the operating system's, through AES-256-CTR" if byte_count else None,
        None,
        "every report",
        "" if byte_count else "run it on a system with a source of randomness",
    )
    for name in CORE:
        version = _version(name)
        yield InstalledPart(
            "core",
            name,
            version is not None,
            version,
            None,
            "",
            "" if version else "pip install --force-reinstall metricshuffle",
        )
    yield InstalledPart(
        "core",
        "SQLite",
        True,
        sqlite3.sqlite_version,
        None,
        "ledgers, outboxes and collections",
        "",
    )


def compiled() -> Iterator[InstalledPart]:
    """Number of inner loops that are compiled; the first run of each takes seconds."""
    from metricshuffle.cli.compile_notice import compiled_loops, kernel_loops

    compiled_count = len(compiled_loops())
    all_of_them = len(kernel_loops())
    compiled_text = f"{compiled_count} of {all_of_them} compiled"
    later = (
        ""
        if compiled_count == all_of_them
        else "the others are compiled on first use, which takes seconds once"
    )
    yield InstalledPart("core", "inner loops", True, compiled_text, None, later, "")


def extras() -> Iterator[InstalledPart]:
    for extra, (distributions, enables) in EXTRAS.items():
        versions = {name: _version(name) for name in distributions}
        is_complete = all(versions.values())
        versions_text = ", ".join(
            f"{name} {version}" for name, version in versions.items() if version
        )
        get = "" if is_complete else f"pip install 'metricshuffle[{extra}]'"
        yield InstalledPart("extras", extra, is_complete, versions_text or None, None, enables, get)


def libraries() -> Iterator[InstalledPart]:
    for name, enables in LIBRARIES.items():
        version = _version(name)
        yield InstalledPart(
            "libraries",
            name,
            version is not None,
            version,
            None,
            enables,
            "" if version else f"pip install {name}",
        )


def programs() -> Iterator[InstalledPart]:
    import shutil
    import subprocess
    import time

    started: dict[str, subprocess.Popen[str]] = {}
    places: dict[str, str] = {}
    for name, (commands, asking, _, _) in PROGRAMS.items():
        place = next((place for command in commands if (place := _which(command))), None)
        if place is None:
            continue
        places[name] = place
        if not place.endswith("pg_ctlcluster"):
            started[name] = subprocess.Popen(  # noqa: S603 - programs of the machine, asked for their version
                [shutil.which(place) or place, asking],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
    end = time.monotonic() + VERSION_SECONDS
    for name, (_, _, enables, package) in PROGRAMS.items():
        place = places.get(name)
        version = (
            _program_version(started[name], end - time.monotonic()) if name in started else None
        )
        get = "" if place else f"apt-get install {package}" if package else "see spark.apache.org"
        yield InstalledPart("programs", name, place is not None, version, place, enables, get)


def _which(command: str) -> str | None:
    """Path of a program; PostgreSQL's server is in a folder that is not searched by default."""
    import shutil

    if command == "postgres":
        servers = sorted(
            Path("/usr/lib/postgresql").glob("*/bin/postgres"),
            key=lambda path: path.parts[-3].zfill(4),
        )
        if servers:
            return str(servers[-1])
    return shutil.which(command)


def _program_version(process: object, seconds: float) -> str | None:
    """Version in the output of a program; None if it is too slow or prints none."""
    import re
    import subprocess

    assert isinstance(process, subprocess.Popen)  # noqa: S101 - imported above in functions only
    try:
        output, _ = process.communicate(timeout=max(seconds, 0.01))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None
    match = re.search(r"\d+(?:\.\d+)+", output)
    return match[0] if match else None


def _version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
