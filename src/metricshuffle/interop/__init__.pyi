# The adapters, each name once: type checkers read it here, and __init__.py finds here where a name
# lives.
from metricshuffle.interop.duckdb_functions import register_duckdb as register_duckdb
from metricshuffle.interop.flower_accountant import FlowerAccountant as FlowerAccountant
from metricshuffle.interop.flower_accountant import ShuffledPrivacyEvent as ShuffledPrivacyEvent
from metricshuffle.interop.opendp_measurements import measurement as measurement
from metricshuffle.interop.shuffled_events import ShuffledDpEvent as ShuffledDpEvent
from metricshuffle.interop.shuffled_events import ShuffledPLDAccountant as ShuffledPLDAccountant
from metricshuffle.interop.shuffled_events import ShuffledRdpAccountant as ShuffledRdpAccountant

__all__: list[str]
