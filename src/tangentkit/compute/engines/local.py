"""Engines of this process: one item after the other, or several threads."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice

from tangentkit.compute.engines.engine import Item, Result
from tangentkit.core.errors import InputError


@dataclass(frozen=True)
class Serial:
    """One item after the other, in this thread.

    Example:
        >>> list(Serial().map(abs, [-1, 2]))
        [1, 2]
    """

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results, in order."""
        return map(work, items)


@dataclass(frozen=True)
class Threads:
    """Several threads of this process.

    A model is run by one thread at a time, since torch swaps its parameters in place; what overlaps is all the rest:
    products of features, reading and writing.

    Args:
        n: the number of threads.

    Example:
        >>> sorted(Threads(2).map(abs, [-1, 2, -3]))
        [1, 2, 3]
    """

    n: int = 2

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InputError("bad number of threads", expected="at least 1", got=self.n)

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results as they are done; the first error ends it."""
        left = iter(items)
        pool = ThreadPoolExecutor(self.n)
        try:
            # Few at a time: results that wait to be taken may be large.
            running: set[Future[Result]] = {pool.submit(work, item) for item in islice(left, 2 * self.n)}
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
                running |= {pool.submit(work, item) for item in islice(left, len(done))}
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
