"""Templates to text: Jinja2 with everything escaped, and an error where a template knows a name that the page does not."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from metricshuffle.errors import require

if TYPE_CHECKING:
    from jinja2 import Environment

EXTRA = "report"


def rendered(template: str, **context: object) -> str:
    """The text of a template in templates/."""
    require("jinja2", EXTRA)
    return _environment().get_template(template).render(context)


def require_report_extra() -> None:
    """Fail with a sentence unless pages can be drawn: asked before minutes are spent, not after."""
    for package in ("vl_convert", "jinja2"):
        require(package, EXTRA)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("metricshuffle.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["thousands"] = "{:,}".format
    return environment
