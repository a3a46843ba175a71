"""The engine of a Dask cluster."""

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tangentkit.compute.engines.engine import EngineError, Item, Result
from tangentkit.compute.engines.interrupts import deaf_to_interrupts
from tangentkit.core.errors import InputError

if TYPE_CHECKING:
    from distributed import Client

    from tangentkit.compute.engines.dask_session import Session

WAIT = 60.0
"""Seconds that the file of a scheduler may take to appear: jobs of one batch start one after the other."""


class Dask:
    """The workers of a Dask cluster (`pip install tangentkit[cluster]`).

    A worker that dies is replaced by its nanny and its tiles are done by others. With a store, workers need a file
    system that they share; they write their tiles themselves, and only names of tiles travel.

    `with Dask() as engine:` keeps client and processes over several calls; otherwise each call has its own.

    Args:
        cluster: the address of a scheduler ("tcp://host:8786"), the path of a scheduler file (waited for, up to a
            minute), or a client; None starts processes on this machine, and ends them.
        workers: with None: how many processes; by default one for each core.
        patience: seconds that it waits while the cluster has no worker at all, before the first comes or after the
            last is gone; then it is an error. Whoever comes in time goes on with the work.
    """

    def __init__(
        self, cluster: "str | Client | None" = None, *, workers: int | None = None, patience: float = 600.0
    ):
        if not 0 <= patience < float("inf"):
            raise InputError("bad patience", expected="a number of seconds", got=patience)
        self.cluster, self.workers, self.patience = cluster, workers, patience
        self._opened: list[tuple[Session, ExitStack]] = []

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results as they are done; the first error ends it.

        Raises:
            EngineError: there is no scheduler, or it dies; no worker comes; or one item kills worker after worker.
        """
        with self:
            yield from self._opened[-1][0].map(work, items)

    def __enter__(self) -> "Dask":
        stack = ExitStack()
        session = self._opened[-1][0] if self._opened else stack.enter_context(self._session())
        self._opened.append((session, stack))
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.pop()[1].close()

    @contextmanager
    def _session(self) -> "Iterator[Session]":
        try:
            from distributed import Client, LocalCluster

            from tangentkit.compute.engines.dask_session import Session
        except ImportError as error:
            raise EngineError("Dask is not installed", hint="pip install 'tangentkit[cluster]'") from error
        with ExitStack() as stack:
            if isinstance(self.cluster, Client):
                client = self.cluster
            elif self.cluster is None:
                with deaf_to_interrupts():
                    # Whoever reaches a dashboard, or any port of Dask, may do as they like: nobody but this machine.
                    cluster = LocalCluster(
                        n_workers=self.workers,
                        threads_per_worker=1,
                        host="127.0.0.1",
                        dashboard_address="127.0.0.1:0",
                        silence_logs=logging.ERROR,
                    )
                client = stack.enter_context(Client(stack.enter_context(cluster), set_as_default=False))
            else:
                try:
                    client = stack.enter_context(Client(_address(self.cluster), set_as_default=False))
                except OSError as error:
                    raise EngineError(f"no Dask scheduler at {self.cluster}", got=error) from error
            yield stack.enter_context(closing(Session(client, self.patience)))


def _address(cluster: str) -> str:
    """The address of a scheduler: given, or read from a file, which may be about to be written.

    Raises:
        EngineError: there is no such file.
    """
    if "://" in cluster:
        return cluster
    if re.fullmatch(r"[^/\\]+:\d+", cluster):
        return f"tcp://{cluster}"
    # Dask itself would wait for ever, and not heed that a file may be there but half.
    deadline = time.monotonic() + WAIT
    while True:
        try:
            return json.loads(Path(cluster).read_bytes())["address"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            if time.monotonic() > deadline:
                raise EngineError(
                    f"no Dask scheduler at {cluster}",
                    expected="an address, tcp://host:port, or the file that dask scheduler --scheduler-file writes",
                    got=f"no such file in {WAIT:g} s",
                ) from error
        time.sleep(0.1)
