"""A round with tokens on the join page, in a real browser: issuer, shuffler and page apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.collection.client_tasks import tasks
from tests.collection.javascript import chromium
from tests.collection.postgres_pair import free_port
from tests.collection.running import running
from tests.collection.test_join_in_browser import SECONDS, visited

from metricshuffle.collection.issuer.issuer_server import serving_issuer
from metricshuffle.collection.issuer.token_issuer import TokenIssuer

pytestmark = pytest.mark.thorough
__all__ = ["chromium"]


def test_a_person_takes_part_with_a_token(chromium: Any, tmp_path: Path) -> None:
    """A ticket that nobody knows, then a good one; the shuffler gets one report."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/token-request"
    [ticket, _] = TokenIssuer.new(tmp_path / "issuer", url, 2)
    issuer = TokenIssuer.load(tmp_path / "issuer")
    store = f"sqlite:///{tmp_path / 'shuffler.db'}"
    with (
        running(tmp_path / "s", store) as shuffler,
        serving_issuer(issuer, ("127.0.0.1", port)),
    ):
        terms: dict[str, Any] = {"admission": "tokens", "issuer": issuer.public.model_dump()}
        collection = shuffler.opened(tasks()["whole numbers"], **terms)
        with visited(chromium, f"{shuffler.url}/join/{collection.digest}") as page:
            assert f"({url}), who learns that you take part" in page.inner_text("#ticket-words")
            page.fill("#value", "480")
            page.fill("#ticket", "ab" * 16)
            page.click("#make")
            page.wait_for_selector("#wrong:visible", timeout=SECONDS)
            assert "The issuer does not know this ticket" in page.inner_text("#wrong")
            assert issuer.people == 0
            page.fill("#ticket", ticket)
            page.click("#make")
            page.wait_for_selector("#ready:visible", timeout=SECONDS)
            assert issuer.people == 1
            assert shuffler.operator.status(collection.digest)["reports"] == 0
            page.click("#send")
            page.wait_for_selector("#done:visible", timeout=SECONDS)
            assert shuffler.operator.status(collection.digest)["reports"] == 1
            page.reload()
            page.wait_for_selector("#before:visible", timeout=SECONDS)
            posts = [line for line in page.asked if line.startswith("POST")]
            assert posts == [f"POST {url}"] * 2 + [f"POST {collection.url}/reports"]
