"""Sphinx settings."""

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

from tangentkit import __version__

project = "tangentkit"
author = "the tangentkit maintainers"
copyright = "2026, the tangentkit maintainers"
version = release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_design",
]
highlight_language = "none"  # trees and formulas are no Python
html_theme = "furo"
html_title = "tangentkit"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_math_renderer = "mathml"
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autosummary_generate = False
# A name in single backticks of a docstring is a link where the name has an entry, and code elsewhere.
default_role = "py:obj"
exclude_patterns = ["_build", "studies/pages", "studies/records"]
# The claims and the reports of studies, as they were written: pages of their own.
html_extra_path = ["studies/pages"]
# jaxtyping's shapes are not classes that could be linked to.
suppress_warnings = ["ref.python"]


def setup(app: Sphinx) -> None:
    """Formulas become MathML when the pages are built: browsers set it without a script or a network."""
    app.add_html_math_renderer("mathml", (_inline, None), (_displayed, None))
    app.connect("autodoc-process-docstring", _as_written, priority=100)  # before napoleon reads the sections


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_mathml(node))
    raise nodes.SkipNode


def _displayed(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{_mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def _mathml(node: nodes.Node, **options: bool) -> str:
    try:
        return tex2mathml(node.astext(), **options)
    except MathError as error:
        logging.getLogger(__name__).warning("%s", error, location=node)
        return ""


def _as_written(app, what, name, obj, options, lines: list[str]) -> None:  # noqa: ARG001 (Sphinx calls it so)
    """Docstrings are text for people: an indented formula stays as it is set, and |x| is an absolute value."""
    found, before = [], ""
    for paragraph in "\n".join(lines).split("\n\n"):
        if paragraph.startswith(" "):
            if re.match(r"[^\s=*.>-]", before) and not before.endswith("::"):
                found.append("::")
        elif not paragraph.startswith("Example"):
            paragraph = re.sub(r"(`[^`]*`)|\|", lambda part: part[1] or r"\|", paragraph)
        found.append(paragraph)
        before = paragraph.splitlines()[-1] if paragraph else before
    lines[:] = "\n\n".join(found).split("\n")
