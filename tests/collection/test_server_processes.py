"""Shuffler processes over real sockets: start, stop, privacy of logs, slow connections."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import json
import os
import re
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import httpx
import pytest
from tests.catalogue.planned_tasks import planned
from tests.collection.conftest import POSTGRES_SLOWLY
from tests.collection.running import (
    Running,
    load_task,
    new_tickets,
    post_report,
    posted_async,
    report_of,
    request_of,
    run_aside,
    running,
)

from metricshuffle.collection.analyst.analyst import Analyst
from metricshuffle.collection.analyst.download import NotReleased
from metricshuffle.collection.client.client import Client
from metricshuffle.collection.client.http_client import NotStored, _ssl_context
from metricshuffle.collection.keys import AnalystKey, KeyFolder
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.errors import InputError, PlanError

DAY = datetime.timedelta(days=1)
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def shuffler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One that several tests share, each with a collection of its own."""
    folder = tmp_path_factory.mktemp("shuffler")
    with running(folder, f"sqlite:///{folder / 'shuffler.db'}") as made:
        yield made


def connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 80), timeout=30)


@pytest.mark.parametrize("messages", [1, 5, 10, 20, 200])
def test_reports_of_every_length_over_the_network(shuffler: Running, messages: int) -> None:
    collection = shuffler.opened(load_task(messages))
    report = report_of(collection)
    assert len(report) == 48 + 57 * messages
    assert post_report(collection.url, [report, report[:-1], report + b"\0", b""], 1).statuses == [
        204,
        422,
        413,
        422,
    ]
    assert shuffler.operator.status(collection.digest)["reports"] == 1


@POSTGRES_SLOWLY
def test_the_same_report_on_sixty_four_connections(tmp_path: Path, store_url: str) -> None:
    """Ten reports sixty-four times are ten, and sixteen per ticket are ten, on both."""
    with running(tmp_path / "s", store_url) as shuffler:
        tickets = new_tickets(10)
        open_to_all = shuffler.opened()
        ticketed = shuffler.opened(load_task(5), tickets=tickets)
        reports = [report_of(open_to_all) for _ in range(10)]
        assert post_report(open_to_all.url, reports * 64, 64).statuses == [204] * 640
        answers = post_report(
            ticketed.url, [report_of(ticketed, ticket) for _ in range(16) for ticket in tickets], 64
        ).statuses
        assert (answers.count(204), answers.count(409)) == (10, 150)
        assert [
            shuffler.operator.status(collection.digest)["reports"]
            for collection in (open_to_all, ticketed)
        ] == [10, 10]


def test_from_the_first_report_to_what_is_released(tmp_path: Path, store_url: str) -> None:
    """Open for three seconds: output is the acknowledged boxes, sorted; then 410."""
    analyst = AnalystKey.new()
    with running(tmp_path / "s", store_url) as shuffler:
        collection = shuffler.opened(lasts=4, analyst=analyst)
        sealing = collection.sealing
        people = [
            [secrets.token_bytes(sealing.inner_size) for _ in range(sealing.messages)]
            for _ in range(30)
        ]
        reports = [sealing.closed(boxes, collection.keys[-1]) for boxes in people]
        assert post_report(collection.url, reports).statuses == [204] * 30
        token = {"Authorization": f"Bearer {analyst.token}"}
        with httpx.Client(headers=token, timeout=30) as client:
            assert client.get(f"{collection.url}/release").status_code == 425
            end = time.monotonic() + 60
            while (
                release := client.get(f"{collection.url}/release")
            ).status_code == 425 and time.monotonic() < end:
                assert post_report(collection.url, reports[:1]).statuses in ([204], [410])
                time.sleep(0.1)
            assert release.status_code == 200
            assert release.content == b"".join(sorted(box for boxes in people for box in boxes))
            assert set(post_report(collection.url, [*reports, report_of(collection)]).statuses) == {
                410
            }
            assert (
                client.get(
                    f"{collection.url}/release",
                    headers={"Authorization": f"Bearer {secrets.token_hex(32)}"},
                ).status_code
                == 401
            )
            assert (
                client.delete(
                    f"{collection.url}/release", headers={"If-Match": release.headers["etag"]}
                ).status_code
                == 204
            )
        assert KeyFolder(shuffler.keys).names() == []
        assert "Traceback" not in shuffler.log


# Starting and stopping


