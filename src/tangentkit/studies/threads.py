"""A chosen number of threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Lets torch work on so many threads for a while; None leaves it as it is.

    Rounding depends on the number of threads, and training makes a different network of it.
    """
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
