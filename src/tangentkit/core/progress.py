"""Progress of long work: a bar on a terminal, or whatever the caller wants to hear."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.text import Text

Progress = Callable[[str, int, int], None]
"""(stage, done, total): called whenever a piece of work is done."""


class Rate(ProgressColumn):
    """Tiles a second."""

    def render(self, task: Task) -> Text:
        """The rate of late."""
        return Text("" if task.speed is None else f"{task.speed:.3g} tiles/s")


@contextmanager
def shown(
    progress: bool | Progress, stage: str, total: int, *, done: int = 0
) -> Iterator[Callable[[], None]]:
    """A function to call for every piece that is done.

    Args:
        progress: True for a bar, on a terminal; False for nothing; or a function.
        stage: what the work is called.
        total: pieces in all.
        done: pieces that were done before.
    """
    if callable(progress):
        count = done

        def advance() -> None:
            nonlocal count
            count += 1
            progress(stage, count, total)

        progress(stage, done, total)
        yield advance
        return
    console = Console(stderr=True)
    if not progress or not console.is_terminal or done == total:
        yield lambda: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task(stage, total=total, completed=done)
        yield lambda: bars.advance(task)
