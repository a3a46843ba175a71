"""The page about many runs: a row for each claim of the literature."""

from collections.abc import Mapping
from urllib.parse import quote

from tangentkit.report.claim_index import ClaimIndex, ClaimRow
from tangentkit.studies.write_up import Run

INDEX = "index.html"


def index_page(runs: Mapping[str, Run], failures: Mapping[str, str]) -> str:
    """The page as HTML.

    Args:
        runs: address of a report, relative to the page -> its run.
        failures: study -> error of those that came to no result.
    """
    rows = [row for link, run in runs.items() for row in _rows(link, run)]
    return ClaimIndex(
        title="Claims of the literature, run again",
        rows=tuple(rows),
        failures=dict(failures),
    ).render()


def _rows(link: str, run: Run) -> list[ClaimRow]:
    figure = next(iter(run.result.figures.values()), None)
    before = _before(run)
    return [
        ClaimRow(
            study=run.study.name,
            title=run.study.title,
            paper=run.study.paper or run.study.source,
            claim=claim,
            size=run.scale,
            seconds=sum(row["seconds"] for row in run.records),
            link=quote(link),
            before=before.get(claim.statement, ""),
            figure=figure if first else None,
        )
        for first, claim in zip((True, *[False] * len(run.result.claims)), run.result.claims, strict=False)
    ]


def _before(run: Run) -> dict[str, str]:
    """Statement of a claim -> its verdict in the run of another scale, of those that have another one now."""
    if run.earlier is None:
        return {}
    changed = run.earlier.changed(run.result.claims)
    return {statement: f"{verdict} ({run.earlier.scale})" for statement, verdict in changed.items()}
