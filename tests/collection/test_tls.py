"""TLS by the shuffler with few file descriptors: many, idle and slow connections, and a stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.collection.running import Running, load_task, report_of, request_of, running
from tests.collection.test_server_processes import certificate

pytestmark = pytest.mark.thorough
SLOWEST_SECONDS = 6.0
"""Limit of an honest post among others: under 2 s on a quiet machine.

These tests run next to others.
"""
FEW = 456
"""Files of a shuffler; ordinary systems allow 1,024."""


@pytest.fixture(autouse=True)
def _many_files_here() -> Iterator[None]:
    """A test holds both ends of thousands of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 12_000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(
            f"this needs {wanted:,} open files, and the system allows {hard:,} (ulimit -Hn)."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def secured(folder: Path, files: int) -> Iterator[tuple[Running, ssl.SSLContext]]:
    folder.mkdir(parents=True, exist_ok=True)
    own, key = certificate(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SSL_CERT_FILE", str(own))
        words = ("--certificate", str(own), "--key", str(key))
        with running(
            folder / "s", f"sqlite:///{folder / 'shuffler.db'}", *words, files=files
        ) as started:
            yield started, ssl.create_default_context(cafile=own)


def ask_at_once(
    url: str, reports: Sequence[bytes], trusting: ssl.SSLContext, *, keep_open: bool = False
) -> list[tuple[bytes, float]]:
    """Status line and seconds of each report, each on its connection, 500 at once."""
    parts = urlsplit(url)
    together = asyncio.Semaphore(500)

    async def ask(report: bytes) -> tuple[bytes, float]:
        async with together:
            return await ask_now(report)

    async def ask_now(report: bytes) -> tuple[bytes, float]:
        begun = time.monotonic()
        try:
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port, ssl=trusting, ssl_handshake_timeout=60
            )
            writer.write(request_of(url, report))
            try:
                line = await reader.readline()
                if keep_open:
                    await asyncio.sleep(2)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        except OSError as error:
            line = repr(error).encode()
        return line, time.monotonic() - begun

    async def ask_all() -> list[tuple[bytes, float]]:
        return await asyncio.gather(*map(ask, reports))

    with ThreadPoolExecutor(1) as aside:
        return aside.submit(asyncio.run, ask_all()).result()


@pytest.mark.parametrize("keep_open", [False, True])
def test_more_honest_requests_than_files_are_all_answered(tmp_path: Path, keep_open: bool) -> None:
    """Also if people keep their connections open after the answer."""
    with secured(tmp_path, FEW) as (shuffler, trusting):
        collection = shuffler.opened(load_task(1))
        reports = [report_of(collection) for _ in range(1500)]
        answers = ask_at_once(collection.url, reports, trusting, keep_open=keep_open)
        # On a busy machine some are so slow to ask that they are taken for strangers; they ask
        # again, as every client does.
        again = [report for report, (line, _) in zip(reports, answers, strict=True) if not line]
        assert len(again) < 150
        answered = [
            line
            for line, _ in (
                *answers,
                *ask_at_once(collection.url, again, trusting, keep_open=keep_open),
            )
            if line
        ]
        assert Counter(answered) == {b"HTTP/1.1 204 No Content\r\n": 1500}
        assert shuffler.operator.status(collection.digest)["reports"] == 1500
        assert shuffler.end() == 0


@pytest.mark.parametrize(("files", "greeting"), [(1024, b""), (FEW, b"\x16\x03\x01\x02\x00\x01")])
def test_idle_strangers_hold_nobody_up(tmp_path: Path, files: int, greeting: bytes) -> None:
    """Five thousand idle or half-greeting connections next to 300 honest reports; a stop."""
    with secured(tmp_path, files) as (shuffler, trusting):
        collection = shuffler.opened(load_task(1))
        parts = urlsplit(shuffler.url)
        idle = []
        try:
            for _ in range(5000):
                idle.append(socket.socket())
                idle[-1].setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    idle[-1].connect((parts.hostname, parts.port))
            time.sleep(0.2)
            for line in idle:
                with contextlib.suppress(OSError):
                    line.send(greeting)
            reports = [report_of(collection) for _ in range(300)]
            crowds = [reports[start : start + 20] for start in range(0, 300, 20)]
            answers = [
                answer
                for crowd in crowds
                for answer in ask_at_once(collection.url, crowd, trusting)
            ]
            assert {line for line, _ in answers} == {b"HTTP/1.1 204 No Content\r\n"}
            assert max(seconds for _, seconds in answers) < SLOWEST_SECONDS
            begun = time.monotonic()
            assert shuffler.end() == 0
            assert time.monotonic() - begun < 10
        finally:
            for line in idle:
                line.close()


def test_slow_handshakes_hold_nobody_up(tmp_path: Path) -> None:
    """Three hundred who greet and never answer what the shuffler says."""
    with secured(tmp_path, FEW) as (shuffler, trusting):
        collection = shuffler.opened(load_task(1))
        parts = urlsplit(shuffler.url)
        slow = []
        try:
            for _ in range(300):
                incoming = ssl.MemoryBIO()
                outgoing = ssl.MemoryBIO()
                greeter = trusting.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
                with contextlib.suppress(ssl.SSLWantReadError):
                    greeter.do_handshake()
                slow.append(socket.create_connection((parts.hostname, parts.port)))
                slow[-1].sendall(outgoing.read())
            answers = ask_at_once(
                collection.url, [report_of(collection) for _ in range(50)], trusting
            )
            assert {line for line, _ in answers} == {b"HTTP/1.1 204 No Content\r\n"}
            assert max(seconds for _, seconds in answers) < 10.0
            begun = time.monotonic()
            ends = []
            for line in slow:
                line.settimeout(40)
                with contextlib.suppress(OSError):
                    while line.recv(2**16):
                        pass
                ends.append(time.monotonic() - begun)
            assert max(ends) < 30  # each is let go after ten seconds
        finally:
            for line in slow:
                line.close()


def test_silence_after_the_handshake_holds_nobody_up(tmp_path: Path) -> None:
    """250 silent connections after the handshake, as browsers make, and honest reports."""
    with secured(tmp_path, FEW) as (shuffler, trusting):
        collection = shuffler.opened(load_task(1))
        parts = urlsplit(shuffler.url)
        reports = [report_of(collection) for _ in range(20)]

        async def shake_hands() -> list[asyncio.StreamWriter]:
            opened = [
                asyncio.open_connection(
                    parts.hostname, parts.port, ssl=trusting, ssl_handshake_timeout=60
                )
                for _ in range(250)
            ]
            return [writer for _, writer in await asyncio.gather(*opened)]

        async def ask_beside() -> list[tuple[bytes, float]]:
            silent = await shake_hands()
            try:
                return await asyncio.to_thread(ask_at_once, collection.url, reports, trusting)
            finally:
                for writer in silent:
                    writer.close()
                # The shuffler may have ended some of them; none may outlive this loop.
                ends = [writer.wait_closed() for writer in silent]
                await asyncio.gather(*ends, return_exceptions=True)

        with ThreadPoolExecutor(1) as aside:
            answers = aside.submit(asyncio.run, ask_beside()).result()
        assert {line for line, _ in answers} == {b"HTTP/1.1 204 No Content\r\n"}
        assert max(seconds for _, seconds in answers) < 8.0  # (24.5 before)


def test_plain_requests_are_told_that_this_is_tls(tmp_path: Path) -> None:
    with secured(tmp_path, FEW) as (shuffler, _):
        parts = urlsplit(shuffler.url)
        with socket.create_connection((parts.hostname, parts.port), timeout=10) as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b"".join(iter(lambda: line.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"This port takes https:// addresses only.\r\n")


def test_out_of_files_is_no_end(tmp_path: Path) -> None:
    """The file limit falls while running; it serves again once there are files."""
    with secured(tmp_path, 1024) as (shuffler, trusting):
        collection = shuffler.opened(load_task(1))
        number = shuffler.process.pid
        used = len(os.listdir(f"/proc/{number}/fd"))
        resource.prlimit(number, resource.RLIMIT_NOFILE, (used, 1024))
        parts = urlsplit(shuffler.url)
        waiting = [socket.create_connection((parts.hostname, parts.port)) for _ in range(50)]
        for line in waiting:
            line.sendall(b"\x16\x03\x01\x02\x00\x01")
        time.sleep(1)
        resource.prlimit(number, resource.RLIMIT_NOFILE, (1024, 1024))
        answers = ask_at_once(collection.url, [report_of(collection) for _ in range(20)], trusting)
        assert {line for line, _ in answers} == {b"HTTP/1.1 204 No Content\r\n"}
        for line in waiting:
            line.close()


PAGE = Path(__file__).parents[2] / "docs" / "service" / "operate.md"


@contextlib.contextmanager
def proxied(folder: Path, shuffler: Running) -> Iterator[tuple[str, ssl.SSLContext]]:
    """nginx in front of a shuffler, with the configuration from the operator's page."""
    if shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("nginx is missing.")
        pytest.skip("this needs nginx (on Debian: apt-get install nginx-light).")
    own, key = certificate(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    block = textwrap.dedent("".join(re.findall(r"(?s)```nginx\n(.*?)\s*```", PAGE.read_text())))
    for before, after in {
        "/etc/metricshuffle/certificate.pem": own,
        "/etc/metricshuffle/key.pem": key,
        "listen 443 ": f"listen 127.0.0.1:{port} ",
        "http://127.0.0.1:8460": shuffler.url,
        "http {": f"http {{ client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; "
        f"fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; "
        f"scgi_temp_path {folder}/scgi;",
    }.items():
        assert block.count(before) == 1
        block = block.replace(before, str(after))
    (folder / "nginx.conf").write_text(f"daemon off; pid {folder}/nginx.pid;\n{block}")
    words = [
        "nginx",
        "-c",
        str(folder / "nginx.conf"),
        "-p",
        str(folder),
        "-e",
        str(folder / "errors.txt"),
    ]
    with subprocess.Popen(
        words, env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    ) as proxy:
        try:
            end = time.monotonic() + 20
            while time.monotonic() < end and proxy.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield f"https://127.0.0.1:{port}", ssl.create_default_context(cafile=own)
        finally:
            proxy.terminate()


def test_the_proxy_of_the_documents(tmp_path: Path) -> None:
    """Through nginx: 1,500 honest requests at once, and 300 next to 5,000 idle ones."""
    with (
        running(tmp_path / "s", f"sqlite:///{tmp_path / 'shuffler.db'}", files=FEW) as shuffler,
        proxied(tmp_path, shuffler) as (url, trusting),
    ):
        collection = shuffler.opened(load_task(1))
        outside = collection.url.replace(shuffler.url, url)
        answers = ask_at_once(outside, [report_of(collection) for _ in range(1500)], trusting)
        assert Counter(line for line, _ in answers) == {b"HTTP/1.1 204 No Content\r\n": 1500}
        parts = urlsplit(url)
        with contextlib.ExitStack() as idle:
            for _ in range(5000):
                line = idle.enter_context(socket.socket())
                line.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    line.connect((parts.hostname, parts.port))
            reports = [report_of(collection) for _ in range(300)]
            crowds = [reports[start : start + 20] for start in range(0, 300, 20)]
            answers = [
                answer for crowd in crowds for answer in ask_at_once(outside, crowd, trusting)
            ]
        assert {line for line, _ in answers} == {b"HTTP/1.1 204 No Content\r\n"}
        assert max(seconds for _, seconds in answers) < SLOWEST_SECONDS
        assert shuffler.operator.status(collection.digest)["reports"] == 1800


WATCHED = """
import asyncio, sys, time
from pathlib import Path
from metricshuffle.collection.shuffler import server as serving
serving.WATCH_SECONDS, serving.MAX_SILENT_CHECKS = 0.2, 5
listener = serving.Listener.of("127.0.0.1:0")
def ready(url):
    print(url, flush=True)
    asyncio.get_running_loop().call_later(0.5, time.sleep, 60)  # the loop is stuck from then on
serving.ShufflerServer("sqlite:///shuffler.db", Path("keys"), listener).run(ready, lambda text: print(text, file=sys.stderr, flush=True))
"""  # noqa: E501


def test_a_shuffler_that_answers_nobody_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 75
    assert "answered no call" in done.stderr


STUCK = """
import sys, time
from pathlib import Path
from metricshuffle.collection.shuffler import ingest, server as serving
serving.EXIT_SECONDS = 1.0
ingest.Intake.close = lambda self: time.sleep(60)
listener = serving.Listener.of("127.0.0.1:0")
def tell(text):
    print(text, file=sys.stderr, flush=True)
serving.ShufflerServer("sqlite:///shuffler.db", Path("keys"), listener).run(lambda url: print(url, flush=True), tell)
"""  # noqa: E501


def test_a_stop_ends_whatever_is_open(tmp_path: Path) -> None:
    """Here what writes never ends."""
    with subprocess.Popen(
        [sys.executable, "-c", STUCK],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://")
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0
    assert time.monotonic() - begun < 10
    assert "the next start continues" in errors
