"""One call of a model, as a function of its parameters alone."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from tangentkit.core.batches import Batch, tensors
from tangentkit.core.errors import ModelError
from tangentkit.core.model.functions import ModelFunction

Weights = dict[str, Tensor]
"""A value, or a direction, for each parameter by name."""
Outputs = tuple[Tensor, ...]
"""The floating-point tensors among the outputs of a model, in a fixed order."""


class Evaluation:
    """weights -> outputs, at a fixed batch.

    A model may return a tensor or any pytree. Its floating-point tensors are functions of the weights; all
    else (indices, flags, None) is constant and waits here to be put back by `rebuilt`.
    """

    def __init__(self, function: ModelFunction, batch: Batch):
        self.function, self.batch = function, batch
        self._leaves: list[Any] = []
        self._structure: pytree.TreeSpec | None = None

    @property
    def origin(self) -> Weights:
        """The weights w0 that the network is expanded about."""
        return self.function.params

    @property
    def inputs_require_grad(self) -> bool:
        """Whether somebody may ask for a gradient in the inputs."""
        return any(leaf.requires_grad for leaf in tensors(self.batch))

    def __call__(self, weights: Weights) -> Outputs:
        """The outputs at some weights.

        Raises:
            ModelError: there is no floating-point tensor among them.
        """
        # Fused attention has neither forward mode nor second derivatives.
        with sdpa_kernel(SDPBackend.MATH):
            result = self.function.run(weights, self.batch)
        leaves, self._structure = pytree.tree_flatten(result)
        outputs = tuple(leaf for leaf in leaves if _moves(leaf))
        if not outputs:
            raise ModelError(
                "the model's output holds no floating-point tensor",
                expected="a tensor, or tuples, lists and dicts of tensors",
                got=type(result).__name__,
                hint="forward=lambda model, batch: ... that returns a tensor",
            )
        self._leaves = [_HOLE if _moves(leaf) else leaf for leaf in leaves]
        return outputs

    @property
    def has_constant_tensors(self) -> bool:
        """Whether there are tensors among the constants of the last call."""
        return any(isinstance(leaf, Tensor) for leaf in self._leaves)

    def gradient(
        self,
        weights: Weights,
        outputs: Outputs,
        inputs: list[Tensor],
        v: Outputs,
        *,
        create_graph: bool = False,
    ) -> list[Tensor]:
        """∂<v, outputs>/∂inputs; zero where there is no path, dense where torch would make it sparse.

        Args:
            weights: those at which the outputs were computed: checkpointed blocks run forward again.
            outputs: with their graph, which stays.
            inputs: tensors of the graph.
            v: one for each output.
            create_graph: whether the result can be differentiated.
        """
        pairs = [(o, w) for o, w in zip(outputs, v, strict=True) if o.requires_grad]
        if not pairs:
            return [torch.zeros_like(tensor) for tensor in inputs]
        reached, cotangents = zip(*pairs, strict=True)

        def backward() -> tuple[Tensor, ...]:
            return torch.autograd.grad(
                reached, inputs, cotangents, retain_graph=True, create_graph=create_graph,
                allow_unused=True, materialize_grads=True,
            )  # fmt: skip

        with sdpa_kernel(SDPBackend.MATH):
            found = self.function.within(weights, backward)
        return [g.to_dense() if g.is_sparse else g for g in found]

    def rebuilt(self, outputs: Outputs) -> Any:
        """What the model returns, with other values of its floating-point tensors."""
        assert self._structure is not None
        fresh = iter(outputs)
        leaves = [next(fresh) if leaf is _HOLE else leaf for leaf in self._leaves]
        return pytree.tree_unflatten(leaves, self._structure)


_HOLE = object()


def _moves(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())
