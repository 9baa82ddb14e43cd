"""What travels: tasks, batches of reports, tallies and releases."""

from metricshuffle.wire.release import Release
from metricshuffle.wire.reports import read_reports, write_reports
from metricshuffle.wire.shuffle import Ledger, Shuffle
from metricshuffle.wire.task import Task

__all__ = ["Ledger", "Release", "Shuffle", "Task", "read_reports", "write_reports"]
