"""Files and messages that roles exchange: tasks, batches of reports, tallies and releases."""

from metricshuffle.tasks.release import Release
from metricshuffle.tasks.report_batches import read_reports, write_reports
from metricshuffle.tasks.shuffle import Ledger, Shuffle
from metricshuffle.tasks.task import Task

__all__ = ["Ledger", "Release", "Shuffle", "Task", "read_reports", "write_reports"]
