"""A mistyped folder of keys destroys nothing: what belongs to another folder is left alone, also if it is named to be abandoned."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.service.running import report_of, running

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.errors import InputError


@pytest.mark.thorough
def test_another_folder_of_keys_ends_nothing(tmp_path: Path) -> None:
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
            str(tmp_path / "typo" / "keys"),
        ]
        for options, why in ((["--abandon"], "requires an argument"), (["--abandon", collection.digest], "belongs to another shuffler")):
            refused = subprocess.run([*words, *options], capture_output=True, text=True, timeout=120)
            assert refused.returncode == 2
            assert why in refused.stderr
        shuffler.end()
    with running(tmp_path / "typo", url) as other:
        assert collection.digest[:16] in other.log
        with pytest.raises(InputError, match="belongs to another shuffler"):
            other.operator.abort(collection.digest, "a mistake")
        assert other.operator.status(collection.digest)["state"] == "open"
    with running(tmp_path / "one", url) as shuffler:
        assert shuffler.operator.status(collection.digest)["reports"] == 1
        shuffler.end()
        [key] = KeyFolder(shuffler.keys).names()
        KeyFolder(shuffler.keys).destroy(key)
    with running(tmp_path / "one", url, "--abandon", collection.digest) as shuffler:
        deadline = time.monotonic() + 60
        while (told := shuffler.operator.status(collection.digest))["state"] == "open":
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert told["state"] == "aborted"
    assert "keys are missing" in told["reason"]
