"""A run as tables, figures and one page, written into its folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tangentkit.core.memory import format_bytes
from tangentkit.report import Page, Table, image
from tangentkit.studies.environment import Environment
from tangentkit.studies.records import write_whole
from tangentkit.studies.settings import field_docs, written
from tangentkit.studies.study import DataCard, Progress, Study, StudyResult, silent

REPORT = "report.html"


@dataclass(frozen=True, eq=False)
class Run:
    """A study that was run: everything its report needs."""

    study: Study
    scale: str
    config: Any
    result: StudyResult
    environment: Environment


def write_report(run: Run, folder: Path, *, progress: Progress = silent) -> Path:
    """Writes tables/*.csv, figures/*.png and *.svg, and report.html; returns the path of the page."""
    figures = run.result.figures()
    for name, table in run.result.tables().items():
        write_whole(_inside(folder / "tables", f"{name}.csv"), _content(table.to_csv().encode()))
    for done, (name, figure) in enumerate(figures.items()):
        progress("report", done, len(figures) + 1)
        for suffix in ("png", "svg"):
            content = image(figure, format=suffix)
            write_whole(_inside(folder / "figures", f"{name}.{suffix}"), _content(content))
    progress("report", len(figures), len(figures) + 1)
    write_whole(folder / REPORT, _content(page(run).render().encode()))
    progress("report", len(figures) + 1, len(figures) + 1)
    return folder / REPORT


def page(run: Run) -> Page:
    """The page of a run."""
    result, config = run.result, run.config
    docs = field_docs(type(config))
    settings = Table(
        f"All settings of this run (scale {run.scale})",
        ("field", "value", "meaning"),
        tuple((name.replace("_", "-"), written(getattr(config, name)), doc) for name, doc in docs.items()),
    )
    return Page(
        title=run.study.title,
        source=run.study.source,
        question=run.study.question,
        answer=result.answer(),
        claims=tuple(result.claims()),
        tables=result.tables(),
        figures=result.figures(),
        stand_ins=tuple(result.stand_ins()),
        command=run.environment.command,
        settings=settings,
        facts={
            "seeds": ", ".join(map(str, result.seeds)),
            **{f"data: {card.split}": _papers(card) for card in result.data},
            **_surroundings(run.environment),
        },
    )


def _papers(card: DataCard) -> str:
    note = f" Note: {card.note}." if card.note else ""
    return (
        f"{card.name}, {card.samples:,} samples. Source: {card.source}. Licence: {card.licence}.{note} "
        f"SHA-256 {card.fingerprint}"
    )


def _surroundings(environment: Environment) -> dict[str, str]:
    seconds, peak = environment.seconds, environment.peak_bytes
    return {
        "time": "not measured" if seconds is None else f"{seconds:.0f} s",
        "peak memory": "not measured" if peak is None else format_bytes(peak),
        "started": environment.started,
        "machine": f"{environment.machine}, torch threads: {environment.threads}",
        "versions": ", ".join(f"{name} {number}" for name, number in environment.versions.items()),
    }


def _inside(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    return folder / name


def _content(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)
