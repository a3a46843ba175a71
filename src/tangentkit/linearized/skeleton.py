"""The code of a module without its values."""

import copy

import torch
from torch import Tensor, nn

from tangentkit.core.errors import ModelError


def skeleton(module: nn.Module) -> nn.Module:
    """A copy whose parameters and buffers have shapes but no memory.

    What is one tensor in the module (tied weights) is one in the copy.

    Raises:
        ModelError: the module cannot be copied.
    """
    memo: dict[int, object] = {}
    for p in module.parameters():
        memo[id(p)] = nn.Parameter(torch.empty_like(p, device="meta"), requires_grad=p.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    # Tensors that a hook computes anew in each call (the older weight_norm) hang on a graph; torch copies no such.
    for child in module.modules():
        for value in vars(child).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:
        raise ModelError(
            f"{type(module).__name__} cannot be copied ({error})",
            hint="keep handles, locks and the like out of the module, or give it a __deepcopy__",
        ) from error
