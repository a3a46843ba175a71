"""The generic route: per-sample gradients of any module that autograd can differentiate.

By `vmap` of a vector-Jacobian product where vmap knows every operation of the model and agrees with autograd,
else by a loop of plain autograd over samples.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.model.functions import ModelFunction
from tangentkit.empirical.structure import Structure


def generic_gradients(
    function: ModelFunction, structure: Structure, batch: Batch, directions: Tensor
) -> dict[str, Tensor]:
    """Per-sample gradients (n, r, p) of the parameters without a rule."""
    names = list(structure.generic)
    if structure.hooked:
        return output_gradients(function, names, batch, directions)
    if names and structure.vmap:
        try:
            return vmap_gradients(function, names, batch, directions)
        except RuntimeError:
            pass  # what vmap managed for two samples it may refuse for others (control flow on values, say)
    return loop_gradients(function, names, batch, directions) if names else {}


def loop_gradients(
    function: ModelFunction, names: Sequence[str], batch: Batch, directions: Tensor
) -> dict[str, Tensor]:
    """Per-sample gradients (n, r, p) by a loop of autograd over samples and directions: slow and always right."""
    parameters = function.params | {name: function.params[name].detach().requires_grad_() for name in names}
    wanted = [parameters[name] for name in names]
    rows: dict[str, list[Tensor]] = {name: [] for name in names}
    for i in range(batch_size(batch)):
        with torch.enable_grad():
            outputs = (directions @ function(parameters, take(batch, slice(i, i + 1)))[0]).unbind()
        for output in outputs:
            found = _gradients(function, parameters, output, wanted)
            for name, gradient in zip(names, found, strict=True):
                rows[name].append((gradient.to_dense() if gradient.is_sparse else gradient).flatten())
    # Popped: of large models, no second copy of all gradients.
    return {name: torch.stack(rows.pop(name)).unflatten(0, (-1, len(directions))) for name in names}


def output_gradients(
    function: ModelFunction, names: Sequence[str], batch: Batch, directions: Tensor
) -> dict[str, Tensor]:
    """Per-sample gradients Σ_c v_rc ∇f_c(x_i) (n, r, p), each output by a backward pass of its own.

    Hooks (clipping, say) may make the gradient of v · f another thing, and J is made of the outputs' gradients.
    """
    eye = torch.eye(directions.shape[1]).to(directions)
    wanted = directions.any(0).nonzero()[:, 0]
    sizes = {name: (batch_size(batch), len(directions), function.params[name].numel()) for name in names}
    total = {name: directions.new_zeros(size) for name, size in sizes.items()}
    for some in wanted.split(len(directions)) if len(wanted) else ():  # no more at once than are asked for
        for name, g in loop_gradients(function, names, batch, eye[some]).items():
            total[name] += directions[:, some] @ g
    return total


def _gradients(
    function: ModelFunction, parameters: dict[str, Tensor], output: Tensor, wanted: list[Tensor]
) -> Sequence[Tensor]:
    if not output.requires_grad:
        return [torch.zeros_like(p) for p in wanted]
    return function.within(
        parameters,
        lambda: torch.autograd.grad(
            output, wanted, retain_graph=True, allow_unused=True, materialize_grads=True
        ),
    )


def vmap_gradients(
    function: ModelFunction, names: Sequence[str], batch: Batch, directions: Tensor
) -> dict[str, Tensor]:
    """Per-sample gradients by vmap of a vector-Jacobian product."""
    leaves, structure = pytree.tree_flatten(batch)
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def single(*sample: Tensor) -> dict[str, Tensor]:
        one = list(leaves)
        for k, leaf in zip(places, sample, strict=True):
            one[k] = leaf[None]

        def outputs(wanted: dict[str, Tensor]) -> Tensor:
            return function(function.params | wanted, pytree.tree_unflatten(one, structure))[0]

        pull = torch.func.vjp(outputs, {name: function.params[name] for name in names})[1]
        return torch.func.vmap(pull)(directions)[0]

    with _vmap_friendly():
        found = torch.func.vmap(single)(*(leaves[k] for k in places))
    return {name: gradient.reshape(*gradient.shape[:2], -1) for name, gradient in found.items()}


@contextmanager
def _vmap_friendly() -> Iterator[None]:
    # Fused attention has no batching rule; its plain form is the same function.
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield
