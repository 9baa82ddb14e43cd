# What `import metricshuffle` offers, each name once: type checkers read it here, and __init__.py
# finds here where a name lives.
from metricshuffle import randomizers as randomizers
from metricshuffle.accounting.user_items.user_privacy import group_delta as group_delta
from metricshuffle.accounting.user_items.user_privacy import rate_for_changes as rate_for_changes
from metricshuffle.amplification.amplify import Amplification as Amplification
from metricshuffle.amplification.amplify import GenericLDP as GenericLDP
from metricshuffle.amplification.amplify import amplify as amplify
from metricshuffle.amplification.groups import Groups as Groups
from metricshuffle.amplification.groups import GroupsAmplification as GroupsAmplification
from metricshuffle.amplification.inverse_search import fewest_users as fewest_users
from metricshuffle.amplification.inverse_search import (
    largest_local_epsilon as largest_local_epsilon,
)
from metricshuffle.auditing.audit import Audit as Audit
from metricshuffle.auditing.audit import audit as audit
from metricshuffle.collection.analyst.analyst import Analyst as Analyst
from metricshuffle.collection.client.client import Client as Client
from metricshuffle.data.zone_files import read_zones as read_zones
from metricshuffle.errors import (
    BatchTooSmall as BatchTooSmall,
)
from metricshuffle.errors import (
    ConditionError as ConditionError,
)
from metricshuffle.errors import (
    DomainError as DomainError,
)
from metricshuffle.errors import (
    InputError as InputError,
)
from metricshuffle.errors import (
    MetricShuffleError as MetricShuffleError,
)
from metricshuffle.errors import (
    MissingExtra as MissingExtra,
)
from metricshuffle.errors import (
    NotCertified as NotCertified,
)
from metricshuffle.errors import (
    PlanError as PlanError,
)
from metricshuffle.planning.candidate import Candidate as Candidate
from metricshuffle.planning.costs.release_ledger import Budget as Budget
from metricshuffle.planning.error_simulation import Simulation as Simulation
from metricshuffle.planning.error_simulation import simulate as simulate
from metricshuffle.planning.plan import Plan as Plan
from metricshuffle.planning.plan import plan as plan
from metricshuffle.planning.plan_for_error import plan_for_error as plan_for_error
from metricshuffle.privacy.guarantee import Guarantee as Guarantee
from metricshuffle.privacy.guarantee import Trust as Trust
from metricshuffle.privacy.profile import Band as Band
from metricshuffle.privacy.profile import LowerProfile as LowerProfile
from metricshuffle.privacy.profile import PrivacyProfile as PrivacyProfile
from metricshuffle.privacy.target import Target as Target
from metricshuffle.protocols.frequencies import Frequencies as Frequencies
from metricshuffle.protocols.noisy_answers import NoisyAnswers as NoisyAnswers
from metricshuffle.protocols.noisy_vectors import NoisyVectors as NoisyVectors
from metricshuffle.protocols.protocol import Protocol as Protocol
from metricshuffle.protocols.protocol import Reports as Reports
from metricshuffle.protocols.shuffler_noise import ShufflerNoise as ShufflerNoise
from metricshuffle.protocols.sums import Sums as Sums
from metricshuffle.protocols.tally import Shuffled as Shuffled
from metricshuffle.protocols.tally import Tally as Tally
from metricshuffle.queries.by_group import ByGroup as ByGroup
from metricshuffle.queries.centroid import Centroid as Centroid
from metricshuffle.queries.column_means import Means as Means
from metricshuffle.queries.flows import Flows as Flows
from metricshuffle.queries.histogram import Histogram as Histogram
from metricshuffle.queries.keyed_means import KeyValues as KeyValues
from metricshuffle.queries.mean_and_sum import Mean as Mean
from metricshuffle.queries.mean_and_sum import Sum as Sum
from metricshuffle.queries.quantiles import Quantiles as Quantiles
from metricshuffle.queries.query import Query as Query
from metricshuffle.queries.result_table import Table as Table
from metricshuffle.queries.sets import Sets as Sets
from metricshuffle.queries.share_above import ShareAbove as ShareAbove
from metricshuffle.queries.spread import Spread as Spread
from metricshuffle.queries.user_queries import UserHistogram as UserHistogram
from metricshuffle.queries.user_queries import UserLinearQuery as UserLinearQuery
from metricshuffle.randomness import Randomness as Randomness
from metricshuffle.solving.randomizer_files import load_randomizer as load_randomizer
from metricshuffle.solving.solution import SolvedMetric as SolvedMetric
from metricshuffle.solving.solution import solve as solve
from metricshuffle.spaces import (
    Categories as Categories,
)
from metricshuffle.spaces import (
    Circle as Circle,
)
from metricshuffle.spaces import (
    Clustered as Clustered,
)
from metricshuffle.spaces import (
    GreatCircle as GreatCircle,
)
from metricshuffle.spaces import (
    Grid as Grid,
)
from metricshuffle.spaces import (
    Integers as Integers,
)
from metricshuffle.spaces import (
    Interval as Interval,
)
from metricshuffle.spaces import (
    Matrix as Matrix,
)
from metricshuffle.spaces import (
    NestedSquares as NestedSquares,
)
from metricshuffle.spaces import (
    Places as Places,
)
from metricshuffle.spaces import (
    Space as Space,
)
from metricshuffle.spaces import (
    Tree as Tree,
)
from metricshuffle.spaces import (
    Users as Users,
)
from metricshuffle.spaces import (
    Vectors as Vectors,
)
from metricshuffle.spaces import (
    Zones as Zones,
)
from metricshuffle.spaces import (
    earth_mover as earth_mover,
)
from metricshuffle.spaces import (
    nested_squares as nested_squares,
)
from metricshuffle.spaces import (
    nested_squares_on_map as nested_squares_on_map,
)
from metricshuffle.spaces import (
    users_of as users_of,
)
from metricshuffle.tasks.release import Release as Release
from metricshuffle.tasks.shuffle import Ledger as Ledger
from metricshuffle.tasks.task import Task as Task

__version__: str
__all__: list[str]
