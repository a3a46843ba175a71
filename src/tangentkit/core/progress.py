"""Progress of long work: a bar on a terminal, or whatever the caller wants to hear."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""(stage, done, total): called whenever a piece of work is done."""


def silent(stage: str, done: int, total: int) -> None:
    """Takes the news of progress and shows nothing."""


@contextmanager
def reported(progress: bool | Progress) -> Iterator[Progress]:
    """A function to call with (stage, done, total): the caller's own, a bar on a terminal, or nothing.

    Args:
        progress: True for a bar, on a terminal; False for nothing; or a function.
    """
    if callable(progress):
        yield progress
        return
    # It takes a while to import.
    from rich.console import Console

    console = Console(stderr=True)
    if not progress or not console.is_terminal:
        yield silent
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        task, present = bars.add_task("", total=None), ""

        def report(stage: str, done: int, total: int) -> None:
            nonlocal present
            if stage != present:
                present = stage
                bars.reset(task, description=stage, total=total, completed=done)
            bars.update(task, completed=done)

        yield report


@contextmanager
def counted_off(
    progress: bool | Progress, stage: str, total: int, *, done: int = 0
) -> Iterator[Callable[[], None]]:
    """A function to call for every piece that is done.

    Args:
        progress: True for a bar, on a terminal; False for nothing; or a function.
        stage: what the work is called.
        total: pieces in all.
        done: pieces that were done before.
    """
    with reported(progress) as report:
        count = done

        def advance() -> None:
            nonlocal count
            count += 1
            report(stage, count, total)

        report(stage, done, total)
        yield advance
