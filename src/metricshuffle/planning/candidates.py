"""Every protocol calibrated for one setting: the least noise that certainly keeps the target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from metricshuffle.accounting.sums.additive import TAIL_MARGIN, AdditiveNoise
from metricshuffle.accounting.sums.calibration import largest_rate
from metricshuffle.accounting.sums.padded import RarelyClamped, clamping_penalty
from metricshuffle.accounting.sums.planar import PerAxis
from metricshuffle.accounting.sums.split_and_mix import FEWEST_MESSAGES, FEWEST_USERS, SplitAndMix, messages_needed, security_bits
from metricshuffle.encodings import modulus_for
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.sampling import LARGEST_RATE, rational_rate
from metricshuffle.noise.table import LARGEST_RADIUS
from metricshuffle.planning.candidate import Candidate, candidate
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.profile import PrivacyProfile, last_certified
from metricshuffle.protocols.sums import SumProtocol
from metricshuffle.randomizers.additive import UTILITY_LOG_TAIL
from metricshuffle.randomizers.count_response import FLIP_DENOMINATOR, CountResponse

# Of delta: to the statistical term of shares through a shuffler, and kept free for padding when noise is calibrated.
SHARING_PART, PADDING_PART = 1e-3, 0.1
# A modular sum wraps around with at most this probability (e^-46 = 1e-20): an error of the estimate, never of privacy.
WRAP_LOG_PROBABILITY = -46.0
# Sums of padded noise over up to this many cells are accounted exactly, wider ones by the chance of clamping.
EXACT_CELLS = 10_000
# Rates are found to this much (relative): so much more noise than needed nobody notices.
CALIBRATION = 1e-7


def local(setting: Setting) -> Candidate:
    """geometric-local: everybody's own noise is enough; nobody is trusted."""
    rate = _sampled(setting.pure_rate())
    noise = Polya(Fraction(1), rate)
    protocol = _modular(setting, "geometric-local", noise, setting.users, transport="analyst")
    return candidate(setting, protocol, None, rate=rate)


def central(setting: Setting) -> Candidate:
    """geometric-central: a curator sees the raw values and adds noise once."""
    rate = _sampled(setting.pure_rate())
    protocol = _modular(setting, "geometric-central", Polya(Fraction(1), rate), 1, transport="curator")
    return candidate(setting, protocol, setting.pure_profile(rate), rate=rate, delta=0.0)


def shuffled_modular(setting: Setting, total_shape: int) -> Candidate:
    """Exact noise, sent in additive shares modulo a number (or to an aggregator that only sums)."""
    name, share = _share(setting, total_shape)
    promise = setting.promise
    mixed = setting.transport == "shuffler"
    if mixed and promise.delta == 0.0:
        raise ConditionError("Sharing through a shuffler", "delta > 0 (mixing is statistical)", "delta = 0 (use transport='aggregator')")
    if mixed and setting.honest < FEWEST_USERS:
        raise ConditionError("Sharing through a shuffler", f"at least {FEWEST_USERS} honest users", f"{setting.honest}")
    budget = promise.with_delta(promise.delta * (1.0 - SHARING_PART)) if mixed else promise
    rate = _noise_rate(setting, total_shape, budget.delta)
    noise = Polya(share, rate)
    pure = rate <= setting.pure_rate()
    ideal = setting.pure_profile(rate) if pure else setting.noise_profile(Polya(Fraction(total_shape), rate))
    protocol = _modular(setting, name, noise, setting.users, transport=setting.transport)
    if not mixed:
        _verified(setting, ideal)
        return candidate(setting, protocol, ideal, rate=rate, shape=total_shape, delta=0.0 if pure else None)
    sharings = setting.axes * setting.rounds
    bits = math.log2(sharings / (SHARING_PART * promise.delta)) + math.log2(math.e) * max(promise.epsilon, 0.0) + 1.0
    modulus = protocol.modulus
    if modulus is None:
        raise NotCertified("shares need a modulus; please report this as a bug.")
    messages = messages_needed(setting.honest, modulus, bits)
    protocol = protocol.model_copy(update={"messages": messages})
    profile = SplitAndMix(ideal, security_bits(setting.honest, messages, modulus), sharings)
    _verified(setting, profile)
    return candidate(setting, protocol, profile, rate=rate, shape=total_shape)


