"""Sources: where a machine's kernel matrix comes from, by its `kernel` argument.

=================  ==========================================  =================================
kernel             inputs of `fit`                             inputs of `predict`
=================  ==========================================  =================================
"precomputed"      k(X, X): (n, n), (n, c, n, c), an Operator  k(Z, X): (m, n) or (m, c, n, c)
"features"         features (n, d), k(x, y) = x · y            features (m, d)
kernel, callable   samples, as the kernel takes them           samples
=================  ==========================================  =================================

A kernel with c outputs, k(x, y) of shape (n, c, m, c), is a block kernel: a matrix of (n c, m c) here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS
from torch import Tensor, nn

from tangentkit.compute import Kernel
from tangentkit.core.batches import Batch, as_batch, batch_size, take
from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.memory import memory_budget
from tangentkit.linalg import DenseOperator, FactorOperator, Operator, as_operator, check_finite
from tangentkit.linalg.operators.matrices import as_tensor
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.operators.spans import spans

NAMES = ("precomputed", "features")


class KernelSource(ABC):
    """How inputs become kernel matrices."""

    @abstractmethod
    def gram(self, X: Any, *, memory: Memory = None) -> Operator:
        """k(X, X) as (n c, n c), in memory where the budget allows."""

    @abstractmethod
    def cross(self, Z: Any, X: Any) -> Float[Tensor, "mc nc"]:
        """k(Z, X), X being the inputs of the training samples."""

    @abstractmethod
    def variances(self, Z: Any) -> Float[Tensor, " mc"]:
        """k(z, z) of every sample and output."""

    def samples(self, X: Any) -> int | None:
        """How many samples the inputs of `fit` are; None where a matrix (n c, n c) does not tell n from c."""
        return size(X)

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """The dtype and device that samples must have; None where the kernel takes any."""
        return None

    def placed(self, X: np.ndarray) -> Any:
        """An array as the kernel takes it: where it expects a dtype and a device, a tensor of these."""
        expected = self.expects()
        return X if expected is None else cast(X, *expected)

    def features(self, X: Any) -> Float[Tensor, "n d"] | None:  # noqa: ARG002 - most kernels have none
        """Features whose inner products are the kernel, or None where the kernel has none."""
        return None


class Precomputed(KernelSource):
    """The inputs are the kernel matrix itself."""

    def gram(self, X: Any, *, memory: Memory = None) -> Operator:  # noqa: ARG002 - it is there already
        """The matrix of all samples.

        Raises:
            InputError: it is not square.
        """
        K = X if isinstance(X, Operator) else as_operator(as_matrix(X))
        if K.shape[0] != K.shape[1]:
            raise InputError(
                "the kernel matrix of the training samples is not square",
                expected="k(X, X), of shape (n, n)",
                got=K.shape,
                hint='kernel="features" or a kernel, such as tk.ConjugateKernel(model), if these are samples',
            )
        return K

    def samples(self, X: Any) -> int | None:
        """Those of (n, c, n, c)."""
        return X.shape[0] if len(X.shape) == 4 else None

    def cross(self, Z: Any, X: Any) -> Float[Tensor, "mc nc"]:  # noqa: ARG002
        """The rows that were given."""
        return Z.dense() if isinstance(Z, Operator) else as_matrix(Z)

    def variances(self, Z: Any) -> Float[Tensor, " mc"]:  # noqa: ARG002
        """Not to be had from k(Z, X).

        Raises:
            InputError: always.
        """
        raise InputError(
            "k(Z, X) does not hold the prior variances",
            expected="prior=k(z, z) of every sample",
            hint="predict(K, return_std=True, prior=kernel.diag(z))",
        )


class Features(KernelSource):
    """The inputs are features; the kernel is their inner product."""

    def gram(self, X: Any, *, memory: Memory = None) -> Operator:  # noqa: ARG002 - the factors are there already
        """X Xᵀ, known by its factor."""
        return FactorOperator(self.features(X))

    def cross(self, Z: Any, X: Any) -> Float[Tensor, "mc nc"]:
        """Z Xᵀ."""
        return self.features(Z) @ self.features(X).T

    def variances(self, Z: Any) -> Float[Tensor, " mc"]:
        """‖z‖²."""
        return self.features(Z).square().sum(1)

    def features(self, X: Any) -> Float[Tensor, "n d"]:
        """The features, which are X itself."""
        X = as_tensor(X, "features")
        if X.ndim != 2:
            raise InputError("not features", expected="shape (n, d)", got=tuple(X.shape))
        return _in_full_precision(X)


@dataclass(frozen=True)
class Function(KernelSource):
    """The kernel is a function of two batches."""

    kernel: Callable[..., Any]

    def gram(self, X: Any, *, memory: Memory = None) -> Operator:
        """k(X, X), as a matrix where it fits the budget, else an operator that computes its blocks."""
        operator = KernelOperator(self.kernel, X)
        if not memory_budget(memory, device=operator.device).holds(operator.nbytes):
            return operator
        k = self.kernel(X) if isinstance(self.kernel, Kernel) else self.kernel(X, X)
        return DenseOperator(_checked(k, size(X), size(X)))

    def cross(self, Z: Any, X: Any) -> Float[Tensor, "mc nc"]:
        """k(Z, X)."""
        return _checked(self.kernel(Z, X), size(Z), size(X))

    def variances(self, Z: Any) -> Float[Tensor, " mc"]:
        """k(z, z), sample by sample where the kernel has no way of its own."""
        if isinstance(self.kernel, Kernel):
            return self.kernel.diag(Z).flatten()
        ones = (take_samples(Z, slice(i, i + 1)) for i in range(size(Z)))
        return torch.cat([as_matrix(self.kernel(z, z)).diagonal() for z in ones])

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """Those of the kernel's model, where it has one."""
        return self.kernel.expects() if isinstance(self.kernel, Kernel) else None

    def features(self, X: Any) -> Float[Tensor, "n d"] | None:
        """The features of a kernel that has them, such as a conjugate or a sketched kernel."""
        features = getattr(self.kernel, "features", None)
        return _in_full_precision(as_tensor(features(X), "features")) if callable(features) else None


