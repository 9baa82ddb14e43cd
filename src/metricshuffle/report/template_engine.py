"""Template rendering: Jinja2 with autoescaping, and an error for undefined names."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from metricshuffle.errors import MissingExtra, require

if TYPE_CHECKING:
    from jinja2 import Environment

EXTRA = "report"
PAGES = "metricshuffle.report"
_root = ""


def render_template(template: str, **context: object) -> str:
    """Render a template of templates/."""
    return rendered_from(PAGES, template, **context)


def rendered_from(package: str, template: str, /, **context: object) -> str:
    """Render a template of another package; it may include and extend templates of this one."""
    require("jinja2", EXTRA)
    return _environment(package).get_template(template).render(context)


def root() -> str:
    """Path below which the pages of this process are served, without a trailing slash."""
    return _root


def set_root(path: str) -> None:
    """Set the path with which links between pages begin, for this process."""
    global _root
    _root = path


def require_report_extra() -> None:
    """Raise unless pages can be drawn; call it before minutes are spent, not after."""
    for package in ("vl_convert", "jinja2"):
        require(package, EXTRA)


def can_draw() -> bool:
    """Whether the optional dependencies of pages are installed."""
    try:
        require_report_extra()
    except MissingExtra:
        return False
    return True


@cache
def _environment(package: str) -> Environment:
    from jinja2 import ChoiceLoader, Environment, FunctionLoader, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader(
            [
                *(PackageLoader(name) for name in dict.fromkeys((package, PAGES))),
                FunctionLoader(_load_static),
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["thousands"] = "{:,}".format
    environment.filters["policy_hash"] = _policy_hash
    environment.globals["root"] = root
    return environment


def _load_static(name: str) -> str | None:
    """Load a file built elsewhere (static/NAME) as a template that is copied verbatim."""
    folder, _, file = name.partition("/")
    if folder != "static" or "/" in file:
        return None
    text = (files(PAGES) / "static" / file).read_text(encoding="utf-8")
    return None if "endraw" in text else f"{{% raw %}}{text}{{% endraw %}}"


def _policy_hash(text: str) -> str:
    """Hash by which the security policy of a page allows this one style or script."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
