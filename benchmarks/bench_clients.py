"""Benchmark of clients and analyst: `python -m benchmarks clients`.

Time of a report in Python, Node and a browser, and of the boxes that the analyst opens. The plan is
a mean of a hundred thousand people as the planner makes it, with as many messages as that needs.
Node and Chromium are measured where they are installed (npm fetches the client's packages from its
lock file).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.collection.javascript import BROWSERS, browser, built_client, run

import metricshuffle as ms
from benchmarks.measuring import measurement
from metricshuffle.collection.analyst.decryption_pool import BOXES_PER_PART, open_boxes
from metricshuffle.collection.keys import AnalystKey, CollectionKeys, analyst_of
from metricshuffle.collection.recipes import recipe_of
from metricshuffle.collection.sealed_boxes import BoxFormat
from metricshuffle.collection.terms import Collection, Hop, instant
from metricshuffle.tasks.task import Task

PEOPLE = 200
BOXES = 200_000
TIMED = """
import { numbersOf, payloadsOf } from '../dist/report.js';
import { bytesOf, Sealer } from '../dist/sealing.js';
import { Words } from '../dist/words.js';
globalThis.timed = async ({ recipe, digest, keys, value, people }) => {
  const sealer = await Sealer.of(bytesOf(digest), keys.map(bytesOf));
  const payloads = () => payloadsOf(recipe.payload, numbersOf(recipe, value, new Words()));
  const one = async () => sealer.report(await sealer.boxes(payloads()), new Uint8Array());
  for (let warm = 0; warm < 20; warm++) await one();
  const start = performance.now();
  for (let person = 0; person < people; person++) await one();
  return (performance.now() - start) / people;
};
"""


def collection_of(task: Task, analyst: AnalystKey) -> Collection:
    """Open collection that no server serves."""
    hop = CollectionKeys(os.urandom(64)).party
    now = time.time()
    return Collection.new(
        task,
        round=1,
        hops=[Hop(**hop.model_dump() | {"url": "http://127.0.0.1:1"})],
        analyst=analyst_of(analyst.public),
        colluders=0,
        opens=instant(now - 1),
        closes=instant(now + 3600),
        extends=instant(now + 3600),
        retention=86400,
    )


def in_python(collection: Collection) -> float:
    """Milliseconds per report, drawn one by one as a single person would."""
    client = ms.Client(collection)
    client.verify()
    client.report(437)
    start = time.perf_counter()
    for _ in range(PEOPLE):
        client.report(437)
    return 1000 * (time.perf_counter() - start) / PEOPLE


def in_javascript(collection: Collection, folder: Path) -> dict[str, float]:
    """Milliseconds per report in Node and in Chromium, where they are installed."""
    told: dict[str, float] = {}
    asked = {
        "recipe": recipe_of(collection.task),
        "digest": collection.digest,
        "keys": [key.data.hex() for key in collection.keys],
        "value": 437,
        "people": PEOPLE,
    }
    if not all(map(shutil.which, ("node", "npm"))):
        return told
    client = built_client(folder)
    (client / "test" / "timed.mjs").write_text(TIMED)
    (client / "test" / "asked.mjs").write_text(
        f"import './timed.mjs';\nconsole.log(await timed({json.dumps(asked)}));\n"
    )
    told["Node"] = float(run("node", "--no-warnings", "test/asked.mjs", cwd=client))
    if find_spec("playwright") is None or not any(map(shutil.which, BROWSERS)):
        return told
    bundle = folder / "timed.js"
    run(
        "npx",
        "esbuild",
        "test/timed.mjs",
        "--bundle",
        "--format=iife",
        f"--outfile={bundle}",
        "--log-level=error",
        cwd=client,
    )
    with browser() as running:
        page = running.new_page()
        page.route(
            "http://localhost/",
            lambda route: route.fulfill(body="<!doctype html>", content_type="text/html"),
        )
        page.goto("http://localhost/")  # browsers cannot encrypt on a page without an address
        page.add_script_tag(content=bundle.read_text())
        told["Chromium"] = float(page.evaluate("asked => timed(asked)", asked))
    return told


def opened_a_second(sealing: BoxFormat, analyst: AnalystKey, processes: int) -> float:
    """Boxes that the analyst opens per second.

    The same few thousand are opened repeatedly, which takes as long as others.
    """
    info = sealing.info(0)
    public = analyst.private.public
    part = b"".join(public.sealed(os.urandom(sealing.payload), info) for _ in range(BOXES_PER_PART))
    parts = BOXES // BOXES_PER_PART
    start = time.perf_counter()
    several = ((0, part) for _ in range(parts))
    for _, _, flags in open_boxes(
        sealing, analyst.private, several, parts * BOXES_PER_PART, processes
    ):
        assert all(flags)
    return parts * BOXES_PER_PART / (time.perf_counter() - start)


def measurements() -> list[dict[str, Any]]:
    query = ms.Mean(ms.Integers(0, 1000, unit="kcal"))
    target = ms.Target(epsilon=1.0, delta=1e-6, distance=100)
    plan = ms.plan(query, target, users=100_000, honest=0.9, encoding="modular")
    analyst = AnalystKey.new()
    collection = collection_of(plan.task, analyst)
    name = f"a report of {collection.terms.messages} messages drawn and sealed"
    rows = [measurement(f"{name}, Python", in_python(collection), "ms", None)]
    with tempfile.TemporaryDirectory(prefix="ms-bench-") as folder:
        rows += [
            measurement(f"{name}, {where}", value, "ms", None)
            for where, value in in_javascript(collection, Path(folder)).items()
        ]
    for processes in (1, 2):
        rate = opened_a_second(collection.sealing, analyst, processes)
        rows.append(
            measurement(f"boxes opened by the analyst, processes: {processes}", rate, "/s", None)
        )
    return rows
