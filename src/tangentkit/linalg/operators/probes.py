"""Probes: random vectors that ask an operator questions."""

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.seeds import Key
from tangentkit.linalg.operators.operator import Operator


def gaussian(K: Operator, count: int, *, key: Key) -> Float[Tensor, "m c"]:
    """Standard normal vectors that K can be multiplied with; the same on every device."""
    return torch.randn(K.shape[1], count, generator=key.torch(), dtype=K.dtype).to(K.device)


def rademacher(K: Operator, count: int, *, key: Key) -> Float[Tensor, "m c"]:
    """Vectors of random signs that K can be multiplied with; the same on every device."""
    bits = torch.randint(0, 2, (K.shape[1], count), generator=key.torch())
    return (2 * bits - 1).to(K.device, K.dtype)
