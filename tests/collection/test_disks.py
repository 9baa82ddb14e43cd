"""Shuffler on disks that are full, fail or lose power, and disk contents after a release."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import missing

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
ALONE = ["unshare", "--mount", "--propagation", "private"]
NEEDED = ("unshare", "mount", "umount", "mke2fs", "dd")


def counted(scenario: str, folder: Path) -> dict[str, Any]:
    """What a scenario counted, in a process that mounts disks which nobody else sees."""
    here = (
        all(map(shutil.which, NEEDED)) and Path("/dev/loop-control").exists() and os.geteuid() == 0
    )
    if not here or subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        missing(
            "these tests mount disks of their own: they need root, loop devices and "
            f"{', '.join(NEEDED)} (on Debian: e2fsprogs, mount)"
        )
    words = [*ALONE, sys.executable, "-m", "tests.collection.disks", scenario, str(folder)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=900, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr[-5000:]
    print(ended.stdout)
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def test_a_full_disk_is_said_at_every_point_and_nothing_is_half(tmp_path: Path) -> None:
    counts = counted("full", tmp_path)
    assert counts["failed"] >= counts["points"] // 2


def test_a_disk_that_becomes_read_only_at_any_point_is_said_and_loses_nothing(
    tmp_path: Path,
) -> None:
    counts = counted("read-only", tmp_path)
    assert counts["failed"] >= 0.9 * counts["points"]


def test_a_power_cut_at_any_point_loses_and_brings_back_nothing(tmp_path: Path) -> None:
    counts = counted("power", tmp_path)
    assert counts["points"] >= 60
    assert counts["cuts"] >= 30


def test_no_byte_of_a_disk_shows_a_report_or_a_key_after_the_release(tmp_path: Path) -> None:
    """Freed blocks may hold reports only encrypted, under a destroyed key."""
    found = counted("image", tmp_path)
    assert not {"reports", "neighbours", "keys"} & set(found["released"])
    assert {"hidden", "keys"} <= set(found["beside"])
