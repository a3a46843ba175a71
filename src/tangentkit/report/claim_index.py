"""One page about the claims of many studies: what was published, what came out here, and the verdict.

Like `Page` it loads nothing and its content policy forbids the network; a script of its own filters the rows.
"""

import base64
import hashlib
from collections import Counter
from dataclasses import dataclass, field

from tangentkit.report.claim import Claim
from tangentkit.report.drawing import DARK, LIGHT
from tangentkit.report.figure import Figure
from tangentkit.report.page import light_and_dark, templates

SCRIPT = """
"use strict";
const choices = [...document.querySelectorAll("select")];
const rows = [...document.querySelectorAll("tbody tr")];
function filter() {
  let shown = 0;
  for (const row of rows) {
    const fits = choices.every(choice => !choice.value || row.dataset[choice.name] === choice.value);
    row.hidden = !fits;
    shown += fits;
  }
  document.getElementById("shown").textContent = `${shown} of ${rows.length} claims`;
}
for (const choice of choices) choice.addEventListener("change", filter);
filter();
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class ClaimRow:
    """A claim, where it comes from and where its report is."""

    study: str
    title: str
    """Of the study."""
    paper: str
    claim: Claim
    size: str
    """The scale of the run."""
    seconds: float
    """Of one core, for all trials of the study."""
    link: str
    """The report, relative to the page."""
    before: str = ""
    """The verdict of a smaller run and its scale, where this one changed it, such as "not decided (quick)"."""
    figure: Figure | None = None
    """A small picture."""

    @property
    def time(self) -> str:
        """The time of the study in words.

        Example:
            >>> ClaimRow(study="", title="", paper="", claim=None, size="", seconds=90, link="").time
            '1.5 min'
        """
        minutes = self.seconds / 60
        return (
            f"{self.seconds:.0f} s"
            if minutes < 1
            else f"{minutes:.1f} min"
            if minutes < 90
            else f"{minutes / 60:.1f} h"
        )

    @property
    def ours(self) -> str:
        """Mean and interval in few words; where all seeds give one number, that number alone."""
        interval = self.claim.interval
        values = f"{interval.mean:.3g}"
        if abs(interval.low) != float("inf") and interval.low < interval.high:
            values += f" [{interval.low:.3g}, {interval.high:.3g}]"
        return values


@dataclass(frozen=True, eq=False, kw_only=True)
class ClaimIndex:
    """The content of the page."""

    title: str
    rows: tuple[ClaimRow, ...]
    failures: dict[str, str] = field(default_factory=dict)
    """Study -> error of those that came to no result."""

    @property
    def verdicts(self) -> dict[str, int]:
        """Verdict -> number of claims."""
        return dict(Counter(row.claim.verdict for row in self.rows).most_common())

    @property
    def papers(self) -> list[str]:
        """The publications, each once."""
        return list(dict.fromkeys(row.paper for row in self.rows))

    @property
    def studies(self) -> list[str]:
        """The studies, each once."""
        return list(dict.fromkeys(row.study for row in self.rows))

    def render(self) -> str:
        """The page as HTML."""
        allowed = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
        return (
            templates()
            .get_template("claim_index.html")
            .render(
                page=self,
                light=LIGHT,
                dark=DARK,
                light_and_dark=light_and_dark,
                script=SCRIPT,
                allowed=allowed,
            )
        )
