"""How kernels and targets lie: kernels of samples, and block kernels of samples and outputs."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.linalg.operators.checks import check_finite
from tangentkit.linalg.operators.matrices import DenseOperator, as_tensor
from tangentkit.linalg.operators.operator import Operator

WORKING = torch.float64
"""The dtype of all that is computed here: the cost is that of a decomposition, never of a kernel."""


def as_kernel(K: Any, *, symmetric: bool | None = None) -> tuple[Operator, int | None]:
    """A kernel as an operator on rows, and the number of outputs that a row tells apart where it is known.

    Args:
        K: (n, m) or (n, c, m, c), a tensor, an array or an operator.
        symmetric: as in `DenseOperator`.

    Returns:
        The operator, of shape (n c, m c) for the full kernel, and c; None for a kernel that came as a matrix.

    Raises:
        InputError: another shape, or no floating-point numbers.
    """
    if isinstance(K, Operator):
        return K, None
    K = as_tensor(K, "kernel")
    if K.ndim == 4 and K.shape[1] == K.shape[3]:
        n, c, m, _ = K.shape
        return DenseOperator(K.reshape(n * c, m * c), symmetric=symmetric), c
    if K.ndim != 2:
        raise InputError("bad kernel", expected="shape (n, m) or (n, c, m, c)", got=tuple(K.shape))
    return DenseOperator(K, symmetric=symmetric), None


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets y as columns (N, k) that fit the N rows of a kernel.

    A kernel of samples has N = n, and y of shape (n,) or (n, c) gives k = 1 or c columns, which learn side by
    side. A block kernel has N = n c, and y of shape (n, c) becomes one column.
    """

    columns: Float[Tensor, "n k"]
    """In float64, on the device of the kernel."""
    shape: torch.Size
    """The shape of y."""
    is_block: bool
    """Whether rows of the kernel are pairs of a sample and an output."""

    @classmethod
    def of(cls, y: Any, kernel: Operator, *, outputs: int | None) -> "Targets":
        """The targets y of a square kernel, as `as_kernel` gives it.

        Raises:
            InputError: shapes or devices do not match.
            NumericalError: y is not finite.
        """
        N, y = kernel.shape[0], as_tensor(y, "targets")
        if kernel.shape[1] != N:
            raise InputError(
                "the kernel of the training points is not square", expected="(n, n)", got=kernel.shape
            )
        # A matrix does not tell samples from outputs, but one sample of many outputs is a row meant as a column.
        is_row = y.ndim == 2 and y.shape[0] == 1 and outputs is None
        is_block = y.ndim == 2 and y.numel() == N and y.shape[0] != N and not is_row
        fits = y.ndim in (1, 2) and (is_block or y.shape[0] == N) and y.numel() > 0
        if outputs is not None and outputs > 1:
            fits = is_block and y.shape[1] == outputs
        if not fits:
            c = outputs or 1
            expected = f"shape ({N // c}, {c})" if c > 1 else f"shape ({N},) or ({N}, c)"
            raise InputError(
                "targets do not fit the kernel",
                expected=expected
                + f" for a kernel of {'samples and outputs' if c > 1 else 'shape'} {kernel.shape}",
                got=tuple(y.shape),
                hint="y[0]: targets in one row" if y.ndim == 2 and y.shape[0] == 1 else None,
            )
        return cls(_working(y, kernel.device, "targets").reshape(N, -1), y.shape, is_block)

    @property
    def samples(self) -> int:
        """The number of samples, n."""
        return self.shape[0]

    @property
    def outputs(self) -> int:
        """The number of outputs, c."""
        return self.shape[1] if len(self.shape) == 2 else 1

    def cross_kernel(self, K: Any) -> Operator:
        """A kernel of other points with the training points, checked to fit.

        Raises:
            InputError: the shape or the device does not fit.
        """
        kernel, outputs = as_kernel(K, symmetric=False)
        N, c = self.columns.shape[0], self.outputs if self.is_block else 1
        if kernel.shape[1] != N or kernel.shape[0] % c or (outputs is not None and outputs != c):
            n = self.samples
            expected = f"(m, {c}, {n}, {c}) or (m {c}, {N})" if c > 1 else f"(m, {N})"
            got = tuple(K.shape) if hasattr(K, "shape") else kernel.shape
            raise InputError(
                "the kernel of the test points does not fit",
                expected=f"shape {expected}, test points first",
                got=got,
                hint="kernel(x_test, x_train)",
            )
        _check_device(kernel.device, self.columns.device, "kernel of the test points")
        return kernel

    def like(self, f: Any, what: str, *, rows: int | None = None) -> Float[Tensor, "m k"]:
        """Predictions of the shape of y, but for the number of samples, as columns.

        Args:
            f: (m,) or (m, c).
            what: its name in errors.
            rows: of the kernel it belongs to; None takes that of the training points.

        Raises:
            InputError: the shape or the device does not fit.
            NumericalError: it is not finite.
        """
        rows = self.columns.shape[0] if rows is None else rows
        expected = (rows // self.outputs if self.is_block else rows, *self.shape[1:])
        f = as_tensor(f, what)
        if tuple(f.shape) != expected:
            raise InputError(f"bad {what}", expected=f"shape {expected}", got=tuple(f.shape))
        return _working(f, self.columns.device, what).reshape(rows, -1)

    def unfold(self, numbers: Float[Tensor, "t m k"]) -> Float[Tensor, " t m *c"]:
        """Columns in the shape of y, but for the number of samples."""
        t, rows, _ = numbers.shape
        return numbers.reshape(t, rows // self.outputs if self.is_block else rows, *self.shape[1:])


def _working(numbers: Tensor, device: torch.device, what: str) -> Tensor:
    _check_device(numbers.device, device, what)
    if numbers.is_complex():
        raise InputError(f"complex {what}", expected="real numbers", got=numbers.dtype)
    numbers = numbers.to(WORKING)
    check_finite(numbers, what)
    return numbers


def _check_device(got: torch.device, expected: torch.device, what: str) -> None:
    if got != expected:
        raise InputError(f"the {what} is on another device", expected=expected, got=got, hint=".to(device)")
