"""Spectra: eigenvalues and eigenvectors of a kernel, and what is read off them."""

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError, UnknownNameError
from tangentkit.core.memory import memory_budget
from tangentkit.core.seeds import Key
from tangentkit.linalg.operators.checks import below_zero, check_finite, check_symmetric
from tangentkit.linalg.operators.matrices import DenseOperator, as_operator, in_memory
from tangentkit.linalg.operators.operator import Memory, Operator
from tangentkit.linalg.spectra.block_lanczos import ROUNDING, largest_eigenpairs
from tangentkit.linalg.spectra.labels import as_columns, near_one
from tangentkit.linalg.spectra.measures import clip, condition_number, effective_rank, participation_ratio
from tangentkit.linalg.spectra.tails import DRAWS, Hill, Tail, check_above, check_null, gaussian_null
from tangentkit.linalg.spectra.tails import tail as tail_of
from tangentkit.report.drawing import drawn
from tangentkit.report.figure import Lines, Series
from tangentkit.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LANCZOS_SHARE = 0.1
"""Up to this share of all eigenpairs, Lanczos is quicker than a full decomposition (n = 300 to 2000)."""

KINDS = ("kernel", "jacobian")

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
        return float(self.eigenvalues.sum()) / self.trace if self.is_partial else 1.0

    def effective_rank(self) -> float:
        """exp(-Σ p_i ln p_i) with p_i = value_i / Σ value_j (Roy, Vetterli 2007), of the values that it holds.

        A SpectrumWarning says so where values are missing, and where the rank depends on values that rounding hides:
        they matter to a Jacobian, where rounding stands at √ε of the largest.

        Raises:
            NumericalError: a value is negative beyond rounding, or all are zero.
        """
        found = effective_rank(self.values)
        self._warn_of_missing("effective rank")
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
            y: labels (n,) or (n, c), taken together as one vector. Numbers of classes are met with a warning, as by
                `kernel_target_alignment`.
            top: the number of eigenvectors; None takes all that it holds.

        Raises:
            InputError: y is zero or of another length, or there are not so many eigenvectors.
        """
        n, r = self.vectors.shape
        y = near_one(as_columns(y, n)).to(self.vectors)
        top = r if top is None else top
        if not 1 <= top <= r:
            raise InputError("bad number of eigenvectors", expected=f"1 to {r}, which are held", got=top)
        return float((self.vectors[:, :top].T @ y).norm() / y.norm())

    def participation_ratio(self) -> float:
        """(Σ λ_i)² / Σ λ_i² of the eigenvalues of K that it holds: how many directions share the trace.

        A SpectrumWarning says so where values are missing.

        Raises:
            NumericalError: a value is negative beyond rounding, or all are zero.
        """
        self._warn_of_missing("participation ratio")
        return participation_ratio(self.eigenvalues)

    def stable_rank(self) -> float:
        """tr K / λ_1 = ‖J‖_F² / ‖J‖₂², from 1 to n; a partial spectrum knows it too.

        Raises:
            NumericalError: K is zero or not positive semi-definite.

        Example:
            >>> spectrum(torch.diag(torch.tensor([4.0, 2.0, 2.0]))).stable_rank()
            2.0
        """
        largest = float(clip(self.eigenvalues)[0])
        if not largest > 0:
            raise NumericalError("the stable rank of zero is not defined", expected="a positive value", got=0)
        return self.trace / largest

    def tail(
        self,
        m: int | None = None,
        *,
        null: Literal["gaussian"] = "gaussian",
        features: int | None = None,
        draws: int = DRAWS,
        seed: int = 0,
    ) -> Tail:
        """Hill's exponent of a power-law tail, from the m largest values, beside those of Gaussian features.

        The null model is the spectrum of G Gᵀ for a Gaussian G of shape (n, features).

        Args:
            m: how many values make the tail; None takes a tenth of those that do not vanish, of which one more must
                be held.
            null: "gaussian", the only null model of a spectrum alone.
            features: the columns of J in K = J Jᵀ. None takes the rank of K; of a K of full rank, or of a partial
                spectrum, n, which has the heaviest tail of all Gaussian kernels with at least n features.
            draws: the number of random kernels, at least 19.
            seed: of the null model and of the bootstrap.

        Raises:
            UnknownNameError: there is no such null model.
            InputError: m, features or draws are out of range.
            NumericalError: the tail holds a value that cannot be told from zero.

        Example:
            >>> K = torch.diag(torch.arange(1.0, 101.0) ** -2)
            >>> spectrum(K).tail()
            Tail(heavy tail: alpha ..., p = 0.01)
        """
        if null != "gaussian":
            raise UnknownNameError("null model of a spectrum", null, ["gaussian"])
        n, r = self.vectors.shape
        rank = n if self.is_partial else n - self._hidden
        m = Hill().size(rank) if m is None else m
        if 1 <= m < n and m >= r:
            raise InputError(
                "a tail of values that are missing",
                expected=f"m from 1 to {r - 1}, one less than are held",
                got=m,
                hint=f"spectrum(K, top={m + 1})",
            )
        features = max(rank, 1) if features is None else features
        check_null(m, n, draws)
        check_above(float(self.values[m]), self._noise, m)
        check_null(m, min(n, features), draws)
        held = min(r, n, features, rank)
        null_values = gaussian_null(n, features, draws, seed)[:, :held]
        return tail_of(
            self.values[:held].double().cpu().numpy(),
            Hill(m),
            null_values=null_values if self.of == "kernel" else np.sqrt(null_values),
            null=f"Gaussian features ({n} x {features}), {draws} draws, seed {seed}",
            key=Key(seed).fold("spectrum"),
        )

    def table(self) -> Table:
        """Ranks, trace and condition of K, and of J in K = J Jᵀ; a dash where values are missing for it."""
        values, stable_rank = clip(self.eigenvalues), self.stable_rank()
        resolved = values.where(values > self.noise, 0.0)
        missing = self.is_partial and float(values[-1]) > self.noise
        condition = None if missing else condition_number(values, rtol=self.noise / float(values[0]))
        rows = (
            ("values held", f"{len(values)} of {self.vectors.shape[0]}"),
            ("largest eigenvalue of K", float(values[0])),
            ("trace of K", self.trace),
            ("effective rank of K", None if missing else effective_rank(resolved)),
            ("effective rank of J", None if missing else effective_rank(resolved.sqrt())),
            ("participation ratio of K", None if missing else participation_ratio(resolved)),
            ("stable rank of J", stable_rank),
            ("condition number of K", condition),
        )
        hidden = "" if missing or not self._hidden else f"{self._hidden_in_words} and count as zero"
        return Table("Spectrum", ("measure", "value"), rows, note="– needs all values" if missing else hidden)

    def figure(self) -> Lines:
        """The values by rank, in logarithmic scales; those within rounding of zero are left out."""
        seen = self.values[self.values > self._noise].double().cpu().numpy()
        what = "eigenvalue of K" if self.of == "kernel" else "singular value of J"
        return Lines(
            title="Spectrum",
            caption=f"{len(seen)} values, from the largest to the smallest that is above rounding.",
            x_label="rank",
            y_label=what,
            x_scale="log",
            y_scale="log",
            series={what: Series(np.arange(1, len(seen) + 1), seen)},
            markers=len(seen) <= 50,
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws `figure()`."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, without the vectors."""
        return {
            "of": self.of,
            "values": self.values.tolist(),
            "count": self.vectors.shape[0],
            "trace": self.trace,
            "noise": self.noise,
        }

    @property
    def eigenvalues(self) -> Float[Tensor, " r"]:
        """The eigenvalues of K that it holds, whatever `of` is."""
        return self.values if self.of == "kernel" else self.values.square()

    def _warn_of_missing(self, measure: str) -> None:
        if self.is_partial and float(self.values[-1]) > self._noise:
            n, r = self.vectors.shape
            _warn(f"the {measure} is that of the largest {r} of {n} values", "spectrum(K) without top", 4)

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


