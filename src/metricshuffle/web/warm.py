"""What workers are forked from: everything imported, and one plan made, so that a fresh worker answers at once."""

from __future__ import annotations

from metricshuffle.web import asked, jobs  # noqa: F401 - what workers do

asked.asked("number", {}).plan()
