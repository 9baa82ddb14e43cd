"""The site: `make docs` builds it from the Markdown files here, offline, into build/site."""

import json
import sys
from pathlib import Path
from typing import Any

from metricshuffle import __version__

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.notebooks import page

project = "metricshuffle"
author = "The metricshuffle developers"
copyright = "the metricshuffle developers, Apache-2.0"
release = __version__

extensions = ["myst_parser"]
# Notebooks were executed by `make docs`, and are shown as they are.
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
nitpicky = True
smartquotes = False  # --json has two hyphens

# Headings are anchors, as on GitHub, so that the same links work in both places.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

html_theme = "furo"
html_title = "metricshuffle"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"sidebar_hide_name": False}
pygments_style = "friendly"


def _as_markdown(app: Any, name: str, source: list[str]) -> None:
    path = Path(app.env.doc2path(name))
    if path.suffix == ".ipynb":
        source[0] = page(json.loads(source[0]), path.name)


def setup(app: Any) -> None:
    app.connect("source-read", _as_markdown)
