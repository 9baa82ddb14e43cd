"""Malformed requests are neither accepted nor make the shuffler fail."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.collection.running import (
    load_task,
    post_report,
    report_of,
    request_of,
    run_aside,
    running,
)

from metricshuffle.collection.terms import Collection

SEED = 20_260_131
METHODS = (
    "GET",
    "PUT",
    "DELETE",
    "PATCH",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "post",
    "P\0ST",
    "",
    "A" * 5000,
)
LENGTHS = (
    "",
    "-1",
    "+618",
    "0x26a",
    "618, 618",
    "6 1 8",
    "99999999999999999999999",
    "1e3",
    "618.0",
    "\u0667",
    "NaN",
    "617",
    "619",
    "0",
)
PATHS = (
    "/v1/collections/{digest}/reports/",
    "/v1/collections/{digest}/reports%00",
    "/v1/collections/{digest}/../{digest}/reports",
    "//v1/collections/{digest}/reports",
    "/v1/collections/{upper}/reports",
    "/v1/collections/{digest}0/reports",
    "/v1/collections/%2e%2e/reports",
    "/v1/collections/{zeros}/reports",
    "/v1/control/collections",
    "/v1/control/keys",
    "/v1/control/collections/{digest}/abort",
    "/v1/control/collections/{digest}/purge",
    "/v1/collections/{digest}/release",
    "/v1/collections/{digest}",
    "/v1/collections/{digest}/state",
    "/join/../../etc/passwd",
    "*",
    "http://[",
    "/\xff\xfe",
    "/" + "a" * 70_000,
)
HEADERS = (
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked, identity",
    "Content-Length: 5",
    "Expect: 100-continue",
    "Upgrade: websocket",
    "Connection: Upgrade, HTTP2-Settings",
    "Authorization: Bearer",
    "Authorization: Bearer \xff\xfe",
    "Authorization: Basic eDp5",
    ": empty",
    "no colon",
    "X: " + "y" * 70_000,
    " folded: yes",
    "Origin: null",
    "Host: other",
    "Content-Encoding: gzip",
    "X\0Y: z",
)


def malformed(chance: random.Random, collection: Collection) -> bytes:
    """Request with wrong bytes, line, headers or body; the body is never a report."""
    size = collection.sealing.report_size
    body = chance.randbytes(size)
    good = request_of(collection.url, body)
    kind = chance.randrange(7)
    if kind == 0:
        return chance.randbytes(chance.randrange(1, 400))
    if kind == 1:  # bytes of a good one exchanged
        broken = bytearray(good)
        for _ in range(chance.randrange(1, 6)):
            broken[chance.randrange(len(broken) - size)] = chance.randrange(256)
        return bytes(broken)
    if kind == 2:  # cut short
        return good[: chance.randrange(1, len(good))]
    head, _, _ = good.partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    if kind == 3:
        path = chance.choice(PATHS).format(
            digest=collection.digest, upper=collection.digest.upper(), zeros="0" * 64
        )
        line = f"POST {path} HTTP/1.1"
    elif kind == 4:
        line = (
            line.replace("POST", chance.choice(METHODS), 1)
            if chance.random() < 0.7
            else line.replace("1.1", chance.choice("0239"), 1)
        )
    elif kind == 5:
        headers[-1] = f"Content-Length: {chance.choice(LENGTHS)}"
    else:
        headers[chance.randrange(2) :] = [
            *headers[-1:] * chance.randrange(3),
            *chance.choices(HEADERS, k=chance.randrange(1, 4)),
        ]
    return "\r\n".join([line, *headers, "", ""]).encode("latin-1", "replace") + body


async def answered(url: str, requests: list[bytes]) -> Counter[str]:
    """How often which status came; "" for none."""
    parts = urlsplit(url)
    waiting = list(requests)
    statuses = Counter[str]()

    async def worker() -> None:
        while waiting:
            request = waiting.pop()
            told = b""
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                async with asyncio.timeout(20):
                    writer.write(request)
                    await writer.drain()
                    writer.write_eof()
                    while more := await reader.read(4096):
                        told += more
            except TimeoutError:
                pytest.fail(f"no answer and no end: {request[:300]!r}")
            except OSError:
                pass  # it was cut
            finally:
                writer.close()
            for answer in told.split(b"HTTP/1.1 ")[1:] or [
                b""
            ]:  # (rubbish behind a request is another one)
                statuses[answer[:3].decode()] += 1
                assert answer[:1] in (b"", b"4") or answer.startswith(b"100"), (request[:300], told)

    await asyncio.gather(*(worker() for _ in range(16)))
    return statuses


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(2_000, marks=pytest.mark.thorough),
        pytest.param(100_000, marks=pytest.mark.slow),
    ],
    ids=["2000", "100000"],
)
def test_nothing_malformed_is_accepted_or_makes_it_fail(tmp_path: Path, count: int) -> None:
    """No 2xx, no 5xx, no hanging connection; afterwards a good report is stored."""
    with running(
        tmp_path / "s", f"sqlite:///{tmp_path}/x.db", "--origin", "https://survey.example"
    ) as shuffler:
        collection = shuffler.opened(load_task(3))
        chance = random.Random(SEED)
        statuses: Counter[str] = Counter()
        for _ in range(count // 1000):
            statuses += run_aside(
                answered(shuffler.url, [malformed(chance, collection) for _ in range(1000)])
            )
        assert {"400", "404", "405", "411", "413", "422"} <= set(statuses)
        assert sum(statuses.values()) >= count
        told = shuffler.operator.status(collection.digest)
        assert (told["state"], told["reports"], told["trouble"]) == ("open", 0, "")
        assert shuffler.operator.statuses() == [told]
        assert post_report(
            collection.url, [report_of(collection), secrets.token_bytes(len(report_of(collection)))]
        ).statuses == [204, 422]
        assert shuffler.end() == 0
        assert shuffler.said == [f"metricshuffle: Collection {collection.digest[:16]} was opened."]
