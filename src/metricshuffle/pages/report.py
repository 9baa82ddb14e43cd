"""One self-contained page about three collections: no network, no library, nothing to install to read it."""

from __future__ import annotations

import math
from html import escape

import numpy as np
from numpy.typing import NDArray

from metricshuffle.pages import figures
from metricshuffle.pages.html import details, opening, table
from metricshuffle.pages.style import SCRIPT, STYLE
from metricshuffle.pages.users_chapter import UserStudy, chapter
from metricshuffle.pages.what_if import Consequence, consequences
from metricshuffle.pages.words import (
    Study,
    assessment,
    consequence_text,
    interval_text,
)
from metricshuffle.planning import Plan
from metricshuffle.planning.explain import COLUMNS, name_of, target_text, unit_of, why_chosen
from metricshuffle.planning.explain import rows as candidate_rows
from metricshuffle.planning.release import measured
from metricshuffle.privacy.guarantee import plain, promised

SECTIONS = (
    ("answers", "The answers"), ("protocols", "Choosing a protocol"), ("distance", "Epsilon against distance"), ("users",
    "Error against users"),
    ("frontier", "If the shuffler is not honest"), ("city", "The city"), ("visits", "A month of visits each"),
    ("failures", "When an assumption fails"), ("assessment", "For an assessment"),
)  # fmt: skip


