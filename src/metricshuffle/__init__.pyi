# What `import metricshuffle` offers, each name once: type checkers read it here, and __init__.py finds here where a name lives.
from metricshuffle import randomizers as randomizers
from metricshuffle.accounting.items.user_level import group_delta as group_delta
from metricshuffle.accounting.items.user_level import rate_for_changes as rate_for_changes
from metricshuffle.amplification.amplify import Amplification as Amplification
from metricshuffle.amplification.amplify import GenericLDP as GenericLDP
from metricshuffle.amplification.amplify import amplify as amplify
from metricshuffle.amplification.groups import Groups as Groups
from metricshuffle.amplification.groups import GroupsAmplification as GroupsAmplification
from metricshuffle.amplification.inverse import fewest_users as fewest_users
from metricshuffle.amplification.inverse import largest_local_epsilon as largest_local_epsilon
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
from metricshuffle.planning.audits.audit import Audit as Audit
from metricshuffle.planning.audits.audit import audit as audit
from metricshuffle.planning.budget import Budget as Budget
from metricshuffle.planning.candidate import Candidate as Candidate
from metricshuffle.planning.inverse import plan_for_error as plan_for_error
from metricshuffle.planning.plan import Plan as Plan
from metricshuffle.planning.plan import plan as plan
from metricshuffle.planning.saved_randomizer import load_randomizer as load_randomizer
from metricshuffle.planning.simulate import Simulation as Simulation
from metricshuffle.planning.simulate import simulate as simulate
from metricshuffle.planning.solved import SolvedMetric as SolvedMetric
from metricshuffle.planning.solved import solve as solve
from metricshuffle.privacy.guarantee import Guarantee as Guarantee
from metricshuffle.privacy.guarantee import Trust as Trust
from metricshuffle.privacy.profile import Band as Band
from metricshuffle.privacy.profile import LowerProfile as LowerProfile
from metricshuffle.privacy.profile import PrivacyProfile as PrivacyProfile
from metricshuffle.privacy.target import Target as Target
from metricshuffle.protocols.answers import NoisyAnswers as NoisyAnswers
from metricshuffle.protocols.base import Protocol as Protocol
from metricshuffle.protocols.base import Reports as Reports
from metricshuffle.protocols.frequencies import Frequencies as Frequencies
from metricshuffle.protocols.sums import Sums as Sums
from metricshuffle.protocols.tally import Shuffled as Shuffled
from metricshuffle.protocols.tally import Tally as Tally
from metricshuffle.protocols.vectors import NoisyVectors as NoisyVectors
from metricshuffle.queries.base import Query as Query
from metricshuffle.queries.histogram import Histogram as Histogram
from metricshuffle.queries.numbers import Mean as Mean
from metricshuffle.queries.numbers import Sum as Sum
from metricshuffle.queries.places import Centroid as Centroid
from metricshuffle.queries.table import Table as Table
from metricshuffle.queries.user_items import UserHistogram as UserHistogram
from metricshuffle.queries.user_items import UserLinearQuery as UserLinearQuery
from metricshuffle.randomness import Randomness as Randomness
from metricshuffle.service.analyst import Analyst as Analyst
from metricshuffle.service.client import Client as Client
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
from metricshuffle.wire.release import Release as Release
from metricshuffle.wire.shuffle import Ledger as Ledger
from metricshuffle.wire.task import Task as Task

__version__: str
__all__: list[str]
