"""Hostile connections: ambiguous requests, unread responses, TLS that never starts."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.collection.client_tasks import tasks
from tests.collection.javascript import browser
from tests.collection.running import Running, load_task, post_report, report_of, running
from tests.collection.test_server_processes import certificate

from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.shuffler import listener
from metricshuffle.collection.shuffler.listener import Listener
from metricshuffle.collection.terms import Collection


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system cannot be told to")
def test_whoever_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "UNREAD_SECONDS", 0.3)
    with (
        Listener.of("127.0.0.1:0").bound() as listening,
        socket.create_connection(listening.getsockname()),
    ):
        select.select([listening], [], [], 10)
        select_accepted, _ = listening.accept()
        select_accepted.setblocking(False)
        end = time.monotonic() + 20
        wrong = None
        while wrong is None and time.monotonic() < end:
            try:
                select_accepted.send(b"x" * 2**16)
            except BlockingIOError:
                select.select([], [select_accepted], [], 0.1)
            except OSError as cut:
                wrong = cut
        select_accepted.close()
    assert isinstance(wrong, TimeoutError)


@pytest.fixture(scope="module")
def shuffler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("sockets")
    with running(folder, f"sqlite:///{folder / 'shuffler.db'}") as started:
        yield started


def answer_to(url: str, data: bytes, seconds: float = 8.0) -> bytes:
    """Response to some bytes until the connection is closed or the time has passed."""
    parts = urlsplit(url)
    answer = b""
    with (
        socket.create_connection((parts.hostname, parts.port), timeout=seconds) as line,
        contextlib.suppress(OSError),
    ):
        line.sendall(data)
        while part := line.recv(2**16):
            answer += part
    return answer


def request(
    collection: Collection,
    report: bytes,
    *more: str,
    length: str | None = None,
    version: str = "1.1",
) -> bytes:
    lines = [
        f"POST {urlsplit(collection.url).path}/reports HTTP/{version}",
        "Host: shuffler",
        *more,
    ]
    lines += [f"Content-Length: {len(report) if length is None else length}"] * (length != "")
    return "\r\n".join([*lines, "", ""]).encode() + report


def chunked(report: bytes) -> bytes:
    return f"{len(report):x}\r\n".encode() + report + b"\r\n0\r\n\r\n"


@pytest.mark.thorough
def test_requests_that_say_two_things_are_none(shuffler: Running) -> None:
    """Trailing bytes are a separate request; ambiguous or missing lengths store nothing."""
    collection = shuffler.opened(load_task(3))
    fresh = [report_of(collection) for _ in range(40)]
    refused = {
        "two lengths": request(collection, fresh[0], f"Content-Length: {len(fresh[0]) + 5}"),
        "chunks": request(collection, b"", "Transfer-Encoding: chunked", length="")
        + chunked(fresh[1]),
        "chunks and a length": request(
            collection, b"", "Transfer-Encoding: chunked", length=str(len(fresh[2]))
        )
        + chunked(fresh[2]),
        "less than nothing": request(collection, fresh[3], length="-5"),
        "a sign": request(collection, fresh[4], length=f"+{len(fresh[4])}"),
        "a length of thirty digits": request(collection, fresh[5], length="9" * 30),
        "a length too short": request(collection, fresh[6], length=str(len(fresh[6]) - 10)),
        "a head of two hundred kilobytes": request(collection, fresh[7], f"X: {'a' * 200_000}"),
        "three thousand headers": request(
            collection, fresh[8], *(f"X{number}: 1" for number in range(3000))
        ),
        "a path of a hundred kilobytes": request(collection, fresh[9]).replace(
            b"/v1/", b"/" + b"a" * 100_000 + b"/v1/"
        ),
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    }
    for name, data in refused.items():
        answer = answer_to(shuffler.url, data)
        assert b" 204 " not in answer, name
        assert b" 50" not in answer[:13], name
    assert shuffler.operator.status(collection.digest)["reports"] == 0
    taken = [
        b"".join(request(collection, report) for report in fresh[10:29])
        + request(collection, fresh[29], "Connection: close"),
        request(collection, fresh[30], version="1.0"),
        request(collection, fresh[31]) * 3 + request(collection, fresh[31], "Connection: close"),
    ]
    answers = [answer_to(shuffler.url, data).count(b" 204 ") for data in taken]
    assert answers == [20, 1, 4]
    assert shuffler.operator.status(collection.digest)["reports"] == 22
    parts = urlsplit(shuffler.url)
    with socket.create_connection((parts.hostname, parts.port)) as gone:
        gone.sendall(request(collection, fresh[32]))
    assert post_report(collection.url, [fresh[32]], 1).statuses == [204]
    assert shuffler.operator.status(collection.digest)["reports"] == 23
    assert "Traceback" not in shuffler.log


@pytest.mark.thorough
def test_three_hundred_who_are_slow_hold_nobody_up(shuffler: Running) -> None:
    collection = shuffler.opened(load_task(5))
    slow = []
    fresh = [report_of(collection) for _ in range(301)]
    parts = urlsplit(shuffler.url)
    try:
        for number in range(300):
            slow.append(socket.create_connection((parts.hostname, parts.port)))
            slow[-1].sendall(request(collection, fresh[300])[: 40 if number % 2 else 300])
        honest = post_report(collection.url, fresh[:300])
        assert set(honest.statuses) == {204}
        assert max(honest.seconds) < 5
    finally:
        for line in slow:
            line.close()
    assert shuffler.operator.status(collection.digest)["reports"] == 300


# TLS


def run_command(*words: object, trusting: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command that believes one certificate."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "SSL_CERT_FILE": str(trusting), "NO_COLOR": "1"},
    )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Path, Path]]:
    """A shuffler with TLS, its certificate, and another one of the same name that is not its."""
    folder = tmp_path_factory.mktemp("tls")
    (folder / "other").mkdir()
    (own, key), (other, _) = certificate(folder), certificate(folder / "other")
    with (
        pytest.MonkeyPatch.context() as patched,
        running(
            folder / "s",
            f"sqlite:///{folder / 'shuffler.db'}",
            "--certificate",
            str(own),
            "--key",
            str(key),
        ) as started,
    ):
        patched.setenv("SSL_CERT_FILE", str(own))
        yield started, own, other


@pytest.mark.slow
def test_every_command_works_over_tls_and_refuses_a_certificate_that_it_does_not_know(
    secured: tuple[Running, Path, Path], tmp_path: Path
) -> None:
    shuffler, own, other = secured
    plan = (
        "plan --query sum --low 0 --high 5 --epsilon 1 --distance 5 --delta 0 --users 50 "
        "--honest 4 --trusted nobody --save plan.json"
    )
    assert (
        run_command("-m", "metricshuffle", *plan.split(), trusting=own, folder=tmp_path).returncode
        == 0
    )
    assert (
        run_command(
            "-m",
            "metricshuffle",
            "analyst",
            "key",
            "--output",
            "analyst.key",
            trusting=own,
            folder=tmp_path,
        ).returncode
        == 0
    )
    (tmp_path / "values.csv").write_text("value\n" + "\n".join("012345"))
    words: dict[str, list[object]] = {
        "open": [
            "collection",
            "open",
            "plan.json",
            "--server",
            shuffler.url,
            "--keys",
            shuffler.keys,
            "--analyst",
            AnalystKey.load(tmp_path / "analyst.key").public,
            "--closes",
            "14s",
            "--colluders",
            0,
            "--output",
            "collection.json",
        ],
        "submit": [
            "submit",
            "collection.json",
            "values.csv",
            "--column",
            "value",
            "--outbox",
            "outbox.db",
            "--patience",
            1,
        ],
        "status": ["collection", "status", "collection.json", "--keys", shuffler.keys],
        "collect": [
            "collect",
            "collection.json",
            "--analyst-key",
            "analyst.key",
            "--output",
            "release.json",
        ],
    }
    deadline = time.monotonic() + 60
    for name, command in words.items():
        refused = run_command("-m", "metricshuffle", *command, trusting=other, folder=tmp_path)
        assert refused.returncode == 2, name
        assert "is not trusted here" in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr
        while (
            done := run_command("-m", "metricshuffle", *command, trusting=own, folder=tmp_path)
        ).returncode != 0 and name == "collect":
            assert time.monotonic() < deadline, done.stderr
            time.sleep(0.5)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "release.json").exists()


@pytest.mark.slow
def test_tls_that_never_begins_is_cut_and_holds_nobody_up(
    secured: tuple[Running, Path, Path],
) -> None:
    shuffler, own, _ = secured
    parts = urlsplit(shuffler.url)
    collection = shuffler.opened(load_task(4))
    lines = [socket.create_connection((parts.hostname, parts.port)) for _ in range(200)]
    for line in lines[100:]:
        line.sendall(b"\x16\x03\x01\x02\x00\x01")  # the start of a greeting
    begun = time.monotonic()
    trusting = ssl.create_default_context(cafile=own)
    with trusting.wrap_socket(
        socket.create_connection((parts.hostname, parts.port)), server_hostname="127.0.0.1"
    ) as honest:
        honest.sendall(request(collection, report_of(collection), "Connection: close"))
        assert honest.recv(100).startswith(b"HTTP/1.1 204")
    assert time.monotonic() - begun < 3
    outcomes: Counter[str] = Counter()
    for line in lines:
        line.settimeout(max(0.1, begun + 25 - time.monotonic()))
        try:
            outcomes["closed" if not line.recv(100) else "answered"] += 1
        except ConnectionResetError:
            outcomes["closed"] += 1
        except TimeoutError:
            outcomes["open"] += 1
        line.close()
    assert outcomes == {"closed": 200}


@pytest.mark.thorough
def test_the_page_over_tls(secured: tuple[Running, Path, Path]) -> None:
    shuffler, _, _ = secured
    collection = shuffler.opened(tasks()["whole numbers"])
    with browser() as chromium:
        page = chromium.new_context(ignore_https_errors=True).new_page()
        page.goto(f"{shuffler.url}/join/{collection.digest}")
        page.wait_for_selector("#make:enabled")
        page.fill("#value", "480")
        page.click("#make")
        page.wait_for_selector("#ready:visible", timeout=60_000)
        page.click("#send")
        page.wait_for_selector("#done:visible", timeout=60_000)
    assert shuffler.operator.status(collection.digest)["reports"] == 1
