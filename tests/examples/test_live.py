"""Live round of the demo: real processes, no acknowledged report lost by a kill."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from examples.demo.__main__ import main
from examples.demo.chapters.live import live
from examples.demo.live import GARBAGE, LATE, ORDER, PEOPLE, TWICE, live_round
from rich.console import Console
from tests.report.parsed_page import ParsedPage

from metricshuffle.report.template_engine import rendered_from

ROOT = Path(__file__).parents[2]


@pytest.mark.thorough
def test_a_round_survives_a_kill_and_is_told() -> None:
    printed = io.StringIO()
    played = live_round(Console(file=printed, width=120))
    assert PEOPLE // 2 <= played.acknowledged <= played.kept <= PEOPLE
    assert [(posts.sent, posts.answer) for posts in played.posts] == [
        (PEOPLE, f"{PEOPLE} x 204 stored"),
        (TWICE, f"{TWICE} x 204 stored"),
        (GARBAGE, f"{GARBAGE} x 422 does not open"),
        (LATE, f"{LATE} x 410 closed"),
    ]
    assert [state for state, _ in played.states] == list(ORDER)
    assert played.release.reports == PEOPLE
    assert not played.release.raw_values_seen
    low, high = played.release.interval(1 - 1e-9)
    assert low <= played.truth <= high
    assert f"({played.acknowledged} acknowledged, {played.kept} kept)" in printed.getvalue()
    told = ParsedPage(
        rendered_from("examples.demo", "report/live.html.jinja", chapter=live(played))
    ).text
    assert f"acknowledged {played.acknowledged} reports" in " ".join(told.split())
    assert played.digest[:16] in told


@pytest.mark.thorough
def test_a_collection_is_kept_open_to_be_joined(tmp_path: Path) -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += (
        "from examples.demo.live import kept_open\nfrom rich.console import "
        "Console\nkept_open(Console(width=300))"
    )
    seen = {**os.environ, "PYTHONPATH": str(ROOT)}
    kept = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=seen,
        cwd=tmp_path,
    )
    try:
        assert kept.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/join/[0-9a-f]{64}", kept.stdout.readline())
        assert found is not None
        page = httpx.get(found[0])
        assert page.status_code == 200
        assert "kcal" in page.text
        url = found[0].partition("/join/")[0]
        kept.send_signal(signal.SIGINT)
        kept.wait(60)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/healthz")
    finally:
        kept.kill()
        kept.wait()
        if kept.stdout is not None:
            kept.stdout.close()


def test_keeping_belongs_to_a_live_round(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--keep"]) == 2
    assert "--live" in capsys.readouterr().err
