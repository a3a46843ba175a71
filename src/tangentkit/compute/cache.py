"""A cache that never holds more than it may."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

CACHE_SHARE = 0.125
"""The share of the memory budget that samples and parts may take between tiles."""


class BoundedCache:
    """Keeps what was used last, up to a number of bytes of tensors.

    Example:
        >>> import torch
        >>> cache = BoundedCache(100)
        >>> first = cache.get("a", lambda: torch.zeros(10))
        >>> cache.get("a", lambda: torch.ones(10)) is first, cache.nbytes
        (True, 40)
        >>> [len(cache.get(key, lambda: torch.zeros(20))) for key in "bc"], cache.nbytes
        ([20, 20], 80)
    """

    def __init__(self, limit: int):
        self.limit, self.nbytes = limit, 0
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What the key stands for, made if it is not here."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        # Outside of the lock: two threads may make the same thing, but none waits for another's disk.
        value = make()
        size = sum(t.nbytes for t in pytree.tree_leaves(value) if isinstance(t, Tensor))
        with self._lock:
            if key not in self._kept and size <= self.limit:
                self._kept[key] = value, size
                self.nbytes += size
            while self.nbytes > self.limit:
                self.nbytes -= self._kept.popitem(last=False)[1][1]
        return value
