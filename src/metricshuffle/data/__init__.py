"""Columns of files, pipes, frames and tables, read a chunk at a time so that memory stays bounded."""

from metricshuffle.data.csv_reader import CsvFormat as CsvFormat
from metricshuffle.data.frames import frame_table as frame_table
from metricshuffle.data.frames import is_table as is_table
from metricshuffle.data.source import Chunk as Chunk
from metricshuffle.data.source import ColumnRequest as ColumnRequest
from metricshuffle.data.source import Table as Table
from metricshuffle.data.source import column_requests as column_requests
from metricshuffle.data.source_files import open_columns as open_columns
from metricshuffle.data.spelling import ARGUMENTS as ARGUMENTS
from metricshuffle.data.spelling import OPTIONS as OPTIONS
from metricshuffle.data.spelling import Spelling as Spelling
