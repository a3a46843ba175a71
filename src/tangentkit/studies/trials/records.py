"""The records of finished trials, to be asked like a small table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from tangentkit.core.errors import UnknownNameError


class Records(Sequence[Mapping[str, Any]]):
    """Rows, each with the settings and the values of one finished trial.

    Args:
        rows: name -> value.
        failures: label of a trial -> the error that ended it.

    Example:
        >>> records = Records([{"width": w, "seed": s, "error": s / w} for w in (1, 2) for s in (1, 2)])
        >>> records.where(width=2).column("error")
        [0.5, 1.0]
        >>> {width: rows.mean("error") for width, rows in records.by("width").items()}
        {1: 1.5, 2: 0.75}
        >>> records.curve("width", "error")
        (array([1., 2.]), array([1.5 , 0.75]), array([0.5 , 0.25]))
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], failures: Mapping[str, str] | None = None):
        self._rows = tuple(rows)
        self.failures = dict(failures or {})

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> "Records": ...
    def __getitem__(self, index: int | slice) -> "Mapping[str, Any] | Records":
        return Records(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"Records({len(self)} rows, {len(self.failures)} failures)"

    def where(self, **settings: Any) -> "Records":
        """The rows that have these values; a row without such a name has not."""
        missing = object()
        return Records(
            [row for row in self if all(row.get(name, missing) == value for name, value in settings.items())]
        )

    def having(self, name: str) -> "Records":
        """The rows that have a value of this name: those of one kind of trial among several."""
        return Records([row for row in self if name in row])

    def by(self, name: str) -> "dict[Any, Records]":
        """The rows grouped by a value, in the order in which the values first come."""
        groups: dict[Any, list[Mapping[str, Any]]] = {}
        for row in self:
            if name in row:
                groups.setdefault(row[name], []).append(row)
        return {value: Records(rows) for value, rows in groups.items()}

    def column(self, name: str) -> list[Any]:
        """A value of every row.

        Raises:
            UnknownNameError: a row has no such value.
        """
        for row in self:
            if name not in row:
                raise UnknownNameError("value of a trial", name, row)
        return [row[name] for row in self]

    def mean(self, name: str) -> float:
        """The mean of a number over the rows, nan without rows."""
        return float(np.mean(self.column(name))) if self else float("nan")

    def curve(self, x: str, y: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values of x, increasing; the mean of y at each; and its standard error, 0 for a single row."""
        groups = sorted(self.by(x).items())
        columns = [np.asarray(rows.column(y), dtype=float) for _, rows in groups]
        errors = [c.std(ddof=1) / np.sqrt(len(c)) if len(c) > 1 else 0.0 for c in columns]
        return (
            np.array([value for value, _ in groups], dtype=float),
            np.array([column.mean() for column in columns]),
            np.array(errors),
        )

    def paired(self, name: str, by: str, first: Any, second: Any, on: str = "seed") -> list[float]:
        """Differences of a number between two settings, one for each seed that both have.

        Example:
            >>> found = [("a", 0, 0.5), ("b", 0, 0.25), ("a", 1, 1.0)]
            >>> rows = [{"kernel": kernel, "seed": seed, "tau": tau} for kernel, seed, tau in found]
            >>> Records(rows).paired("tau", "kernel", "a", "b")
            [0.25]
        """
        ours, theirs = (
            {row[on]: row[name] for row in self.where(**{by: value})} for value in (first, second)
        )
        return [float(ours[seed] - theirs[seed]) for seed in ours if seed in theirs]
