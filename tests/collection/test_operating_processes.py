"""Shuffler processes as an operator runs them: drain, restarts, certificates, hostile requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.collection.conftest import missing
from tests.collection.running import (
    Running,
    load_task,
    post_report,
    posted_async,
    report_of,
    request_of,
    run_aside,
    running,
)
from tests.collection.test_server_processes import certificate

from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.terms import Collection

pytestmark = pytest.mark.thorough
DEPLOY = Path(__file__).parents[2] / "deploy"
MALFORMED = 2_000
MOST_WAITING = 64
"""Calls that wait for an answer at once; with more of them this process is late itself."""


def ready(url: str) -> int:
    return httpx.get(f"{url}/readyz", timeout=30).status_code


def events(shuffler: Running) -> list[dict[str, str]]:
    """Lines of the JSON log."""
    lines = (shuffler.folder / "stderr.txt").read_text().splitlines()
    return [json.loads(line) for line in lines]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# Drain


def test_a_drain_takes_reports_answers_503_to_probes_and_exits_0(tmp_path: Path) -> None:
    options = ("--drain", "2s", "--log", "json")
    with running(tmp_path / "s", f"sqlite:///{tmp_path}/x.db", *options) as shuffler:
        collection = shuffler.opened(load_task(1))
        assert ready(shuffler.url) == 200
        begun = time.monotonic()
        shuffler.process.send_signal(signal.SIGTERM)
        while ready(shuffler.url) == 200:
            assert time.monotonic() < begun + 1
        assert httpx.get(f"{shuffler.url}/livez").status_code == 200
        with httpx.Client(timeout=30) as client:
            report = report_of(collection)
            answer = client.post(f"{collection.url}/reports", content=report)
        assert (answer.status_code, answer.headers["connection"]) == (204, "close")
        assert shuffler.ended() == 0
        assert 1.9 < time.monotonic() - begun < 9
        drained = [line for line in events(shuffler) if line["event"] == "drain"]
        assert [line["phase"] for line in drained] == ["begun", "over"]
        assert all(re.fullmatch(r"[0-9-]{10}T[0-9]{2}:[0-9]{2}Z", line["time"]) for line in drained)
        shuffler.start()
        assert shuffler.operator.status(collection.digest)["reports"] == 1


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_long_drain(tmp_path: Path, second: int) -> None:
    with running(tmp_path / "s", f"sqlite:///{tmp_path}/x.db", "--drain", "1h") as shuffler:
        shuffler.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert shuffler.process.poll() is None
        begun = time.monotonic()
        assert shuffler.end(second) == 0
        assert time.monotonic() - begun < 9
        assert "Traceback" not in shuffler.log


def test_a_kill_in_the_drain_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """SIGTERM under load, and SIGKILL half a second later."""
    store_url = f"sqlite:///{tmp_path}/x.db"
    with running(tmp_path / "s", store_url, "--drain", "30s") as shuffler:
        collection = shuffler.opened(load_task(1))
        reports = [report_of(collection) for _ in range(4000)]

        async def load() -> list[int]:
            async def end() -> None:
                await asyncio.sleep(0.3)
                shuffler.process.send_signal(signal.SIGTERM)
                await asyncio.sleep(0.3)
                shuffler.process.send_signal(signal.SIGKILL)

            ending = asyncio.ensure_future(end())
            sent = await posted_async(collection.url, reports, 32)
            await ending
            return sent.statuses

        statuses = run_aside(load())
        assert shuffler.ended() == -signal.SIGKILL
        assert statuses.count(204) > 0
        assert statuses.count(0) > 0
        shuffler.start()
        acknowledged = [
            report for report, status in zip(reports, statuses, strict=True) if status == 204
        ]
        before = shuffler.operator.status(collection.digest)["reports"]
        assert before >= len(acknowledged)
        assert set(post_report(collection.url, acknowledged).statuses) == {204}
        assert shuffler.operator.status(collection.digest)["reports"] == before


# Rolling restarts


class SecondProcess(Running):
    """Another process of the same shuffler, with the same keys."""

    @property
    def keys(self) -> Path:
        return self.folder.parent / "first" / "keys"


@dataclass
class Balancer:
    """Load balancer that asks /readyz of two processes ten times a second."""

    urls: list[str]
    is_ready: list[bool] = field(default_factory=lambda: [True, True])
    sent: int = 0
    lost: list[str] = field(default_factory=list)
    """What happened to calls without an answer."""

    async def probe(self, index: int) -> None:
        async with httpx.AsyncClient(timeout=2) as client:
            while True:
                try:
                    answer = await client.get(f"{self.urls[index]}/readyz")
                    self.is_ready[index] = answer.status_code == 200
                except httpx.HTTPError:
                    self.is_ready[index] = False
                await asyncio.sleep(0.1)

    async def post(self, path: str, report: bytes) -> int:
        self.sent += 1
        choice = self.sent % 2
        url = self.urls[choice if self.is_ready[choice] else 1 - choice]
        parts = urlsplit(url)
        try:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError as error:
            self.lost.append(f"not connected: {error!r}, ready: {self.is_ready}")
            return 0
        begun = time.monotonic()
        try:
            async with asyncio.timeout(30):
                writer.write(request_of(f"{url}{path}", report))
                return int((await reader.readline())[9:12])
        except (OSError, TimeoutError, ValueError) as error:
            seconds = round(time.monotonic() - begun, 1)
            self.lost.append(f"not answered for {seconds}: {error!r}, ready: {self.is_ready}")
            return 0
        finally:
            writer.close()


@contextlib.contextmanager
def pair(folder: Path, *options: str) -> Iterator[list[Running]]:
    """Two processes of a shuffler on one database."""
    store_url = f"sqlite:///{folder}/x.db"
    (folder / "second").mkdir()
    with running(folder / "first", store_url, *options) as first:
        second = SecondProcess(folder / "second", store_url, options)
        try:
            second.start()
            yield [first, second]
        finally:
            if second.process.poll() is None:
                second.end(signal.SIGKILL)


async def restart_in_turn(processes: Sequence[Running], times: int) -> None:
    for turn in range(times):
        process = processes[turn % 2]
        assert await asyncio.to_thread(process.end) == 0
        await asyncio.to_thread(process.start)
        await asyncio.sleep(0.5)


async def statuses_during_restarts(
    processes: Sequence[Running],
    restarts: int,
    rate: float,
    new_report: Callable[[], bytes],
    post: Callable[[bytes], asyncio.Future[int]],
) -> Counter[int]:
    """Send reports at a rate while both processes are restarted in turn."""
    restarting = asyncio.ensure_future(restart_in_turn(processes, restarts))
    answers: list[asyncio.Future[int]] = []
    waiting: set[asyncio.Future[int]] = set()
    loop = asyncio.get_running_loop()
    due = loop.time()
    while not restarting.done():
        due = max(due + 1 / rate, loop.time() - 0.1)  # a busy machine does not catch up in a burst
        await asyncio.sleep(max(0.0, due - loop.time()))
        if len(waiting) >= MOST_WAITING:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        answer = post(new_report())
        answers.append(answer)
        waiting.add(answer)
        answer.add_done_callback(waiting.discard)
    await restarting
    return Counter(await asyncio.gather(*answers))


@pytest.mark.parametrize(
    ("restarts", "rate"), [(3, 200.0), pytest.param(20, 500.0, marks=pytest.mark.slow)]
)
def test_rolling_restarts_lose_no_request(tmp_path: Path, restarts: int, rate: float) -> None:
    with pair(tmp_path, "--drain", "4s") as processes:
        collection = processes[0].opened(load_task(1))
        balancer = Balancer([process.url for process in processes])
        path = urlsplit(collection.url).path

        async def load() -> Counter[int]:
            probes = [asyncio.ensure_future(balancer.probe(index)) for index in range(2)]
            await asyncio.sleep(0.5)
            try:
                return await statuses_during_restarts(
                    processes,
                    restarts,
                    rate,
                    lambda: report_of(collection),
                    lambda report: asyncio.ensure_future(balancer.post(path, report)),
                )
            finally:
                for probe in probes:
                    probe.cancel()

        statuses = run_aside(load())
        assert set(statuses) == {204}, Counter(balancer.lost)
        assert statuses[204] > 100 * restarts
        stored = processes[0].operator.status(collection.digest)["reports"]
        assert stored == statuses[204]
        print(f"{restarts} restarts: {statuses[204]:,} calls, none lost")


# The proxy of deploy/


@contextlib.contextmanager
def proxied(
    folder: Path, processes: Sequence[Running], hub: Running | None = None
) -> Iterator[tuple[str, ssl.SSLContext]]:
    """nginx with deploy/nginx.conf in front of two processes, or as for two edges and a hub."""
    own, key = certificate(folder)
    port = free_port()
    text = (DEPLOY / ("nginx.conf" if hub is None else "nginx-edges.conf")).read_text()
    hubs = {} if hub is None else {"127.0.0.1:8460": urlsplit(hub.url).netloc}
    changes = {
        "/etc/metricshuffle/certificate.pem": str(own),
        "/etc/metricshuffle/key.pem": str(key),
        "listen 443 ": f"listen 127.0.0.1:{port} ",
        "127.0.0.1:8461": urlsplit(processes[0].url).netloc,
        "127.0.0.1:8462": urlsplit(processes[1].url).netloc,
        **hubs,
    }
    with nginx(folder, text, port, changes):
        yield f"https://127.0.0.1:{port}", ssl.create_default_context(cafile=own)


@contextlib.contextmanager
def nginx(folder: Path, text: str, port: int, changes: dict[str, str]) -> Iterator[None]:
    """nginx with a configuration, in which some words are replaced by those of this machine."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    if shutil.which("nginx", path=path) is None:
        missing("this needs nginx (on Debian: apt-get install nginx-light).")
    temporary = " ".join(
        f"{name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    for before, after in {**changes, "http {": f"http {{ {temporary}"}.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    file = folder / "nginx.conf"
    file.write_text(f"daemon off; pid {folder}/nginx.pid;\n{text}")
    words = ["nginx", "-c", str(file), "-p", str(folder), "-e", str(folder / "errors.txt")]
    with subprocess.Popen(words, env={**os.environ, "PATH": path}) as proxy:
        try:
            end = time.monotonic() + 20
            while time.monotonic() < end and proxy.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield
        finally:
            proxy.terminate()


def test_rolling_restarts_behind_the_proxy_lose_no_request(tmp_path: Path) -> None:
    """A proxy without probes passes a stopped process over; operators' calls stay inside."""
    with (
        pair(tmp_path, "--drain", "1s") as processes,
        proxied(tmp_path, processes) as (url, trusting),
    ):
        collection = processes[0].opened(load_task(1))
        outside = f"{url}{urlsplit(collection.url).path}/reports"

        async def load() -> Counter[int]:
            limits = httpx.Limits(max_connections=50)
            async with httpx.AsyncClient(verify=trusting, timeout=30, limits=limits) as client:

                async def post(report: bytes) -> int:
                    # nginx closes idle connections after five seconds, as clients know.
                    headers = {"connection": "close"}
                    answer = await client.post(outside, content=report, headers=headers)
                    return answer.status_code

                return await statuses_during_restarts(
                    processes,
                    3,
                    100.0,
                    lambda: report_of(collection),
                    lambda report: asyncio.ensure_future(post(report)),
                )

        statuses = run_aside(load())
        assert set(statuses) == {204}, statuses
        stored = processes[0].operator.status(collection.digest)["reports"]
        assert stored == statuses[204]
        with httpx.Client(verify=trusting) as client:
            assert client.get(f"{url}/v1/control/collections").status_code == 404
            assert client.get(f"{url}/readyz").status_code == 200
            assert client.get(f"{url}/v1/collections/{collection.digest}").content == (
                collection.served
            )
        assert not list((tmp_path / "client_body").rglob("*/*"))


# Certificates


def served_certificate(url: str) -> bytes:
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as plain,
        context.wrap_socket(plain) as line,
    ):
        return line.getpeercert(binary_form=True) or b""


def test_a_certificate_is_reloaded_and_a_bad_one_is_not(tmp_path: Path) -> None:
    own, key = certificate(tmp_path)
    options = ("--certificate", str(own), "--key", str(key), "--log", "json")
    with running(tmp_path / "s", f"sqlite:///{tmp_path}/x.db", *options) as shuffler:

        def reloaded(kind: str) -> bytes:
            """Send SIGHUP, wait for another line of the log, and return what is served."""
            before = sum(line["event"] == kind for line in events(shuffler))
            shuffler.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + 20
            while sum(line["event"] == kind for line in events(shuffler)) == before:
                assert time.monotonic() < end
                time.sleep(0.02)
            return served_certificate(shuffler.url)

        first = served_certificate(shuffler.url)
        certificate(tmp_path)
        second = reloaded("certificate")
        assert second != first
        own.write_text("no certificate")
        assert reloaded("trouble") == second
        certificate(tmp_path)
        key.chmod(0o644)
        assert reloaded("trouble") == second
        key.chmod(0o600)
        assert reloaded("certificate") not in (first, second)
        assert shuffler.end() == 0


# Hostile requests


def malformed(chance: random.Random) -> bytes:
    """Request with something wrong, most of them for the paths of probes and metrics."""
    method = chance.choice(["POST", "PUT", "get", "", "G\0T", "A" * 9000, "DELETE", "TRACE"])
    path = chance.choice(
        ["/metrics", "/readyz", "/livez", "/healthz", "/metrics/../readyz", "//livez", "/\xff"]
    )
    version = chance.choice(["HTTP/1.1", "HTTP/9.9", "", "HTTP/1.1\r\nX", "\x16\x03\x01"])
    head = f"{method} {path} {version}\r\n"
    for _ in range(chance.randrange(4)):
        name = chance.choice(["Host", "Content-Length", "Transfer-Encoding", "X" * 3000, "", "a b"])
        value = chance.choice(["-1", "9" * 30, "chunked", "x" * 5000, "\0", ""])
        head += f"{name}: {value}\r\n"
    end = chance.choice(["\r\n", "", "\r\n\r\n", "\n"])
    request = (head + end).encode("latin-1") + chance.randbytes(chance.randrange(64))
    return request if chance.random() < 0.8 else chance.randbytes(chance.randrange(1, 20_000))


async def answers_to(port: int, requests: Sequence[bytes]) -> Counter[bytes]:
    """First nine to twelve bytes of each answer; empty if the connection was closed."""
    at_once = asyncio.Semaphore(20)

    async def ask(request: bytes) -> bytes:
        async with at_once:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                async with asyncio.timeout(30):
                    writer.write(request)
                    writer.write_eof()
                    return (await reader.read(12))[9:12]
            except OSError:
                return b""
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    return Counter(await asyncio.gather(*map(ask, requests)))


def test_malformed_requests_to_probes_and_metrics(tmp_path: Path) -> None:
    """None is accepted, none fails, and both servers answer afterwards."""
    chance = random.Random(20_260_717)
    requests = [malformed(chance) for _ in range(MALFORMED)]
    port = free_port()
    options = ("--metrics", f"127.0.0.1:{port}")
    with running(tmp_path / "s", f"sqlite:///{tmp_path}/x.db", *options) as shuffler:
        own = urlsplit(shuffler.url).port or 0
        for target in (port, own):
            answers = run_aside(answers_to(target, requests))
            bad = [status for status in answers if status[:1] in (b"2", b"5")]
            assert bad == [], answers
        page = httpx.get(f"http://127.0.0.1:{port}/metrics")
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "metricshuffle_ready 1\n" in page.text
        assert ready(shuffler.url) == 200
        assert shuffler.said == []
        assert shuffler.end() == 0


def test_idle_connections_to_the_metrics_end_and_leave_room(tmp_path: Path) -> None:
    port = free_port()
    options = ("--metrics", f"127.0.0.1:{port}")
    with (
        running(tmp_path / "s", f"sqlite:///{tmp_path}/x.db", *options) as shuffler,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        end = time.monotonic() + 20
        statuses = set()
        while 200 not in statuses:
            assert time.monotonic() < end
            with contextlib.suppress(httpx.HTTPError):
                statuses.add(httpx.get(f"http://127.0.0.1:{port}/metrics").status_code)
            time.sleep(0.2)
        assert statuses <= {200, 503}
        assert ready(shuffler.url) == 200


# Supervisor and files of deploy/


def test_the_supervisor_is_notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with running(tmp_path / "s", f"sqlite:///{tmp_path}/x.db", "--drain", "1s") as shuffler:
            assert shuffler.end() == 0
        listening.setblocking(False)
        states = []
        with contextlib.suppress(BlockingIOError):
            while True:
                states.append(listening.recv(100).decode())
    assert states.index("READY=1") < states.index("STOPPING=1")
    assert states.count("READY=1") == 1
    assert "WATCHDOG=1" in states


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("this needs systemd-analyze (on Debian: apt-get install systemd).")
    text = (DEPLOY / "metricshuffle@.service").read_text()
    assert text.count("/opt/metricshuffle/bin/metricshuffle") == 1
    unit = tmp_path / "metricshuffle@.service"
    unit.write_text(text.replace("/opt/metricshuffle/bin/metricshuffle", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)],  # noqa: S607 - where the system has it
        capture_output=True,
        text=True,
        check=False,
    )
    about_it = [line for line in done.stderr.splitlines() if "metricshuffle" in line]
    assert (done.returncode, about_it) == (0, [])


def test_the_restore_drill_of_the_runbook(tmp_path: Path) -> None:
    """The machine is lost: database and owner.id are restored, keys are not."""
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    analyst = AnalystKey.new()
    with running(tmp_path / "old", f"sqlite:///{first}") as old:
        released = old.opened(load_task(1), lasts=3, analyst=analyst)
        reports = [report_of(released) for _ in range(5)]
        assert set(post_report(released.url, reports).statuses) == {204}
        opened = old.opened(load_task(2))
        assert set(post_report(opened.url, [report_of(opened)]).statuses) == {204}
        end = time.monotonic() + 60
        while old.operator.status(released.digest)["state"] != "released":
            assert time.monotonic() < end
            time.sleep(0.1)
        token = {"Authorization": f"Bearer {analyst.token}"}
        release = f"/v1/collections/{released.digest}/release"
        output = httpx.get(f"{old.url}{release}", headers=token).content
        assert old.end() == 0
    shutil.copy(first, second)
    folder = tmp_path / "new"
    (folder / "keys").mkdir(parents=True, mode=0o700)
    shutil.copy(tmp_path / "old" / "keys" / "owner.id", folder / "keys")
    new = Running(folder, f"sqlite:///{second}")
    with pytest.raises(AssertionError, match=f"--abandon {opened.digest}"):
        new.start()
    new.process.wait(60)
    assert new.process.stdout is not None
    new.process.stdout.close()
    with running(folder, f"sqlite:///{second}", "--abandon", opened.digest) as new:
        end = time.monotonic() + 60
        while new.operator.status(opened.digest)["state"] != "aborted":
            assert time.monotonic() < end
            time.sleep(0.1)
        assert httpx.get(f"{new.url}{release}", headers=token).content == output
        late = post_report(f"{new.url}{urlsplit(opened.url).path}", [report_of(opened)])
        assert late.statuses == [410]


def test_stored_reports_of_a_pair_are_in_one_database(tmp_path: Path) -> None:
    with pair(tmp_path) as processes:
        collection: Collection = processes[0].opened(load_task(1))
        path = urlsplit(collection.url).path
        for process in processes:
            report = report_of(collection)
            assert post_report(f"{process.url}{path}", [report, report]).statuses == [204, 204]
    row = connect_store(f"sqlite:///{tmp_path}/x.db").row(collection.digest)
    assert row is not None
    assert row.reports == 2
