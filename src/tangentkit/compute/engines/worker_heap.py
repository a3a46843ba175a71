"""How much freed memory the allocator of a worker keeps.

Dask starts its workers with MALLOC_TRIM_THRESHOLD_=65536: every free page goes back to the system, and every tensor
of some size is fresh memory, whose first touch takes longer than the arithmetic on it. Tiles of LeNet take twice as
long that way, and two workers get in each other's way in the kernel. While they have work of ours, workers keep what
glibc would keep by its own rule.
"""

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT, MAPPED = 2**26, 2**25
"""Free bytes at the top of a heap that are kept, and the size from which blocks come from the system: where glibc's
own rule ends for programs with large blocks."""
DASKS = "65536"
"""What Dask sets by default."""


def keep_freed() -> None:
    """Keeps freed memory, where Dask has set the allocator to give it back.

    A threshold that somebody chose, and other allocators than glibc's, are left alone.
    """
    _set(trim=KEPT, mapped=MAPPED)


def give_back() -> None:
    """Gives back what `keep_freed` kept, and from now on all that is free."""
    if _set(trim=int(DASKS), mapped=2**17):
        ctypes.CDLL(None).malloc_trim(0)


def _set(*, trim: int, mapped: int) -> bool:
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") != DASKS:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS, Windows, musl
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, trim) and mallopt(M_MMAP_THRESHOLD, mapped))
