"""Mean and standard error of matrices that come one by one."""

from collections.abc import Iterable

import torch
from torch import Tensor


def mean_and_error(values: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """The mean and its standard error, entry by entry, by Welford's update: one pass, no cancellation.

    The error of a single value is not a number.

    Example:
        >>> mean_and_error(torch.tensor([1.0, 2.0, 3.0]))
        (tensor(2.), tensor(0.5774))
    """
    mean = squares = torch.zeros(())
    count = 0
    for value in values:
        count += 1
        gap = value - mean
        mean = mean + gap / count
        squares = squares + gap * (value - mean)
    error = (squares / ((count - 1) * count)).sqrt() if count > 1 else torch.full_like(mean, torch.nan)
    return mean, error
