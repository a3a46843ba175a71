"""The engine of processes on this machine."""

import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Generic

from tangentkit.compute.engines.engine import EngineError, Item, Result
from tangentkit.compute.engines.interrupts import deaf_to_interrupts
from tangentkit.core.errors import InputError

LIVES = 3
"""Processes that an item may end."""
PATIENCE = 10.0
"""Seconds that a process with nothing left to do has to clean up after itself."""


@dataclass(frozen=True)
class Processes:
    """Several processes of this machine, for work that takes long and shares nothing.

    Work, items and results travel between processes: they must be picklable, and the work a function or an object of
    an importable module. A process that dies is replaced, and its item is done again.

    Args:
        n: the number of processes; by default one for each core.

    Example:
        >>> sorted(Processes(2).map(abs, [-1, 2, -3]))
        [1, 2, 3]
    """

    n: int | None = None

    def __post_init__(self) -> None:
        if self.n is not None and self.n < 1:
            raise InputError("bad number of processes", expected="at least 1", got=self.n)

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results as they are done; the first error ends it.

        Raises:
            EngineError: an item ends process after process.
        """
        waiting, deaths = deque(enumerate(items)), Counter[int]()
        crew: dict[Connection, _Worker[Item]] = {}
        retired: list[_Worker[Item]] = []
        try:
            while waiting or crew:
                while waiting and len(crew) < (self.n or _cores()):
                    worker = _Worker(work, waiting.popleft())
                    crew[worker.connection] = worker
                for ready in wait(list(crew)):
                    worker = crew[ready]  # pyright: ignore[reportArgumentType]
                    try:
                        result = worker.receive()
                    except EOFError:
                        del crew[worker.connection]
                        waiting.append(worker.item)
                        deaths[worker.item[0]] += 1
                        _check_deaths(deaths[worker.item[0]], worker)
                        continue
                    if waiting:
                        worker.send(waiting.popleft())
                    else:
                        del crew[worker.connection]
                        worker.retire()
                        retired.append(worker)
                    yield result
        finally:
            for worker in crew.values():
                worker.end()
            for worker in retired:
                worker.process.join(PATIENCE)
                worker.end()


class _Worker(Generic[Item]):
    """A process and the item that it is at."""

    def __init__(self, work: Callable[[Item], Any], item: tuple[int, Item]):
        # A fork would copy locks that threads of torch hold.
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, work), daemon=True)
        with deaf_to_interrupts():
            self.process.start()
        other.close()
        self.item = item
        self.send(item)

    def send(self, item: tuple[int, Item]) -> None:
        """Gives it an item; that it is dead shows when its result is received."""
        self.item = item
        with suppress(OSError):
            self.connection.send(item[1])

    def receive(self) -> Any:
        """The result of its item.

        Raises:
            EOFError: the process is dead.
            Exception: what the work raised.
        """
        try:
            well, result = self.connection.recv()
        except OSError as error:
            raise EOFError from error
        if not well:
            raise result
        return result

    def retire(self) -> None:
        """Tells the process that nothing more will come: it ends by itself, and gives back what it holds."""
        self.connection.close()

    def end(self) -> None:
        """Ends the process, whatever it does."""
        self.connection.close()
        self.process.terminate()
        self.process.join()


def _serve(connection: Connection, work: Callable[[Any], Any]) -> None:
    """Does items until nobody sends any more; runs in the process."""
    # The terminal sends Ctrl-C to all; whoever asked for the work ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            item = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (True, work(item))
        except Exception as error:
            answer = (False, error)
        try:
            connection.send(answer)
        except OSError:  # nobody is left to hear it
            return
        except Exception as error:  # it cannot be pickled
            connection.send((False, EngineError("a result cannot leave its process", got=repr(error))))


def _check_deaths(deaths: int, worker: _Worker) -> None:
    if deaths >= LIVES:
        raise EngineError(
            "one item has ended process after process",
            got=f"{deaths} deaths, the last with exit code {worker.process.exitcode}",
            hint="most likely they ran out of memory: fewer processes",
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
