"""What all tests share: one profile of Hypothesis without deadlines, since machines that run tests
are busy.

With MAX_TEST_CPU=2 in the environment, a test that computes for longer than two seconds fails
(`make test-times`).
"""

from __future__ import annotations

import importlib.util
import os
import time
import warnings
from collections.abc import Generator

import pytest
from hypothesis import settings

settings.register_profile("metricshuffle", deadline=None)
settings.load_profile("metricshuffle")

if importlib.util.find_spec("ot") is not None:
    # Warnings are errors in tests, and this library warns while it is compiled for the first time.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ot  # noqa: F401

MAX_TEST_CPU = float(os.environ.get("MAX_TEST_CPU", "inf"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that takes more seconds of this process than are allowed; its fixtures do not
    count.
    """
    begun = time.process_time()
    yield
    seconds = time.process_time() - begun
    if seconds > MAX_TEST_CPU:
        pytest.fail(
            f"{item.nodeid} takes {seconds:.1f} s of CPU, more than {MAX_TEST_CPU:g}", pytrace=False
        )
