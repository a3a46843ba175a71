"""Features as the analysis reads them: one row for each sample, finite, on the CPU."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linalg.operators.matrices import as_tensor


def read_features(features: Any, what: str = "features") -> Float[Tensor, "n d"]:
    """The features as float32 or float64 on the CPU, detached.

    Raises:
        InputError: they are no matrix of real numbers, or empty.
        NumericalError: some are not finite; with the samples.

    Example:
        >>> read_features(torch.ones(2, 3, dtype=torch.bfloat16)).dtype
        torch.float32
    """
    h = as_tensor(features, what).cpu()
    if h.ndim != 2 or h.is_complex() or 0 in h.shape:
        raise InputError(
            f"bad {what}",
            expected="real numbers (n, d), a row for each sample",
            got=f"{str(h.dtype).removeprefix('torch.')} {tuple(h.shape)}",
            hint="h.flatten(1)" if h.ndim > 2 else "h[:, None], one feature" if h.ndim == 1 else None,
        )
    h = h if h.dtype == torch.float64 else h.float()
    finite = h.isfinite().all(1)
    if not finite.all():
        bad = (~finite).nonzero().flatten().tolist()
        got = f"nan or inf in samples {bad[:5]} ({len(bad)} in all)"
        raise NumericalError(f"{what} are not finite", got=got)
    return h