def shuffled_unary(setting: Setting, total_shape: int) -> Candidate:
    """Padded noise in one-bit messages, with the smallest padding found that keeps the target at every distance."""
    name, share = _share(setting, total_shape)
    promise = setting.promise
    if promise.delta == 0.0:
        raise ConditionError("Unary messages", "delta > 0 (bounded noise always leaks at the edge)", "delta = 0")
    bounded, certain = setting.padding == "bounded", total_shape == 1 and setting.rounds == 1
    budget = promise.delta if certain else promise.delta * (1.0 - PADDING_PART)
    rate = _noise_rate(setting, total_shape, budget, joint=setting.axes == 1 or not bounded)
    noise, total = Polya(share, rate), Polya(Fraction(total_shape), rate)
    # Some honest report is clamped with at most this chance at padding c: reports * law.beyond(c).
    reports = setting.honest * setting.axes * setting.rounds
    room = promise.delta if certain else promise.delta * PADDING_PART
    enough = math.ceil(noise.tail_radius(math.log(room / reports) - promise.epsilon - 1.0))
    if enough > LARGEST_RADIUS:
        raise NotCertified(f"unary messages would need a padding of {enough:,}, that is more than {2 * enough:,} messages a person.")
    law = noise.law(UTILITY_LOG_TAIL, enough)
    ideal = setting.pure_profile(rate) if certain else setting.noise_profile(total)
    narrow = total.tail_radius(math.log(promise.delta) - TAIL_MARGIN) + promise.distance / setting.grain <= EXACT_CELLS
    if bounded and not narrow:
        raise ConditionError("Bounded padding", f"a sum of at most {EXACT_CELLS:,} cells", "more (use padding='clamp' or a granularity)")

    def exactly(radius: int) -> PrivacyProfile:
        return setting.total_profile(setting.randomizers(share, rate, setting.padding, radius)[0].summed_profile(setting.honest))

    radius = _smallest(lambda c: clamping_penalty(promise.epsilon, min(1.0, reports * law.beyond(c))) <= 0.99 * room, -1, enough)
    profile: PrivacyProfile = RarelyClamped(ideal, min(1.0, reports * law.beyond(radius)))
    if bounded or (narrow and setting.axes == setting.rounds == setting.grain == 1):
        # Where a report is clamped with the whole of delta the promise is broken, so less padding need not be tried.
        least = -1 if bounded else _smallest(lambda c: reports * law.beyond(c) < promise.delta, -1, radius) - 1
        tight, most = _smallest(lambda c: promise.nearly_kept_by(exactly(c)), least, radius), 2 * enough if bounded else radius
        while tight < most and not promise.kept_by(exactly(tight)):
            tight += max(1, tight // 50)
        if tight < most:
            radius, profile = tight, exactly(tight)
        elif bounded:
            raise NotCertified("no bounded noise up to twice the tail of one share could be verified; use padding='clamp'.")
    if isinstance(profile, RarelyClamped) and clamping_penalty(promise.epsilon, profile.clamp_probability) > room:
        raise NotCertified(f"clamping is not rare enough to be certified at epsilon {promise.epsilon:g}; use the modular encoding.")
    _verified(setting, profile)
    randomizers = tuple(one.pinned() for one in setting.randomizers(share, rate, setting.padding, radius))
    protocol = SumProtocol(name=name, transport="shuffler", randomizers=randomizers)
    return candidate(setting, protocol, profile, rate=rate, shape=total_shape, padding=setting.padding, radius=radius)


def randomized_response(setting: Setting) -> Candidate:
    """RR-Shuffle: flip every unary bit with the smallest probability that keeps the target; the client hides positions."""
    promise = setting.promise
    if promise.delta == 0.0:
        raise ConditionError("RR-Shuffle's amplification", "delta > 0", "delta = 0")
    if setting.grain != 1:
        raise ConditionError("RR-Shuffle", "granularity 1", f"granularity {setting.granularity:g}")
    spans = setting.query.spans(setting.granularity)
    if setting.axes == 2 and setting.honest * min(spans) < promise.distance:
        # The shorter axis stands for both below, so it must be able to move as far.
        bits = f"{setting.honest * min(spans):,}"
        raise ConditionError("RR-Shuffle on two axes", "at least as many honest bits on the shorter axis as the distance has cells", bits)

    def at(flip: float) -> tuple[CountResponse, ...]:
        return tuple(CountResponse(span=span, flip=flip) for span in spans)

    def profile(flip: float) -> PrivacyProfile:
        # Fewer bits hide less, so the shorter axis stands for both.
        return setting.total_profile(min(at(flip), key=lambda one: one.span).summed_profile(setting.honest))

    def near(flip: float) -> bool:
        # A necessary check at the two distances that decide in practice; the rest is verified below.
        ends = {promise.distance: promise.epsilon, 1.0: promise.slope if promise.shape == "linear" else promise.epsilon}
        return all(profile(_flip(flip)).covers_at(epsilon, promise.delta, distance) for distance, epsilon in ends.items())

    noisiest = 0.5 - 2.0**-10
    if not near(noisiest):
        raise ConditionError("RR-Shuffle", "enough honest people for this epsilon", f"{setting.honest:,}, too few at any flip")
    passing = noisiest
    while passing > 2.0**-30 and near(0.25 * passing):
        passing *= 0.25
    flip = _flip(last_certified(near, 0.25 * passing, passing, relative=1e-3))
    while not promise.kept_by(profile(flip)):
        flip = _flip(flip * 1.01)
        if flip > noisiest:
            raise NotCertified("no flip probability below one half could be verified at every distance.")
    protocol = SumProtocol(name="randomized-response-shuffle", transport="shuffler", randomizers=at(flip))
    return candidate(setting, protocol, profile(flip), rate=None, flip=flip)


def all_candidates(setting: Setting, progress: Callable[[str], None] | None = None) -> Iterator[Candidate | tuple[str, str, str]]:
    """Every candidate, or (protocol, encoding, reason) where it does not apply."""
    wanted = ("unary", "modular") if setting.encoding == "auto" else (setting.encoding,)
    jobs: list[tuple[str, str, Callable[[], Candidate]]] = [
        ("geometric-local", "modular", lambda: local(setting)),
        ("geometric-central", "modular", lambda: central(setting)),
    ]
    builders = {"unary": shuffled_unary, "modular": shuffled_modular}
    for shape in shapes(setting):
        for encoding in wanted:
            name = _share(setting, shape)[0]
            jobs.append((name, encoding, lambda builder=builders[encoding], shape=shape: builder(setting, shape)))  # type: ignore[misc]
    if "unary" in wanted:
        jobs.append(("randomized-response-shuffle", "unary", lambda: randomized_response(setting)))
    for name, encoding, job in jobs:
        if setting.protocols is not None and name not in setting.protocols:
            continue
        if progress is not None:
            progress(f"{name} ({encoding})")
        try:
            yield job()
        except (ConditionError, NotCertified, InputError) as reason:
            yield name, encoding, str(reason)


def shapes(setting: Setting) -> list[int]:
    """Total shapes B to offer: 1 (Polya), two in between, honest (geometric), and the one that meets a cap on local epsilon."""
    if setting.shapes is not None:
        return sorted(setting.shapes)
    found = {1, setting.honest}
    if setting.honest >= 27 and setting.target.delta > 0.0:
        found |= {round(setting.honest ** (1.0 / 3.0)), round(setting.honest ** (2.0 / 3.0))}
    cap = setting.max_local_epsilon
    if cap is not None and setting.target.delta > 0.0:
        found.add(_shape_under(setting, cap))
    return sorted(found)


def _shape_under(setting: Setting, cap: float) -> int:
    """Smallest total shape found whose single report stays below the cap on local epsilon (honest if none does).

    A larger shape puts more noise into each report, but also allows a larger rate: the report's epsilon falls and rises
    again. So shapes are doubled until one fits, and then bisected.
    """

    def fits(shape: int) -> bool:
        rate = _noise_rate(setting, shape, setting.target.delta, relative=1e-4)
        report = setting.noise_profile(Polya(Fraction(shape, setting.honest), rate)).pure(setting.promise.distance)
        # The candidate's own rate is calibrated more closely, so it may be a little larger.
        return report <= cap * (1.0 - 1e-3)

    shape = 1
    while not fits(shape):
        if shape == setting.honest:
            return shape
        shape = min(2 * shape, setting.honest)
    return _smallest(fits, (shape - 1) // 2, shape)


def _share(setting: Setting, total_shape: int) -> tuple[str, Fraction]:
    """The protocol's name and one person's shape: the honest people together hold `total_shape`."""
    if total_shape == setting.honest and setting.honest > 1:
        return "geometric-shuffle", Fraction(1)
    return "polya-shuffle", Fraction(total_shape, setting.honest)


def _noise_rate(setting: Setting, total_shape: int, delta: float, relative: float = CALIBRATION, *, joint: bool = True) -> float:
    """Largest sampled rate whose exact noise keeps the target with that much of delta (both axes jointly, or one at a time)."""
    pure = setting.pure_rate()
    if delta == 0.0 or (total_shape == 1 and setting.rounds == 1):
        return _sampled(pure)
    promise = setting.promise.with_delta(delta)
    precise = relative if setting.rounds == 1 and setting.axes == 1 else max(relative, 1e-5)

    def profile(rate: float) -> PrivacyProfile:
        noise = Polya(Fraction(total_shape), rate)
        return setting.noise_profile(noise) if joint else PerAxis(setting.over_rounds(AdditiveNoise(noise)))

    return _sampled(largest_rate(profile, promise, start=pure, relative=precise))


def _sampled(rate: float) -> float:
    """The largest rate not above `rate` that can be sampled exactly (more noise, never less)."""
    return float(rational_rate(min(rate, float(LARGEST_RATE))))


def _flip(flip: float) -> float:
    """The next multiple of 2^-32 up (more noise)."""
    return math.ceil(flip * FLIP_DENOMINATOR) / FLIP_DENOMINATOR


def _modular(setting: Setting, name: str, noise: Polya, draws: int, *, transport: str) -> SumProtocol:
    randomizers = setting.randomizers(noise.shape, noise.rate, "none")
    radius = math.ceil(noise.summed(draws).tail_radius(WRAP_LOG_PROBABILITY - math.log(setting.axes)))
    modulus = modulus_for(setting.users, max(randomizer.top for randomizer in randomizers), radius)
    messages = FEWEST_MESSAGES if transport == "shuffler" else 1
    return SumProtocol(name=name, transport=transport, randomizers=randomizers, modulus=modulus, messages=messages)


def _smallest(fits: Callable[[int], bool], failing: int, fitting: int) -> int:
    """The smallest number found above `failing` that fits; `fitting` is known to (or is verified later)."""
    while fitting - failing > 1:
        middle = (failing + fitting) // 2
        failing, fitting = (failing, middle) if fits(middle) else (middle, fitting)
    return fitting


def _verified(setting: Setting, profile: PrivacyProfile) -> None:
    if not setting.promise.kept_by(profile):
        raise NotCertified("the calibrated noise did not pass the final verification; please report this as a bug.")
