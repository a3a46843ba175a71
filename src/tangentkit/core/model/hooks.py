"""Hooks: what a model does to gradients beside its formula, where no node of the graph shows it."""

from collections.abc import Iterable

from torch import nn
from torch.utils.hooks import RemovableHandle

from tangentkit.core.errors import ModelError


def hooks_made() -> int:
    """How many hooks this process has registered so far, on tensors, on nodes of a graph and on modules.

    Every way of registering one from Python counts up here: `Tensor.register_hook`, `Node.register_hook` and
    `register_prehook`, and the backward hooks of modules, which hang themselves on nodes in every forward pass. So a
    forward pass that raises the number has hooks in its backward pass.

    Example:
        >>> import torch
        >>> before, x = hooks_made(), torch.ones(2, requires_grad=True)
        >>> _ = (2 * x).register_hook(lambda g: -g)
        >>> hooks_made() - before
        1
    """
    return RemovableHandle.next_id


def refuse_hooked_parameters(model: nn.Module, names: Iterable[str]) -> None:
    """Refuses parameters with hooks: they change `parameter.grad`, and no copy of the parameter has them.

    Args:
        model: whose parameters.
        names: those that are to be differentiated.

    Raises:
        ModelError: naming them.
    """
    parameters = dict(model.named_parameters())
    hooked = [name for name in names if parameters[name]._backward_hooks]
    if hooked:
        shown = ", ".join(hooked[:5]) + (", ..." if len(hooked) > 5 else "")
        raise ModelError(
            f"{len(hooked)} parameter(s) have hooks, which change their gradients: {shown}",
            expected="gradients of the model's outputs as they are",
            hint="handle.remove(), or copy.deepcopy(model), which leaves such hooks behind; a mask or factor that is "
            "meant to count belongs into forward, as self.weight * mask",
        )
