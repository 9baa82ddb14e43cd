"""Columns of files, pipes, frames and tables, read a chunk at a time so that memory stays bounded."""

from metricshuffle.columns.csv_files import CsvFormat as CsvFormat
from metricshuffle.columns.frames import frame_table as frame_table
from metricshuffle.columns.frames import is_table as is_table
from metricshuffle.columns.opening import open_columns as open_columns
from metricshuffle.columns.spelling import ARGUMENTS as ARGUMENTS
from metricshuffle.columns.spelling import OPTIONS as OPTIONS
from metricshuffle.columns.spelling import Spelling as Spelling
from metricshuffle.columns.table import Chunk as Chunk
from metricshuffle.columns.table import Table as Table
from metricshuffle.columns.table import Wanted as Wanted
from metricshuffle.columns.table import wanted as wanted
