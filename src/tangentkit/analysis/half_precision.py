"""Kernels and networks of half precision in float32, which decompositions need."""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from tangentkit.compute.kernel import HasFeatures, Kernel
from tangentkit.core.batches import Batch


def at_least_float32(kernel: Kernel) -> Kernel:
    """The kernel with values of float32 where its network is of half precision; else the kernel itself.

    Example:
        >>> from tangentkit import ConjugateKernel
        >>> kernel = ConjugateKernel(nn.Linear(2, 1).bfloat16())
        >>> at_least_float32(kernel)(torch.ones(3, 2, dtype=torch.bfloat16)).dtype
        torch.float32
    """
    expected = kernel.expects()
    if expected is None or not is_half(expected[0]):
        return kernel
    return WidenedFeatures(kernel) if isinstance(kernel, HasFeatures) else kernel.to(torch.float32)


def is_half(dtype: torch.dtype) -> bool:
    """Whether numbers of this dtype are real ones of less than four bytes."""
    return dtype.is_floating_point and dtype.itemsize < 4


def float32_twin(model: nn.Module) -> nn.Module:
    """A copy of a network of half precision in float32; of others the network itself."""
    return copy.deepcopy(model).float() if any(is_half(p.dtype) for p in model.parameters()) else model


def float32_batch(x: Batch) -> Batch:
    """The batch with what is of half precision in float32."""
    return tree_map(lambda leaf: leaf.float() if is_half(leaf.dtype) else leaf, x)


@dataclass(frozen=True, eq=False)
class WidenedFeatures(Kernel):
    """φ(x) · φ(y) in float32: in half precision the products are rounded so much that K has negative eigenvalues."""

    kernel: Kernel

    def __repr__(self) -> str:
        return repr(self.kernel)

    def features(self, x: Batch) -> Float[Tensor, "n d"]:
        """The features, cast."""
        return self.kernel.features(x).float()  # pyright: ignore[reportAttributeAccessIssue]

    def __call__(self, x: Batch, y: Batch | None = None) -> Float[Tensor, "n m"]:
        """Their inner products."""
        left = self.features(x)
        return left @ (left if y is None else self.features(y)).T

    def diag(self, x: Batch) -> Float[Tensor, " n"]:
        """Their squared norms."""
        return self.features(x).square().sum(1)

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """What the kernel expects."""
        return self.kernel.expects()
