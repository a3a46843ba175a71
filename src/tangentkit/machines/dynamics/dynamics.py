"""Training dynamics in a fixed kernel: the closed form of what training a linearized network does.

Under the loss s/2 Σ (f - y)² gradient flow moves predictions by df/dt = -s K (f - y). In the eigenvectors of
K = V Λ Vᵀ each mode learns for itself, at the rate s λ, and so it does in gradient descent and with momentum.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linalg import DenseOperator, Operator, spectrum
from tangentkit.linalg.operators.spans import spans
from tangentkit.linalg.spectra.measures import clip
from tangentkit.machines.dynamics.descents import Descent, GradientFlow, HeavyBall, check_descent
from tangentkit.machines.dynamics.eigenmodes import Modes
from tangentkit.machines.dynamics.squared_loss import Loss, curvature
from tangentkit.machines.kernel_shapes import WORKING, Targets, as_kernel

FLOW = GradientFlow()
MODES_AT_ONCE = 256
"""Modes without an eigenvalue that are looked at together: K(Z, X) may have many rows."""

Times = float | Sequence[Any] | np.ndarray | Tensor
"""One time or many; of a descent in steps, numbers of steps. Infinity is a time."""


class Dynamics:
    """Training under a squared loss in the kernel K, from one decomposition: ask it for any time.

        f_t(x) = f_0(x) + K(x, X) α(t),     α(t) = V diag(s ψ(t)) Vᵀ (y - f_0),     ψ = (1 - φ) / ρ

    with ρ = s (λ + ridge) and φ(ρ, t) of the descent, exp(-ρ t) of gradient flow. At t = inf this is kernel
    regression; where K is singular, its solution of least norm. Eigenvalues up to n ε of the largest then count
    as zero, ε being that of the dtype of K, or up to twice the size of those below zero, which show how far rounding
    goes. At finite times they count as they are, unless K(x, X) shows no more than rounding of their eigenvectors.

    All is computed in float64 and handed out in the dtype of K.

    Args:
        K: kernel of the training points: (n, n), or the full kernel of c outputs as (n, c, n, c) or as a
            matrix (n c, n c); a tensor, an array or an operator.
        y: targets (n,) or (n, c).
        f0: predictions at the start, of the shape of y; None for zeros.
        loss: the convention of the squared loss, see `Loss`; it sets s and so the unit of time.
        ridge: training with weight decay s · ridge on the displacement of the parameters. The limit is kernel
            ridge regression.
        descent: `GradientFlow()`, `GradientDescent(lr)`, `HeavyBall(lr, momentum)`,
            `Nesterov(lr, momentum)`, `MomentumFlow(friction)`.

    Raises:
        InputError: shapes or devices do not match.
        NumericalError: K is not symmetric, not finite or has an eigenvalue below zero beyond rounding, or
            training diverges.

    Example:
        >>> K = torch.tensor([[2.0, 1.0], [1.0, 2.0]]).double()
        >>> training = Dynamics(K, torch.tensor([1.0, 0.0]).double())
        >>> training.predictions(torch.inf)
        tensor([1., 0.], dtype=torch.float64)
        >>> training.losses([0.0, 1.0, 2.0])
        tensor([0.5000, 0.0345, 0.0046], dtype=torch.float64)
        >>> training.time_to_fit(0.01)
        tensor([1.5351, 4.6052], dtype=torch.float64)
    """

    def __init__(
        self,
        K: Any,
        y: Any,
        *,
        f0: Any = None,
        loss: Loss = "half_sum",
        ridge: float = 0.0,
        descent: Descent = FLOW,
    ) -> None:
        if not 0 <= ridge < math.inf:
            raise InputError("bad ridge", expected="a finite number >= 0", got=ridge)
        check_descent(descent)
        kernel, outputs = as_kernel(K)
        self._targets = Targets.of(y, kernel, outputs=outputs)
        start = torch.zeros_like(self._targets.columns) if f0 is None else self._targets.like(f0, "f0")
        self.scale = curvature(loss, samples=self._targets.samples, outputs=self._targets.outputs)
        """The number s in the loss s/2 Σ (f - y)²."""
        self.dtype, self.ridge, self.descent = kernel.dtype, float(ridge), descent
        self._modes, self._starts_at_zero = Modes.of(kernel), f0 is None
        self._gap = self._modes.vectors.T @ (start - self._targets.columns)
        descent.check_converges(self._rates)

    def __repr__(self) -> str:
        n, c = self._targets.samples, self._targets.outputs
        sizes = f"{n} samples, {c} output{'s' * (c > 1)}, {len(self._modes.values)} modes"
        ridge = f", ridge={self.ridge:g}" if self.ridge else ""
        return f"Dynamics({sizes}, {self.descent}{ridge})"

    @property
    def eigenvalues(self) -> Float[Tensor, " r"]:
        """λ of every mode, descending."""
        return self._modes.values.to(self.dtype)

    def predictions(self, t: Times, K_test: Any = None, *, f0_test: Any = None) -> Float[Tensor, "..."]:
        """f_t at the training points, or at others.

        Args:
            t: one time or many; the result has the axes of t first.
            K_test: kernel (m, n) of other points with the training points, or (m, c, n, c), or as a matrix
                (m c, n c); None asks for the training points.
            f0_test: predictions at the start there, (m,) or (m, c); to be given where f0 was.

        Returns:
            (t..., m) or (t..., m, c), as y is.

        Raises:
            InputError: a shape does not fit, f0_test is missing, or a time is negative.
        """
        times = self._times(t)
        if K_test is None:
            if f0_test is not None:
                raise InputError("f0_test came without K_test", hint="K_test=kernel(x_test, x_train)")
            columns = self._targets.columns + _product(self._modes.vectors, self._gaps(times))
            return self._given(self._targets.unfold(columns), t)
        kernel = self._targets.cross_kernel(K_test)
        columns = self._elsewhere(kernel, self._weights(times))
        if f0_test is not None:
            columns = columns + self._targets.like(f0_test, "f0_test", rows=kernel.shape[0])
        elif not self._starts_at_zero:
            raise InputError(
                "f0_test is missing",
                expected="predictions at the start, as f0 was given",
                hint="f0_test=model(x_test)",
            )
        return self._given(self._targets.unfold(columns), t)

    def coefficients(self, t: Times) -> Float[Tensor, "..."]:
        """α(t) in f_t(x) = f_0(x) + K(x, X) α(t), of shape (t..., n) or (t..., n, c), as y is."""
        return self._given(self._targets.unfold(self._coefficients(self._times(t))), t)

    def smoother(self, t: Times, K_test: Any = None) -> Float[Tensor, " *t m n"]:
        """A(t) in f_t = f_0 + A(t) (y - f_0): how much each training target weighs in each prediction.

        Args:
            t: one time or many.
            K_test: kernel (m, n) of other points with the training points; None asks for the training points.

        Returns:
            For a block kernel the matrices (m c, n c).
        """
        times, V = self._times(t), self._modes.vectors
        if K_test is None:
            return self._given((V * (1 - self._left(times))[:, None]) @ V.T, t)
        every = torch.arange(V.shape[1], device=V.device)
        projected = self._seen(self._targets.cross_kernel(K_test), every)
        return self._given((projected * self.scale * self._progress(times)[:, None]) @ V.T, t)

    def modes(self, t: Times) -> Float[Tensor, "..."]:
        """The learning curve of each mode: v_iᵀ (f_t - y), the largest eigenvalue first, (t..., r) or (t..., r, c).

        Modes of a block kernel span samples and outputs, and have no axis c.
        """
        gaps = self._gaps(self._times(t))
        has_columns = len(self._targets.shape) == 2 and not self._targets.is_block
        return self._given(gaps if has_columns else gaps.squeeze(2), t)

    def mode_losses(self, t: Times) -> Float[Tensor, " *t r"]:
        """The part of the training loss in each mode: s/2 Σ_c (v_iᵀ (f_t - y))²."""
        return self._given(self.scale / 2 * self._gaps(self._times(t)).square().sum(2), t)

    def losses(self, t: Times) -> Float[Tensor, " *t"]:
        """The training loss s/2 Σ (f_t - y)², without the penalty of a ridge."""
        return self._given(self.scale / 2 * self._gaps(self._times(t)).square().sum((1, 2)), t)

    def time_to_fit(self, fraction: float = 0.01) -> Float[Tensor, " r"]:
        """The time in which each mode comes to within a fraction of its way to its limit: ln(1/fraction) / δ.

        δ is ρ for gradient flow and `-ln |1 - lr ρ|` for gradient descent, where times are real numbers of steps.
        With momentum it is the decay late in training, and the start from rest is not counted. Modes that never
        learn take for ever.

        Raises:
            InputError: the fraction is not between 0 and 1.
        """
        if not 0 < fraction < 1:
            raise InputError("bad fraction", expected="0 < fraction < 1", got=fraction)
        times = -math.log(fraction) / self.descent.decay(self._rates)
        return times.where(self._learns, math.inf).to(self.dtype)

    @property
    def _rates(self) -> Float[Tensor, " r"]:
        return self.scale * (self._modes.values + self.ridge)

    @property
    def _learns(self) -> Bool[Tensor, " r"]:
        """Which modes have a limit other than their start: with a ridge all, and without it the range of K."""
        return torch.ones_like(self._modes.in_range) if self.ridge else self._modes.in_range

    def _progress(self, times: Float[Tensor, " t"]) -> Float[Tensor, "t r"]:
        """ψ(t), and in the limit that of the pseudo-inverse."""
        late = times.isinf()
        psi = self.descent.progress(self._rates, times.where(~late, 0.0))
        return (1 / self._rates).where(self._learns, 0.0).where(late[:, None], psi)

    def _left(self, times: Float[Tensor, " t"]) -> Float[Tensor, "t r"]:
        """1 - s λ ψ(t), the part of f_0 - y that is left: φ, and of the rest what the ridge holds back."""
        late = times.isinf()
        phi = self.descent.remaining(self._rates, times.where(~late, 0.0))
        phi = (~self._learns).to(phi).where(late[:, None], phi)
        return phi + (1 - phi) * self.ridge / (self._modes.values + self.ridge) if self.ridge else phi

    def _gaps(self, times: Float[Tensor, " t"]) -> Float[Tensor, "t r k"]:
        """Vᵀ (f_t - y)."""
        return self._left(times)[:, :, None] * self._gap

    def _weights(self, times: Float[Tensor, " t"]) -> Float[Tensor, "t r k"]:
        """Vᵀ α(t)."""
        return -self.scale * self._progress(times)[:, :, None] * self._gap

    def _coefficients(self, times: Float[Tensor, " t"]) -> Float[Tensor, "t n k"]:
        return _product(self._modes.vectors, self._weights(times))

    def _elsewhere(self, kernel: Operator, weights: Float[Tensor, "t r k"]) -> Float[Tensor, "t m k"]:
        """K(Z, X) V w."""
        known = self._modes.in_range
        out = _product(kernel, _product(self._modes.vectors[:, known], weights[:, known]))
        unknown = (~known & weights.any(2).any(0)).nonzero()[:, 0]
        for span in spans(len(unknown), MODES_AT_ONCE):
            some = unknown[span]
            out += _product(self._seen(kernel, some), weights[:, some])
        return out

    def _seen(self, kernel: Operator, modes: Int[Tensor, " r"]) -> Float[Tensor, "m r"]:
        """K(Z, X) v of some modes; of modes with λ = 0 it is 0, which rounding must not hide.

        A positive kernel has |K(z, X) v|² <= K(z, z) λ. Late in training the weights of such modes are 1 / λ.
        """
        seen = _product(kernel, self._modes.vectors[:, modes][None])[0]
        return seen.where(self._modes.in_range[modes] | (seen.abs() > self._modes.rounding), 0.0)

    def _times(self, t: Times) -> Float[Tensor, " t"]:
        """The times in a row, checked."""
        try:
            times = torch.as_tensor(t, dtype=WORKING, device=self._gap.device).reshape(-1)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError("bad time", expected="a number, or several", got=repr(t)) from error
        self.descent.check_times(times)
        if times.isinf().any() and not (self.descent.decay(self._rates)[self._learns] > 0).all():
            raise NumericalError(
                "training has no limit", got=f"{self.descent}, which swings for ever", hint="friction > 0"
            )
        return times

    def _given(self, numbers: Float[Tensor, " t *rest"], t: Times) -> Float[Tensor, "..."]:
        """The numbers in the dtype of K, with the axes of t first."""
        return numbers.reshape((*torch.as_tensor(t).shape, *numbers.shape[1:])).to(self.dtype)


def gradient_flow(
    K: Any,
    y: Any,
    t: Times,
    *,
    f0: Any = None,
    K_test: Any = None,
    f0_test: Any = None,
    loss: Loss = "half_sum",
) -> Float[Tensor, "..."]:
    """The predictions of gradient flow at time t, at the training points or, with K_test, at others.

        f_t(x) = f_0(x) + K(x, X) K⁻¹ (1 - exp(-s K t)) (y - f_0)

    which at the training points is y + exp(-s K t) (f_0 - y), and at t = inf kernel regression. For many
    questions to one kernel, and for gradient descent and momentum, take `Dynamics`.

    Args:
        K: kernel of the training points: (n, n), (n, c, n, c), or an operator.
        y: targets (n,) or (n, c).
        t: one time or many, inf included; their axes come first in the result.
        f0: predictions at the start at the training points, of the shape of y; None for zeros.
        K_test: kernel (m, n) or (m, c, n, c) of other points with the training points.
        f0_test: predictions at the start at these points.
        loss: the convention of the squared loss: "half_sum" (½ Σ (f - y)², s = 1), "sum", "half_mean", "mean"
            (that of torch.nn.MSELoss), "half_sample_mean", "sample_mean".

    Returns:
        (t..., m) or (t..., m, c), as y is; m = n without K_test.

    Raises:
        InputError: shapes or devices do not match, or a time is negative.
        NumericalError: K is not symmetric, not finite, or has an eigenvalue below zero beyond rounding.

    Example:
        >>> K = torch.tensor([[2.0, 1.0], [1.0, 2.0]]).double()
        >>> gradient_flow(K, torch.tensor([1.0, 0.0]).double(), t=[1.0, torch.inf])
        tensor([[0.7912, 0.1590],
                [1.0000, 0.0000]], dtype=torch.float64)
    """
    return Dynamics(K, y, f0=f0, loss=loss).predictions(t, K_test, f0_test=f0_test)


def max_learning_rate(
    K: Any, *, loss: Loss = "half_sum", momentum: float = 0.0, outputs: int | None = None
) -> float:
    """The learning rate below which gradient descent in the kernel K converges: 2 (1 + momentum) / (s λ_max).

    For ½ 1/n Σ (f - y)² that is 2 / λ_max(K/n), and without the half 1 / λ_max(K/n). The bound is sharp in a
    fixed kernel. A network may still converge above it, when its kernel shrinks first.

    Args:
        K: kernel of the training points: (n, n), (n, c, n, c), or an operator, of which only the top
            eigenvalue is computed.
        loss: the convention of the squared loss, see `gradient_flow`.
        momentum: that of the heavy ball, as in `torch.optim.SGD`.
        outputs: the outputs that the loss counts, one unless K is of shape (n, c, n, c).

    Returns:
        The bound; infinite for a kernel of zeros, where nothing moves.

    Raises:
        InputError: K is not square, or `outputs` contradicts its shape.
        NumericalError: K is not symmetric, not finite, or has no eigenvalue above zero.

    Example:
        >>> K = torch.tensor([[2.0, 1.0], [1.0, 2.0]]).double()
        >>> max_learning_rate(K), max_learning_rate(K, loss="mean"), max_learning_rate(K, momentum=0.5)
        (0.666..., 0.666..., 1.0)
    """
    kernel, known = as_kernel(K)
    if known is not None and outputs not in (None, known):
        raise InputError("bad number of outputs", expected=f"{known}, as K says", got=outputs)
    scale = curvature(
        loss, samples=kernel.shape[0] // (known or 1), outputs=known or (1 if outputs is None else outputs)
    )
    largest = float(clip(spectrum(kernel, top=1).values)[0])
    return HeavyBall(1.0, momentum).bound / (scale * largest) if largest else math.inf


def _product(M: Operator | Tensor, columns: Float[Tensor, "t n k"]) -> Float[Tensor, "t m k"]:
    """M times columns, in float64 where M is in memory and in its own dtype where it is not."""
    # Side by side, in one product: a batch of products with one column each is 90 times slower.
    flat = columns.transpose(0, 1).reshape(columns.shape[1], -1)
    if isinstance(M, DenseOperator):
        M = M.matrix
    out = M.to(WORKING) @ flat if isinstance(M, Tensor) else (M @ flat.to(M.dtype)).to(WORKING)
    return out.reshape(M.shape[0], len(columns), columns.shape[2]).transpose(0, 1)
