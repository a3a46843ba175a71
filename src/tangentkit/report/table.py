"""Tables of numbers and words, printed as text, as CSV or inside a page."""

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tangentkit.core.errors import InputError
from tangentkit.core.text import visible
from tangentkit.report.measured import Measured

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Cell = str | int | float | Measured | None
"""What a table may hold; None is a number that nobody has."""

NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """A column: its heading and the format of its numbers."""

    name: str
    format: str = ".4g"
    """Python's format for numbers, such as ".3f"; "+z.2f" shows a sign, and no negative zero."""

    def text(self, cell: Cell) -> str:
        """The cell as people read it.

        Example:
            >>> column = Column("tau", ".3f")
            >>> [column.text(cell) for cell in (0.7761, Measured(0.5, 0.01), 12, "CK", None)]
            ['0.776', '0.500 ± 0.010', '12', 'CK', '–']
        """
        number = cell.value if isinstance(cell, Measured) else cell
        if number is None or (isinstance(number, float) and math.isnan(number)):
            return NOTHING
        if isinstance(cell, str | bool):
            return str(cell)
        return f"{cell:,}" if isinstance(cell, int) else format(cell, self.format)


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns.

    Example:
        >>> table = Table("Widths", ("model", Column("error", ".2f")), (("small", 0.5), ("wide", None)))
        >>> table.texts()
        [['small', '0.50'], ['wide', '–']]
        >>> [table.is_numeric(i) for i in range(2)]
        [False, True]
    """

    title: str
    columns: tuple[str | Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    """What a reader must know to read the table."""
    ours: tuple[int, ...] = ()
    """The rows that are this run's own, shown with emphasis."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InputError(
                    f"a row of table {self.title!r} does not fit",
                    expected=f"{len(self.columns)} cells",
                    got=f"{len(row)}: {row}",
                )

    @property
    def headings(self) -> list[Column]:
        """The columns, each with its format."""
        return [column if isinstance(column, Column) else Column(column) for column in self.columns]

    def texts(self) -> list[list[str]]:
        """The cells as people read them."""
        return [[head.text(cell) for head, cell in zip(self.headings, row, strict=True)] for row in self.rows]

    def is_numeric(self, column: int) -> bool:
        """Whether a column holds numbers, which stand to the right."""
        cells = [row[column] for row in self.rows if row[column] is not None]
        return bool(cells) and not any(isinstance(cell, str) for cell in cells)

    def __str__(self) -> str:
        """The table as plain text, so that `print(result.table())` is to be read.

        Example:
            >>> print(Table("Widths", ("model", Column("error", ".2f")), (("small", 0.5), ("wide", None))))
            Widths
            model  error
            small   0.50
            wide       –
        """
        rows = [[visible(text) for text in row] for row in ([h.name for h in self.headings], *self.texts())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        aligned = [str.rjust if self.is_numeric(i) else str.ljust for i in range(len(widths))]
        lines = (
            "  ".join(align(text, width) for align, text, width in zip(aligned, row, widths, strict=True))
            for row in rows
        )
        return "\n".join(
            [visible(self.title), *(line.rstrip() for line in lines), *([self.note] * bool(self.note))]
        )

    def to_csv(self) -> str:
        """Comma-separated text with unrounded numbers; a measured column becomes two, value and error.

        Example:
            >>> table = Table("t", ("name", "tau"), (("CK", Measured(0.5, 0.25)), ("Em", 1.0)))
            >>> table.to_csv().splitlines()
            ['name,tau,tau (standard error)', 'CK,0.5,0.25', 'Em,1.0,']
        """
        measured = [any(_error(row[i]) is not None for row in self.rows) for i in range(len(self.columns))]
        names = [
            name
            for head, split in zip(self.headings, measured, strict=True)
            for name in (head.name, f"{head.name} (standard error)")[: 1 + split]
        ]
        text = io.StringIO()
        csv.writer(text).writerows([names, *(_csv_line(row, measured) for row in self.rows)])
        return text.getvalue()

    def to_rich(self) -> "RichTable":
        """The table for a terminal."""
        from rich.table import Table as RichTable
        from rich.text import Text

        def shown(text: str) -> Text:
            return Text(visible(text))

        table = RichTable(title=shown(self.title), caption=shown(self.note) if self.note else None)
        for i, head in enumerate(self.headings):
            table.add_column(shown(head.name), justify="right" if self.is_numeric(i) else "left")
        for i, row in enumerate(self.texts()):
            table.add_row(*map(shown, row), style="bold" if i in self.ours else "")
        return table


def _csv_line(row: tuple[Cell, ...], measured: list[bool]) -> list[Cell]:
    line = []
    for cell, split in zip(row, measured, strict=True):
        line.append(cell.value if isinstance(cell, Measured) else cell)
        line += [_error(cell)] * split
    return line


def _error(cell: Cell) -> float | None:
    return cell.error if isinstance(cell, Measured) else None
