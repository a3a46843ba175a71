"""A run as tables, figures and one page, written into its folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tangentkit.core.files import write_whole
from tangentkit.core.memory import format_bytes
from tangentkit.report import Page, Table, image
from tangentkit.studies.environment import Environment
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


def write_report(run: Run, folder: Path, *, progress: Progress = silent) -> list[str]:
    """Writes tables/*.csv, figures/*.png and *.svg, and report.html; returns their names."""
    names: list[str] = []

    def write(name: str, content: bytes) -> None:
        write_whole(folder / name, [content], durable=False, within=folder)
        names.append(name)

    figures = run.result.figures()
    for name, table in run.result.tables().items():
        # Halves of surrogate pairs, which UTF-8 cannot hold, stay to be seen.
        write(f"tables/{name}.csv", table.to_csv().encode(errors="backslashreplace"))
    for done, (name, figure) in enumerate(figures.items()):
        progress("report", done, len(figures) + 1)
        for suffix in ("png", "svg"):
            write(f"figures/{name}.{suffix}", image(figure, format=suffix))
    progress("report", len(figures), len(figures) + 1)
    write(REPORT, page(run).render().encode())
    progress("report", len(figures) + 1, len(figures) + 1)
    return names


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
