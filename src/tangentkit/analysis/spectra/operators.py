"""Operators of kernels that are never formed: a tangent kernel known by its products."""

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.batches import Batch, batch_size
from tangentkit.core.errors import InputError
from tangentkit.empirical.tangent import TangentKernel
from tangentkit.linalg import Operator
from tangentkit.linalg.operators.operator import Memory


class KernelProducts(Operator):
    """The full tangent kernel J Jᵀ of a batch, (n c, n c), known by `TangentKernel.product` alone.

    Its eigenvalues are the squared singular values of the Jacobian J, (n c, p), which is not formed either. Each
    product is a backward and a forward pass over the batch. Blocks take as many products as they have columns, so
    that this operator is for Lanczos and for estimates.

    Args:
        kernel: of a module, for outputs="full".
        x: the batch.

    Raises:
        InputError: the kernel is for other outputs.

    Example:
        >>> from tangentkit.linalg import spectrum
        >>> kernel = TangentKernel(torch.nn.Linear(3, 2, bias=False), outputs="full")
        >>> K = KernelProducts(kernel, torch.eye(3)[:2])
        >>> K
        KernelProducts(4 x 4, float32, cpu, symmetric)
        >>> spectrum(K, 2, of="jacobian").values
        tensor([1., 1.])
    """

    def __init__(self, kernel: TangentKernel, x: Batch) -> None:
        if not (isinstance(kernel.outputs, str) and kernel.outputs == "full"):
            raise InputError(
                "products are of the full kernel",
                expected='TangentKernel(model, outputs="full")',
                got=f"outputs={kernel.outputs!r}",
            )
        self.kernel, self.x = kernel, x
        self._norms = kernel.diag(x)
        size = self._norms.numel()
        super().__init__((size, size), dtype=self._norms.dtype, device=self._norms.device, symmetric=True)

    def block(self, rows: slice, cols: slice) -> Float[Tensor, "n m"]:
        """Rows of products with unit vectors."""
        units = torch.zeros(self.shape[1], cols.stop - cols.start, dtype=self.dtype, device=self.device)
        units[cols].fill_diagonal_(1)
        return self.product(units)[rows]

    def _product(self, V: Float[Tensor, "m c"], memory: Memory) -> Float[Tensor, "n c"]:  # noqa: ARG002
        n = batch_size(self.x)
        return torch.stack([self.kernel.product(self.x, v.reshape(n, -1)).flatten() for v in V.T], 1)

    def _diagonal(self, memory: Memory) -> Float[Tensor, " r"]:  # noqa: ARG002
        return self._norms.flatten()