def test_a_port_on_which_somebody_listens_is_refused(tmp_path: Path, shuffler: Running) -> None:
    """A port in use is rejected, also a shared one; one left a moment ago is not.

    With a shared port half of all reports would go elsewhere.
    """

    def refusal(address: str) -> str:
        words = [
            sys.executable,
            "-m",
            "metricshuffle",
            "serve",
            "--store",
            f"sqlite:///{tmp_path}/x.db",
            "--keys",
            str(tmp_path / "keys"),
        ]
        done = subprocess.run(
            [*words, "--listen", address], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr

    assert "Address already in use. If a shuffler runs there already, stop it" in refusal(
        urlsplit(shuffler.url).netloc
    )
    with socket.socket() as sharing:
        sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sharing.bind(("127.0.0.1", 0))
        sharing.listen()
        port = sharing.getsockname()[1]
        assert "Address already in use" in refusal(f"127.0.0.1:{port}")
        assert not (tmp_path / "keys").exists()
    with running(
        tmp_path / "again", f"sqlite:///{tmp_path}/y.db", listen=f"127.0.0.1:{port}"
    ) as freed:
        assert freed.url.endswith(f":{port}")
        assert post_report(f"{freed.url}/v1/collections/{'0' * 64}", [b""]).statuses == [404]
        assert freed.end(signal.SIGKILL) == -signal.SIGKILL
        freed.start()  # at once, at the same address, although connections of the one before linger


def test_the_first_line_comes_when_reports_are_accepted(tmp_path: Path) -> None:
    """And it is all that stands on standard output; a report sent at that moment is stored."""
    with running(tmp_path / "s", f"sqlite:///{tmp_path}/x.db") as shuffler:
        assert urlopen(f"{shuffler.url}/healthz").status == 200  # noqa: S310 - our own
        collection = shuffler.opened()
        shuffler.end(signal.SIGKILL)
        shuffler.start()
        assert post_report(collection.url, [report_of(collection)], 1).statuses == [204]
        assert shuffler.end() == 0
        lines = (shuffler.folder / "stdout.txt").read_text().splitlines()
        assert [json.loads(line)["listening"] for line in lines] == [shuffler.url] * 2
        assert shuffler.said == [f"metricshuffle: Collection {collection.digest[:16]} was opened."]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_loses_nothing(tmp_path: Path, number: int) -> None:
    """Exit code 0 within seconds with open connections; acknowledged reports are stored."""
    store_url = f"sqlite:///{tmp_path}/x.db"
    with running(tmp_path / "s", store_url) as shuffler:
        collection = shuffler.opened()
        reports = [report_of(collection) for _ in range(2000)]

        async def load() -> list[int]:
            async def stop() -> None:
                await asyncio.sleep(0.4)
                shuffler.process.send_signal(number)

            stopping = asyncio.ensure_future(stop())
            sent = await posted_async(collection.url, reports, 64)
            await stopping
            return sent.statuses

        idle = connected(shuffler.url)
        slow = connected(shuffler.url)
        slow.sendall(request_of(collection.url, reports[0])[:-1])
        begun = time.monotonic()
        statuses = run_aside(load())
        assert shuffler.ended() == 0
        assert time.monotonic() - begun < 9  # (a body may take ten seconds, but not now)
        idle.close()
        slow.close()
        stored = connect_store(store_url).row(collection.digest)
        assert stored is not None
        assert 0 < statuses.count(204) <= stored.reports <= len(reports)
        assert "Traceback" not in shuffler.log
        keys = KeyFolder(shuffler.keys).of(stored.key)
        assert keys is not None
        shuffler.start()
        again = post_report(
            collection.url,
            [report for report, status in zip(reports, statuses, strict=True) if status == 0],
        )
        assert set(again.statuses) <= {204}
        assert shuffler.operator.status(collection.digest)["reports"] == len(reports)


def test_an_address_that_others_reach_without_tls_is_warned_of(tmp_path: Path) -> None:
    with running(tmp_path / "s", f"sqlite:///{tmp_path}/x.db", listen="0.0.0.0:0") as shuffler:
        [warned] = shuffler.said
        assert "can be reached from other machines without TLS" in warned


def certificate(folder: Path) -> tuple[Path, Path]:
    """For 127.0.0.1, signed by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "shuffler")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    kind = serialization.PrivateFormat.PKCS8
    files[1].touch(mode=0o600)
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())
    )
    return files


def test_a_shuffler_with_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS, and nothing else on that port."""
    files = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    options = ("--certificate", str(files[0]), "--key", str(files[1]))
    with running(tmp_path / "s", f"sqlite:///{tmp_path}/x.db", *options) as shuffler:
        assert shuffler.url.startswith("https://127.0.0.1:")
        collection = shuffler.opened()
        trusting = ssl.create_default_context(cafile=files[0])
        with httpx.Client(verify=trusting, timeout=30) as client:
            assert (
                client.post(f"{collection.url}/reports", content=report_of(collection)).status_code
                == 204
            )
        with httpx.Client(timeout=30) as client:
            assert client.get(shuffler.url.replace("https", "http") + "/healthz").status_code == 400


def test_a_certificate_that_is_not_believed_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays what it is, however patiently one asks; nothing is sent to whoever shows it."""
    (tmp_path / "other").mkdir()
    (own, key), (other, _) = certificate(tmp_path), certificate(tmp_path / "other")
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    with running(
        tmp_path / "s", f"sqlite:///{tmp_path}/x.db", "--certificate", str(own), "--key", str(key)
    ) as shuffler:
        key_of_analyst = AnalystKey.new()
        operator = shuffler.operator
        collection = shuffler.opened(planned("sum in shares").task, analyst=key_of_analyst)
        monkeypatch.setenv("SSL_CERT_FILE", str(other))
        _ssl_context.cache_clear()
        begun = time.monotonic()
        with Client(collection, tmp_path / "out.box", patience=300.0) as client:
            with pytest.raises(
                NotStored, match=r"not trusted here, and nothing was sent .*SSL_CERT_FILE"
            ) as told:
                client.submit(1)
            assert told.value.answer.status == "waiting"
        with pytest.raises(NotReleased, match="not trusted here"):
            Analyst(key_of_analyst, patience=300.0).collect(collection, tmp_path / "release.json")
        with pytest.raises(InputError, match="not trusted here"):
            operator.status(collection.digest)
        with pytest.raises(PlanError, match="not trusted here"):
            Client(
                f"{shuffler.url}/v1/collections/{collection.digest}", tmp_path / "new.box"
            ).submit(1)
        assert time.monotonic() - begun < 60
        monkeypatch.setenv("SSL_CERT_FILE", str(own))
        _ssl_context.cache_clear()
        with Client(collection, tmp_path / "out.box", patience=30.0) as client:
            assert client.resend().stored == 1
    _ssl_context.cache_clear()


# Whoever is slow


def test_slow_heads_and_slow_bodies_are_cut_and_hold_nobody_up(shuffler: Running) -> None:
    """Two hundred slow connections: heads end after 5 s, bodies get 408 after 10 s."""
    collection = shuffler.opened(load_task(20, users=999_983))
    report = report_of(collection)
    request = request_of(collection.url, report)
    heads = [connected(shuffler.url) for _ in range(100)]
    bodies = [connected(shuffler.url) for _ in range(100)]
    begun = time.monotonic()
    said = b""
    for part in range(6):
        for number, line in enumerate((*heads, *bodies)):
            with contextlib.suppress(OSError):  # it was cut
                line.sendall(
                    request[3 * part : 3 * part + 3]
                    if number < 100
                    else request[: 200 + part]
                    if part == 0
                    else b"\0"
                )
        assert post_report(collection.url, [report]).statuses == [204]
        time.sleep(max(0.0, begun + 1.2 * (part + 1) - time.monotonic()))
    for line in heads:
        with contextlib.suppress(ConnectionResetError):
            said += line.recv(1000)
        line.close()
    assert said == b""
    assert time.monotonic() - begun < 10
    answers = []
    for line in bodies:
        answers.append(line.recv(1000)[:12])
        line.close()
    assert set(answers) == {b"HTTP/1.1 408"}
    assert 9 < time.monotonic() - begun < 20
    assert shuffler.operator.status(collection.digest)["reports"] == 1


# What is written down


@POSTGRES_SLOWLY
def test_nothing_of_a_report_is_written_down(tmp_path: Path, store_url: str) -> None:
    """No address, tag or time in the log, and no own file, after reports and faults."""
    work = tmp_path / "work"
    work.mkdir()
    before = os.getcwd()
    os.chdir(work)
    try:
        with running(tmp_path / "s", store_url) as shuffler:
            tickets = new_tickets(50)
            collection = shuffler.opened(tickets=tickets)
            reports = [report_of(collection, ticket) for ticket in tickets]
            others = [
                report_of(collection, tickets[0]),
                report_of(collection, secrets.token_bytes(16)),
                secrets.token_bytes(len(reports[0])),
            ]
            statuses = post_report(collection.url, [*reports, *reports, *others]).statuses
            assert sorted(set(statuses)) == [204, 403, 409, 422]
            for bad in (
                b"GET / HTTP/9\r\n\r\n",
                b"\0" * 50,
                request_of(collection.url, reports[0])[:-3],
            ):
                line = connected(shuffler.url)
                line.sendall(bad)
                line.close()
            keys = KeyFolder(shuffler.keys).of(collection.terms.hops[0].key)
            assert keys is not None
            shuffler.operator.abort(collection.digest, "done")
            assert shuffler.end() == 0
            said = shuffler.log
    finally:
        os.chdir(before)
    for secret in (
        *(keys.tag(report) for report in reports),
        *tickets,
        *(keys.ticket_hash(ticket) for ticket in tickets),
        *reports,
    ):
        assert secret.hex()[:16] not in said.lower()
    assert re.findall(r"\d\d:\d\d|\d{4}-\d\d-\d\d", said) == []
    name = collection.digest[:16]
    assert shuffler.said == [
        f"metricshuffle: Collection {name} was opened.",
        f"metricshuffle: Collection {name} is aborted, after it was open: by its operator: done.",
    ], said
    assert list(work.iterdir()) == []


def resident(process: int) -> float:
    """Megabytes of memory that a process has now."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_reports(tmp_path: Path, store_url: str) -> None:
    """Ten thousand accepted and rejected reports, after the caches are filled."""
    with running(tmp_path / "s", store_url) as shuffler:
        collection = shuffler.opened(load_task(3))

        def send(count: int) -> None:
            reports = [report_of(collection) for _ in range(count)]
            assert set(post_report(collection.url, reports).statuses) == {204}
            assert set(
                post_report(collection.url, [report[::-1] for report in reports]).statuses
            ) == {422}

        send(5000)
        before = resident(shuffler.process.pid)
        send(10000)
        assert resident(shuffler.process.pid) - before < 25
