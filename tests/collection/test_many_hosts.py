"""A round over a hub, edges, and PostgreSQL with a synchronous standby."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.collection.conftest import Clock, missing
from tests.collection.many_hosts import Hosts, end_for_good, hosts_of, many_hosts
from tests.collection.postgres_pair import PostgresPair, free_port, new_database
from tests.collection.running import load_task, post_report, report_of
from tests.collection.test_operating_processes import proxied

from metricshuffle.collection.keys import AnalystKey, KeyFolder
from metricshuffle.collection.shuffler.ingest import ReportOpener
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.terms import Collection, parse_time

pytestmark = pytest.mark.thorough
SOON = 90.0


def sent_until_acknowledged(hosts: Hosts, collection: Collection, reports: list[bytes]) -> None:
    """Send reports to all edges, again and again, until each was acknowledged."""
    waiting = list(reports)
    end = time.monotonic() + SOON
    number = 0
    while waiting:
        assert time.monotonic() < end, [edge.log for edge in hosts.edges] + [hosts.hub.log]
        shares = [waiting[place :: len(hosts.edges)] for place in range(len(hosts.edges))]
        left = []
        for place, share in enumerate(shares):
            statuses = post_report(hosts.url(number + place, collection.digest), share, 8).statuses
            assert set(statuses) <= {0, 204, 429, 503}, statuses
            left += [
                report for report, status in zip(share, statuses, strict=True) if status != 204
            ]
        if len(left) == len(waiting):
            time.sleep(0.2)
        waiting = left
        number += 1


def released(hosts: Hosts, collection: Collection, analyst: AnalystKey) -> httpx.Response:
    """What the hub releases."""
    end = time.monotonic() + SOON
    while True:
        with contextlib.suppress(httpx.TransportError):  # it may be started again meanwhile
            answer = httpx.get(
                f"{hosts.hub.url}/v1/collections/{collection.digest}/release",
                headers={"Authorization": f"Bearer {analyst.token}"},
            )
            if answer.status_code == 200:
                return answer
            assert answer.status_code in (425, 503), answer.text
        assert time.monotonic() < end, hosts.hub.log + "".join(edge.log for edge in hosts.edges)
        time.sleep(0.2)


def output_of_one_process(
    folder: Path, keys: Path, collection: Collection, reports: list[bytes]
) -> bytes:
    """Bytes that one process with a file releases for the same reports."""
    shutil.copytree(keys, folder / "keys", ignore=shutil.ignore_patterns("*.opened", "leases.db*"))
    clock = Clock()
    store = connect_store(f"sqlite:///{folder}/one.db", clock)
    shuffler = Shuffler(store, KeyFolder.at(folder / "keys"))
    shuffler.open(collection.served)
    row = store.row(collection.digest)
    assert row is not None
    own = shuffler.keys.of(row.key)
    assert own is not None
    opener = ReportOpener.of(row, own)
    store.put(collection.digest, [opener.entry(report) for report in reports])
    clock.stop(parse_time(collection.terms.extends) + 1)
    assert shuffler.advance(collection.digest) == "released"
    output = b"".join(shuffler.output(collection.digest))
    store.close()
    return output


@pytest.mark.slow
def test_the_proxy_takes_reports_to_edges_and_releases_from_the_hub(
    pair: PostgresPair, tmp_path: Path
) -> None:
    new_database(pair)
    with (
        many_hosts(tmp_path, pair.url, 2, lease=20) as hosts,
        proxied(tmp_path, hosts.edges, hosts.hub) as (url, trusting),
        httpx.Client(base_url=url, verify=trusting, timeout=30) as client,
    ):
        analyst = AnalystKey.new()
        hop = replace(hosts.hub.operator, address=url).new_hop()
        collection = hosts.hub.opened(load_task(3), lasts=20, analyst=analyst, hops=[hop])
        path = f"/v1/collections/{collection.digest}"
        assert collection.url == f"{url}{path}"
        reports = [report_of(collection) for _ in range(20)]
        for report in reports:
            end = time.monotonic() + SOON
            while client.post(f"{path}/reports", content=report).status_code != 204:
                assert time.monotonic() < end
                time.sleep(0.2)
        [taken] = pair.ask("SELECT count(*) FROM part WHERE reports > 0")
        assert taken == (2,)  # both edges
        released(hosts, collection, analyst)
        token = {"Authorization": f"Bearer {analyst.token}"}
        answer = client.get(f"{path}/release", headers=token)
        assert (answer.status_code, answer.headers["x-people"]) == (200, "20")
        assert client.get(f"{path}/state").json()["state"] == "released"
        for inside in ("/v1/control/collections", "/livez"):
            assert client.get(inside).status_code == 404


@contextlib.contextmanager
def pooled(pair: PostgresPair, folder: Path) -> Iterator[str]:
    """Address of the database behind PgBouncer in transaction mode, with one session for all."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        missing("this needs PgBouncer (on Debian: apt-get install pgbouncer).")
    assert program is not None
    port = free_port()
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\npostgres = host=127.0.0.1 port={pair.servers[0][1]}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {folder}/users\nlogfile = {folder}/pgbouncer.log\n"
        "pool_mode = transaction\ndefault_pool_size = 1\n"
    )
    (folder / "users").write_text('"postgres" ""\n')
    user = None if os.geteuid() else "nobody"  # it does not run as root
    if user is not None:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, user)
    with subprocess.Popen([program, "-q", str(settings)], user=user) as pooler:
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            pooler.terminate()


