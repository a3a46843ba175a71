"""A folder for what a trial has on disk while it runs; it outlives a kill, and the trial goes on from it."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory

from tangentkit.compute.store.locks import writing
from tangentkit.core.errors import DataError
from tangentkit.core.files.safe import make_folder
from tangentkit.data import cache_folder

RUNNING: ContextVar[str] = ContextVar("the key of the trial that runs", default="")
"""Set by `perform`; nothing where a function is called without a trial."""
FOLDERS = "trials"
"""Below the cache folder of the data."""


@contextmanager
def kept_folder() -> Iterator[Path]:
    """An empty folder, or that of an earlier attempt at this trial; removed when the work inside has ended well.

    It lies in the cache of the data (TANGENTKIT_CACHE), in trials/KEY, and is meant for stores, which say themselves
    whether they fit: where one does not, or is damaged, the folder is removed, so that the next attempt begins anew.
    Any other end leaves it. Time that the trial measures is that of the last attempt. Outside a trial, without a
    cache and while another process does the same trial, the folder is a temporary one.
    """
    with ExitStack() as stack:
        if (place := _claimed(stack)) is None:
            yield Path(stack.enter_context(TemporaryDirectory()))
            return
        inner = place / "kept"  # the lock lies beside it
        make_folder(inner)
        try:
            yield inner
        except DataError:
            shutil.rmtree(inner, ignore_errors=True)
            raise
        shutil.rmtree(inner, ignore_errors=True)
    with suppress(OSError):
        place.rmdir()  # another process may have claimed it


def _claimed(stack: ExitStack) -> Path | None:
    """The folder of the trial that runs, locked; None where there can be none."""
    if not (key := RUNNING.get()):
        return None
    try:
        place = cache_folder() / FOLDERS / key
        make_folder(place)
        stack.enter_context(writing(place))
    except DataError:
        return None
    return place
