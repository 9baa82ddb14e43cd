"""Random kills of all roles during whole rounds: nothing is lost, doubled or early."""

from __future__ import annotations

import os
import random
import secrets
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.collection.many_hosts import Hosts, many_hosts
from tests.collection.postgres_pair import PostgresPair, new_database
from tests.collection.running import load_task, post_report, report_of
from tests.collection.test_many_hosts import released

from metricshuffle.collection.keys import AnalystKey, KeyFolder
from metricshuffle.collection.terms import Collection, parse_time

KILLS = int(os.environ.get("METRICSHUFFLE_KILLS", "600"))
PEOPLE = 120
LASTS = 40.0
END_BACKENDS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'"  # noqa: E501


class RandomKills:
    """Kills one role after another in a thread, and starts it again."""

    def __init__(self, hosts: Hosts, pair: PostgresPair, seed: int) -> None:
        self.kills: Counter[str] = Counter()
        self.failure: Exception | None = None
        self._hosts = hosts
        self._pair = pair
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> RandomKills:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        acts = {"edge": 10, "hub": 5, "backends": 4, "crash": 1, "promotion": 1}
        try:
            while not self._stop.wait(self._random.uniform(0.05, 1.0)):
                [role] = self._random.choices(list(acts), list(acts.values()))
                self._kill(role)
                self.kills[role] += 1
        except Exception as error:
            self.failure = error

    def _kill(self, role: str) -> None:
        if role in ("edge", "hub"):
            hosts = self._hosts
            process = self._random.choice(hosts.edges) if role == "edge" else hosts.hub
            process.end(signal.SIGKILL)
            process.start()
        elif role == "backends":
            self._pair.ask(END_BACKENDS)
        elif role == "crash":
            self._pair.crash_primary()
        else:
            self._pair.kill_primary()
            self._pair.promote()
            self._pair.add_standby()


def acknowledged_reports(hosts: Hosts, collection: Collection, reports: list[bytes]) -> set[bytes]:
    """Send reports to all edges until each is acknowledged or the collection is closed."""
    waiting = list(reports)
    acknowledged: set[bytes] = set()
    number = 0
    while waiting and time.time() < parse_time(collection.terms.closes):
        batch = waiting[:20]
        number += 1
        statuses = post_report(hosts.url(number, collection.digest), batch, 8).statuses
        assert set(statuses) <= {0, 204, 410, 429, 503}, statuses
        acknowledged |= {
            report for report, status in zip(batch, statuses, strict=True) if status == 204
        }
        waiting = [report for report in reports if report not in acknowledged]
    return acknowledged


@pytest.mark.slow
def test_random_kills_of_all_roles_lose_and_double_nothing(
    pair: PostgresPair, tmp_path: Path
) -> None:
    """METRICSHUFFLE_KILLS sets the number of kills."""
    kills: Counter[str] = Counter()
    number = 0
    while kills.total() < KILLS:
        number += 1
        seed = secrets.randbelow(2**32)
        new_database(pair)
        with many_hosts(tmp_path / str(number), pair.url, 3, lease=10) as hosts:
            analyst = AnalystKey.new()
            collection = hosts.hub.opened(load_task(3), lasts=LASTS, analyst=analyst)
            keys = KeyFolder(hosts.hub.keys).of(collection.terms.hops[0].key)
            assert keys is not None
            reports = [report_of(collection) for _ in range(PEOPLE)]
            sealing = collection.sealing
            boxes = {report: sealing.open_report(report, keys.private)[1] for report in reports}
            with RandomKills(hosts, pair, seed) as killing:
                acknowledged = acknowledged_reports(hosts, collection, reports)
                answer = released(hosts, collection, analyst)
            assert killing.failure is None, (seed, killing.failure)
            assert time.time() >= parse_time(collection.terms.closes)
            size = sealing.inner_size
            output = [
                answer.content[start : start + size]
                for start in range(0, len(answer.content), size)
            ]
            inside = [report for report in reports if boxes[report][0] in set(output)]
            assert acknowledged <= set(inside), seed
            assert output == sorted(box for report in inside for box in boxes[report]), seed
            assert int(answer.headers["x-people"]) == len(inside) >= len(acknowledged) > 4
            assert not list(hosts.hub.keys.glob("*.key"))
            kills += killing.kills
            print(
                f"round {number}, seed {seed}: {len(acknowledged)} acknowledged, {dict(kills)}",
                flush=True,
            )
