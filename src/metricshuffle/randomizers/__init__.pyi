# The public randomizers. Type checkers read this file, and __init__.py takes the modules of the
# names from it.
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric as BoundedGeometric
from metricshuffle.randomizers.bounded_geometric import LaplaceOnInterval as LaplaceOnInterval
from metricshuffle.randomizers.channel import Channel as Channel
from metricshuffle.randomizers.clustered_response import ClusteredResponse as ClusteredResponse
from metricshuffle.randomizers.corner_vectors import Duchi as Duchi
from metricshuffle.randomizers.corner_vectors import Harmony as Harmony
from metricshuffle.randomizers.discrete_gaussian import DiscreteGaussian as DiscreteGaussian
from metricshuffle.randomizers.dummies import AmongDummies as AmongDummies
from metricshuffle.randomizers.exponential_mechanism import (
    ExponentialMechanism as ExponentialMechanism,
)
from metricshuffle.randomizers.exponential_mechanism import PaddedExponential as PaddedExponential
from metricshuffle.randomizers.hadamard_response import HadamardResponse as HadamardResponse
from metricshuffle.randomizers.key_values import PckvGrr as PckvGrr
from metricshuffle.randomizers.key_values import PrivKV as PrivKV
from metricshuffle.randomizers.local_hash import LocalHash as LocalHash
from metricshuffle.randomizers.planar_geometric import PlanarGeometric as PlanarGeometric
from metricshuffle.randomizers.randomized_response import (
    BinaryRandomizedResponse as BinaryRandomizedResponse,
)
from metricshuffle.randomizers.randomized_response import (
    KaryRandomizedResponse as KaryRandomizedResponse,
)
from metricshuffle.randomizers.randomizer import Randomizer as Randomizer
from metricshuffle.randomizers.rappor import Rappor as Rappor
from metricshuffle.randomizers.subsets import SubsetExponential as SubsetExponential
from metricshuffle.randomizers.subsets import SubsetSelection as SubsetSelection
from metricshuffle.randomizers.witch_hat import WitchHat as WitchHat

__all__: list[str]
