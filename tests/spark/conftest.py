"""One Spark session for all tests of this folder.

Without Spark or Java they are skipped, and in CI they fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest


def without(reason: str) -> None:
    """Skip with a reason, or fail in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def java() -> None:
    from metricshuffle.errors import MissingExtra
    from metricshuffle.spark import session

    try:
        import pyspark  # noqa: F401
    except ImportError:
        without("pyspark is not installed (extra spark), so nothing can run on it")
    try:
        session.find_java()
    except MissingExtra as missing:
        without(str(missing))


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[Any]:
    """Session with two threads; a failing task is tried up to four times, as on a cluster.

    Few partitions after an exchange: each costs a moment.
    """
    from metricshuffle.spark import session

    with session.session("local[2,4]") as opened:
        opened.conf.set("spark.sql.shuffle.partitions", "2")
        yield opened
