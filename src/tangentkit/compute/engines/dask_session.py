"""Work on a Dask cluster: a plugin brings it to every worker once, also to those that come later or come back."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import cloudpickle
from distributed import CancelledError, Client, Future, KilledWorker, WorkerPlugin, as_completed, get_worker

from tangentkit.compute.engines import worker_heap
from tangentkit.compute.engines.engine import EngineError
from tangentkit.core.memory import DEFAULT_SHARE

AHEAD = 2048
"""Items that wait in the scheduler: enough for a thousand workers, few enough for any scheduler."""
REFILL = AHEAD // 8
"""Items that are sent when as many are done."""
TICK, LOOK = 0.01, 1.0
"""Seconds between two looks for results, and between two looks for workers."""
CREWS = 3
"""Times that all workers may be lost with nothing done in between, as Dask allows for one item."""


class Carrier(WorkerPlugin):
    """Holds the work in a worker's process."""

    def __init__(self, name: str, work: Callable):
        self.name = name
        # By value: functions and classes of the user's script too.
        self.content = cloudpickle.dumps(work)
        self.work: Callable | None = None

    def setup(self, worker: Any) -> None:
        """Unpacks the work, bound to the memory that the worker may use."""
        worker_heap.keep_freed()
        work = cloudpickle.loads(self.content)
        limit = worker.memory_manager.memory_limit
        self.work = work.within(int(DEFAULT_SHARE * limit)) if limit and hasattr(work, "within") else work

    def teardown(self, worker: Any) -> None:
        """Lets go of the work and its memory."""
        self.work = None
        if not any(isinstance(other, Carrier) and other.work for other in worker.plugins.values()):
            worker_heap.give_back()


def carry_out(name: str, item: Any) -> Any:
    """Does one item, on a worker."""
    carrier = get_worker().plugins[name]
    assert isinstance(carrier, Carrier)
    assert carrier.work is not None
    return carrier.work(item)


class Session:
    """A client's dealings with a cluster: work that was brought to the workers stays until the end.

    Args:
        client: of the cluster.
        patience: seconds without any worker, after which it is an error.
    """

    def __init__(self, client: Client, patience: float):
        self.client, self.patience = client, patience
        self._carried: dict[str, Callable] = {}

    def map(self, work: Callable, items: Sequence[Any]) -> Iterator[Any]:
        """The results of all items, as they come.

        Raises:
            EngineError: the scheduler is gone, no worker is left, or an item kills worker after worker.
        """
        name, left, done = self._carry(work), iter(items), 0
        watch, crew = Watch(self.client, self.patience), self._crew(work, items)
        waiting, pending = self._sent(name, crew, islice(left, AHEAD))
        try:
            while pending:
                if not waiting.has_ready():
                    time.sleep(TICK)
                    # The scheduler keeps what waits for the dead from those who join, though it knows of no others.
                    if watch.all_gone(crew.workers):
                        self.client.cancel(list(pending), force=True)
                        crew = self._crew(work, again := list(pending.values()))
                        waiting, pending = self._sent(name, crew, again)
                    continue
                future, result = next(waiting)
                if isinstance(result, CancelledError):
                    raise _gone(self.client)
                # What is released is forgotten: a worker that dies takes no result with it that somebody needs.
                future.release()
                del pending[future]
                watch.progress()
                yield result
                done += 1
                if done % REFILL == 0:
                    _, more = self._sent(name, crew, islice(left, REFILL))
                    waiting.update(more)
                    pending |= more
        except KilledWorker as error:
            raise _deadly(
                f"{error.allowed_failures + 1} deaths, the last on {error.last_worker.address}"
            ) from error
        finally:
            if self.client.status == "running":
                self.client.cancel(list(pending), force=True)

    def close(self) -> None:
        """Takes the work from the workers."""
        for name in self._carried if self.client.status == "running" else ():
            self.client.unregister_worker_plugin(name)
        self._carried.clear()

    def _sent(self, name: str, crew: "Crew", items: Iterable[Any]) -> tuple[as_completed, dict[Future, Any]]:
        """Sends items; what comes back, and future -> item."""
        # Together: a message for each item takes the scheduler longer than all else about it.
        shares: dict[str | None, list[Any]] = {}
        for item in items:
            shares.setdefault(crew.preferred(item), []).append(item)
        sent: dict[Future, Any] = {}
        for worker, share in shares.items():
            futures = self.client.map(
                carry_out,
                [name] * len(share),
                share,
                pure=False,
                workers=worker,
                allow_other_workers=worker is not None,
            )
            sent |= zip(futures, share, strict=True)
        return as_completed(sent, loop=self.client.loop, with_results=True), sent

    def _crew(self, work: Callable, items: Sequence[Any]) -> "Crew":
        workers: list[str] = sorted(self.client.nthreads())  # pyright: ignore[reportArgumentType]
        group = getattr(work, "group", None)
        # As few groups as workers would leave some without work for long; and workers may be yet to come.
        if (
            group is None
            or len(workers) < 2
            or len({group(item) for item in items[:AHEAD]}) < 2 * len(workers)
        ):
            return Crew(frozenset(), lambda _: None)
        # There and back again, so that groups that grow are shared out evenly.
        turn = [*workers, *reversed(workers)]
        return Crew(frozenset(workers), lambda item: turn[group(item) % len(turn)])

    def _carry(self, work: Callable) -> str:
        for name, carried in self._carried.items():
            if carried is work:
                return name
        name = f"tangentkit-{uuid.uuid4().hex[:12]}"
        self.client.register_plugin(Carrier(name, work), name=name)
        self._carried[name] = work
        return name


