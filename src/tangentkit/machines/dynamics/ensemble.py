"""The infinite ensemble: all networks of infinite width, each trained from its own initialization.

Their outputs at the start are a Gaussian process with the NNGP kernel 𝒦, training moves them linearly in the
NTK Θ, and so at every time they are a Gaussian process again (Lee et al. 2019).
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.batches import Batch
from tangentkit.core.errors import InputError
from tangentkit.linalg import DenseOperator, Operator, check_symmetric
from tangentkit.linalg.operators.matrices import as_tensor
from tangentkit.machines.dynamics.descents import Descent
from tangentkit.machines.dynamics.dynamics import FLOW, Dynamics, Times
from tangentkit.machines.dynamics.squared_loss import Loss
from tangentkit.machines.kernel_shapes import WORKING, as_kernel


class KernelBlocks(NamedTuple):
    """A kernel among training points X and test points Z, in blocks; without Z the points asked for are X."""

    train: Any
    """k(X, X) of shape (n, n)."""
    cross: Any = None
    """k(Z, X) of shape (m, n)."""
    test: Any = None
    """k(Z, Z) of shape (m, m), or its diagonal (m,) where variances are enough; not needed of the NTK."""

    @classmethod
    def of(cls, kernel: Any, x: Batch, z: Batch | None = None, *, test: bool = True) -> "KernelBlocks":
        """The blocks of a kernel that is called on batches.

        Args:
            kernel: such as `InfiniteKernel(model, kind="nngp")`, called as kernel(x) and kernel(z, x).
            x: training points.
            z: test points.
            test: whether k(Z, Z) is wanted too.

        Example:
            >>> blocks = KernelBlocks.of(lambda x, z=None: x @ (x if z is None else z).T, torch.eye(3))
            >>> blocks.train.shape, blocks.cross
            (torch.Size([3, 3]), None)
        """
        if z is None:
            return cls(kernel(x))
        return cls(kernel(x), kernel(z, x), kernel(z) if test else None)


class InfiniteEnsemble:
    """Mean and covariance of infinitely wide networks at any time of their training, of each output alone.

        mean(t) = A y,     cov(t) = 𝒦(Z, Z) - A 𝒦(X, Z) - 𝒦(Z, X) Aᵀ + A 𝒦(X, X) Aᵀ
        A = Θ(Z, X) Θ⁻¹ (1 - exp(-s Θ t)),     Θ = Θ(X, X)

    (A is `Dynamics.smoother`.) Without an NTK only the last layer is trained, Θ = 𝒦, and t = inf is the
    posterior of the Gaussian process, with noise of variance diag_reg · trace(𝒦)/n on the targets: in A 𝒦 Aᵀ
    that noise is part of 𝒦(X, X).

    Args:
        nngp: blocks of 𝒦.
        y: targets (n,) or (n, c); outputs are independent and share one covariance.
        ntk: blocks of Θ, of the same points.
        loss: the convention of the squared loss, see `gradient_flow`; it sets s.
        diag_reg: diag_reg · trace(Θ)/n is added to the diagonal of Θ where training uses it, as weight decay
            would do.
        descent: how they are trained, see `Dynamics`.

    Raises:
        InputError: shapes or devices do not match.
        NumericalError: a kernel is not symmetric, not finite or not positive, or training diverges.

    Example:
        >>> K = torch.tensor([[2.0, 1.0], [1.0, 2.0]]).double()
        >>> nngp = KernelBlocks(K, cross=torch.ones(1, 2).double(), test=torch.full((1, 1), 2.0).double())
        >>> ensemble = InfiniteEnsemble(nngp, torch.tensor([1.0, 0.0]).double())
        >>> ensemble.mean(), ensemble.covariance()
        (tensor([0.3333], dtype=torch.float64), tensor([[1.3333]], dtype=torch.float64))
        >>> ensemble.variance([0.0, 1.0])
        tensor([[2.0000],
                [1.3350]], dtype=torch.float64)
    """

    def __init__(
        self,
        nngp: KernelBlocks | tuple[Any, ...],
        y: Any,
        *,
        ntk: KernelBlocks | tuple[Any, ...] | None = None,
        loss: Loss = "half_sum",
        diag_reg: float = 0.0,
        descent: Descent = FLOW,
    ) -> None:
        nngp = KernelBlocks(*nngp)
        trained = nngp if ntk is None else KernelBlocks(*ntk)
        if not 0 <= diag_reg < math.inf:
            raise InputError("bad diag_reg", expected="a finite number >= 0", got=diag_reg)
        if (trained.cross is None) != (nngp.cross is None):
            raise InputError("one kernel has test points and the other has none", hint="give both k(Z, X)")
        theta = _block(trained.train, "train")
        ridge = diag_reg * float(theta.diagonal().mean())
        self._dynamics = Dynamics(theta, y, loss=loss, ridge=ridge, descent=descent)
        n = len(theta)
        prior = _block(nngp.train, "train", like=theta, rows=n, columns=n)
        check_symmetric(DenseOperator(prior))
        self._train, self._cross, self._test, self._trained_cross = prior.to(WORKING), None, None, None
        # The spread of what training sets out to remove: outputs at the start, and noise on the targets.
        self._spread = self._train if ntk is not None else self._train + ridge * torch.eye(n).to(self._train)
        if nngp.cross is not None:
            self._cross = _block(nngp.cross, "cross", like=theta, columns=n).to(WORKING)
            m = len(self._cross)
            self._trained_cross = _block(trained.cross, "cross", like=theta, rows=m, columns=n)
            self._test = None if nngp.test is None else _test_block(nngp.test, like=theta, m=m)

    def __repr__(self) -> str:
        points = "" if self._cross is None else f", {len(self._cross)} test points"
        return f"InfiniteEnsemble({len(self._train)} training points{points}, {self._dynamics.descent})"

    @classmethod
    def of(
        cls,
        nngp: Any,
        x: Batch,
        y: Any,
        z: Batch | None = None,
        *,
        ntk: Any = None,
        loss: Loss = "half_sum",
        diag_reg: float = 0.0,
        descent: Descent = FLOW,
    ) -> "InfiniteEnsemble":
        """The ensemble of kernels that are called on batches, trained on (x, y), at the points z.

        Args:
            nngp: such as `InfiniteKernel(model, kind="nngp")`.
            x: training points.
            y: their targets.
            z: test points; None asks for the training points.
            ntk: such as `InfiniteKernel(model, kind="ntk")`; None trains the last layer only.
            loss: as in the constructor.
            diag_reg: as in the constructor.
            descent: as in the constructor.

        Example:
            >>> def linear(x, z=None):
            ...     return x @ (x if z is None else z).T
            >>> x, z = torch.eye(3).double(), torch.ones(1, 3).double()
            >>> InfiniteEnsemble.of(linear, x, torch.ones(3).double(), z).mean()
            tensor([3.], dtype=torch.float64)
        """
        blocks = KernelBlocks.of(nngp, x, z)
        trained = None if ntk is None else KernelBlocks.of(ntk, x, z, test=False)
        return cls(blocks, y, ntk=trained, loss=loss, diag_reg=diag_reg, descent=descent)

    def mean(self, t: Times = math.inf) -> Float[Tensor, "..."]:
        """The mean prediction at time t, of shape (t..., m) or (t..., m, c), as y is."""
        return self._dynamics.predictions(t, self._trained_cross)

    def covariance(self, t: Times = math.inf) -> Float[Tensor, "*t m m"]:
        """The covariance of the predictions of any one output at time t.

        Raises:
            InputError: k(Z, Z) is not there, or only its diagonal.
        """
        test, cross = self._priors(full=True)
        A = self._smoother(t)
        mixed = A @ cross.mT
        out = test - mixed - mixed.mT + A @ self._spread @ A.mT
        return ((out + out.mT) / 2).to(self._dynamics.dtype)

    def variance(self, t: Times = math.inf) -> Float[Tensor, "*t m"]:
        """The diagonal of the covariance, without the rest of it.

        Raises:
            InputError: k(Z, Z) is not there.
        """
        test, cross = self._priors(full=False)
        A = self._smoother(t)
        out = test - 2 * (A * cross).sum(-1) + ((A @ self._spread) * A).sum(-1)
        return out.clamp(min=0).to(self._dynamics.dtype)

    def _smoother(self, t: Times) -> Float[Tensor, "*t m n"]:
        return self._dynamics.smoother(t, self._trained_cross).to(WORKING)

    def _priors(self, *, full: bool) -> tuple[Tensor, Tensor]:
        """𝒦(Z, Z), or its diagonal, and 𝒦(Z, X)."""
        if self._cross is None:
            return self._train if full else self._train.diagonal(), self._train
        if self._test is None or (full and self._test.ndim == 1):
            raise InputError(
                "the NNGP kernel of the test points is missing",
                expected="KernelBlocks.test of shape (m, m)" + (" or (m,)" if not full else ""),
                got=None if self._test is None else "its diagonal",
                hint="variance(t) needs the diagonal only" if full else None,
            )
        return self._test if full or self._test.ndim == 1 else self._test.diagonal(), self._cross


def _block(
    block: Any, name: str, *, like: Tensor | None = None, rows: int | None = None, columns: int | None = None
) -> Tensor:
    """A block of a kernel of samples, in memory, in the dtype it has."""
    operator, outputs = as_kernel(block)
    n, m = operator.shape
    if outputs is not None or rows not in (None, n) or columns not in (None, m):
        raise InputError(
            f"bad block {name!r} of a kernel",
            expected=f"shape ({rows or 'n'}, {columns or 'n'})",
            got=tuple(block.shape),
        )
    if like is not None and operator.device != like.device:
        raise InputError(
            f"block {name!r} is on another device",
            expected=like.device,
            got=operator.device,
            hint=".to(device)",
        )
    return operator.dense()


def _test_block(block: Any, *, like: Tensor, m: int) -> Tensor:
    """k(Z, Z) or its diagonal, in float64."""
    if not isinstance(block, Operator):
        block = as_tensor(block, "block 'test' of a kernel")
        if block.ndim == 1:
            return _block(block[:, None], "test", like=like, rows=m, columns=1)[:, 0].to(WORKING)
    matrix = _block(block, "test", like=like, rows=m, columns=m)
    check_symmetric(DenseOperator(matrix))
    return matrix.to(WORKING)
