"""Rounds in Chromium through a relay: a page of another site calls it, and an issuer, alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.collection.conftest import small_task
from tests.collection.javascript import chromium, javascript, run
from tests.collection.postgres_pair import free_port
from tests.collection.relay import forward_to, relaying
from tests.collection.running import Running, running
from tests.collection.test_join_in_browser import scripted, visited

from metricshuffle.collection.issuer.issuer_server import serving_issuer
from metricshuffle.collection.issuer.token_issuer import TokenIssuer
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.terms import Collection

pytestmark = pytest.mark.thorough
__all__ = ["chromium", "javascript"]

ENTRY = """
import { Client } from '../src/index.ts';
import { relayed } from '../src/oblivious.ts';
import { TokenClient } from '../src/tokens.ts';
globalThis.takePart = async (address, digest, gateway, relay, values) => {
  const ask = relayed(relay, gateway);
  const sentences = [];
  for (const [user, value] of values.entries()) {
    const client = await Client.join(address, digest, { ask, user: String(user) });
    const { sentence } = await client.submit(value).catch((error) => ({ sentence: error.message }));
    sentences.push(sentence);
  }
  return sentences;
};
globalThis.withTokens = async (address, digest, gateway, relay, people) => {
  const ask = relayed(relay, gateway);
  const join = (user) => TokenClient.join(address, digest, { ask, user: String(user) });
  for (const [user, { ticket }] of people.entries()) await (await join(user)).token(ticket);
  const sentences = [];
  for (const [user, { value }] of people.entries()) {
    const client = await join(user);
    const { sentence } = await client.submit(value).catch((error) => ({ sentence: error.message }));
    sentences.push(sentence);
  }
  return sentences;
};
"""
PEOPLE = [0, 1, 3, 5]
SECONDS = 10.0


def bundle_of(javascript: Path, folder: Path) -> str:
    entry = javascript / "test" / "oblivious_in_browser.ts"
    entry.write_text(ENTRY)
    bundle = folder / "oblivious.js"
    words = ["npx", "esbuild", str(entry), "--bundle", "--format=iife", f"--outfile={bundle}"]
    run(*words, "--log-level=error", cwd=javascript)
    return bundle.read_text()


def test_a_round_through_a_relay(chromium: Any, javascript: Path, tmp_path: Path) -> None:
    """Report, send again after a failure, come a second time; then the output has all people."""
    analyst = AnalystKey.new()
    code = bundle_of(javascript, tmp_path)
    with (
        running(tmp_path / "shuffler", f"sqlite:///{tmp_path}/x.db") as shuffler,
        relaying(forward_to(shuffler.url)) as relay,
        scripted() as site,
    ):
        site.pages["/"] = "<!doctype html><title>survey</title>"
        collection = shuffler.opened(small_task(), lasts=SECONDS, analyst=analyst, oblivious=True)
        relay.answers = [200]  # by the relay itself: no such answer is believed
        with visited(chromium, f"{site.url}/") as page:
            page.add_script_tag(content=code)
            words = [shuffler.url, collection.digest, collection.terms.gateway, relay.url]
            call = "([values, ...words]) => takePart(...words, values)"
            failed = page.evaluate(
                "words => takePart(...words, [1]).catch(({ name }) => name)", words
            )
            assert failed == "RelayError"
            relay.answers = []
            sentences = page.evaluate(call, [PEOPLE, *words])
            assert sentences == ["The report is stored."] * len(PEOPLE)
            [again] = page.evaluate(call, [PEOPLE[:1], *words])
            assert "Nothing was sent now" in again
            called = {line for line in page.asked if "favicon" not in line}
        assert called - {f"OPTIONS {relay.url}"} == {f"GET {site.url}/", f"POST {relay.url}"}
        assert {length % 1024 for length, _, _ in relay.seen} == {55}
        answers = {length for _, status, length in relay.seen if status == 200 and length}
        assert min(answers) == 544
        check_release(shuffler, collection, analyst, len(PEOPLE))


def check_release(
    shuffler: Running, collection: Collection, analyst: AnalystKey, people: int
) -> None:
    """Wait until the output is released; it has the messages of all people, and they open."""
    headers = {"Authorization": f"Bearer {analyst.token}"}
    release = f"{shuffler.url}/v1/collections/{collection.digest}/release"
    end = time.monotonic() + 60
    while (answer := httpx.get(release, headers=headers)).status_code != 200:
        assert answer.status_code in (425, 503), answer.text
        assert time.monotonic() < end
        time.sleep(0.2)
    assert answer.headers["x-people"] == str(people)
    size = collection.sealing.box_size()
    boxes = [answer.content[place : place + size] for place in range(0, len(answer.content), size)]
    payloads = [collection.sealing.open_box(box, analyst.private) for box in boxes]
    assert len(payloads) == people * collection.terms.messages


def test_a_round_with_tokens_through_a_relay(
    chromium: Any, javascript: Path, tmp_path: Path
) -> None:
    """Tokens are asked for directly, once each; the relay sees capsules, the shuffler no page."""
    analyst = AnalystKey.new()
    code = bundle_of(javascript, tmp_path)
    port = free_port()
    url = f"http://127.0.0.1:{port}/token-request"
    tickets = TokenIssuer.new(tmp_path / "issuer", url, len(PEOPLE))
    issuer = TokenIssuer.load(tmp_path / "issuer")
    people = [
        {"ticket": ticket, "value": value} for ticket, value in zip(tickets, PEOPLE, strict=True)
    ]
    with (
        running(tmp_path / "shuffler", f"sqlite:///{tmp_path}/x.db") as shuffler,
        serving_issuer(issuer, ("127.0.0.1", port)),
        relaying(forward_to(shuffler.url)) as relay,
        scripted() as site,
    ):
        site.pages["/"] = "<!doctype html><title>survey</title>"
        collection = shuffler.opened(
            small_task(),
            lasts=SECONDS,
            analyst=analyst,
            oblivious=True,
            admission="tokens",
            issuer=issuer.public.model_dump(),
        )
        with visited(chromium, f"{site.url}/") as page:
            page.add_script_tag(content=code)
            words = [shuffler.url, collection.digest, collection.terms.gateway, relay.url]
            call = "([people, ...words]) => withTokens(...words, people)"
            sentences = page.evaluate(call, [people, *words])
            assert sentences == ["The report is stored."] * len(people)
            called = [line for line in page.asked if "favicon" not in line]
        assert called.count(f"POST {url}") == issuer.people == len(people)
        assert {line for line in called if not line.startswith("OPTIONS")} == {
            f"GET {site.url}/",
            f"POST {url}",
            f"POST {relay.url}",
        }
        seen = b"".join(relay.bytes_seen)
        assert not [ticket for ticket in tickets if bytes.fromhex(ticket) in seen]
        check_release(shuffler, collection, analyst, len(people))
