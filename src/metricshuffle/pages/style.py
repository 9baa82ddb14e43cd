"""How the report looks: one style sheet for light, dark and paper, and the few lines of script that copy a text."""

from __future__ import annotations

from metricshuffle.pages.charts import marks

LIGHT = {
    marks.INK: "#1b2330", marks.MUTED: "#5a6473", marks.GRID: "#e2e6ec", marks.BLUE: "#0072b2", marks.VERMILLION: "#c85400",
    marks.GREEN: "#00805d", marks.PURPLE: "#a2518a", marks.WATER: "#bcdcf2",
}  # fmt: skip
DARK = {
    marks.INK: "#e8ecf3", marks.MUTED: "#a3adbd", marks.GRID: "#2f3745", marks.BLUE: "#5cb8f0", marks.VERMILLION: "#ff9457",
    marks.GREEN: "#3fcf9f", marks.PURPLE: "#e29ccd", marks.WATER: "#24506e",
}  # fmt: skip


def _colours(palette: dict[str, str]) -> str:
    """Charts are drawn in plain colours; each is replaced by its counterpart in the palette."""
    return "\n".join(f'svg [fill="{old}"]{{fill:{new}}} svg [stroke="{old}"]{{stroke:{new}}}' for old, new in palette.items())


_PAGE = """
:root { color-scheme: light dark; --ink: #1b2330; --muted: #5a6473; --line: #dde2e9; --page: #f6f7f9; --card: #ffffff;
  --accent: #0072b2; --warn: #c85400; --good: #00805d; --tint: #eef5fa; --tint-good: #eef7f3; --tint-warn: #fdf3ec; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main, header, footer { max-width: 940px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 56px; padding-bottom: 12px; }
.brand { font: 600 13px/1 ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; color: var(--accent);
  letter-spacing: .02em; margin: 0 0 18px; }
h1 { font-size: 34px; line-height: 1.18; letter-spacing: -.018em; margin: 0 0 14px; max-width: 21em; text-wrap: balance; }
.lede { font-size: 18px; line-height: 1.55; color: var(--muted); margin: 0; max-width: 44em; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 30px 34px 28px; margin: 26px 0; }
h2 { font-size: 22px; line-height: 1.25; letter-spacing: -.01em; margin: 0 0 10px; }
h3 { font-size: 15px; margin: 0 0 4px; }
p { margin: 0 0 14px; max-width: 46em; }
.remedies { font-size: 15px; padding-left: 20px; margin: 14px 0 0; }
.number { color: var(--muted); font-weight: 400; margin-right: .45em; }
nav ol { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; padding: 0; margin: 24px 0 0; font-size: 14px; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
.cards { display: grid; grid-template-columns: 1fr 1fr; gap: 22px; margin-top: 20px; }
.cards > div { border: 1px solid var(--line); border-radius: 10px; padding: 20px 22px 18px; min-width: 0; }
.what { color: var(--muted); font-size: 14px; line-height: 1.45; margin: 0 0 14px; }
.answer { font-size: 32px; line-height: 1.15; font-weight: 650; letter-spacing: -.02em; margin: 0; font-variant-numeric: tabular-nums; }
.answer.pair { font-size: 26px; line-height: 37px; white-space: nowrap; }
.answer small { font-size: 17px; font-weight: 500; color: var(--muted); letter-spacing: 0; }
.caption { font-size: 13px; color: var(--muted); margin: 0 0 14px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 0 0 16px; font-size: 14px;
  font-variant-numeric: tabular-nums; }
dt { color: var(--muted); } dd { margin: 0; }
.promise { border-left: 3px solid var(--good); background: var(--tint-good); padding: 10px 14px; margin: 0 0 10px; font-size: 14px;
  line-height: 1.5; border-radius: 0 6px 6px 0; }
.promise b { display: block; font-size: 12px; letter-spacing: .02em; color: var(--good); }
.promise.broken { border-color: var(--warn); background: var(--tint-warn); } .promise.broken b { color: var(--warn); }
.scroll { overflow-x: auto; margin: 16px 0 12px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; line-height: 1.4; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); font-size: 13px; padding-bottom: 6px; }
th { text-align: left; font-weight: 600; font-size: 13px; color: var(--muted); border-bottom: 1px solid var(--line);
  padding: 6px 14px 6px 0; vertical-align: bottom; }
td { border-bottom: 1px solid var(--line); padding: 7px 14px 7px 0; vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th.n, td.n { text-align: right; white-space: nowrap; } td:last-child, th:last-child { padding-right: 0; }
tr.chosen td { font-weight: 650; background: var(--tint); } tr.chosen td:first-child { box-shadow: inset 3px 0 var(--accent); }
tr.baseline td { color: var(--muted); }
tr td:first-child, tr th:first-child { padding-left: 10px; } td:last-child, th:last-child { padding-right: 10px; }
.tag { font-size: 12px; font-weight: 500; color: var(--accent); white-space: nowrap; } tr.baseline .tag { color: var(--muted); }
figure { margin: 22px 0 6px; } figcaption { font-size: 14px; line-height: 1.5; color: var(--muted); margin-top: 8px; max-width: 52em; }
svg.chart { display: block; width: 100%; height: auto; overflow: visible; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 24px; padding: 0; margin: 0 0 14px; font-size: 14px; }
.legend svg { width: 28px; height: 10px; margin-right: 8px; vertical-align: 1px; }
details { margin: 10px 0 0; font-size: 14px; } summary { cursor: pointer; color: var(--accent); }
details ul { padding-left: 18px; }
.paste { border: 1px solid var(--line); border-radius: 10px; padding: 18px 22px 6px; margin: 18px 0 0; background: var(--page); }
.paste .top { display: flex; justify-content: space-between; align-items: center; gap: 12px; margin-bottom: 10px; }
.paste p { font-size: 15px; max-width: none; }
button { font: inherit; font-size: 13px; font-weight: 600; color: var(--accent); background: var(--card);
  border: 1px solid var(--line); border-radius: 7px; padding: 5px 13px; cursor: pointer; }
button:hover { border-color: var(--accent); }
  button:focus-visible, summary:focus-visible, a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
code { font: 13px/1.4 ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; background: var(--page);
  padding: 1px 5px; border-radius: 4px; overflow-wrap: anywhere; }
footer { color: var(--muted); font-size: 13px; padding-bottom: 60px; } footer p { max-width: none; }
@media (max-width: 720px) { .cards { grid-template-columns: 1fr; } section { padding: 22px 18px; } h1 { font-size: 27px; }
  figure { overflow-x: auto; } svg.chart { min-width: 640px; } }
"""