@pytest.mark.slow
def test_edges_share_a_session_of_a_pooler_in_transaction_mode(
    pair: PostgresPair, tmp_path: Path
) -> None:
    new_database(pair)
    hosts = hosts_of(tmp_path, pair.url, 2, lease=20)
    pooler = Path(tempfile.mkdtemp(prefix="ms-pooler-"))
    try:
        with pooled(pair, pooler) as url:
            for edge in hosts.edges:
                edge.store = url
            for process in (hosts.hub, *hosts.edges):
                process.start()
            collection = hosts.hub.opened(load_task(3), lasts=600)
            reports = [report_of(collection) for _ in range(400)]
            sent_until_acknowledged(hosts, collection, reports)
            sent_until_acknowledged(hosts, collection, reports[::-1])
            sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name ~ 'edge'"
            assert pair.ask("SELECT sum(reports)::int, count(*)::int FROM part") == [(400, 2)]
            assert pair.ask(sql) == [(1,)]  # by which the hub ends a transaction that hangs
    finally:
        for process in (hosts.hub, *hosts.edges):
            end_for_good(process)
        shutil.rmtree(pooler)


def test_a_round_over_three_edges_survives_a_promotion_and_gives_the_bytes_of_one_process(
    pair: PostgresPair,
    tmp_path: Path,
) -> None:
    new_database(pair)
    with many_hosts(tmp_path, pair.url, 3, lease=20) as hosts:
        analyst = AnalystKey.new()
        collection = hosts.hub.opened(load_task(3), lasts=45, analyst=analyst)
        reports = [report_of(collection) for _ in range(600)]
        sent_until_acknowledged(hosts, collection, reports[:200])
        one = output_of_one_process(tmp_path / "one", hosts.hub.keys, collection, reports)

        def lose_the_primary() -> None:
            time.sleep(0.3)
            pair.kill_primary()
            pair.promote()
            pair.add_standby()

        losing = threading.Thread(target=lose_the_primary)
        losing.start()
        sent_until_acknowledged(hosts, collection, reports[100:400])
        losing.join()
        sent_until_acknowledged(hosts, collection, reports[300:])
        hosts.edges[1].end(signal.SIGKILL)
        hosts.edges[2].end(signal.SIGTERM)
        assert post_report(hosts.url(0, collection.digest), reports[:20]).statuses == [204] * 20
        answer = released(hosts, collection, analyst)
        assert answer.content == one
        assert answer.headers["x-people"] == "600"
        state = httpx.get(f"{hosts.hub.url}/v1/collections/{collection.digest}/state").json()
        assert "1 expired" in state["leases"]
        assert "proves neither" in state["leases"]
        assert "2 returned" in state["leases"]
        assert post_report(hosts.url(0, collection.digest), reports[:5]).statuses == [410] * 5
        assert not list(hosts.hub.keys.glob("*.key"))
        tables = pair.ask("SELECT tablename FROM pg_tables WHERE tablename ~ '^(report|admitted)_'")
        assert tables == []