class Crew(NamedTuple):
    """Who does an item: those of one group go to one worker, which keeps what they share.

    It is but a wish: a worker without work takes what waits for another, and what waited for one that died goes to
    the rest, as long as there is one.
    """

    workers: frozenset[str]
    """Those who were sent items of their own."""
    preferred: Callable[[Any], str | None]
    """The worker that an item is best done by; None where any will do."""


class Watch:
    """Looks now and then who is there."""

    def __init__(self, client: Client, patience: float):
        self.client, self.patience = client, patience
        self._looked = self._seen = time.monotonic()
        self._lost = 0

    def progress(self) -> None:
        """Hears that something was done."""
        self._lost = 0

    def all_gone(self, crew: frozenset[str]) -> bool:
        """Whether none of a crew is left, but there are others.

        Raises:
            EngineError: for too long there has been no worker at all, or crew after crew is lost with nothing done.
        """
        now = time.monotonic()
        if now - self._looked < LOOK or self.client.status != "running":
            return False
        self._looked = now
        try:
            workers = set(self.client.nthreads())  # pyright: ignore[reportArgumentType]
        except OSError:
            return False  # of a scheduler that is gone futures tell
        if workers:
            self._seen = now
        elif now - self._seen > self.patience:
            raise EngineError(
                "no worker is left",
                expected=f"one within {self.patience:g} s, the patience of the engine",
                got="none",
                hint="start workers, or engines.Dask(..., patience=3600)",
            )
        if not workers or not crew or crew & workers:
            return False
        self._lost += 1
        if self._lost > CREWS:
            raise _deadly(f"the death of all workers {self._lost} times, with nothing done in between")
        return True


def _deadly(got: str) -> EngineError:
    return EngineError(
        "one tile has ended worker after worker",
        got=got,
        hint="most likely they ran out of memory: a smaller tile=, or a kernel with memory=",
    )


def _gone(client: Client) -> EngineError:
    place = client.scheduler.addr if client.scheduler else "the scheduler"
    return EngineError(
        f"the Dask scheduler at {place} is gone",
        hint="start it again and run again: with store=, what is done stays done",
    )
