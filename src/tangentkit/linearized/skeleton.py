"""The code of a module without its values."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tangentkit.core.errors import ModelError


def skeleton(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode whose parameters and buffers have shapes but no memory.

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
        code = copy.deepcopy(module, memo)
    except Exception as error:
        raise ModelError(
            f"{type(module).__name__} cannot be copied ({error})",
            hint="keep handles, locks and the like out of the module, or give it a __deepcopy__",
        ) from error
    for child in code.modules():
        child.training = False
    return code


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while.

    The flags are set one by one: `train` and `eval` of a module may be its own and change more than flags.
    """
    modes = [(child, child.training) for child in module.modules()]
    for child, _ in modes:
        child.training = False
    try:
        yield
    finally:
        for child, training in modes:
            child.training = training
