"""Sphinx settings."""

from tangentkit import __version__

project = "tangentkit"
author = "the tangentkit maintainers"
copyright = "2026, the tangentkit maintainers"
version = release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
html_theme = "furo"
html_title = "tangentkit"
# No math extension: pages must read without a network, so formulas are written in Unicode.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
exclude_patterns = ["_build"]
# jaxtyping's shapes are not classes that could be linked to.
suppress_warnings = ["ref.python"]
