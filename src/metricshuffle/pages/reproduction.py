"""index.html of `metricshuffle reproduce all`: every item with its chart and its table, offline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from metricshuffle.citations import PAPERS
from metricshuffle.cli.reproduce import shown
from metricshuffle.pages.charts.marks import svg
from metricshuffle.pages.html import details, figure, opening
from metricshuffle.pages.style import STYLE
from metricshuffle.papers.reproduction import NOT_AT_HAND, RULE, Item, Reproduction, Row, Settings

HEAD = ("", "published", "as published formula", "ours", "ratio", "verdict", "why")
MEANINGS = (
    ("reproduced", "the paper's own method gives the printed number"),
    ("not reproduced", "it gives another one"),
    ("impossible", "no mechanism with the promised privacy can have it; the bound is beside it"),
    ("true", "a published formula that holds"),
    ("loose", "holds, and promises less than is true"),
    ("false", "a published formula that does not hold; the counterexample is beside it"),
    ("ours", "nothing was printed to compare with"),
)
_STYLE = """
.counts { display: grid; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); gap: 12px; padding: 0; margin: 22px 0 0;
  list-style: none; }
.counts li { border: 1px solid var(--line); background: var(--card); border-radius: 10px; padding: 12px 16px; font-size: 13px;
  line-height: 1.4; color: var(--muted); }
.counts b { display: block; font-size: 26px; line-height: 1.2; color: var(--ink); font-variant-numeric: tabular-nums; }
.verdict { display: inline-block; white-space: nowrap; font-size: 12px; font-weight: 600; border-radius: 5px; padding: 1px 7px;
  color: var(--muted); background: var(--page); }
.verdict.good { color: var(--good); background: var(--tint-good); } .verdict.bad { color: var(--warn); background: var(--tint-warn); }
nav h3 { margin: 18px 0 4px; } nav ol { margin-top: 0; } nav .verdict { font-size: 11px; }
.paper { margin: 46px 0 0; } .paper p { color: var(--muted); font-size: 15px; }
.where { font: 13px/1.4 ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; color: var(--muted); margin: 0 0 12px; }
td.why { font-size: 13px; color: var(--muted); min-width: 13em; }
table.found th.n { white-space: normal; } table.found td, table.found th { padding-right: 10px; }
td.name { min-width: 9em; } small.error { display: block; color: var(--muted); font-size: 12px; }
.promise p:last-child { margin: 0; }
@media (max-width: 720px) {
  table.found thead { display: none; }
  table.found, table.found tbody, table.found tr, table.found td { display: block; width: 100%; }
  table.found tr { border-bottom: 1px solid var(--line); padding: 10px 0; }
  table.found td, table.found td.n { border: 0; padding: 1px 0; text-align: left; white-space: normal; min-width: 0; }
  table.found td.name { font-weight: 600; } table.found td:empty { display: none; }
  table.found td.n::before { content: attr(data-is) ": "; color: var(--muted); } small.error { display: inline; }
}
"""


def page(items: Sequence[Item], found: Mapping[str, Reproduction], failed: Mapping[str, str], settings: Settings) -> str:
    """The whole page; items that failed or were not reached say so in their place."""
    papers = list(dict.fromkeys(item.paper for item in items))
    counts: Counter[str] = Counter(row.verdict for one in found.values() for row in one.rows)
    cards = "".join(
        f"<li><b>{counts[verdict]:,}</b>{_verdict(verdict)} {escape(meaning)}</li>" for verdict, meaning in MEANINGS if counts[verdict]
    )
    how = "fewer runs and sizes (--quick)" if settings.quick else "all runs and sizes"
    runs = "" if settings.runs is None else f", {settings.runs:,} runs a simulation"
    parts = [
        f'<div class="paper"><h2 id="{escape(paper)}">{escape(PAPERS[paper])}</h2><p>{escape(NOT_AT_HAND.get(paper, ""))}</p></div>\n'
        + "".join(_section(item, found.get(item.name), failed.get(item.name)) for item in items if item.paper == paper)
        for paper in papers
    ]
    return f"""{opening("what the papers print, and what is true", STYLE + _STYLE)}
