"""The law of one report: how it is drawn, what it hides alone, what a sum of many hides.

Local randomizers for `amplify` are listed in `__all__`; each has `law`, `local_epsilon`, `blanket`, `reports` and `totals`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metricshuffle.randomizers.bounded_geometric import BoundedGeometric, LaplaceOnInterval
    from metricshuffle.randomizers.channel import Channel
    from metricshuffle.randomizers.clustered_response import ClusteredResponse
    from metricshuffle.randomizers.dummies import AmongDummies
    from metricshuffle.randomizers.exponential import ExponentialMechanism, PaddedExponential
    from metricshuffle.randomizers.hadamard import HadamardResponse
    from metricshuffle.randomizers.key_values import PckvGrr, PrivKV
    from metricshuffle.randomizers.local_hash import LocalHash
    from metricshuffle.randomizers.planar_geometric import PlanarGeometric
    from metricshuffle.randomizers.randomized_response import BinaryRandomizedResponse, KaryRandomizedResponse
    from metricshuffle.randomizers.randomizer import Randomizer
    from metricshuffle.randomizers.rappor import Rappor
    from metricshuffle.randomizers.subsets import SubsetExponential, SubsetSelection
    from metricshuffle.randomizers.vectors import Duchi, Harmony
    from metricshuffle.randomizers.witch_hat import WitchHat

__all__ = [
    "AmongDummies", "BinaryRandomizedResponse", "BoundedGeometric", "Channel", "ClusteredResponse", "Duchi", "ExponentialMechanism",
    "HadamardResponse", "Harmony", "KaryRandomizedResponse", "LaplaceOnInterval", "LocalHash", "PaddedExponential", "PckvGrr",
    "PlanarGeometric", "PrivKV", "Randomizer", "Rappor", "SubsetExponential", "SubsetSelection", "WitchHat",
]  # fmt: skip

# Where a name lives; imported when first asked for.
_HOMES = {
    "bounded_geometric": ("BoundedGeometric", "LaplaceOnInterval"),
    "channel": ("Channel",),
    "clustered_response": ("ClusteredResponse",),
    "dummies": ("AmongDummies",),
    "exponential": ("ExponentialMechanism", "PaddedExponential"),
    "hadamard": ("HadamardResponse",),
    "key_values": ("PckvGrr", "PrivKV"),
    "local_hash": ("LocalHash",),
    "planar_geometric": ("PlanarGeometric",),
    "randomized_response": ("BinaryRandomizedResponse", "KaryRandomizedResponse"),
    "randomizer": ("Randomizer",),
    "rappor": ("Rappor",),
    "subsets": ("SubsetExponential", "SubsetSelection"),
    "vectors": ("Duchi", "Harmony"),
    "witch_hat": ("WitchHat",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
