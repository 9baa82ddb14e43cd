"""A mistyped folder of keys destroys nothing: without the keys of what a database holds, a shuffler does not start unless it is told to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.service.running import report_of, running

from metricshuffle.service.stores import store_of


@pytest.mark.thorough
def test_another_folder_of_keys_is_refused_and_ends_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shuffler.db'}"
    with running(tmp_path / "one", url) as shuffler:
        collection = shuffler.opened()
        assert httpx.post(f"{collection.url}/reports", content=report_of(collection)).status_code == 204
        words = [
            sys.executable,
            "-m",
            "metricshuffle",
            "serve",
            "--store",
            url,
            "--listen",
            "127.0.0.1:0",
            "--keys",
            str(tmp_path / "typo"),
        ]
        refused = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert refused.returncode == 2
        assert collection.digest[:16] in refused.stderr
        assert "--abandon" in refused.stderr
        assert shuffler.operator.status(collection.digest)["reports"] == 1
        shuffler.end()
    with running(tmp_path / "typo", url, "--abandon") as other:
        told = {"state": ""}
        for _ in range(200):
            told = other.operator.status(collection.digest)
            if told["state"] == "aborted":
                break
    assert told["state"] == "aborted"
    row = store_of(url).row(collection.digest)
    assert row is not None
    assert "keys are missing" in row.reason
