"""Columns of files, pipes, frames and tables, read in chunks so that memory stays bounded."""

from metricshuffle.data.csv_reader import CsvFormat as CsvFormat
from metricshuffle.data.frames import frame_table as frame_table
from metricshuffle.data.frames import is_table as is_table
from metricshuffle.data.source import Chunk as Chunk
from metricshuffle.data.source import ColumnRequest as ColumnRequest
from metricshuffle.data.source import ColumnSource as ColumnSource
from metricshuffle.data.source import column_requests as column_requests
from metricshuffle.data.source_files import open_columns as open_columns
