"""Systems: a weighted kernel regression before it is solved, and the solvers by name."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.memory import Budget, format_bytes, memory_budget
from tangentkit.core.seeds import Key
from tangentkit.linalg import (
    CG,
    Cholesky,
    DenseOperator,
    Eigen,
    FactorOperator,
    Nystrom,
    Operator,
    check_finite,
    symmetrized,
)
from tangentkit.linalg.operators.checks import below_zero, rounding
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.solvers.positivity import not_positive
from tangentkit.linalg.solvers.precision import in_working_precision
from tangentkit.linalg.solvers.solution import Method
from tangentkit.machines.kernel_sources import KernelSource
from tangentkit.machines.solvers.fits import (
    Fit,
    WeightedOperator,
    attempt_cholesky,
    fit_cholesky,
    fit_eigen,
    fit_features,
    fit_iteratively,
    fit_normal,
)
from tangentkit.machines.solvers.normal_equations import covers_rounding

NAMES = ("auto", "cholesky", "eigh", "cg", "features", "normal")
FEW_FLOPS, MOST_FLOPS = 1e9, 5e10
"""n d min(n, d) up to which a decomposition of features takes a moment, and beyond which it takes minutes."""


@dataclass(eq=False)
class System:
    """Σ_i w_i (y_i - f(x_i))² + ridge ‖f‖²_K, to be minimized; features and K are computed when asked for."""

    source: KernelSource
    X: Any
    Y: Float[Tensor, "n c"]
    is_flat: bool
    """Whether targets came as (n,)."""
    weights: Float[Tensor, " n"] | None
    """None where all are 1."""
    ridge: float
    cutoff: float | None
    memory: Memory

    @cached_property
    def features(self) -> Float[Tensor, "n d"] | None:
        """Φ, where the kernel has features."""
        features = self.source.features(self.X)
        if features is not None:
            check_finite(features, "features")
            self._check_rows(len(features))
        return features

    @cached_property
    def gram(self) -> Operator:
        """K, checked to be symmetric."""
        K = symmetrized(self.source.gram(self.X, memory=self.memory))
        self._check_rows(K.shape[0])
        return K

    def blocks(self, kind: Operator | Tensor) -> int:
        """The rows of K, or of Φ, for every sample: more than one for a block kernel."""
        return kind.shape[0] // len(self.Y)

    def roots(self, kind: Operator | Tensor) -> Float[Tensor, " rows"] | None:
        """√w of every row."""
        if self.weights is None:
            return None
        return self.weights.sqrt().repeat_interleave(self.blocks(kind)).to(kind.device, kind.dtype)

    def targets(self, kind: Operator | Tensor) -> Float[Tensor, "rows q"]:
        """ŷ in the dtype of K or Φ: a column for every output, or a single one of a block kernel."""
        return weigh(self.Y.reshape(kind.shape[0], -1).to(kind.device, kind.dtype), self.roots(kind))

    def weighted_gram(self) -> Operator:
        """K̂."""
        K, roots = self.gram, self.roots(self.gram)
        return K if roots is None else WeightedOperator(K, roots)

    def budget(self) -> Budget:
        """The bytes that matrices may take."""
        return memory_budget(self.memory, device=self.Y.device)

    def _check_rows(self, rows: int) -> None:
        (n, c), samples = self.Y.shape, self.source.samples(self.X)
        # A matrix does not tell samples from outputs, but one sample of many outputs is a row meant as a column.
        fits = (n > 1 or rows == 1) if samples is None else samples == n
        if fits and rows in (n, n * c):
            return
        if samples is None:
            shapes = f"({rows},) or ({rows}, c), or (n, c) with n * c = {rows} for a kernel of c outputs"
        else:
            shapes = (
                f"({samples},) or ({samples}, c)" if rows == samples else f"({samples}, {rows // samples})"
            )
        raise InputError(
            "targets do not match the samples",
            expected=f"shape {shapes}",
            got=(n,) if self.is_flat else (n, c),
            hint="y[0]: targets in one row" if n == 1 else None,
        )


@dataclass(frozen=True)
class Solved:
    """A fit, by which solver and why."""

    solver: str
    reason: str
    fit: Fit


def solve_system(system: System, solver: str | Method) -> Solved:
    """Fits by the solver of a name, by a method of `tangentkit.linalg`, or by what suits the system.

    Raises:
        UnknownNameError: there is no such solver.
        InputError: the kernel has no features where the solver needs them.
        NumericalError: the kernel is not symmetric or not positive where the solver needs it.
    """
    if isinstance(solver, Method):
        _check_cutoff(system, type(solver).__name__, takes=False)
        return _by_method(system, solver)
    if solver not in NAMES:
        raise UnknownNameError("solver", str(solver), NAMES)
    _check_cutoff(system, solver, takes=solver in ("auto", "eigh", "features"))
    if solver == "auto":
        return _automatically(system)
    if solver in ("features", "normal"):
        return Solved(solver, "asked for", _solve_features(system, solver))
    return _by_method(system, _method(system, solver))


def weigh(rows: Float[Tensor, "n q"], roots: Float[Tensor, " n"] | None) -> Float[Tensor, "n q"]:
    """diag(roots) times a matrix."""
    return rows if roots is None else roots[:, None] * rows


def _solve_features(system: System, solver: str) -> Fit:
    Phi = system.features
    if Phi is None:
        raise InputError(
            f"solver={solver!r} needs features",
            expected='a kernel with `.features(x)`, or kernel="features"',
            hint='solver="auto"',
        )
    if solver == "normal":
        return fit_normal(Phi, system.Y.to(Phi), ridge=system.ridge, weights=system.weights)
    Y = system.targets(Phi)
    return fit_features(weigh(Phi, system.roots(Phi)), Y, ridge=system.ridge, cutoff=system.cutoff)


def _by_method(system: System, method: Method) -> Solved:
    """A method of `tangentkit.linalg`, with all of its options."""
    K, ridge = system.weighted_gram(), system.ridge
    Y = system.targets(K)
    if isinstance(method, Cholesky):
        return Solved("cholesky", "asked for", fit_cholesky(K, Y, ridge=ridge, method=method))
    if isinstance(method, Eigen):
        return Solved("eigh", "asked for", fit_eigen(K, Y, ridge=ridge, method=method))
    return Solved(
        type(method).__name__.lower(), "asked for", fit_iteratively(K, Y, ridge=ridge, method=method)
    )


def _method(system: System, solver: str) -> Method:
    """What a name stands for: no jitter, since a ridge is for the caller to choose, and what memory it takes."""
    unlimited = system.gram.nbytes
    if solver == "cholesky":
        return Cholesky(max_jitter=0.0, memory=unlimited)
    if solver == "eigh":
        return Eigen(rtol=system.cutoff, memory=unlimited)
    return CG(preconditioner=Nystrom(rank=100, key=Key(0).fold("machines")), memory=system.memory)


def _check_cutoff(system: System, solver: str, *, takes: bool) -> None:
    if system.cutoff is not None and not takes:
        hint = "Eigen(rtol=...)" if solver == "Eigen" else 'solver="eigh" or "features"'
        raise InputError(
            f"solver {solver} takes no cutoff", expected="cutoff=None", got=system.cutoff, hint=hint
        )


def _automatically(system: System) -> Solved:
    if system.features is not None:
        found = _on_features(system, system.features)
        if found is not None:
            return found
    K, ridge = system.weighted_gram(), system.ridge
    Y = system.targets(K)
    size = format_bytes(K.nbytes)
    if not system.budget().holds(K.nbytes, copies=3):
        reason = f"three matrices of {size} are beyond the budget of {format_bytes(system.budget())}"
        return Solved("cg", reason, fit_iteratively(K, Y, ridge=ridge, method=_method(system, "cg")))
    fit = attempt_cholesky(K, Y, ridge=ridge, method=Cholesky(max_jitter=0.0, memory=K.nbytes))
    if fit is None or fit.residual > rounding(Y.dtype):
        held = _held_by_ridge(system, K, Y)
        if held is not None:
            return held
    if fit is not None and fit.converged:
        positive = "a ridge makes it" if ridge else "is"
        return Solved(
            "cholesky", f"the kernel matrix ({size}) fits in memory and {positive} positive definite", fit
        )
    fit = fit_eigen(K, Y, ridge=ridge, method=Eigen(rtol=system.cutoff, memory=K.nbytes))
    reason = f"with ridge={ridge:g} the kernel matrix is singular to working precision"
    assert fit.pairs is not None
    if fit.pairs.below > max(fit.parts.zero, below_zero(K.dtype) * float(fit.pairs.values.abs().max())):
        raise not_positive(K.dense(K.nbytes), ridge=ridge, hint='solver="eigh" to have it all the same')
    return Solved("eigh", reason, fit)


def _held_by_ridge(system: System, K: Operator, Y: Float[Tensor, "n q"]) -> Solved | None:
    """By Cholesky in float64, whatever the residual, where the ridge is above the rounding of the matrix.

    Half of the ridge must make it positive definite, too: then rounding is no more than the other half. Cholesky does
    not mind rows of very different sizes, while eigenvalues are known to the rounding of the largest alone.
    """
    bytes_each = K.shape[0] ** 2 * torch.float64.itemsize
    if not system.ridge or system.cutoff is not None or not system.budget().holds(bytes_each, copies=3):
        return None
    double = DenseOperator(in_working_precision(K.dense(K.nbytes)))
    method = Cholesky(max_jitter=0.0, memory=double.nbytes)
    if method.factorize(double.shift(system.ridge / 2).dense(method.memory)) is None:
        return None
    fit = attempt_cholesky(double, Y.to(double.dtype), ridge=system.ridge, method=method)
    reason = f"the ridge makes the kernel matrix ({format_bytes(double.nbytes)}) positive definite in float64"
    return None if fit is None else Solved("cholesky", reason, fit)


def _on_features(system: System, Phi: Float[Tensor, "n d"]) -> Solved | None:
    n, d = Phi.shape
    flops, fits = n * d * min(n, d), system.budget().holds(n * d * torch.float64.itemsize, copies=3)
    covered = covers_rounding(system.ridge, Phi, torch.float64)
    if fits and (flops <= FEW_FLOPS or (flops <= MOST_FLOPS and not covered)):
        reason = f"the kernel has {d} features: least squares on them squares no condition number"
        return Solved("features", reason, _solve_features(system, "features"))
    if d <= n and system.ridge > 0 and (covered or not fits):
        reason = f"{n} x {d} features are many: normal equations need few passes over blocks of samples"
        return Solved("normal", reason, _solve_features(system, "normal"))
    if d <= n and fits:
        reason = f"ridge={system.ridge:g} is below rounding of the normal equations of {n} x {d} features"
        return Solved("features", reason, _solve_features(system, "features"))
    # The features are there already: better their inner products than another pass over the network.
    system.gram = FactorOperator(Phi)
    return None
