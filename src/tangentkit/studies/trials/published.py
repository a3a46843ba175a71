"""Published numbers beside those of this run: in tables, and never without a word beside other data."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tangentkit.report import Claim, Column, Table
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


def of_data(words: str, published: str, here: str) -> str:
    """What the source reports; and for which data, where this run has others.

    Args:
        words: with the published numbers; nothing where there are none.
        published: the data of the source.
        here: the data of this run; capital letters and signs do not matter.

    Example:
        >>> of_data("84 %", "CIFAR-10", "cifar10"), of_data("84 %", "CIFAR-10", "fashion-mini")
        ('84 %', '84 % (published for CIFAR-10)')
    """
    return words if not words or is_same(published, here) else f"{words} (published for {published})"


def is_same(published: str, here: str) -> bool:
    """Whether two names are of the same data: CIFAR-10 is cifar10."""
    return _bare(published) == _bare(here)


def claims_of_data(claims: Iterable[Claim], published: str, here: str) -> tuple[Claim, ...]:
    """The claims, whose published numbers say for which data they are where this run has others."""
    return tuple(replace(claim, published=of_data(claim.published, published, here)) for claim in claims)


def _bare(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
