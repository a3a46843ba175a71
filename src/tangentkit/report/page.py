"""One self-contained HTML page: claims, tables, figures, stand-ins, and how to run it again.

The page loads nothing: its style is inline, its figures are data URIs in a light and a dark form, it needs no
script, and its content policy forbids the network. All text is escaped. It links to the files beside it, for
those who want the numbers.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from tangentkit.core.text import visible
from tangentkit.report.claim import Claim
from tangentkit.report.drawing import DARK, LIGHT, images
from tangentkit.report.figure import Figure
from tangentkit.report.table import Table

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATE = "page.html"


@dataclass(frozen=True)
class StandIn:
    """Something of a publication that this run replaced by something else, or kept."""

    what: str
    """What is replaced, such as "data" or "model"."""
    published: str
    here: str
    why: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Page:
    """The content of a report, in the order in which it is read."""

    title: str
    source: str
    """The publication that asks the question."""
    question: str
    answer: str
    terms: Mapping[str, str] = field(default_factory=dict)
    """Abbreviation -> what it means."""
    claims: tuple[Claim, ...] = ()
    changed: str = ""
    """Which verdicts are other ones than in an earlier run."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    stand_ins: tuple[StandIn, ...] = ()
    notes: tuple[str, ...] = ()
    """What else was tried, and whatever a reader must know."""
    command: str = ""
    """The command that gives these numbers again."""
    command_with: Callable[[int], str] | None = None
    """Number of seeds -> the command that runs so many."""
    settings: Table | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    """Seeds, data, versions, time, memory: what another run would need or compare."""
    files: tuple[str, ...] = ()
    """Files beside the page: tables/NAME.csv and figures/NAME.png of its tables and figures, and others."""

    def files_of(self, kind: str, name: str) -> list[str]:
        """The files of one of the "tables" or "figures"."""
        return [file for file in self.files if file.rpartition(".")[0] == f"{kind}/{name}"]

    @property
    def other_files(self) -> list[str]:
        """The files that belong to no table and no figure."""
        shown = {*self.tables} | {*self.figures}
        return [file for file in self.files if file.rpartition(".")[0].partition("/")[2] not in shown]

    @property
    def numbers_heading(self) -> str:
        """The heading of the tables: where only some rows are marked as this run's own, the others are published."""
        both = any(0 < len(table.ours) < len(table.rows) for table in self.tables.values())
        return "Published numbers beside ours" if both else "Numbers"

    def render(self) -> str:
        """The page as HTML."""
        template = templates().get_template(TEMPLATE)
        return template.render(page=self, light=LIGHT, dark=DARK, light_and_dark=light_and_dark)


@cache
def templates() -> "Environment":
    """The templates of pages, compiled once; they escape every text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("tangentkit.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(value: object) -> object:
    # What is HTML already, such as a table, was made of texts that came by here.
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def light_and_dark(figure: Figure) -> list[str]:
    """A figure as the addresses of two images: WebP without loss, about half as large as the same as SVG."""
    return [
        f"data:image/webp;base64,{base64.b64encode(content).decode()}"
        for content in images(figure, (LIGHT, DARK), format="webp")
    ]
