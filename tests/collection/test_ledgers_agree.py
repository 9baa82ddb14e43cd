"""Ledgers of the clients for Python, JavaScript and Java: the same record of the same task."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import load_task
from tests.collection.java import JVM, BuiltClient, java
from tests.collection.javascript import javascript, run
from tests.collection.stand_in import standing_in
from tests.collection.test_client import KIND, client_of

pytestmark = pytest.mark.thorough
__all__ = ["java", "javascript"]

MAKING = """
import { readFile } from 'node:fs/promises';
import { Client, Collection } from './dist/index.js';
import { FolderOutbox } from './dist/node.js';
const [file, digest, folder, value] = process.argv.slice(2);
const collection = await Collection.read(new Uint8Array(await readFile(file)), digest);
const ask = async () => new Response('{"phase": "open", "reason": ""}');
const client = new Client(collection, { outbox: new FolderOutbox(folder), ask });
await client.prepare(Number(value));
await client.decline();
"""
SUMMING = """
import { exceeded, sumText, summed, checkLimit } from './dist/budget.js';
const { entries, cases } = JSON.parse(process.argv[2]);
const told = cases.map(({ distance, honest }) => {
  const [above, below = '1'] = distance.split('/');
  return sumText(summed(entries, [BigInt(above), BigInt(below)], honest));
});
const limit = (epsilon, days = 30, honest = false) => ({ epsilon, distance: '5', unit: 'kcal', days, honest });
const count = (...limits) => exceeded(limits, entries, entries.at(-1), Date.now()).length;
const wrong = ['', 'x', '-1', '1e3'].map((epsilon) => {
  try {
    checkLimit(limit(epsilon));
    return '';
  } catch (error) {
    return error.message;
  }
});
console.log(JSON.stringify({ told, counts: [count(limit('6.2')), count(limit('6.1999')), count(limit('1.1', 30, true)), count({ ...limit('9'), unit: 'km' }), count()], wrong }));
"""  # noqa: E501


def spent_in(folder: Path) -> dict[str, Any]:
    """The record in an outbox of small files, of which the last one counts."""
    texts = [path.read_text() for path in folder.iterdir() if ".json" in path.name]
    (entry,) = [json.loads(text) for text in texts if text]
    spent: dict[str, Any] = entry["spent"]
    return spent


def test_the_three_clients_write_the_same_record(
    java: BuiltClient, javascript: Path, tmp_path: Path
) -> None:
    """Whatever became of the report: in Node it is declined here."""
    with standing_in() as shuffler:
        collection = shuffler.opened(load_task(KIND))
        with client_of(collection, tmp_path) as client:
            client.submit(7)
            (entry,) = client.ledger().entries
        python = {**json.loads(entry.claim), "round": entry.round, "day": entry.day}
        assert python.pop("verified")
        served = tmp_path / "served.json"
        served.write_bytes(collection.served)
        (javascript / "making.mjs").write_text(MAKING)
        words = ["making.mjs", str(served), collection.digest, str(tmp_path / "node"), "7"]
        run("node", "--no-warnings", *words, cwd=javascript)
        assert spent_in(tmp_path / "node") == {"user": "", **python}
        shuffler.state = b'{"phase": "open", "reason": ""}'
        words = [*JVM, "-jar", str(java.jar), "--outbox", str(tmp_path / "jvm"), str(served), "7"]
        unit = collection.task.guarantee.unit
        limit = [
            "--budget",
            "--outbox",
            str(tmp_path / "jvm"),
            "--limit",
            f"0.01 at 1 {unit} in 3d",
        ]
        assert "Your limit: 0.01" in run(*words[:-4], *limit, cwd=tmp_path)
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert (done.returncode, len(shuffler.received)) == (2, 1)
        assert "your limit is 0.01" in done.stderr
        assert done.stderr.endswith("Give --yes to go over the limit this time.\n")
        run(*words[:-2], "--yes", *words[-2:], cwd=tmp_path)
        assert len(shuffler.received) == 2
        assert spent_in(tmp_path / "jvm") == {"user": "", **python}


def test_sums_in_javascript_are_exact_and_rounded_up(javascript: Path) -> None:
    """The same numbers as in BudgetChecks.java; what is no number is no limit."""

    def loss(epsilon: Any, delta: float, distance: float, shape: str) -> dict[str, Any]:
        return {"epsilon": epsilon, "delta": delta, "distance": distance, "shape": shape}

    linear = {
        "task": "a",
        "rounds": 3,
        "local": loss(3.0, 0, 10.0, "flat"),
        "shuffled": loss(1.0, 1e-6, 10.0, "linear"),
    }
    flat = {
        "task": "b",
        "rounds": 1,
        "local": loss(0.2, 0, 5.0, "flat"),
        "shuffled": loss(0.1, 2e-6, 5.0, "flat"),
    }
    common = {"user": "", "unit": "kcal", "moves": "values", "day": "2999-01-01"}
    entries = [
        *({**common, **linear, "round": number} for number in range(1, 5)),
        {**common, **flat, "round": 1},
    ]
    cases = [
        {"distance": "5", "honest": False},
        {"distance": "5", "honest": True},
        {"distance": "1/3", "honest": True},
        {"distance": "6", "honest": False},
    ]
    (javascript / "summing.mjs").write_text(SUMMING)
    request = json.dumps({"entries": entries, "cases": cases})
    answer = json.loads(run("node", "--no-warnings", "summing.mjs", request, cwd=javascript))
    assert answer["told"] == [
        "epsilon 6.2",
        "epsilon 1.1, delta 0.000004",
        "epsilon 0.1667, delta 0.000004",
        "no limit (nothing is promised for moves of more than 5)",
    ]
    assert answer["counts"] == [0, 1, 0, 1, 0]
    assert all("Fill in all numbers" in told for told in answer["wrong"])
