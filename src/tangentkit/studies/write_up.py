"""A run as tables, figures and one page, written into its folder."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

from tangentkit.core.files.safe import write_whole
from tangentkit.core.memory import format_bytes
from tangentkit.core.progress import Progress, silent
from tangentkit.report import Page, Table, image
from tangentkit.studies.earlier_run import EarlierRun
from tangentkit.studies.environment import Environment
from tangentkit.studies.settings import command_line, field_docs, written
from tangentkit.studies.trials.plain import MALFORMED
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import DataCard, Result, Study
from tangentkit.studies.trials.trial import message

REPORT, NUMBERS = "report.html", "trials.csv"


@dataclass(frozen=True, eq=False)
class Run:
    """A study that was run: everything its report needs."""

    study: Study
    scale: str
    config: Any
    result: Result
    records: Records
    environment: Environment
    earlier: EarlierRun | None = None
    """What the run of another scale said of which this one took the place."""

    def command_with(self, seeds: int) -> str:
        """The command of this run with so many seeds: its own first, then the smallest that it has not."""
        own = tuple(self.config.seeds)
        more = islice((seed for seed in count() if seed not in own), max(0, seeds - len(own)))
        return command_line(self.study, self.scale, replace(self.config, seeds=(*own, *more)))


def write_report(
    run: Run, folder: Path, sources: Sequence[str] = (), *, progress: Progress = silent
) -> list[str]:
    """Writes trials.csv, tables/*.csv, figures/*.png and *.svg, and report.html; returns their names.

    Args:
        run: what to write about.
        folder: of the run.
        sources: names of its other files, for the page to link to.
        progress: how far it is.
    """
    names: list[str] = []

    def write(name: str, content: bytes) -> None:
        write_whole(folder / name, [content], durable=False, within=folder)
        names.append(name)

    figures = run.result.figures
    write(NUMBERS, numbers(run.records).encode(errors="backslashreplace"))
    for name, table in run.result.tables.items():
        # Halves of surrogate pairs, which UTF-8 cannot hold, stay to be seen.
        write(f"tables/{name}.csv", table.to_csv().encode(errors="backslashreplace"))
    for done, (name, figure) in enumerate(figures.items()):
        progress("report", done, len(figures) + 1)
        for suffix in ("png", "svg"):
            write(f"figures/{name}.{suffix}", image(figure, format=suffix))
    progress("report", len(figures), len(figures) + 1)
    write(REPORT, page(run, files=(*names, *sources)).render().encode())
    progress("report", len(figures) + 1, len(figures) + 1)
    return names


def page(run: Run, *, files: Sequence[str] = ()) -> Page:
    """The page of a run, with links to files of its folder."""
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
        answer=result.answer,
        terms=result.terms,
        claims=tuple(result.claims),
        changed=run.earlier.changes(result.claims) if run.earlier else "",
        tables=result.tables,
        figures=result.figures,
        stand_ins=tuple(result.stand_ins),
        notes=(*_failed(run.records), *result.notes),
        command=run.environment.command,
        # After failures the seeds that were asked for come first: more of them are no remedy.
        command_with=None if run.records.failures else run.command_with,
        files=tuple(files),
        settings=settings,
        facts={
            "seeds": ", ".join(map(str, config.seeds)),
            **{f"data: {card.name}, {card.split}": _papers(card) for card in data_cards(run.records)},
            **_surroundings(run),
        },
    )


def _failed(records: Records) -> list[str]:
    """A note on every trial that failed."""
    return [
        f"A trial failed and is left out ({label}): {message(error)}."
        for label, error in records.failures.items()
    ]


def _papers(card: DataCard) -> str:
    note = f" Note: {card.note}." if card.note else ""
    return (
        f"{card.name}, {card.samples:,} samples. Source: {card.source}. Licence: {card.licence}.{note} "
        f"SHA-256 {card.fingerprint}"
    )


def numbers(records: Records) -> str:
    """Settings and single values of all trials as comma-separated text, one line for each.

    Example:
        >>> print(numbers(Records([{"seed": 0, "tau": 0.5, "map": [1, 2]}, {"seed": 1}])).strip())
        seed,tau
        0,0.5
        1,
    """
    rows = [
        {name: value for name, value in row.items() if isinstance(value, str | int | float)}
        for row in records
    ]
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def data_cards(records: Records) -> list[DataCard]:
    """The papers of all data that trials name under `data_cards`, each once."""
    try:
        cards = [DataCard(**card) for row in records for card in row.get("data_cards", ())]
    except MALFORMED:
        return []
    return list(dict.fromkeys(cards))


def _surroundings(run: Run) -> dict[str, str]:
    environment = run.environment
    seconds, peak = environment.seconds, environment.peak_bytes
    work = sum(row["seconds"] for row in run.records)
    failed = f", {len(run.records.failures)} failed" if run.records.failures else ""
    return {
        "trials": f"{len(run.records)} finished{failed}, {work:.0f} s of one core in all",
        **({"time": f"{seconds:.0f} s for the trials of the last call"} if seconds and seconds >= 1 else {}),
        "peak memory": "not measured" if peak is None else f"{format_bytes(peak)} (the calling process)",
        "started": environment.started,
        "machine": f"{environment.machine}; each trial on one thread",
        "versions": ", ".join(f"{name} {number}" for name, number in environment.versions.items()),
    }