def report(numbers: Study, city: Study, cells: NDArray[np.int64], visits: UserStudy) -> str:
    """The whole page. `cells` are the cells of the city's (invented) people, `visits` is about people with many items each."""
    bodies = (
        _answers(numbers, city), _protocols(numbers.plan, city.plan), figures.distance(numbers.plan), figures.users(numbers.plan),
        figures.trade_off(numbers.plan), figures.city(city, cells), chapter(visits), _failures(numbers.plan, city.plan),
        _assessment(numbers, city),
    )  # fmt: skip
    sections = "\n".join(
        f'<section id="{name}"><h2><span class="number">{index}</span>{escape(title)}</h2>\n{body}</section>'
        for index, ((name, title), body) in enumerate(zip(SECTIONS, bodies, strict=True), 1)
    )
    links = "".join(f'<li><a href="#{name}">{index} {escape(title)}</a></li>' for index, (name, title) in enumerate(SECTIONS, 1))
    return f"""{opening("what three private collections reveal, and what they hide", STYLE, scripts=True)}
<header>
<p class="brand">metricshuffle demo</p>
<h1>What three private collections reveal, and what they hide</h1>
<p class="lede">{numbers.plan.users:,} invented people report a number and {city.plan.users:,} invented people report where they live.
Each adds noise at home, a shuffler mixes the reports, and an analyst gets one answer. A third collection, of {visits.local[0].users:,}
people with a month of visits each, is in chapter 7. The noise was real; every number below was computed by the accountant when
this page was made.</p>
<nav aria-label="Contents"><ol>{links}</ol></nav>
</header>
<main>
{sections}
</main>
<footer><p>Limits: there is no network shuffler yet (all three roles ran on one machine, which therefore saw the raw values); the people
are invented; an interval is
about the noise, not about people who did not take part. This page loads nothing and sends nothing.</p></footer>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _answers(*studies: Study) -> str:
    cards = []
    for study in studies:
        plan, release, unit, digits = study.plan, study.release, unit_of(study.plan), study.release.decimals
        facts = (
            ("truth", f"{measured(study.truth, digits)}{unit}"), ("95 % interval", f"{interval_text(study)}{unit}"),
            ("error", f"{plain(study.error)}{unit} (expected {plain(plan.choice.expected_error)}{unit})"),
            ("protocol", f"{name_of(plan.choice)}, {plan.choice.encoding}, {plan.choice.bits_per_user:,} bits a person"),
        )  # fmt: skip
        shape = '"answer pair"' if plan.query.axes == 2 else "answer"
        cards.append(
            f"<div><h3>{escape(study.title)}</h3><p class=what>{plan.users:,} people are asked for {escape(study.asked)}.</p>"
            f"<p class={shape}>{escape(measured(release.value, digits))}<small>{escape(unit)}</small></p><p class=caption>private "
            f"{plan.query.kind}</p>"
            "<dl>" + "".join(f"<dt>{name}</dt><dd>{escape(words)}</dd>" for name, words in facts) + "</dl>"
            f"<div class=promise><b>If the {release.guarantee.trust.trusted} is honest</b>{escape(str(release.guarantee))}</div>"
            f'<div class="promise broken"><b>If it is not</b>{escape(str(release.if_shuffler_colludes))}</div></div>'
        )
    return (
        "<p>The truth is shown because these people are invented; nobody in a real collection ever holds it. Each answer comes with an "
        "interval "
        f"that is exact for the noise, and with two promises: one if the shuffler is honest, one if it is not.</p><div "
        f'class="cards">{"".join(cards)}</div>'
    )


def _candidates(plan: Plan) -> str:
    marks, rows, classes = {"->": "chosen", "(baseline)": "baseline"}, [], []
    for one, row in zip(plan.candidates, candidate_rows(plan), strict=True):
        alone = promised(one.local_epsilon) if math.isfinite(one.local_epsilon) else row[5]
        rows.append((*row[1:5], alone, row[6], marks.get(row[0], "")))
        classes.append(marks.get(row[0], ""))
    return table((*COLUMNS[1:], ""), rows, numeric=(3, 4, 5), classes=classes)


def _protocols(plan: Plan, other: Plan) -> str:
    refused = "".join(f"<li>{escape(one.protocol)} ({escape(one.encoding)}): {escape(one.reason)}</li>" for one in other.not_offered)
    more = f"<p>{escape(why_chosen(other))}</p>{_candidates(other)}" + (f"<p>Not offered:</p><ul>{refused}</ul>" if refused else "")
    return (
        f"<p>Target: {escape(target_text(plan))}, from {plan.users:,} people of whom at least {plan.honest:,} follow the protocol. "
        f"Every protocol below keeps it; they differ in whom they trust, how far the answer is off, and what is left if the trust is "
        f"misplaced. "
        f"{escape(why_chosen(plan))}</p>{_candidates(plan)}{details('The same table for the city', more)}"
    )


REMEDIES = (
    ("--max-local-epsilon", "caps what one report gives away if the shuffler colludes."),
    ("--honest", "plans for as few honest people as you fear there are."),
    ("--distance", "plans for moves as large as people make."),
)


def _failures(*plans: Plan) -> str:
    parts = []
    remedies = "".join(f"<li><code>{option}</code> {words}</li>" for option, words in REMEDIES)
    for plan in plans:
        other = figures.geometric_shuffle(plan)
        shown = (plan.choice,) if other is None or other.protocol == plan.choice.protocol else (plan.choice, other)
        found = consequences(plan, shown)
        names = [name_of(one) + (" (chosen)" if one is plan.choice else "") for one in shown]
        rows = [_failure(row, found[index - 1].group if index else "") for index, row in enumerate(found)]
        classes = ["chosen" if row.planned else "" for row in found]
        words = f"Epsilon of the {plan.query.kind} over {plan.query.domain}, delta {plan.target.delta:g}"
        parts.append(table(("what happens", "", *names), rows, numeric=range(2, 2 + len(shown)), classes=classes, caption=words))
    return (
        "<p>A promise rests on assumptions. These are the exact epsilons when one of them fails while everything else stays as planned. "
        "Batches smaller than planned are refused outright; people who collude cannot be seen, which is why a plan counts fewer honest "
        "people than users. Far out the promise ends altogether, because the shares of a report are mixed only to the precision the "
        "target needs.</p>" + "".join(parts) + f"<ul class=remedies>{remedies}</ul>"
    )


def _failure(row: Consequence, before: str) -> tuple[str, ...]:
    first = "" if row.group == before else row.group
    return (first, row.situation, *(consequence_text(row, index) for index in range(len(row.epsilons))))


def _assessment(*studies: Study) -> str:
    parts = [
        "<p>Made from the plans; change what you ask and it changes with it. Whether the assumptions hold where you are is yours to "
        "say.</p>"
    ]
    for index, study in enumerate(studies):
        halves = (paragraph.split(". ", 1) for paragraph in assessment(study))
        text = "".join(f"<p><b>{escape(head)}.</b> {escape(rest)}</p>\n" for head, rest in halves)
        button = f'<button type="button" data-copy="paste-{index}">Copy</button>'
        parts.append(
            f'<div class="paste"><div class="top"><h3>{escape(study.title)}</h3>{button}</div><div id="paste-{index}">{text}</div></div>'
        )
    return "".join(parts)
