"""Work on a Dask cluster: a plugin brings it to every worker once, also to those that come later or come back."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import cloudpickle
from distributed import CancelledError, Client, Future, KilledWorker, WorkerPlugin, as_completed, get_worker

from tangentkit.compute import heap
from tangentkit.compute.engines import EngineError
from tangentkit.core.memory import DEFAULT_SHARE

AHEAD = 2048
"""Items that wait in the scheduler: enough for a thousand workers, few enough for any scheduler."""
REFILL = AHEAD // 8
"""Items that are sent when as many are done."""


class Carrier(WorkerPlugin):
    """Holds the work in a worker's process."""

    def __init__(self, name: str, work: Callable):
        self.name = name
        # By value: functions and classes of the user's script too.
        self.content = cloudpickle.dumps(work)
        self.work: Callable | None = None

    def setup(self, worker: Any) -> None:
        """Unpacks the work, bound to the memory that the worker may use."""
        heap.keep_freed()
        work = cloudpickle.loads(self.content)
        limit = worker.memory_manager.memory_limit
        self.work = work.within(int(DEFAULT_SHARE * limit)) if limit and hasattr(work, "within") else work

    def teardown(self, worker: Any) -> None:
        """Lets go of the work and its memory."""
        self.work = None
        if not any(isinstance(other, Carrier) and other.work for other in worker.plugins.values()):
            heap.give_back()


def carry_out(name: str, item: Any) -> Any:
    """Does one item, on a worker."""
    carrier = get_worker().plugins[name]
    assert isinstance(carrier, Carrier)
    assert carrier.work is not None
    return carrier.work(item)


class Session:
    """A client's dealings with a cluster: work that was brought to the workers stays until the end."""

    def __init__(self, client: Client):
        self.client = client
        self._carried: dict[str, Callable] = {}

    def map(self, work: Callable, items: Sequence[Any]) -> Iterator[Any]:
        """The results of all items, as they come.

        Raises:
            EngineError: the scheduler is gone, or an item kills worker after worker.
        """
        name, left, home = self._carry(work), iter(items), self._homes(work, items)

        def sent(count: int) -> list[Future]:
            # Together: a message for each item takes the scheduler longer than all else about it.
            shares: dict[str | None, list[Any]] = {}
            for item in islice(left, count):
                shares.setdefault(home(item), []).append(item)
            return [
                future
                for worker, share in shares.items()
                for future in self.client.map(
                    carry_out,
                    [name] * len(share),
                    share,
                    pure=False,
                    workers=worker,
                    allow_other_workers=worker is not None,
                )
            ]

        waiting, done = as_completed(sent(AHEAD), loop=self.client.loop, with_results=True), 0
        try:
            for future, result in waiting:
                if isinstance(result, CancelledError):
                    raise _gone(self.client)
                # What is released is forgotten: a worker that dies takes no result with it that somebody needs.
                future.release()
                yield result
                done += 1
                if done % REFILL == 0:
                    waiting.update(sent(REFILL))
        except KilledWorker as error:
            raise EngineError(
                "one tile has ended worker after worker",
                got=f"{error.allowed_failures + 1} deaths, the last on {error.last_worker.address}",
                hint="most likely they ran out of memory: a smaller tile=, or a kernel with memory=",
            ) from error
        finally:
            if self.client.status == "running":
                self.client.cancel(list(waiting.futures), force=True)

    def close(self) -> None:
        """Takes the work from the workers."""
        for name in self._carried if self.client.status == "running" else ():
            self.client.unregister_worker_plugin(name)
        self._carried.clear()

    def _homes(self, work: Callable, items: Sequence[Any]) -> Callable[[Any], str | None]:
        """Who does an item: those of one group go to one worker, which keeps what they share; None for anybody.

        It is but a wish: a worker without work takes what waits for another, and what waited for one that died goes
        to the rest.
        """
        workers: list[str] = sorted(self.client.nthreads())  # pyright: ignore[reportArgumentType]
        group = getattr(work, "group", None)
        # As few groups as workers would leave some without work for long; and workers may be yet to come.
        if group is None or not workers or len({group(item) for item in items[:AHEAD]}) < 2 * len(workers):
            return lambda _: None
        # There and back again, so that groups that grow are shared out evenly.
        turn = [*workers, *reversed(workers)]
        return lambda item: turn[group(item) % len(turn)]

    def _carry(self, work: Callable) -> str:
        for name, carried in self._carried.items():
            if carried is work:
                return name
        name = f"tangentkit-{uuid.uuid4().hex[:12]}"
        self.client.register_plugin(Carrier(name, work), name=name)
        self._carried[name] = work
        return name


def _gone(client: Client) -> EngineError:
    place = client.scheduler.addr if client.scheduler else "the scheduler"
    return EngineError(
        f"the Dask scheduler at {place} is gone",
        hint="start it again and run again: with store=, what is done stays done",
    )
