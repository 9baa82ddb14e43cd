"""Commands for sums by several servers: what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Terminal
from tests.collection.sums import AdderKeys, new_sum, sum_task

from metricshuffle.collection.keys import AnalystKey


@pytest.fixture
def plan_file(terminal: Terminal) -> Path:
    path = terminal.folder / "task.json"
    path.write_text(sum_task().to_json())
    return path


def opening(plan_file: Path, *servers: str) -> list[str | Path]:
    return [
        *("collection", "open", plan_file, "--analyst", AnalystKey.new().public),
        *("--closes", "1h", "--colluders", "0", "--output", "collection.json"),
        *(word for server in servers for word in ("--server", server)),
    ]


def test_one_server_is_not_enough(
    terminal: Terminal, plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METRICSHUFFLE_TOKEN", "a" * 64)
    said = terminal.refused(*opening(plan_file, "http://127.0.0.1:9"), "--split", "2")
    assert "--split must be 1 for a plan that trusts an aggregator" in said
    said = terminal.refused(*opening(plan_file, "http://127.0.0.1:9"))
    assert "needs 2 to 5 adders" in said
    both = opening(plan_file, "http://127.0.0.1:9", "http://127.0.0.1:8")
    said = terminal.refused(*both, "--oblivious")
    assert "adders have no gateway for reports through a relay" in said
    assert "without --oblivious" in said


def test_an_adder_has_no_chain_and_no_witness(terminal: Terminal) -> None:
    words = ("serve", "--role", "adder", "--store", "sqlite:///a.db", "--keys", "keys")
    for more in (("--after", "http://127.0.0.1:9"), ("--witness", "http://127.0.0.1:9")):
        assert "are for shufflers" in terminal.refused(*words, *more)
    said = terminal.refused(*words, "--hub", "http://127.0.0.1:9")
    assert "--role adder needs these" in said


def test_a_join_page_is_for_shufflers(terminal: Terminal) -> None:
    parties = [AdderKeys().party(f"https://adder-{place}.example") for place in range(2)]
    new_sum(parties).save(terminal.folder / "collection.json")
    said = terminal.refused("join-page", "collection.json", "--output", "page.html")
    assert "metricshuffle-sum/1" in said