<header>
<p class="brand">metricshuffle reproduce</p>
<h1>What the papers print, and what is true</h1>
<p class="lede">Every table and figure of {len(papers)} papers: the number they print, what their own formula gives, and what the
accountant certifies. No number in a result column was typed by hand. Run with {escape(how)}{escape(runs)}, seed {settings.seed}.</p>
<ul class="counts">{cards}</ul>
{_failures(failed, len(items) - len(found) - len(failed))}
<nav aria-label="Contents">{"".join(_contents(paper, items, found) for paper in papers)}</nav>
</header>
<main>
<section id="reading"><h2>How to read it</h2><p>{escape(RULE)}</p><p>"Ratio" is ours over the published number, or over what the published
formula gives if none is printed. Above the tables stands what was found; every item is also a JSON and a CSV file beside this
page.</p></section>
{"".join(parts)}
</main>
<footer><p>This page loads nothing and sends nothing.</p></footer>
</body>
</html>
"""


def _verdict(verdict: str) -> str:
    kind = {"reproduced": "good", "true": "good", "not reproduced": "bad", "impossible": "bad", "false": "bad"}.get(verdict, "")
    return f'<span class="verdict {kind}">{escape(verdict)}</span>'


def _contents(paper: str, items: Sequence[Item], found: Mapping[str, Reproduction]) -> str:
    lines = []
    for item in items:
        if item.paper == paper:
            rows = found[item.name].rows if item.name in found else ()
            worst = next(
                (verdict for verdict in ("impossible", "false", "not reproduced") if any(row.verdict == verdict for row in rows)), ""
            )
            lines.append(f'<li><a href="#{escape(item.name)}">{escape(item.label)}</a> {_verdict(worst) if worst else ""}</li>')
    return f'<h3><a href="#{escape(paper)}">{escape(PAPERS[paper])}</a></h3><ol>{"".join(lines)}</ol>'


def _failures(failed: Mapping[str, str], missing: int) -> str:
    told = "".join(f"<p><code>{escape(name)}</code> {escape(reason)}</p>" for name, reason in failed.items())
    told += f"<p>{missing} items were not reached.</p>" if missing else ""
    return f'<div class="promise broken"><b>Not finished</b>{told}</div>' if told else ""


def _section(item: Item, found: Reproduction | None, reason: str | None) -> str:
    title = (
        f'<section id="{escape(item.name)}"><h2>{escape(item.label)}: {escape(item.title)}</h2>'
        f'<p class="where">metricshuffle reproduce {escape(item.name)}</p>'
    )
    if found is None:
        return f'{title}<div class="promise broken"><b>No result</b>{escape(reason or "not reached")}</div></section>\n'
    words = "".join(f"<p>{escape(one)}</p>" for one in found.words)
    charts = "".join(
        f"<h3>{escape(chart.title)}</h3>"
        + figure(svg(chart.specification, f"{item.name}-{index}", chart.title, chart.caption), escape(chart.caption))
        for index, chart in enumerate(found.charts)
    )
    judged, ours = [row for row in found.rows if row.verdict != "ours"], [row for row in found.rows if row.verdict == "ours"]
    tables = (_table(judged) if judged else "") + (
        details(f"{len(ours)} numbers that have no printed counterpart", _table(ours)) if len(ours) > 8 else _table(ours) if ours else ""
    )
    return f"{title}{words}{charts}{tables}</section>\n"


def _table(rows: Sequence[Row]) -> str:
    used = [any(_numbers(row)[column][0] for row in rows) for column in range(4)]
    head = [name for index, name in enumerate(HEAD) if index not in range(1, 5) or used[index - 1]]
    top = "".join(f'<th scope="col"{" class=n" if name in HEAD[1:5] else ""}>{escape(name)}</th>' for name in head)
    body = "".join(_line(row, used) for row in rows)
    return f'<div class="scroll"><table class="found"><thead><tr>{top}</tr></thead>\n<tbody>{body}</tbody></table></div>\n'


def _numbers(row: Row) -> tuple[tuple[str, str], ...]:
    error = "" if row.standard_error is None else f'<small class="error">± {shown(row.standard_error, digits=2)}</small>'
    return (
        (shown(row.published, digits=6), ""),
        (shown(row.as_published), ""),
        (shown(row.ours), error),
        (shown(row.ratio, digits=3), ""),
    )


def _line(row: Row, used: Sequence[bool]) -> str:
    numbers = "".join(
        f'<td class="n" data-is="{escape(name)}">{escape(number)}{extra}</td>' if number else '<td class="n"></td>'
        for name, (number, extra), kept in zip(HEAD[1:5], _numbers(row), used, strict=True)
        if kept
    )
    told = f'<td>{_verdict(row.verdict)}</td><td class="why">{escape(row.note)}</td>'
    return f'<tr><td class="name">{escape(row.label)}</td>{numbers}{told}</tr>\n'
