"""`metricshuffle join-page`: the participants' page, for a site other than the shuffler's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.collection_options import CollectionFile
from metricshuffle.cli.shared_options import Json
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.collection.terms import Collection
    from metricshuffle.report.charts.map_layers import Background

NAME = "index.html"


def join_page(
    collection_file: CollectionFile,
    output: Annotated[
        Path,
        typer.Option(
            "--output", metavar="FOLDER", help=f"Folder for {NAME}; it is created if missing."
        ),
    ],
    origin: Annotated[
        str,
        typer.Option(
            "--origin",
            metavar="URL",
            help=("Site that will serve the page, like https://survey.example; the page shows it."),
        ),
    ] = "",
    contact: Annotated[
        str,
        typer.Option(
            "--contact",
            metavar="TEXT",
            help="Sentence that says who answers questions, shown on the page.",
        ),
    ] = "",
    background: Annotated[
        Path | None,
        typer.Option(
            "--background",
            metavar="places|FILE.geojson",
            help=(
                "What to draw on the map: `places` (see `metricshuffle map --help`), or a GeoJSON "
                "file with lines and areas, in longitude and latitude."
            ),
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the page on which people take part, for any web site, and print its hash.

    The guarantees are verified first. The page is one file that loads nothing else; publish its
    hash, so that everybody can compare it.
    """
    import json
    from hashlib import sha256

    from metricshuffle.cli.console import say, screen, show_progress
    from metricshuffle.collection.client import join_page as join
    from metricshuffle.collection.shuffler.server import validate_address
    from metricshuffle.collection.terms import Collection
    from metricshuffle.errors import require
    from metricshuffle.files import make_folder, write_text

    require("jinja2", "service")
    site = validate_address(origin, "--origin") if origin else ""
    collection = Collection.load(collection_file)
    if not collection.terms.recipe.get("browser"):
        raise InputError(
            "this collection cannot be joined from a browser. "
            f"{collection.terms.recipe.get('why', '')}"
        )
    with show_progress("Verifying"):
        collection.verify()
    text = join.join_page(
        collection, site, contact=contact, background=_read_background(collection, background)
    )
    page = make_folder(output) / NAME
    digest = sha256(text.encode()).hexdigest()
    write_text(page, text)
    shuffler = collection.terms.hops[0].url
    if as_json:
        print(
            json.dumps(
                {
                    "page": str(page),
                    "sha256": digest,
                    "collection": collection.digest,
                    "origin": site,
                    "sends_to": shuffler,
                }
            )
        )
        return
    allowed = site or "URL"
    say(
        screen(),
        f"Wrote {page}.",
        f"  sha256 {digest}",
        f"  Publish this hash, and the digest of the collection: {collection.digest}",
        f"  Reports go to {shuffler}, which takes them from another site only if it was "
        f"started with --origin {allowed}.",
    )


def _read_background(collection: Collection, background: Path | None) -> Background | None:
    """Read the background of a map, if one was given."""
    if background is None:
        return None
    from metricshuffle.report.gazetteer import load_background
    from metricshuffle.spaces import Grid

    grid = collection.task.query.values_in
    if not isinstance(grid, Grid):  # places in degrees are typed, not chosen on a map
        raise InputError(
            f"--background is for maps, and this is a {collection.task.query.title}; leave it out."
        )
    return load_background(background, grid)
