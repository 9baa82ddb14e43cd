"""What workers are forked from: everything imported, and one plan made, so that a fresh worker answers at once."""

from __future__ import annotations

from metricshuffle.web import forms, worker_jobs  # noqa: F401 - what workers do

forms.asked("number", {}).plan()
