"""Sums from flipped bits (RR-Shuffle): the fewest flips that certainly keep the target."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from metricshuffle.errors import ConditionError, NotCertified
from metricshuffle.numerics.certified_search import MemoizedCheck, last_certified
from metricshuffle.planning.candidate import Candidate
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.candidates.sum_calibration import SumSetting, account_of
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.protocols.protocol import Account
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.randomizers.count_response import FLIP_DENOMINATOR, CountResponse

NAME = "randomized-response-shuffle"
# A count of randomized bits is looked at within so many standard deviations to both sides, and wider ones than this not at all.
COUNT_DEVIATIONS, MAX_COUNTS = 29.0, 500_000
# So many values of the count, over all distances, take seconds.
MANY_COUNTS = 1e7


@family
def sums_of_flipped_bits(setting: Setting) -> Iterator[Offer]:
    """For whatever is summed up, in unary messages."""
    if isinstance(setting.query, SummedQuery) and setting.encoding != "modular":
        at = SumSetting(setting, setting.query)
        slow = setting.protocols is None and MANY_COUNTS < _counts(at) * at.target.distance <= MAX_COUNTS * at.target.distance
        yield Offer(NAME, "unary", partial(randomized_response, at), partial(exceeds_error, at) if slow else None)


def _bit_variance(at: SumSetting) -> float:
    """About the variance of a bit's estimate, flip (1 - flip) / (1 - 2 flip)^2, where the total's is that of normal noise."""
    return at.normal_deviation**2 / (at.honest * min(at.spans))


def _counts(at: SumSetting) -> float:
    """About how many values of the count of ones are looked at; 0 if RR-Shuffle is not for this setting."""
    if at.target.delta == 0.0 or at.query.rounding is not None or at.grain != 1 or min(at.spans) < 1:
        return 0.0
    return COUNT_DEVIATIONS * at.normal_deviation / math.sqrt(1.0 + 4.0 * _bit_variance(at))


def _response(at: SumSetting, flip: float) -> Sums:
    return at.sums(NAME, "shuffler", tuple(CountResponse(span=span, flip=flip) for span in at.spans))


def exceeds_error(at: SumSetting, error: float) -> bool:
    """True only if no flip probability that keeps the target has an expected error of at most `error`.

    Proof: more flips are flips of what was flipped before. So the expected error rises with the flip probability (Jensen: the estimate
    from more flips has the one from fewer as its conditional mean), and what is given away falls. Take a flip probability with a larger
    error. If the data set without a single one certainly gives away more than delta there, at the largest distance on the shorter
    axis and in one of the rounds, then that one and all smaller ones break the promise.
    """

    def enough(flip: float) -> bool:
        return (_response(at, flip).expected_error(at.query, at.setting.users) or 0.0) >= error * (1.0 + 1e-6)

    max_flip, target, bits = _flip(0.5 - 2.0**-10), at.target, at.honest * min(at.spans)
    steps = min(math.floor(target.distance), bits)
    if not enough(max_flip) or steps < 1:
        return False
    flip = last_certified(lambda x: enough(_flip(x)), 2.0**-31, max_flip, relative=1e-4)
    epsilon = target.epsilon if target.shape == "flat" else target.epsilon * (steps / target.distance)
    try:
        delta_floor = (
            CountResponse(span=min(at.spans), flip=_flip(flip)).summed_profile(at.honest).delta_below(epsilon * (1.0 + 1e-12), steps)
        )
    except NotCertified:
        return False
    return delta_floor > target.delta * (1.0 + 1e-6)


def randomized_response(at: SumSetting) -> Candidate:
    """RR-Shuffle: flip every unary bit with the smallest probability that keeps the target; the client hides positions."""
    target = at.target
    if target.delta == 0.0:
        raise ConditionError("RR-Shuffle's amplification", "delta > 0", "delta = 0")
    if at.query.rounding is not None:
        raise ConditionError("RR-Shuffle", "values in whole steps", f"places, which are rounded at random to units of {at.step:g}")
    if at.grain != 1:
        raise ConditionError("RR-Shuffle", "granularity 1", f"granularity {at.setting.granularity:g}")
    protocol = partial(_response, at)

    def account(flip: float) -> Account:
        return account_of(at, protocol(flip))

    def nearly(flip: float) -> PrivacyProfile:
        return at.accounts.total_profile(CountResponse(span=min(at.spans), flip=flip).summed_profile(at.honest).fewest_ones())

    # Necessary checks at the distances that decide in practice; the rest is verified below. Fewer flips are less noise.
    noisiest = 0.5 - 2.0**-10
    about = MemoizedCheck(lambda fewer: target.shortfall(nearly(_flip(1.0 / fewer))), 1.0 / noisiest, 2.0**31)
    less = MemoizedCheck(lambda fewer: target.shortfall(account(_flip(1.0 / fewer)).profile), 1.0 / noisiest, 2.0**31)
    variance, likely = _bit_variance(at), _counts(at)
    if likely > MAX_COUNTS:
        raise NotCertified(
            f"the count of ones would take about {likely:.1g} values, each of which is looked at for many data sets; beyond "
            f"{MAX_COUNTS:.0e} that takes minutes, so use a larger unit of the values."
        )
    about.enclose(2.0 / (1.0 - 1.0 / math.sqrt(1.0 + 4.0 * variance)), -math.log(target.delta), 1e-4)
    flip = _least_flip(about, noisiest)
    if not account(flip).kept:
        # Other data sets than those with the fewest ones decide here.
        less.enclose(about.passing, -math.log(target.delta), 1e-4)
        if less.passing == 1.0 / noisiest and target.shortfall(account(_flip(noisiest)).profile) > 0.0:
            raise ConditionError("RR-Shuffle", "enough honest people for this epsilon", f"{at.honest:,}, too few at any flip")
        flip = _least_flip(less, noisiest)
        while not account(flip).kept:
            flip = _flip(flip * 1.01)
            if flip > noisiest:
                raise NotCertified("no flip probability below one half could be verified at every distance.")
    return at.described(protocol(flip), account(flip), flip=flip)


def _least_flip(less: MemoizedCheck, noisiest: float) -> float:
    """The smallest flip probability that passes, to a thousandth; `less` knows about where that is."""

    def near(flip: float) -> bool:
        return less(1.0 / flip)

    passing = noisiest
    while passing > 2.0**-30 and near(0.25 * passing):
        passing *= 0.25
    return _flip(last_certified(near, 0.25 * passing, passing, relative=1e-3))


def _flip(flip: float) -> float:
    """The next multiple of 2^-32 up (more noise)."""
    return math.ceil(flip * FLIP_DENOMINATOR) / FLIP_DENOMINATOR
