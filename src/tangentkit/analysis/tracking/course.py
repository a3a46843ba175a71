"""The course of a training as a tracker saw it: numbers by step, shown as a table, figures and a page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from tangentkit.analysis.tracking.wording import explanation, heading, labels
from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.files.safe import as_path, write_whole
from tangentkit.report import Lines, Page, Series, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Value = float | list[float]
REPORT = "report.html"
AT_MOST = 7
"""Curves of one figure."""
BESIDE: dict[str, Any] = {"legend": "beside", "size": (6.0, 3.2)}
"""Curves of a training go anywhere: inside the axes a legend would hide some."""


@dataclass(frozen=True)
class Record:
    """What was measured at one step."""

    step: int
    values: dict[str, Value | None]
    """Numbers, and lists of numbers (spectra), by name; None where one was not finite."""
    seconds: float = 0.0
    """What this measurement took."""
    training_seconds: float = 0.0
    """What the training took since the one before."""
    mark: str = ""
    """A fingerprint of the weights: which network it was."""
    label: str = ""
    """A name of the step, such as the file of a checkpoint."""
    missing: dict[str, str] = field(default_factory=dict)
    """Measure or number -> why it is missing at this step."""


@dataclass(frozen=True)
class Course:
    """Measurements of a training, in the order of its steps.

    Example:
        >>> course = Course((Record(0, {"loss": 2.0, "ntk/values": [3.0, 1.0]}), Record(5, {"loss": 1.0})))
        >>> course.steps, course["loss"], course.names
        ([0, 5], [2.0, 1.0], ['loss', 'ntk/values'])
    """

    records: tuple[Record, ...]
    notes: dict[str, str] = field(default_factory=dict)
    """What a reader of the page must know: probe, measures, kernels."""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def steps(self) -> list[int]:
        """The steps that were measured."""
        return [record.step for record in self.records]

    @property
    def names(self) -> list[str]:
        """All that was measured."""
        return list(dict.fromkeys(name for record in self.records for name in record.values))

    @property
    def scalars(self) -> list[str]:
        """All of it that is one number a step."""
        return [name for name in self.names if not isinstance(self._any(name), list)]

    def __getitem__(self, name: str) -> list[Any]:
        """A measure over the steps; None where a step has none."""
        if name not in self.names:
            raise UnknownNameError("measure", name, self.names)
        return [record.values.get(name) for record in self.records]

    def spectrum(self, name: str) -> Float[np.ndarray, "t r"]:
        """A list of numbers over the steps, one row a step; NaN where a step has fewer."""
        rows = [row or [] for row in self[name]]
        width = max(map(len, rows))
        return np.array([[*row, *[math.nan] * (width - len(row))] for row in rows], dtype=float)

    @property
    def missing(self) -> dict[str, list[tuple[int, str]]]:
        """Measure or number -> the steps where it is missing since it failed or was not finite, and why."""
        found: dict[str, list[tuple[int, str]]] = {}
        for record in self.records:
            for name, reason in record.missing.items():
                found.setdefault(name, []).append((record.step, reason))
        return found

    @property
    def share(self) -> float:
        """The time of all measurements over that of the training between them."""
        training = math.fsum(record.training_seconds for record in self.records)
        spent = math.fsum(record.seconds for record in self.records)
        return spent / training if training > 0 else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return {
            "steps": self.steps,
            "labels": [record.label for record in self.records],
            "seconds": [record.seconds for record in self.records],
            "training seconds": [record.training_seconds for record in self.records],
            "values": {name: self[name] for name in self.names},
            "missing": {name: [list(one) for one in steps] for name, steps in self.missing.items()},
        }

    def table(self, names: Sequence[str] | None = None) -> Table:
        """One row a step, one column a number; of a spectrum the largest value."""
        chosen = self._chosen(names, self.names)
        named = any(record.label for record in self.records)
        head = ("step", *(["checkpoint"] if named else []), *(_heading(self, name) for name in chosen))
        rows = tuple(
            (
                record.step,
                *([record.label] if named else []),
                *(_first(record.values.get(name)) for name in chosen),
            )
            for record in self.records
        )
        lacking = "".join(
            f" {name} is missing at {len(steps)} of {len(self)} steps, first at step {steps[0][0]}: {steps[0][1]}."
            for name, steps in self.missing.items()
        )
        return Table("The course of the training", head, rows, note=self._cost + lacking)

    def figure(
        self, names: Sequence[str] | str | None = None, *, title: str = "", caption: str = ""
    ) -> Lines:
        """Curves of up to seven numbers over the steps, of spectra their largest values; or all of one spectrum."""
        chosen = self._chosen([names] if isinstance(names, str) else names, self.scalars)[:AT_MOST]
        if len(chosen) == 1 and isinstance(self._any(chosen[0]), list):
            return self._spectrum_figure(chosen[0], title or heading(chosen[0]))
        series = {
            label: Series(*self._points(name)) for label, name in zip(labels(chosen), chosen, strict=True)
        }
        values = [y for one in series.values() for y in np.asarray(one.y, dtype=float)]
        return Lines(
            title=title or ", ".join(chosen),
            caption=caption or f"{', '.join(chosen)} at {len(self)} steps.",
            series=series,
            x_label="step",
            y_label=title or (chosen[0] if len(chosen) == 1 else ""),
            **(BESIDE if len(series) > 1 else {}),
            y_scale="log" if values and min(values) > 0 and max(values) > 100 * min(values) else "linear",
        )

    def plot(self, ax: "Axes | None" = None, names: Sequence[str] | str | None = None) -> "Axes":
        """Draws curves (see `figure`) on axes, its own where none are given."""
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(layout="constrained").add_subplot()
        self.figure(names).draw(ax)
        return ax

    def page(self) -> Page:
        """All of it on one page."""
        self._check_not_empty()
        figures = {
            _file(kind): self.figure(names, title=heading(kind), caption=_caption(kind, names))
            for kind, names in self._kinds().items()
        }
        return Page(
            title="The course of a training",
            source="tangentkit's tracker",
            question="How do the kernels and weights of a network change while it is trained?",
            answer=f"{len(self)} steps were measured, from {self.steps[0]} to {self.steps[-1]}. {self._cost}",
            tables={"course": self.table(self.scalars)},
            figures=figures,
            facts=self.notes,
        )

    def report(self, path: str | Path) -> Path:
        """Writes the page to a file, or as report.html to a folder, and returns its path."""
        path = as_path(path)
        path = path if path.suffix == ".html" else path / REPORT
        write_whole(path, [self.page().render().encode()], durable=False)
        return path

    @property
    def _cost(self) -> str:
        spent = math.fsum(record.seconds for record in self.records)
        if not math.isfinite(self.share):
            return f"The tracker took {spent:.2f} s."
        return f"The tracker took {spent:.2f} s, {self.share:.1%} of the time of the training."

    def _kinds(self) -> dict[str, list[str]]:
        """Kind -> names that one figure can hold: they end alike. Spectra of kernels are kinds of their own."""
        kinds: dict[str, list[str]] = {}
        for name in self.names:
            if self._any(name) is None:
                continue
            *above, last = name.split("/")
            is_kernel = name not in self.scalars and len(above) < 2
            kind = name if is_kernel else last if above else name.rpartition(" ")[2]
            kinds.setdefault(kind, []).append(name)
        return kinds

    def _any(self, name: str) -> Value | None:
        if name not in self.names:
            raise UnknownNameError("measure", name, self.names)
        given = (record.values.get(name) for record in self.records)
        return next((value for value in given if value is not None), None)

    def _check_not_empty(self) -> None:
        if not self.records:
            raise InputError("nothing was measured yet", expected="tracker.step(model)")

    def _chosen(self, names: Sequence[str] | None, default: Sequence[str]) -> list[str]:
        self._check_not_empty()
        chosen = list(default if names is None else names)
        for name in chosen:
            self._any(name)
        return chosen

    def _points(self, name: str) -> tuple[list[int], list[float]]:
        points = [
            (record.step, _first(value))
            for record in self.records
            if (value := record.values.get(name)) is not None
        ]
        return [step for step, _ in points], [float(y or 0) for _, y in points]

    def _spectrum_figure(self, name: str, title: str) -> Lines:
        values = self.spectrum(name)
        shown = [i for i in (0, 1, 2, 4, 9, 19, 49) if i < values.shape[1]]
        positive = bool((values[:, shown] > 0).all())
        return Lines(
            title=title,
            caption=f"The values number {', '.join(str(i + 1) for i in shown)} of {values.shape[1]} that were kept.",
            series={f"value {i + 1}": Series(self.steps, values[:, i]) for i in shown},
            x_label="step",
            y_label="value",
            y_scale="log" if positive else "linear",
            **BESIDE,
        )


def _first(value: Value | None) -> float | None:
    return (value[0] if value else None) if isinstance(value, list) else value


def _caption(kind: str, names: Sequence[str]) -> str:
    left_out = f" The first {AT_MOST} of {len(names)}." if len(names) > AT_MOST else ""
    return explanation(kind) + left_out


def _heading(course: Course, name: str) -> str:
    return name if name in course.scalars else f"{name} (largest)"


def _file(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
