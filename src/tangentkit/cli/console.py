"""What the commands print: rows, progress bars, errors in one line."""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tangentkit.core.progress import Progress


def say(text: str) -> None:
    """Prints a line for people, to standard error."""
    print(text, file=sys.stderr, flush=True)


def print_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table to standard output."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", no_wrap=i == 0)
    for row in rows:
        table.add_row(*map(Text, row))
    terminal = Console()
    # A pipe or a log has no width of its own, and rich would take 80.
    (terminal if terminal.is_terminal else Console(width=140)).print(table)


@contextmanager
def progress_bars() -> "Iterator[Progress]":
    """Progress on standard error: on a terminal a bar, elsewhere a line when a stage ends."""
    from rich.console import Console

    from tangentkit.core.progress import reported

    with reported(True if Console(stderr=True).is_terminal else _Lines()) as report:
        yield report


class _Lines:
    """Progress as lines, for logs."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        start = self._started.setdefault(stage, time.monotonic())
        if done == total:
            say(f"{stage}: done in {time.monotonic() - start:.1f} s")
            del self._started[stage]  # the next study has one of the same name


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """SIGTERM, by which batch systems end jobs, leaves things as Ctrl-C does: no lock, and folders that say so."""
    previous = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)


def exit_code(error: Exception) -> int | None:
    """2 for bad input, 1 for other errors raised on purpose, None for a bug, which needs its traceback."""
    # The package `core` brings torch; an error of its kinds means that it is imported already.
    from tangentkit.core.errors import InputError, TangentkitError, UnknownNameError

    if isinstance(error, InputError | UnknownNameError):
        return 2
    return 1 if isinstance(error, TangentkitError) else None
