"""`metricshuffle collect`: the analyst fetches a released collection and estimates the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.budget_options import LedgerFile, People, check_other_ledgers, choose_ledger
from metricshuffle.cli.estimate_command import publish
from metricshuffle.cli.shared_options import Json, whole, writable
from metricshuffle.errors import InputError


def collect(
    collections: Annotated[
        list[Path],
        typer.Argument(
            metavar="COLLECTION...",
            help=(
                "File that `metricshuffle collection open` wrote; for a split, the files of all "
                "parts."
            ),
        ),
    ],
    analyst_key: Annotated[
        Path,
        typer.Option(
            "--analyst-key",
            metavar="FILE",
            help=(
                "Secret key file that `metricshuffle analyst key` wrote; it never leaves this "
                "machine."
            ),
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", metavar="FILE", help="Write the release to this file as JSON."),
    ],
    ledger: LedgerFile = None,
    people: People = "everybody",
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            parser=whole,
            metavar="N",
            help="Number of processes that decrypt messages; one per processor if left out.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Analyst: fetch, open and estimate a released collection, and acknowledge it.

    The exit code is 2 if the collection is not released yet. The release is recorded in the ledger
    in the folder of COLLECTION. After an interruption, the same command continues. The parts of a
    split become one estimate; each part was released separately, with enough people.
    """
    from metricshuffle.cli.console import note, say, screen, show_progress
    from metricshuffle.cli.extras import require_extras, require_for_places
    from metricshuffle.collection.analyst.analyst import Analyst
    from metricshuffle.collection.analyst.collector import InconsistentMessagesError
    from metricshuffle.collection.analyst.download import NotReleased
    from metricshuffle.collection.client.http_client import run_sync
    from metricshuffle.files import written_in_place
    from metricshuffle.planning.costs.release_ledger import validate_group_name

    require_extras("client")
    writable(output, *collections, analyst_key)
    if written_in_place(output):
        raise InputError(
            "--output must be a file: downloaded messages are kept beside it until the release "
            "is written."
        )
    if processes is not None and not 1 <= processes <= 1000:
        raise InputError(f"--processes must be a whole number from 1 to 1000, got {processes}.")
    collecting = Analyst(analyst_key, processes=processes).collecting(collections)
    people = validate_group_name(people)
    task = collecting.task
    budget = choose_ledger(collections[0], task, ledger, output)
    require_for_places(task.query)
    try:
        with show_progress("Fetching"):
            files = run_sync(collecting.fetched(output))
    except NotReleased as error:
        saved_release = collecting.already(output) if error.gone else None
        if saved_release is None:
            raise
        if as_json:
            print(saved_release.to_json())
        else:
            say(screen(), str(saved_release))
        note(f"{output} has this release already; the shuffler has deleted it.")
        return
    with budget.opened() as account:
        try:
            with show_progress("Opening"):
                release = collecting.release(files)
        except InconsistentMessagesError as error:
            check_other_ledgers(task, account, ledger, error.shuffled)
            account.record(task, error.shuffled, people)
            raise
        check_other_ledgers(task, account, ledger, release.shuffled)
        seen = account.noted(task, release.shuffled, people)
        publish(release, output, as_json, lambda: account.record(task, release.shuffled, people))
    with show_progress("Acknowledging"):
        remarks = run_sync(collecting.acknowledge(files))
    note(*remarks)
    if seen and not as_json:
        note(f"{budget.path} has this release already; the same answer again costs nothing.")
