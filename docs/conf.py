"""The site: `make docs` builds it from the Markdown files here, offline, into build/site."""

from metricshuffle import __version__

project = "metricshuffle"
author = "The metricshuffle developers"
copyright = "the metricshuffle developers, Apache-2.0"
release = __version__

extensions = ["myst_parser"]
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
