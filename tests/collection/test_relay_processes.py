"""Relays in front of real processes: nginx with a list of relays, edges, malformed capsules."""

from __future__ import annotations

import json
import random
import re
import ssl
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.collection.conftest import small_task
from tests.collection.issuers import issuer_terms, new_token
from tests.collection.many_hosts import many_hosts, write_identities
from tests.collection.postgres_pair import PostgresPair, new_database
from tests.collection.relay import forward_to, relaying
from tests.collection.running import report_of, run_aside, running
from tests.collection.test_gateway import malformed
from tests.collection.test_operating_processes import free_port, nginx
from tests.collection.test_operating_processes import pair as two_processes
from tests.collection.test_server_processes import certificate
from typer.testing import CliRunner

from metricshuffle.cli.command_group import app
from metricshuffle.collection.binary_http import BinaryResponse
from metricshuffle.collection.capsules import CAPSULE_TYPE, GATEWAY_PATH, KEY_PROBLEM
from metricshuffle.collection.client.client import Client
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.oblivious_calls import ObliviousCalls
from metricshuffle.collection.terms import Collection

pytestmark = pytest.mark.thorough
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "service" / "relay.md"


def test_nginx_as_a_relay_and_a_gateway_that_takes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both configurations as they are shipped, but for addresses and names of files."""
    [block] = re.findall(r"(?s)```nginx\n(.*?)```", PAGE.read_text())
    authority = write_identities(tmp_path / "identities", ["relay", "stranger"])
    for name in ("gateway", "relay"):
        (tmp_path / name).mkdir()
    own, key = certificate(tmp_path / "gateway")
    relay_own, relay_key = certificate(tmp_path / "relay")
    port, relay_port = free_port(), free_port()
    with two_processes(tmp_path) as processes:
        text = (ROOT / "deploy" / "nginx.conf").read_text()
        text = text.replace("        location / {", f"{block}        location / {{")
        changes = {
            "/etc/metricshuffle/certificate.pem": str(own),
            "/etc/metricshuffle/key.pem": str(key),
            "/etc/metricshuffle/relays.pem": str(authority),
            "listen 443 ": f"listen 127.0.0.1:{port} ",
            "127.0.0.1:8461": urlsplit(processes[0].url).netloc,
            "127.0.0.1:8462": urlsplit(processes[1].url).netloc,
        }
        relay_text = (ROOT / "deploy" / "nginx-relay.conf").read_text()
        relay_text = relay_text.partition("worker_processes")[2]
        identity = str(tmp_path / "identities" / "relay.pem")
        relay_changes = {
            "/etc/relay/certificate.pem": str(relay_own),
            "/etc/relay/key.pem": str(relay_key),
            "proxy_ssl_certificate /etc/relay/client.pem": f"proxy_ssl_certificate {identity}",
            "certificate_key /etc/relay/client.pem": f"certificate_key {identity}",
            "listen 443 ": f"listen 127.0.0.1:{relay_port} ",
            "https://shuffler.example/": f"https://127.0.0.1:{port}/",
            "proxy_ssl_name shuffler.example": "proxy_ssl_name shuffler",
            "/etc/ssl/certs/ca-certificates.crt": str(own),
        }
        with (
            nginx(tmp_path / "gateway", text, port, changes),
            nginx(
                tmp_path / "relay",
                "worker_processes" + relay_text,
                relay_port,
                relay_changes,
            ),
        ):
            collection = processes[0].opened(small_task(), oblivious=True)
            path = tmp_path / "collection.json"
            collection.save(path)
            relay = f"https://127.0.0.1:{relay_port}/reports"
            monkeypatch.setenv("SSL_CERT_FILE", str(relay_own))
            from metricshuffle.collection.client import http_client

            http_client._ssl_context.cache_clear()
            with Client(path, relay=relay, patience=20) as client:
                submitted = client.submit_many([1, 2, 3, 4, 5])
                assert submitted.complete, str(submitted)
            http_client._ssl_context.cache_clear()
            assert processes[0].operator.status(collection.digest)["reports"] == 5

            calls = ObliviousCalls(collection)
            plain = calls.reporting(report_of(collection)).encoded(calls.request_size)
            capsule, _ = calls.configuration.sealed(plain)
            told = {"content-type": CAPSULE_TYPE}
            trusting = ssl.create_default_context(cafile=own)
            gateway = f"https://127.0.0.1:{port}{GATEWAY_PATH}"
            with httpx.Client(verify=trusting) as stranger:
                assert stranger.post(gateway, content=capsule, headers=told).status_code == 403
                direct = f"https://127.0.0.1:{port}{urlsplit(collection.url).path}"
                assert stranger.get(direct).content == collection.served
            trusting.load_cert_chain(identity)
            with httpx.Client(verify=trusting) as known:
                answer = known.post(gateway, content=capsule, headers=told)
                assert (answer.status_code, len(answer.content)) == (200, 544)
            with httpx.Client(verify=ssl.create_default_context(cafile=relay_own)) as page:
                preflight = page.options(relay)
                assert preflight.status_code == 204
                assert preflight.headers["access-control-allow-origin"] == "*"
                assert page.get(relay).status_code == 405
                plain_type = page.post(
                    relay, content=capsule, headers={"content-type": "text/plain"}
                )
                assert plain_type.status_code == 400  # what pages may send without a preflight
        for folder in (tmp_path / "gateway", tmp_path / "relay"):
            assert "127.0.0.1" not in (folder / "errors.txt").read_text()


def test_edges_open_capsules_and_answer_malformed_ones_alike(
    pair: PostgresPair, tmp_path: Path
) -> None:
    new_database(pair)
    with many_hosts(tmp_path, pair.url, 2, lease=20) as hosts:
        collections = [
            hosts.hub.opened(small_task(), oblivious=True, round=number) for number in (1, 2)
        ]
        path = tmp_path / "collection.json"
        collections[0].save(path)
        forwards = [forward_to(edge.url) for edge in hosts.edges]
        turns = iter(range(10**6))
        with (
            relaying(lambda capsule: forwards[next(turns) % 2](capsule)) as relay,
            Client(path, relay=relay.url, patience=60) as client,
        ):
            end = time.monotonic() + 60
            while not client.submit_many([1, 2, 3, 4, 5, 1]).complete:
                assert time.monotonic() < end
        assert pair.ask("SELECT sum(reports)::int FROM part") == [(6,)]
        with_tokens = hosts.hub.opened(small_task(), oblivious=True, round=3, **issuer_terms())
        calls = ObliviousCalls(with_tokens)
        first, second = (new_token(with_tokens) for _ in range(2))
        report = report_of(with_tokens, first)

        def sent(content: bytes, edge: int) -> int:
            """Status inside the answer; an edge may have no lease of the new collection yet."""
            end = time.monotonic() + 60
            while time.monotonic() < end:
                plain = calls.reporting(content).encoded(calls.request_size)
                capsule, key = calls.configuration.sealed(plain)
                status, _, body = forwards[edge](capsule)
                if status == 200:
                    assert len(body) == 544
                    return BinaryResponse.decoded(key.opened(body)).status
                time.sleep(0.1)
            raise AssertionError(hosts.edges[edge].log)

        assert [sent(report, 0), sent(report, 1), sent(report_of(with_tokens, second), 1)] == [
            204
        ] * 3
        assert [sent(report_of(with_tokens, first), edge) for edge in (0, 1)] == [409, 409]
        stranger = first[:-1] + bytes([first[-1] ^ 1])
        assert [sent(report_of(with_tokens, stranger), edge) for edge in (0, 1)] == [403, 403]
        assert pair.ask("SELECT sum(reports)::int FROM part") == [(8,)]
        chance = random.Random(7)

        async def posted() -> Counter[tuple[int, bytes]]:
            answers: Counter[tuple[int, bytes]] = Counter()
            async with httpx.AsyncClient(timeout=30) as strange:
                for number in range(200):
                    capsule, kind = malformed(chance, collections)
                    answer = await strange.post(
                        hosts.edges[number % 2].url + GATEWAY_PATH,
                        content=capsule,
                        headers={"content-type": kind},
                    )
                    answers[answer.status_code, answer.content] += 1
            return answers

        [(status, body)] = run_aside(posted())
        assert status == 400
        assert KEY_PROBLEM.encode() in body
        assert "bug" not in "".join(edge.log for edge in hosts.edges)


def test_the_operator_opens_a_collection_with_a_gateway(tmp_path: Path) -> None:
    """By command; a second part has a key of its own."""
    task = tmp_path / "task.json"
    task.write_text(small_task().to_json())
    with running(tmp_path / "shuffler", f"sqlite:///{tmp_path}/x.db") as shuffler:
        words = ["collection", "open", str(task), "--server", shuffler.url, "--closes", "1h"]
        words += ["--analyst", AnalystKey.new().public, "--colluders", "0", "--split", "2"]
        words += ["--keys", str(shuffler.keys), "--output", str(tmp_path / "collection.json")]
        shown = CliRunner().invoke(app, [*words, "--oblivious", "--json"])
        assert shown.exit_code == 0, shown.output
        parts = json.loads(shown.stdout)["parts"]
        files = [Collection.load(part["output"]) for part in parts]
        gateways = [part["gateway"] for part in parts]
        assert gateways == [collection.terms.gateway for collection in files]
        assert len(set(gateways)) == 2
        paths = [part["output"] for part in parts]
        with (
            relaying(forward_to(shuffler.url)) as relay,
            Client(paths, relay=relay.url, outbox=tmp_path / "outbox") as client,
        ):
            assert client.submit_many([1, 2, 3, 4]).complete
        calls = ObliviousCalls(files[0])
        capsule, key = calls.configuration.sealed(calls.fetching.encoded(calls.request_size))
        told = {"content-type": CAPSULE_TYPE}
        gateway = shuffler.url + GATEWAY_PATH
        chunks = iter([capsule[:500], capsule[500:]])  # as a relay that streams sends it
        answer = httpx.post(gateway, content=chunks, headers=told)
        assert files[0].served in key.opened(answer.content)
        endless = httpx.post(gateway, content=iter([bytes(2**16)] * 64), headers=told)
        assert endless.status_code == 400
        shown = CliRunner().invoke(app, [*words, "--round", "2"])
        assert "gateway" not in shown.output
