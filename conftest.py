"""What all tests share: one profile of Hypothesis without deadlines, since machines that run tests are busy."""

from __future__ import annotations

import importlib.util
import warnings

from hypothesis import settings

settings.register_profile("metricshuffle", deadline=None)
settings.load_profile("metricshuffle")

if importlib.util.find_spec("ot") is not None:
    # Warnings are errors in tests, and this library warns while it is compiled for the first time.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ot  # noqa: F401
