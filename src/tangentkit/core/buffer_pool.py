"""Large tensors in huge pages, and in memory that was used before.

The first touch of fresh memory costs as much as the arithmetic on it: 100 MB take 40 ms in pages of 4 kB and 7 ms in
huge ones (300 ms in a virtual machine whose host took the pages back). numpy asks the system for huge pages, torch
does not; so large tensors on the CPU are allocated by numpy. And what one tile lets go, the next one needs again: its
blocks wait for that instead of going back to the system. So do those of kernels that the caller has let go.
"""

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

LARGE = 2**22
"""Bytes from which numpy asks for huge pages."""
LINE = 64
"""Bytes of a cache line, at which tensors begin."""
WAITING = 2**28
"""Bytes of blocks that may wait for the next call."""
SLACK = 1.25
"""How much larger than a tensor its block may be."""


def zeros(like: Tensor, *shape: int) -> Tensor:
    """Zeros with the dtype and device of another tensor.

    Example:
        >>> zeros(torch.ones(1), 2, 3)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    return empty(like, *shape).zero_()


def empty(like: Tensor, *shape: int) -> Tensor:
    """Memory without values, with the dtype and device of another tensor.

    Example:
        >>> empty(torch.ones(1), 2, 3).shape
        torch.Size([2, 3])
    """
    if not _is_large(like, shape):
        return like.new_empty(shape)
    block = _BLOCKS.take(_bytes(like, shape) + LINE)
    memory = _aligned(block)
    # The tensor holds `memory`, and so do its views and whatever shares it without a copy; after the last of them the
    # block is free again.
    finalize(memory, _BLOCKS.put, block).atexit = False
    return _tensor(memory, like, shape)


@contextmanager
def reused() -> Iterator[None]:
    """For the time of a call that makes the same tensors again and again, all blocks that it lets go may wait."""
    _keep_freed()
    with _BLOCKS.busy():
        yield


@cache
def _keep_freed() -> None:
    """Makes glibc keep the freed memory of torch's own tensors, too, up to 64 MB of it.

    Its rule is to keep twice the largest block that was mapped and freed, of 32 MB at most: here is one, which nobody
    touches. A threshold that somebody chose, and other allocators, are not moved by it.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)


class _Blocks:
    """Blocks of memory that wait for their next use.

    Tensors may die in any thread and in the middle of anything, so blocks are put and taken without a lock: by single
    operations on a deque. At worst another thread finds none and allocates its own.
    """

    def __init__(self) -> None:
        self._waiting: deque[np.ndarray] = deque()  # oldest first
        self._calls, self._counting = 0, Lock()

    def take(self, size: int) -> np.ndarray:
        """A block of at least so many bytes.

        If none fits, as many bytes of waiting ones go as come anew: so they do not raise the peak of memory.
        """
        waiting = self._all()
        fitting = [block for block in waiting if size <= block.nbytes <= SLACK * size]
        found = min(fitting, key=lambda block: block.nbytes, default=None)
        self._keep([block for block in waiting if block is not found], spare=size if found is None else 0)
        del waiting  # what is not kept goes now
        return np.empty(size, np.uint8) if found is None else found

    def put(self, block: np.ndarray) -> None:
        """Takes back a block whose tensor is gone."""
        self._waiting.append(block)
        self._settle()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While a call works, any number of blocks may wait."""
        with self._counting:
            self._calls += 1
        try:
            yield
        finally:
            with self._counting:
                self._calls -= 1
            self._settle()

    def _settle(self) -> None:
        if not self._calls:
            waiting = self._all()
            self._keep(waiting, spare=sum(block.nbytes for block in waiting) - WAITING)

    def _all(self) -> list[np.ndarray]:
        found = []
        try:
            while True:
                found.append(self._waiting.popleft())
        except IndexError:
            return found

    def _keep(self, blocks: list[np.ndarray], *, spare: int) -> None:
        """Keeps blocks but for the oldest of them, of so many bytes or more."""
        for block in blocks:
            if spare <= 0:
                self._waiting.append(block)
            spare -= block.nbytes


_BLOCKS = _Blocks()


def _bytes(like: Tensor, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * like.element_size()


def _is_large(like: Tensor, shape: tuple[int, ...]) -> bool:
    return like.device.type == "cpu" and _bytes(like, shape) >= LARGE


def _aligned(block: np.ndarray) -> np.ndarray:
    return block[-block.ctypes.data % LINE :]


def _tensor(memory: np.ndarray, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(memory)[: _bytes(like, shape)].view(like.dtype).view(shape)