class KernelOperator(Operator):
    """k(x, x) of a kernel function, computed block by block and never in memory as a whole.

    Products of a tangent kernel with all outputs go by J (Jᵀ v), without forming a block.

    Args:
        kernel: a function of two batches.
        x: the samples.
    """

    def __init__(self, kernel: Callable[..., Any], x: Batch) -> None:
        first = take_samples(x, slice(0, 1))
        one = as_matrix(kernel(first, first))
        self.kernel, self.x, self.c = kernel, x, one.shape[0]
        n = self.c * size(x)
        super().__init__((n, n), dtype=one.dtype, device=one.device, symmetric=True)

    def block(self, rows: slice, cols: slice) -> Float[Tensor, "n m"]:
        """The kernel of the samples that the rows and columns belong to."""
        left, right = (slice(span.start // self.c, -(-span.stop // self.c)) for span in (rows, cols))
        whole = as_matrix(self.kernel(take_samples(self.x, left), take_samples(self.x, right)))
        i, j = rows.start - left.start * self.c, cols.start - right.start * self.c
        return whole[i : i + rows.stop - rows.start, j : j + cols.stop - cols.start]

    @property
    def reads_tiles(self) -> bool:
        """Whether a product reads blocks."""
        return not self._has_products

    @property
    def _has_products(self) -> bool:
        return getattr(self.kernel, "outputs", None) == "full" and hasattr(self.kernel, "product")

    def _product(self, V: Float[Tensor, "m c"], memory: Memory) -> Float[Tensor, "n c"]:
        if not self._has_products:
            return super()._product(V, memory)
        columns = [self.kernel.product(self.x, v.reshape(-1, self.c)).flatten() for v in V.T]  # type: ignore[attr-defined]
        return torch.stack(columns, 1)


def as_source(kernel: Any) -> KernelSource:
    """The source that a machine's kernel argument means.

    Raises:
        UnknownNameError: a name that is none of those known.
        InputError: neither a name of ours nor a function.
    """
    if isinstance(kernel, str):
        if kernel not in NAMES:
            if kernel in PAIRWISE_KERNEL_FUNCTIONS:
                raise InputError(
                    f"{kernel!r} is a name of scikit-learn's",
                    expected="a kernel of this library, a function k(x, y), " + " or ".join(map(repr, NAMES)),
                    hint=f"sklearn.metrics.pairwise.{PAIRWISE_KERNEL_FUNCTIONS[kernel].__name__}, the function",
                )
            raise UnknownNameError("kernel", kernel, NAMES)
        return Precomputed() if kernel == "precomputed" else Features()
    if isinstance(kernel, (nn.Module, type)) or not callable(kernel):
        raise InputError(
            "not a kernel",
            expected='a kernel, a function k(x, y), "precomputed" or "features"',
            got=f"the class {kernel.__name__}" if isinstance(kernel, type) else type(kernel).__name__,
            hint=_kernel_of(kernel),
        )
    return Function(kernel)


def _kernel_of(wrong: Any) -> str | None:
    """What a kernel argument that is none was probably meant to be."""
    if isinstance(wrong, nn.Module):
        return "the kernel of a module is tk.TangentKernel(model) or tk.ConjugateKernel(model)"
    if isinstance(wrong, type) and issubclass(wrong, Kernel):
        return f"{wrong.__name__}(model), a kernel of that class"
    if isinstance(wrong, (Tensor, np.ndarray, Operator)):
        return 'a kernel matrix is given to fit: KernelRegression(kernel="precomputed").fit(K, y)'
    return None


def as_matrix(k: Any) -> Float[Tensor, "nc mc"]:
    """A kernel matrix (n, m), or (n, c, m, c) as (n c, m c).

    Raises:
        InputError: of another shape.

    Example:
        >>> as_matrix(torch.zeros(3, 2, 4, 2)).shape
        torch.Size([6, 8])
    """
    k = as_tensor(k, "kernel matrix")
    if k.ndim == 4 and k.shape[1] == k.shape[3]:
        k = k.reshape(k.shape[0] * k.shape[1], -1)
    if k.ndim != 2:
        raise InputError("not a kernel matrix", expected="(n, m) or (n, c, m, c)", got=tuple(k.shape))
    return k if k.is_floating_point() else k.double()


def cast(X: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """An array as a tensor on a device, floating point numbers in a dtype and others as they are."""
    x = as_tensor(X, "inputs")
    return (x.to(dtype) if x.is_floating_point() else x).to(device)


def size(X: Any) -> int:
    """The number of samples of an array or a batch."""
    return len(X) if isinstance(X, np.ndarray) else batch_size(as_batch(X))


def take_samples(X: Any, index: slice | Tensor) -> Any:
    """Some samples of an array or a batch."""
    if isinstance(X, np.ndarray):
        return X[index.cpu().numpy() if isinstance(index, Tensor) else index]
    return take(as_batch(X), index)


def pieces(X: Any, *, bytes_each: int, memory: Memory) -> Iterator[Any]:
    """Consecutive samples, as many at a time as fit, with `bytes_each`, into a quarter of the budget."""
    return (
        take_samples(X, span) for span in spans(size(X), memory_budget(memory).rows(bytes_each, copies=4))
    )


def _in_full_precision(features: Tensor) -> Tensor:
    """No factorization takes integers or half precision."""
    if features.is_floating_point():
        return features.to(torch.promote_types(features.dtype, torch.float32))
    return features.double()


def _checked(k: Any, n: int, m: int) -> Float[Tensor, "nc mc"]:
    matrix = as_matrix(k)
    rows, cols = matrix.shape
    if rows % n or cols % m or rows // n != cols // m:
        raise InputError(
            "the kernel gives a matrix of the wrong shape",
            expected=f"({n}, {m}) or ({n}, c, {m}, c)",
            got=tuple(np.shape(k)),
        )
    check_finite(matrix, "kernel matrix")
    return matrix
