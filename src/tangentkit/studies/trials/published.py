"""Published tables with this run's rows beside them."""

from collections.abc import Iterable, Sequence

from tangentkit.report import Column, Table
from tangentkit.report.table import Cell

Pair = tuple[str, Sequence[Cell] | None, Sequence[Cell] | None]
"""Name of a row, the published cells and this run's; None where one of the two has no such row."""


def beside_published(
    title: str, columns: Sequence[str | Column], pairs: Iterable[Pair], *, note: str = ""
) -> Table:
    """A table in which each published row stands above this run's row of the same name.

    Args:
        title: what the table shows, and which published table it is.
        columns: the first is of names.
        pairs: (name, published cells, this run's cells); cells follow the columns after the first.
        note: what a reader must know.

    Example:
        >>> pairs = [("MLP", (97.6,), (96.1,)), ("CNN", None, (98,))]
        >>> table = beside_published("Accuracy", ("network", "test %"), pairs)
        >>> table.rows, table.ours
        ((('published: MLP', 97.6), ('this run: MLP', 96.1), ('this run: CNN', 98)), (1, 2))
    """
    rows: list[tuple[Cell, ...]] = []
    ours = []
    for name, published, found in pairs:
        if published is not None:
            rows.append((f"published: {name}", *published))
        if found is not None:
            ours.append(len(rows))
            rows.append((f"this run: {name}", *found))
    return Table(title, tuple(columns), tuple(rows), note=note, ours=tuple(ours))
