"""Ctrl-C, which the terminal sends to all, is for the one who asked for the work."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Threads and processes that are started meanwhile do not hear Ctrl-C; this process hears it at the end.

    The one who asked for the work ends them; by themselves, or left half started, each would die with a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
