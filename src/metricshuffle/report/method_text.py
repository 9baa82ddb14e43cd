"""Methods text: the method of a task, the statements behind its guarantee, and papers to cite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import metricshuffle
from metricshuffle.accounting.composition.loss_distribution import dominating_losses
from metricshuffle.accounting.dummies.dummy_losses import (
    drawn_epsilon,
    extension_delta,
    one_person_delta,
    ramp_step_loss,
    together_delta,
)
from metricshuffle.accounting.dummies.dummy_profiles import LinearDummies
from metricshuffle.accounting.shuffling.binary_exact_bound import delta_bracket as two_reports
from metricshuffle.accounting.shuffling.blanket_bound import delta_bracket as blanket_identity
from metricshuffle.accounting.shuffling.clone_bound import delta_upper as clone_pair
from metricshuffle.accounting.shuffling.full_law_bound import delta_upper as beyond_the_blanket
from metricshuffle.accounting.sums.additive_noise import coarse_slope, shift_delta
from metricshuffle.accounting.sums.flipped_bit_count import worst_over_data
from metricshuffle.accounting.sums.planar_noise import planar_shift_delta
from metricshuffle.accounting.sums.rare_clamping import clamping_penalty
from metricshuffle.accounting.sums.rounded_reports import rounded_slope
from metricshuffle.accounting.sums.split_and_mix import security_bits, view_penalty
from metricshuffle.accounting.user_items.item_reports import ItemWiseProfile
from metricshuffle.accounting.user_items.lipschitz import lipschitz_constant
from metricshuffle.accounting.user_items.metric_gaussian import gaussian_delta
from metricshuffle.accounting.user_items.query_polytope import polytope_constant
from metricshuffle.accounting.user_items.subsampled_items import draw_rate, drawn_loss
from metricshuffle.accounting.user_items.user_privacy import rate_for_changes
from metricshuffle.accounting.vectors.compromised_shuffler import (
    floor_loss,
    max_single_report_loss,
    single_report_loss,
)
from metricshuffle.accounting.vectors.encoding_terms import (
    packed_security_bits,
    rounding_factor,
    rounding_losses,
)
from metricshuffle.accounting.vectors.feature_changes import ideal_loss
from metricshuffle.citations import PAPERS, STATEMENTS, Statement
from metricshuffle.noise.dyadic_table import DyadicTable
from metricshuffle.noise.samplers import sample_discrete_laplace, sample_polya
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_answers import NoisyAnswers
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.protocols.sums import Sums
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle.spaces.places import least_metres
from metricshuffle.tasks.task import Task

OWN_PAPER = "metricshuffle"
METRIC_PRIVACY_PAPER = "Chatzikokolakis13"
"""The paper that defined metric privacy, the kind of every guarantee here."""
# For each protocol, the paper that proposed it under the same name.
PAPER_OF_PROTOCOL = {
    "geometric-shuffle": "Athanasiou25",
    "polya-shuffle": "Athanasiou25",
    "randomized-response-shuffle": "Athanasiou25",
    "shuffler-noise": "Murakami25",
    "witch-hat": "WitchHat",
}
Formula = Callable[..., object]
# The statement behind each bound that a guarantee names.
STATEMENT_OF_BOUND: dict[str, Formula] = {
    "blanket": blanket_identity,
    "clones": clone_pair,
    "beyond-blanket": beyond_the_blanket,
    "two-report": two_reports,
}


@dataclass(frozen=True)
class Method:
    """What to cite: statements behind the guarantee, and papers in the order of reference."""

    statements: tuple[Statement, ...]
    papers: tuple[str, ...]
    """Keys of PAPERS."""

    @property
    def ours(self) -> tuple[Statement, ...]:
        """Statements that are proved in metricshuffle itself."""
        return tuple(statement for statement in self.statements if statement.paper == OWN_PAPER)

    @property
    def references(self) -> tuple[str, ...]:
        return tuple(PAPERS[paper] for paper in self.papers)

    def number(self, paper: str) -> int:
        """Number by which the text refers to a paper."""
        return 1 + self.papers.index(paper)


def find_method(task: Task) -> Method:
    statements = tuple(dict.fromkeys(_statement(function) for function in _used_statements(task)))
    papers = [METRIC_PRIVACY_PAPER]
    if task.protocol.name in PAPER_OF_PROTOCOL:
        papers.append(PAPER_OF_PROTOCOL[task.protocol.name])
    if (
        isinstance(task.protocol, Sums | NoisyVectors)
        and task.protocol.trusted == "shuffler"
        and task.protocol.modulus is not None
    ):
        papers.append("Balle20")
    papers += [statement.paper for statement in statements if statement.paper != OWN_PAPER]
    if task.rounds > 1 and "composed" in task.guarantee.bound:
        papers.append("Doroshenko22")
    return Method(statements, tuple(dict.fromkeys(papers)))


def _statement(function: Formula) -> Statement:
    return STATEMENTS[f"{function.__module__}.{function.__qualname__}"]


def _used_statements(task: Task) -> Iterator[Formula]:
    """Yield the functions whose statements the mechanism and its account rest on."""
    protocol = task.protocol
    bound = task.guarantee.bound
    if isinstance(protocol, Sums):
        yield from _used_by_sums(protocol, bound)
    elif isinstance(protocol, Frequencies):
        yield from _used_by_reports(protocol, bound)
    elif isinstance(protocol, NoisyVectors):
        yield from (sample_polya, ideal_loss)
        if protocol.trusted == "shuffler":
            yield from (packed_security_bits, view_penalty)
        if protocol.trusted in ("shuffler", "aggregator"):
            alone = single_report_loss if task.query.items is None else max_single_report_loss
            yield alone if protocol.floor is None else floor_loss
        if protocol.rounding is not None:
            yield rounding_losses
        if protocol.most_items is not None:
            yield rounding_factor
    elif isinstance(protocol, ShufflerNoise):
        yield from _used_by_dummies(protocol, task)
    elif isinstance(protocol, NoisyAnswers):
        yield polytope_constant if protocol.noise.noise == "k-norm" else lipschitz_constant
        if protocol.noise.noise == "gaussian":
            yield gaussian_delta
    if "composed" in bound:
        yield dominating_losses
    if task.query.items is not None:
        yield rate_for_changes


def _used_by_dummies(protocol: ShufflerNoise, task: Task) -> Iterator[Formula]:
    yield DyadicTable.bounded_geometric
    if protocol.width > 1:
        yield from (ramp_step_loss, extension_delta)
    elif protocol.drawn:
        yield from (drawn_epsilon, extension_delta)
    elif task.guarantee.shape == "flat" and task.query.items is None:
        yield one_person_delta
    else:
        yield from (LinearDummies.loss, together_delta)
    if protocol.floor is not None:
        yield floor_loss


def _used_by_sums(protocol: Sums, bound: str) -> Iterator[Formula]:
    randomizer = protocol.randomizers[0]
    if isinstance(randomizer, AdditiveRandomizer):
        yield sample_discrete_laplace if randomizer.shape == 1 else sample_polya
        if not bound.startswith("pure"):
            yield planar_shift_delta if len(protocol.randomizers) > 1 else shift_delta
        if protocol.rounding is not None:
            yield from (rounded_slope, least_metres)
        elif protocol.grain != 1:
            yield coarse_slope
    else:
        yield worst_over_data
    if "clamped" in bound:
        yield clamping_penalty
    if protocol.modulus is not None and protocol.trusted == "shuffler":
        yield from (security_bits, view_penalty)


def _used_by_reports(protocol: Frequencies, bound: str) -> Iterator[Formula]:
    law = getattr(type(protocol.randomizer), "blanket", None)
    if law is not None and f"{law.__module__}.{law.__qualname__}" in STATEMENTS:
        yield law
    if protocol.items > 1 or protocol.item_rate is not None:
        yield ItemWiseProfile.delta
        if protocol.drawn:
            yield drawn_loss if protocol.drawn is True else draw_rate
        return
    if bound in STATEMENT_OF_BOUND:
        yield STATEMENT_OF_BOUND[bound]


def describe_methods(task: Task, reports: int | None = None) -> list[str]:
    """Write two paragraphs for the methods section of a paper.

    Numbers in brackets refer to the papers of `find_method`, in order.
    """
    method = find_method(task)
    protocol = task.protocol
    query = task.query
    named = f"{protocol.name}{f' ({protocol.encoding})' if protocol.encoding else ''}"
    cited = [paper for paper in method.papers if paper != METRIC_PRIVACY_PAPER]
    marks = f" [{', '.join(str(method.number(paper)) for paper in cited)}]" if cited else ""
    people = (
        f"n = {task.users:,}"
        if reports is None
        else f"n = {reports:,} reports of {task.users:,} people"
    )
    rounds = "" if task.rounds == 1 else f", in {task.rounds} rounds which are accounted together"
    model = {
        "nobody": "in the local model",
        "shuffler": "in the shuffle model",
        "aggregator": "with an aggregator of secret shares",
        "curator": "in the central model",
    }[protocol.trusted]
    collected = (
        f"We estimated the {query} ({people}{rounds}) under metric differential privacy "
        f"[{method.number(METRIC_PRIVACY_PAPER)}] "
        f"{model}, with the "
        f"method {named}{marks}, as implemented in metricshuffle "
        f"{metricshuffle.__version__} (task {task.digest[:16]})."
    )
    promise = f"Guarantee: {task.guarantee}"
    if protocol.trusted != "nobody":
        promise += f" If the {protocol.trusted} is not honest: {task.if_shuffler_colludes}"
    return [collected, f"{promise}{_basis_text(method)}"]


def _basis_text(method: Method) -> str:
    proved = [f"“{statement.label}”" for statement in method.ours]
    if not proved:
        return ""
    if len(proved) == 1:
        return (
            f" It rests on the statement {proved[0]}, which is proved in the documentation of "
            "metricshuffle (theorems)."
        )
    listed = f"{', '.join(proved[:-1])} and {proved[-1]}"
    return (
        f" It rests on the statements {listed}, which are proved in the documentation of "
        "metricshuffle (theorems)."
    )


@dataclass(frozen=True)
class MethodsChapter:
    """Methods to cite: paragraphs, and references in the order of their numbers."""

    paragraphs: tuple[str, ...]
    references: tuple[str, ...]


def methods(subject: ReportSubject) -> MethodsChapter:
    reports = None if subject.release is None else subject.release.reports
    return MethodsChapter(
        tuple(describe_methods(subject.task, reports)), find_method(subject.task).references
    )
