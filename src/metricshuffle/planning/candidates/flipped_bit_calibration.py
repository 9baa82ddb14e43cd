"""Calibration of sums from flipped bits (RR-Shuffle): the smallest certified flip probability."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from metricshuffle.errors import ConditionError, NotCertified
from metricshuffle.numerics.certified_search import MemoizedCheck, last_certified
from metricshuffle.planning.candidate import Candidate
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.candidates.sum_setting import SumSetting, account_of
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.protocols.protocol import Account
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.randomizers.count_response import FLIP_DENOMINATOR, CountResponse

NAME = "randomized-response-shuffle"
# Counts of randomized bits are evaluated within this many standard deviations on both sides;
# settings with more than MAX_COUNTS counts are rejected.
COUNT_DEVIATIONS = 29.0
MAX_COUNTS = 500_000
# Evaluating this many counts, over all distances, takes seconds.
MANY_COUNTS = 1e7


@family
def sums_of_flipped_bits(setting: Setting) -> Iterator[Offer]:
    """Offer flipped bits for every summed query, in unary messages."""
    if isinstance(setting.query, SummedQuery) and setting.encoding != "modular":
        at = SumSetting(setting, setting.query)
        slow = (
            setting.protocols is None
            and MANY_COUNTS < _counts(at) * at.target.distance <= MAX_COUNTS * at.target.distance
        )
        yield Offer(
            NAME,
            "unary",
            partial(randomized_response, at),
            partial(exceeds_error, at) if slow else None,
        )


def _bit_variance(at: SumSetting) -> float:
    """Approximate variance of one bit's estimate, flip (1 - flip) / (1 - 2 flip)^2.

    The total then has the variance of normal noise that meets the target.
    """
    return at.normal_deviation**2 / (at.honest * min(at.spans))


def _counts(at: SumSetting) -> float:
    """Approximate number of counts of ones to evaluate; 0 if RR-Shuffle does not apply."""
    if (
        at.target.delta == 0.0
        or at.query.rounding is not None
        or at.grain != 1
        or min(at.spans) < 1
    ):
        return 0.0
    return COUNT_DEVIATIONS * at.normal_deviation / math.sqrt(1.0 + 4.0 * _bit_variance(at))


def _response(at: SumSetting, flip: float) -> Sums:
    return at.sums(
        NAME, "shuffler", tuple(CountResponse(span=span, flip=flip) for span in at.spans)
    )


def exceeds_error(at: SumSetting, error: float) -> bool:
    """True only if every flip probability that meets the target has a larger expected error.

    Proof: bits with a larger flip probability are made by flipping bits with a smaller one again.
    So as the flip probability grows, the expected error increases (Jensen: the estimate from fewer
    flips is the conditional mean of the estimate from more), and the privacy loss decreases. Take a
    flip probability with an error larger than `error`. If at this probability the data set of zeros
    certainly needs more than delta, at the largest distance on the shorter axis and in one of the
    rounds, then this flip probability and all smaller ones break the guarantee.
    """

    def enough(flip: float) -> bool:
        return (_response(at, flip).expected_error(at.query, at.setting.users) or 0.0) >= error * (
            1.0 + 1e-6
        )

    max_flip = _flip(0.5 - 2.0**-10)
    target = at.target
    bits = at.honest * min(at.spans)
    steps = min(math.floor(target.distance), bits)
    if not enough(max_flip) or steps < 1:
        return False
    flip = last_certified(lambda x: enough(_flip(x)), 2.0**-31, max_flip, relative=1e-4)
    epsilon = (
        target.epsilon if target.shape == "flat" else target.epsilon * (steps / target.distance)
    )
    try:
        delta_floor = (
            CountResponse(span=min(at.spans), flip=_flip(flip))
            .summed_profile(at.honest)
            .delta_below(epsilon * (1.0 + 1e-12), steps)
        )
    except NotCertified:
        return False
    return delta_floor > target.delta * (1.0 + 1e-6)


def randomized_response(at: SumSetting) -> Candidate:
    """RR-Shuffle: flip every unary bit with the smallest probability that meets the target.

    The client hides the positions of the bits.
    """
    target = at.target
    if target.delta == 0.0:
        raise ConditionError("RR-Shuffle's amplification", "delta > 0", "delta = 0")
    if at.query.rounding is not None:
        raise ConditionError(
            "RR-Shuffle",
            "values in whole steps",
            f"places, which are rounded at random to units of {at.step:g}",
        )
    if at.grain != 1:
        raise ConditionError(
            "RR-Shuffle", "granularity 1", f"granularity {at.setting.granularity:g}"
        )
    protocol = partial(_response, at)

    def account(flip: float) -> Account:
        return account_of(at, protocol(flip))

    def nearly(flip: float) -> PrivacyProfile:
        return at.accounts.total_profile(
            CountResponse(span=min(at.spans), flip=flip).summed_profile(at.honest).fewest_ones()
        )

    # `about` makes necessary checks at the distances that decide in practice; all distances are
    # verified below. The arguments are 1/flip: larger ones mean fewer flips and less noise.
    noisiest = 0.5 - 2.0**-10
    about = MemoizedCheck(
        lambda fewer: target.shortfall(nearly(_flip(1.0 / fewer))), 1.0 / noisiest, 2.0**31
    )
    less = MemoizedCheck(
        lambda fewer: target.shortfall(account(_flip(1.0 / fewer)).profile), 1.0 / noisiest, 2.0**31
    )
    variance = _bit_variance(at)
    likely = _counts(at)
    if likely > MAX_COUNTS:
        raise NotCertified(
            f"the count of ones would take about {likely:.1g} values, each of which is "
            "looked at for many data sets; beyond "
            f"{MAX_COUNTS:.0e} that takes minutes, so use a larger unit of the values."
        )
    about.enclose(
        2.0 / (1.0 - 1.0 / math.sqrt(1.0 + 4.0 * variance)), -math.log(target.delta), 1e-4
    )
    flip = _least_flip(about, noisiest)
    if not account(flip).kept:
        # The worst data sets here are not those with the fewest ones.
        less.enclose(about.passing, -math.log(target.delta), 1e-4)
        if (
            less.passing == 1.0 / noisiest
            and target.shortfall(account(_flip(noisiest)).profile) > 0.0
        ):
            raise ConditionError(
                "RR-Shuffle",
                "enough honest people for this epsilon",
                f"{at.honest:,}, too few at any flip",
            )
        flip = _least_flip(less, noisiest)
        while not account(flip).kept:
            flip = _flip(flip * 1.01)
            if flip > noisiest:
                raise NotCertified(
                    "no flip probability below one half could be verified at every distance."
                )
    return at.described(protocol(flip), account(flip), flip=flip)


def _least_flip(less: MemoizedCheck, noisiest: float) -> float:
    """Smallest flip probability found that passes, to a thousandth; `less` was bracketed before."""

    def near(flip: float) -> bool:
        return less(1.0 / flip)

    passing = noisiest
    while passing > 2.0**-30 and near(0.25 * passing):
        passing *= 0.25
    return _flip(last_certified(near, 0.25 * passing, passing, relative=1e-3))


def _flip(flip: float) -> float:
    """Round up to a multiple of 2^-32 (more noise)."""
    return math.ceil(flip * FLIP_DENOMINATOR) / FLIP_DENOMINATOR