_DARK = """
:root { --ink: #e8ecf3; --muted: #a3adbd; --line: #2b3342; --page: #10141b; --card: #171c25; --accent: #5cb8f0; --warn: #ff9457;
  --good: #3fcf9f;
  --tint: #1a2836; --tint-good: #16291f; --tint-warn: #2e2219; }
"""

_PAPER = """
:root { --page: #fff; --tint: #fff; --tint-good: #fff; --tint-warn: #fff; }
body { font-size: 10.5pt; } header { padding-top: 0; } nav, button, summary { display: none; }
main, header, footer { max-width: none; padding: 0; }
section { border: 0; border-top: 1px solid var(--line); border-radius: 0; padding: 14px 0 0; margin: 14px 0; }
figure, .promise, tr { break-inside: avoid; } h2 { break-after: avoid; }
"""

STYLE = f"{_PAGE}{_colours(LIGHT)}\n@media screen and (prefers-color-scheme: dark) {{{_DARK}{_colours(DARK)}}}\n@media print {{{_PAPER}}}\n"

SCRIPT = """
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    const text = [...source.querySelectorAll("p")].map((part) => part.textContent).join("\\n\\n");
    let done = true;
    try { await navigator.clipboard.writeText(text); }
    catch {
      const range = document.createRange(); range.selectNodeContents(source);
      const chosen = getSelection(); chosen.removeAllRanges(); chosen.addRange(range);
      done = document.execCommand("copy");
    }
    const before = button.textContent;
    button.textContent = done ? "Copied" : "Selected: press Ctrl+C";
    setTimeout(() => { button.textContent = before; }, 2500);
  });
}
"""
