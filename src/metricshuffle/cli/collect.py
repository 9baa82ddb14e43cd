"""`metricshuffle collect`: the analyst's side of a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.budget_options import LedgerFile, People, check_no_other, ledger_of
from metricshuffle.cli.estimate import publish
from metricshuffle.cli.options import Json, whole, writable
from metricshuffle.errors import InputError


def collect(
    collections: Annotated[
        list[Path],
        typer.Argument(metavar="COLLECTION...", help="The file that `metricshuffle collection open` wrote; of a split, all parts."),
    ],
    analyst_key: Annotated[
        Path, typer.Option("--analyst-key", metavar="FILE", help="The key that `metricshuffle analyst key` made; it stays where it is.")
    ],
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Write the release as JSON.")],
    ledger: LedgerFile = None,
    people: People = "everybody",
    processes: Annotated[
        int | None, typer.Option("--processes", parser=whole, metavar="N", help="How many open messages; one a processor if left out.")
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Analyst: fetch what the shuffler let go, open it, estimate, write the release, and tell the shuffler that it is safe.

    Exit code 2 with a sentence while the collection is not released. The release is noted in the ledger beside COLLECTION. Whatever
    stops it, the same command again goes on. Parts of a split are one estimate: each was released by itself, with people enough.
    """
    from metricshuffle.cli.extras import require_extras, require_for_places
    from metricshuffle.cli.screen import note, say, screen, working
    from metricshuffle.files import written_in_place
    from metricshuffle.planning.budget import checked_people
    from metricshuffle.service.analyst import Analyst
    from metricshuffle.service.collecting import Spoiled
    from metricshuffle.service.fetching import NotReleased
    from metricshuffle.service.sending import waited

    require_extras("client")
    writable(output, *collections, analyst_key)
    if written_in_place(output):
        raise InputError("--output must be a file: what was fetched is kept beside it until the release is written.")
    if processes is not None and not 1 <= processes <= 1000:
        raise InputError(f"--processes must be a whole number from 1 to 1000, got {processes}.")
    collecting, people = Analyst(analyst_key, processes=processes).collecting(collections), checked_people(people)
    task = collecting.task
    budget = ledger_of(collections[0], task, ledger, output)
    require_for_places(task.query)
    try:
        with working("Fetching"):
            files = waited(collecting.fetched(output))
    except NotReleased as wrong:
        known = collecting.already(output) if wrong.gone else None
        if known is None:
            raise
        if as_json:
            print(known.to_json())
        else:
            say(screen(), str(known))
        note(f"{output} has this release already; the shuffler keeps nothing of it any more.")
        return
    with budget.opened() as account:
        try:
            with working("Opening"):
                release = collecting.release(files)
        except Spoiled as wrong:
            check_no_other(task, account, ledger, wrong.shuffled)
            account.record(task, wrong.shuffled, people)
            raise
        check_no_other(task, account, ledger, release.shuffled)
        seen = account.noted(task, release.shuffled, people)
        publish(release, output, as_json, lambda: account.record(task, release.shuffled, people))
    with working("Acknowledging"):
        remarks = waited(collecting.acknowledge(files))
    note(*remarks)
    if seen and not as_json:
        note(f"{budget.path} has this release already; the same answer again costs nothing.")
