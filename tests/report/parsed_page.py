"""Page parsed as in a browser, for tests."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link", "input"}
LOADING = ("src", "href", "xlink:href", "srcset", "action", "data", "poster", "background")


class ParsedPage(HTMLParser):
    """Parser that fails on bad nesting and collects text, loading attributes, and ids."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.open: list[str] = []
        self.tags: list[str] = []
        self.targets: list[str] = []
        self.ids: list[str] = []
        self.values: list[str] = []
        self.read: list[str] = []
        self.texts: dict[str, list[str]] = {}
        """By the element they are directly in."""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        self.tags.append(tag)
        for name, value in attrs:
            self.values.append(value or "")
            if name in LOADING:
                self.targets.append(value or "")
            if name == "id":
                self.ids.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)
            self.read += [data] if self.open[-1] not in ("style", "script") else []

    @property
    def text(self) -> str:
        """Visible or spoken text in the order of the page."""
        return re.sub(r"\s+", " ", "".join(self.read))
