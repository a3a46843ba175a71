"""Spectra: eigenvalues and eigenvectors of a kernel, and what is read off them."""

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError, UnknownNameError
from tangentkit.core.memory import memory_budget
from tangentkit.core.seeds import Key
from tangentkit.linalg.checks import below_zero, check_finite, check_symmetric
from tangentkit.linalg.matrices import DenseOperator, as_operator, as_tensor, in_memory
from tangentkit.linalg.operator import Memory, Operator

LANCZOS_SHARE = 0.1
"""Up to this share of all eigenpairs, Lanczos is quicker than a full decomposition (n = 300 to 2000)."""

KINDS = ("kernel", "jacobian")

ROUNDING = 4
"""Eigenvalues of symmetric matrices err by about ε of the largest, whatever the size; seldom by more than this."""

AGREEMENT = 0.01
"""How far an effective rank may depend on values that cannot be told from zero."""


class SpectrumWarning(UserWarning):
    """A number depends on values that are missing, or that rounding hides."""


@dataclass(frozen=True, repr=False)
class Spectrum:
    """Eigenvalues and eigenvectors of a kernel matrix K = J Jᵀ, or the largest few of them.

    A partial spectrum does not answer for the whole without a word, and `noise` says which eigenvalues cannot be told
    from zero.

    Example:
        >>> spectrum(torch.diag(torch.tensor([1.0, 3.0, 2.0])))
        Spectrum(all 3 eigenvalues of a kernel, 3 to 1, float32)
    """

    values: Float[Tensor, " r"]
    """The eigenvalues of K, or their square roots, the singular values of J, in descending order."""
    vectors: Float[Tensor, "n r"]
    """The orthonormal eigenvectors of K, as columns; their signs are arbitrary."""
    trace: float
    """The trace of K, which is the sum of all of its eigenvalues."""
    of: Literal["kernel", "jacobian"] = "kernel"
    """Whether `values` are of the kernel or of its Jacobian."""
    noise: float = 0.0
    """The rounding error of an eigenvalue of K. Eigenvalues up to this size may as well be zero."""

    def __repr__(self) -> str:
        n, r = self.vectors.shape
        count = f"{r} of {n}" if self.is_partial else f"all {n}"
        kind = "eigenvalues of a kernel" if self.of == "kernel" else "singular values of a Jacobian"
        missing = f", {self.share:.1%} of the trace" if self.is_partial and self.trace > 0 else ""
        ends = f"{float(self.values[0]):.4g} to {float(self.values[-1]):.4g}"
        return f"Spectrum({count} {kind}, {ends}{missing}, {str(self.values.dtype).removeprefix('torch.')})"

    @property
    def is_partial(self) -> bool:
        """Whether eigenvalues of K are missing."""
        return len(self.values) < self.vectors.shape[0]

    @property
    def share(self) -> float:
        """The share of the trace of K that is held, 1 of a whole spectrum."""
        held = self.values if self.of == "kernel" else self.values.square()
        return float(held.sum()) / self.trace if self.is_partial else 1.0

    def effective_rank(self) -> float:
        """exp(-Σ p_i ln p_i) with p_i = value_i / Σ value_j (Roy, Vetterli 2007), of the values that it holds.

        A SpectrumWarning says so where values are missing, and where the rank depends on values that rounding hides:
        they matter to a Jacobian, where rounding stands at √ε of the largest.

        Raises:
            NumericalError: a value is negative beyond rounding, or all are zero.
        """
        found = effective_rank(self.values)
        if self.is_partial and float(self.values[-1]) > self._noise:
            n, r = self.vectors.shape
            _warn(f"the effective rank is that of the largest {r} of {n} values", "spectrum(K) without top")
        resolved = effective_rank(self.values.where(self.values > self._noise, 0.0))
        if abs(found - resolved) > AGREEMENT * resolved:
            _warn(f"{self._hidden_in_words}; without them the effective rank is {resolved:.4g}", self._finer)
        return found

    def condition_number(self, *, rtol: float | None = None) -> float:
        """The largest value over the smallest that does not vanish, to within `noise` of that smallest one.

        Args:
            rtol: values up to rtol times the largest vanish. None lets those vanish that cannot be told from zero,
                and a SpectrumWarning says how many they are.

        Raises:
            InputError: values are missing that do not vanish.
            NumericalError: a value is negative beyond rounding, or all are zero.

        Example:
            >>> s = spectrum(torch.diag(torch.tensor([8.0, 4.0, 1.0])))
            >>> s.condition_number(), s.condition_number(rtol=0.2)
            (8.0, 2.0)
        """
        largest = float(self.values[0])
        zero = self._noise if rtol is None else rtol * largest
        if self.is_partial and float(self.values[-1]) > zero:
            n, r = self.vectors.shape
            raise InputError(
                "the condition number needs all values",
                expected=f"{n} values, or so many that the last vanishes",
                got=f"the largest {r}, {largest:.3g} to {float(self.values[-1]):.3g}",
                hint="spectrum(K) without top; or rtol=, up to which values vanish",
            )
        found = condition_number(self.values, rtol=zero / largest if largest > 0 else 0.0)
        if rtol is None and self._hidden:
            _warn(
                f"{self._hidden_in_words} and count as zero; with them it is at least {found:.4g}",
                self._finer,
            )
        return found

    def energy(self, y: Any, top: int | None = None) -> float:
        """‖V_topᵀ y‖ / ‖y‖: how much of y lies in the span of the first eigenvectors, a ratio of norms.

        Args:
            y: labels (n,) or (n, c), taken together as one vector.
            top: the number of eigenvectors; None takes all that it holds.

        Raises:
            InputError: y is zero or of another length, or there are not so many eigenvectors.
        """
        n, r = self.vectors.shape
        y = as_tensor(y, "labels").to(self.vectors)
        if y.ndim not in (1, 2) or y.shape[0] != n:
            raise InputError("bad labels", expected=f"shape ({n},) or ({n}, c)", got=tuple(y.shape))
        check_finite(y, "labels")
        if not y.any():
            raise InputError("the labels are zero", expected="a direction", got="‖y‖ = 0")
        top = r if top is None else top
        if not 1 <= top <= r:
            raise InputError("bad number of eigenvectors", expected=f"1 to {r}, which are held", got=top)
        return float((self.vectors[:, :top].T @ y).norm() / y.norm())

    def tail(self, m: int | None = None) -> float:
        """The Hill estimate of the exponent of a power-law tail, from the m largest values.

        Args:
            m: how many values make the tail; None takes a tenth of all, of which one more must be held.

        Raises:
            InputError: m is out of range.
            NumericalError: the tail holds a value that cannot be told from zero.
        """
        n, r = self.vectors.shape
        m = max(1, n // 10) if m is None else m
        if 1 <= m < n and m >= r:
            raise InputError(
                "a tail of values that are missing",
                expected=f"m from 1 to {r - 1}, one less than are held",
                got=m,
                hint=f"spectrum(K, top={m + 1})",
            )
        return hill(self.values, m, zero=self._noise)

    @property
    def _noise(self) -> float:
        """What rounding may put where a value is zero."""
        return self.noise if self.of == "kernel" else math.sqrt(self.noise)

    @property
    def _hidden(self) -> int:
        """How many values cannot be told from zero."""
        return self.vectors.shape[0] - int((self.values > self._noise).sum())

    @property
    def _hidden_in_words(self) -> str:
        scale = f"{self._noise:.2g}, the largest is {float(self.values[0]):.3g}"
        return f"{self._hidden} of {self.vectors.shape[0]} values are within rounding of zero ({scale})"

    @property
    def _finer(self) -> str:
        """What to do about rounding."""
        return "rtol= says what counts" if self.values.dtype == torch.float64 else "the kernel in float64"


def _warn(text: str, hint: str) -> None:
    warnings.warn(f"{text}. Try: {hint}", SpectrumWarning, stacklevel=3)


def spectrum(
    K: Any,
    top: int | None = None,
    *,
    of: Literal["kernel", "jacobian"] = "kernel",
    memory: Memory = None,
) -> Spectrum:
    """The eigenvalues and eigenvectors of a symmetric matrix, in descending order.

    All of them by a full decomposition of the dense form; a few by Lanczos, which needs products only.

    Args:
        K: an operator, a tensor or an array (n, n).
        top: how many; None takes all.
        of: "kernel" for the eigenvalues of K, "jacobian" for their square roots, the singular values of J in
            K = J Jᵀ. Rounding in K at ε of the largest eigenvalue stands at √ε of the largest singular value.
        memory: the most bytes that the dense form may take.

    Raises:
        InputError: `top` is out of range, or K is not square.
        NumericalError: K is not symmetric or not finite, Lanczos fails, or an eigenvalue is negative beyond
            rounding where `of` takes roots.
        BudgetError: all are asked for, and the dense form is beyond the budget.

    Example:
        >>> s = spectrum(torch.diag(torch.tensor([1.0, 3.0, 2.0])))
        >>> s.values, s.condition_number()
        (tensor([3., 2., 1.]), 3.0)
    """
    if of not in KINDS:
        raise UnknownNameError("kind of spectrum", of, KINDS)
    operator = as_operator(K)
    check_symmetric(operator)
    n = operator.shape[0]
    count = n if top is None else top
    if not 1 <= count <= n:
        raise InputError("bad number of eigenpairs", expected=f"an integer from 1 to {n}", got=top)

    operator = in_memory(operator, memory)
    trace = float(operator.diagonal().sum())
    if _prefers_lanczos(operator, count, memory):
        values, vectors = _lanczos(operator, count)
    else:
        values, vectors = _decompose(operator, count, memory)
    noise = noise_of(values)
    if of == "jacobian":
        values = _clip(values).sqrt()
    return Spectrum(values, vectors, trace, of, noise)


def noise_of(values: Float[Tensor, " r"]) -> float:
    """What rounding may put into a computed eigenvalue: 4 ε of the largest, or as far as values below zero show."""
    size, below = float(values.abs().max()), -float(values.min())
    shown = 2 * below if below <= below_zero(values.dtype) * size else 0.0  # else it is no rounding
    return max(ROUNDING * torch.finfo(values.dtype).eps * size, shown)


def effective_rank(values: Float[Tensor, " r"]) -> float:
    """exp(-Σ p_i ln p_i) with p_i = value_i / Σ value_j (Roy, Vetterli 2007), from 1 to the number of values.

    Raises:
        NumericalError: a value is negative beyond rounding, or all are zero.

    Example:
        >>> round(effective_rank(torch.ones(5)), 4), round(effective_rank(torch.tensor([1.0, 0.0])), 4)
        (5.0, 1.0)
    """
    values = _clip(values)
    if not values.any():
        raise NumericalError(
            "the effective rank of zero is not defined", expected="a positive value", got="zeros"
        )
    p = values / values.sum()
    return math.exp(float(torch.special.entr(p).sum()))


def condition_number(values: Float[Tensor, " r"], *, rtol: float) -> float:
    """The largest value over the smallest that is above rtol times the largest.

    Raises:
        NumericalError: a value is negative beyond rounding, or all are zero.

    Example:
        >>> condition_number(torch.tensor([8.0, 2.0, 1e-9]), rtol=1e-6)
        4.0
    """
    values = _clip(values)
    largest = values.max()
    if not largest > 0:
        raise NumericalError(
            "the condition number of zero is not defined", expected="a positive value", got="zeros"
        )
    return float(largest / values[values > rtol * largest].min())


def hill(values: Float[Tensor, " r"], m: int, *, zero: float = 0.0) -> float:
    """Hill's estimate 1 + m / Σ_{i<=m} ln(λ_i / λ_{m+1}) of the exponent of a density with tail λ^(-α).

    Args:
        values: in any order.
        m: the number of largest values that make the tail; more than m are needed.
        zero: values up to this cannot be told from zero.

    Returns:
        α, infinite where the m + 1 largest values are equal.

    Raises:
        InputError: m is out of range.
        NumericalError: the tail holds a value that is not above `zero`.

    Example:
        >>> hill(torch.tensor([math.e**2, math.e, 1.0]), m=2)
        1.666...
    """
    if not 1 <= m < len(values):
        raise InputError(
            "bad size of a tail", expected=f"1 to {len(values) - 1}, one less than the values", got=m
        )
    tail = values.sort(descending=True).values[: m + 1]
    if not tail[-1] > zero:
        raise NumericalError(
            "a tail of values that are not positive beyond rounding",
            expected=f"value {m + 1} above {zero:.2g}",
            got=f"{float(tail[-1]):.3g}",
            hint="take a smaller m",
        )
    spread = float((tail[:-1] / tail[-1]).log().sum())
    return 1 + m / spread if spread > 0 else math.inf


def _decompose(K: Operator, top: int, memory: Memory) -> tuple[Tensor, Tensor]:
    matrix = K.dense(memory)
    check_finite(matrix, "kernel matrix")
    values, vectors = torch.linalg.eigh(matrix)
    return values.flip(0)[:top], vectors.flip(1)[:, :top]


def _lanczos(K: Operator, top: int) -> tuple[Tensor, Tensor]:
    products = _Products(K)
    start = Key(0).fold("lanczos").numpy().standard_normal(K.shape[0]).astype(products.dtype)
    if not products.matvec(start).any():
        # K is zero, for a random vector is in no other kernel's null space; Lanczos cannot begin.
        return torch.zeros(top, dtype=K.dtype, device=K.device), torch.eye(
            K.shape[0], top, dtype=K.dtype, device=K.device
        )
    try:
        values, vectors = eigsh(products, k=top, which="LA", v0=start)
    except ArpackError as error:
        raise NumericalError(
            f"Lanczos found no {top} largest eigenpairs ({error})",
            hint="ask for fewer, or for all by top=None",
        ) from error
    order = np.argsort(values)[::-1].copy()
    return torch.from_numpy(values[order]).to(K.device), torch.from_numpy(vectors[:, order]).to(K.device)


class _Products(LinearOperator):
    """An operator as scipy wants it."""

    def __init__(self, K: Operator) -> None:
        super().__init__(np.dtype(str(K.dtype).removeprefix("torch.")), K.shape)
        self.K = K

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        out = self.K @ torch.from_numpy(x.reshape(-1)).to(self.K.device)
        check_finite(out, "product with the operator")
        return out.cpu().numpy()


def _prefers_lanczos(K: Operator, top: int, memory: Memory) -> bool:
    n = K.shape[0]
    fits = isinstance(K, DenseOperator) or memory_budget(memory, device=K.device).holds(K.nbytes)
    return top <= LANCZOS_SHARE * n or (top < n and not fits)


def _clip(values: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
    """The values with negative ones that are rounding set to zero."""
    check_finite(values, "values")
    smallest, size = float(values.min()), float(values.abs().max())
    allowed = below_zero(values.dtype)
    if smallest < -allowed * size:
        raise NumericalError(
            "the kernel matrix is not positive semi-definite",
            expected=f"no value below -{allowed:.1e} of the largest ({size:.3g})",
            got=f"{smallest:.3g}",
            hint=f"a ridge of {-smallest:.3g} would make it so",
        )
    return values.clamp(min=0)
