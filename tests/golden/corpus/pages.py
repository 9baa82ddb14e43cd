"""(g) Report pages, other pages, and cards and charts of notebooks: tags and words.

The page of `metricshuffle web` and the join page are in section e, where their servers are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.catalogue.small_plans import SMALL, plan_of, values_of
from tests.golden.corpus.commands import inside, typed
from tests.golden.corpus.masks import digest, masked, parts_of_page, seeded_system
from tests.golden.corpus.recording import Fields, Items

import metricshuffle as ms
from metricshuffle.randomizers import KaryRandomizedResponse, PlanarGeometric

REPORTED = (
    "sum",
    "mean",
    "mean, nobody",
    "hat",
    "centroid",
    "centroid on a map",
    "labels",
    "line",
    "cells",
    "cells on a map",
    "users' tree",
    "users' items",
    "users' mean",
    "users' table",
)
"""Small plans with a report; charts take a second each."""
COMMANDS = {
    "amplify": (
        "amplify --randomizer krr --options 16 --local-epsilon 1 --users 10000 --delta 1e-6 "
        "--plot page.html"
    ),
    "amplify, metric": (
        "amplify --randomizer metric --distance 1 --reach 3 --users 10000 --delta 1e-8 --plot "
        "page.html"
    ),
}


def _parts(page: str, folder: Path) -> Fields:
    parts = parts_of_page(masked(page, folder))
    return {"tags sha256": digest(parts["tags"]), **parts}


def _written(words: list[str], page: Path, folder: Path) -> Fields:
    """Page that a command writes."""
    code, _, err = typed(words, " ".join(words))
    assert code == 0, f"{words}: {err}"
    return _parts(page.read_text(encoding="utf-8"), folder)


def _released(name: str) -> ms.Release:
    with seeded_system(f"page {name}"):
        release = plan_of(name).run(values_of(name), ms.Randomness.seeded(f"page {name}"))
    assert isinstance(release, ms.Release)
    return release


def _reports(folder: Path) -> Items:
    items: Items = {}
    for name in REPORTED:
        plan_of(name).save("plan.json", "task.json")
        _released(name).save("release.json")
        items[f"report: {name}"] = _written(
            ["report", "plan.json", "release.json", "--output", "page.html"],
            Path("page.html"),
            folder,
        )
        words = ["explain", "task.json", "--format", "html", "--output", "explain.html"]
        items[f"explain: {name}"] = _written(words, Path("explain.html"), folder)
    _released("cells on a map").save("release.json")
    items["map: cells on a map"] = _written(
        ["map", "release.json", "--output", "map.html"], Path("map.html"), folder
    )
    for name, command in COMMANDS.items():
        items[f"command: {name}"] = _written(command.split(), Path("page.html"), folder)
    return items


def _results() -> Iterator[tuple[str, Any]]:
    """Yield everything that notebooks show as a card."""
    for name in SMALL:
        planned = plan_of(name)
        yield from (
            (f"plan: {name}", planned),
            (f"task: {name}", planned.task),
            (f"candidate: {name}", planned.choice),
        )
        yield from (
            (f"guarantee: {name}", planned.guarantee),
            (f"release: {name}", _released(name)),
        )
    yield "amplification: k-ary", ms.amplify(KaryRandomizedResponse(5, 1.0), 1000)
    yield "amplification: cells", ms.amplify(PlanarGeometric(4, 3, 0.5), 1000)
    yield "amplification: any", ms.amplify(ms.GenericLDP(1.0), 1000)
    yield "simulation: mean", ms.simulate(plan_of("mean"), 200, ms.Randomness.seeded(3))


def _charts(result: Any) -> str:
    """Specification of its chart, or the reason why there is none."""
    try:
        return digest(json.dumps(result.plot().to_dict(), sort_keys=True))
    except ms.MetricShuffleError as error:
        return type(error).__name__


def record() -> Items:
    items: Items = {}
    with TemporaryDirectory(prefix="corpus-") as name, inside(Path(name)):
        items |= _reports(Path(name))
        for title, result in _results():
            chart = {"chart": _charts(result)} if hasattr(result, "plot") else {}
            items[f"card: {title}"] = {**_parts(result._repr_html_(), Path(name)), **chart}
    return items
