"""Small pieces of HTML, escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def opening(title: str, style: str, *, scripts: bool = False) -> str:
    """The top of a page up to <body>; the policy lets the browser load nothing, and run scripts only if the page has its own."""
    allowed = "; script-src 'unsafe-inline'" if scripts else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'{allowed}">
<title>metricshuffle: {escape(title)}</title>
<style>{style}</style>
</head>
<body>"""


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: Sequence[int] = (), classes: Sequence[str] = (), caption: str = ""
) -> str:
    """A table of escaped cells; the columns in `numeric` are set flush right."""

    def cell(tag: str, column: int, text: str) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        return f"<{tag}{scope}{' class=n' if column in numeric else ''}>{escape(text)}</{tag}>"

    top = "".join(cell("th", column, text) for column, text in enumerate(head))
    body = "".join(
        f"<tr{f' class={name}' if name else ''}>" + "".join(cell("td", column, text) for column, text in enumerate(row)) + "</tr>\n"
        for row, name in zip(rows, classes or [""] * len(rows), strict=True)
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{title}<thead><tr>{top}</tr></thead>\n<tbody>{body}</tbody></table></div>\n'


def details(summary: str, body: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>\n{body}</details>\n"


def figure(drawing: str, caption: str, legend: Sequence[tuple[str, str, str]] = ()) -> str:
    """A chart with its caption; the legend is (words, colour, dash pattern or "ring")."""
    ring = '<circle cx="14" cy="5" r="4" fill="none" stroke-width="2"'
    keys = "".join(
        '<li><svg viewBox="0 0 28 10" aria-hidden="true">'
        + (ring if dash == "ring" else f'<path d="M0,5h28" fill="none" stroke-width="3" stroke-dasharray="{dash}"')
        + f' stroke="{colour}"/></svg>{escape(words)}</li>'
        for words, colour, dash in legend
    )
    return f"<figure>{f'<ul class=legend>{keys}</ul>' if keys else ''}{drawing}<figcaption>{caption}</figcaption></figure>\n"
