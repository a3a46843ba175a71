"""Ctrl-C, which the terminal sends to all, is for the one who asked for the work."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Threads and processes that are started meanwhile do not hear Ctrl-C; this process hears it at the end.

    The one who asked for the work ends them; by themselves, or left half started, each would die with a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    with _heard_at_the_end():
        # When it starts, the tracker of multiprocessing lets the signals through that it finds blocked.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _heard_at_the_end() -> Iterator[None]:
    """Puts Ctrl-C off. Blocked signals alone would not: any other thread takes them for the whole process."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield  # Python tells the main thread alone; a handler of C's making cannot be put back
        return
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            signal.raise_signal(signal.SIGINT)