def _warn(text: str, hint: str, stacklevel: int = 3) -> None:
    warnings.warn(f"{text}. Try: {hint}", SpectrumWarning, stacklevel=stacklevel)


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
    if operator.shape[0] != operator.shape[1]:
        raise InputError(
            "the matrix is not square, and has no spectrum",
            expected="a symmetric matrix (n, n)",
            got=tuple(operator.shape),
            hint="of features x (n, d), or a Jacobian: spectrum(x @ x.T), or spectrum(FactorOperator(x)), which "
            'forms no matrix; of="jacobian" gives the singular values of x',
        )
    check_symmetric(operator)
    n = operator.shape[0]
    count = n if top is None else top
    if not 1 <= count <= n:
        raise InputError("bad number of eigenpairs", expected=f"an integer from 1 to {n}", got=top)

    operator = in_memory(operator, memory)
    trace = float(operator.diagonal().sum())
    if _prefers_lanczos(operator, count, memory):
        values, vectors = largest_eigenpairs(operator, count, memory=memory)
    else:
        values, vectors = _decompose(operator, count, memory)
    noise = noise_of(values)
    if of == "jacobian":
        values = clip(values).sqrt()
    return Spectrum(values, vectors, trace, of, noise)


def noise_of(values: Float[Tensor, " r"]) -> float:
    """What rounding may put into a computed eigenvalue: 4 ε of the largest, or as far as values below zero show."""
    size, below = float(values.abs().max()), -float(values.min())
    shown = 2 * below if below <= below_zero(values.dtype) * size else 0.0  # else it is no rounding
    return max(ROUNDING * torch.finfo(values.dtype).eps * size, shown)


def _decompose(K: Operator, top: int, memory: Memory) -> tuple[Tensor, Tensor]:
    matrix = K.dense(memory)
    check_finite(matrix, "kernel matrix")
    values, vectors = torch.linalg.eigh(matrix)
    return values.flip(0)[:top], vectors.flip(1)[:, :top]


def _prefers_lanczos(K: Operator, top: int, memory: Memory) -> bool:
    n = K.shape[0]
    fits = isinstance(K, DenseOperator) or memory_budget(memory, device=K.device).holds(K.nbytes)
    return top <= LANCZOS_SHARE * n or (top < n and not fits)
