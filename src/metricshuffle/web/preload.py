"""Preloaded process from which workers are forked: imports and a first plan are already done."""

from __future__ import annotations

from metricshuffle.planning import consent  # noqa: F401 - imported by downloads
from metricshuffle.planning.plan_for_error import plan_request
from metricshuffle.report import report_page  # noqa: F401
from metricshuffle.web import forms, worker_jobs  # noqa: F401 - the jobs of workers

plan_request(forms.asked("number", {}).request)
