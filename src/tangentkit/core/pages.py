"""Large tensors in huge pages.

The first touch of fresh memory costs as much as the arithmetic on it: 100 MB take 40 ms in pages of 4 kB and 7 ms in
huge ones. numpy asks the system for huge pages, torch does not; so large tensors on the CPU are allocated by numpy.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

LARGE = 2**22
"""Bytes from which numpy asks for huge pages."""
LINE = 64
"""Bytes of a cache line, at which tensors begin."""
DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


def zeros(like: Tensor, *shape: int) -> Tensor:
    """Zeros with the dtype and device of another tensor.

    Example:
        >>> zeros(torch.ones(1), 2, 3)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    return _aligned(np.zeros, like, shape) if _fits(like, shape) else like.new_zeros(shape)


def empty(like: Tensor, *shape: int) -> Tensor:
    """Memory without values, with the dtype and device of another tensor.

    Example:
        >>> empty(torch.ones(1), 2, 3).shape
        torch.Size([2, 3])
    """
    return _aligned(np.empty, like, shape) if _fits(like, shape) else like.new_empty(shape)


def _fits(like: Tensor, shape: tuple[int, ...]) -> bool:
    large = math.prod(shape) * like.element_size() >= LARGE
    return large and like.device.type == "cpu" and like.dtype in DTYPES


def _aligned(allocate: Callable, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    entries, item = math.prod(shape), like.element_size()
    memory = torch.from_numpy(allocate(entries + LINE // item, DTYPES[like.dtype]))
    start = -memory.data_ptr() % LINE // item
    return memory[start : start + entries].view(shape)
