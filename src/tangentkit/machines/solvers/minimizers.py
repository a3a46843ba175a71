"""Ways to fit a kernel GLM: Newton, L-BFGS, stochastic gradients one class against the rest, Adam.

The objective is the mean cross-entropy of logits K A + b with a ridge,

    φ(A, b) = Σ_i w_i ℓ(y_i, z_i) / Σ_i w_i + (ridge / 2) ‖A‖²,    z = K A + b.

Convergence is judged without units. A gradient is small beside what it could be, |(Kᵀ R)_i| ≤ ‖K_i‖ ‖R‖ with R at
zero, whatever the size of K or of one of its rows; and beside φ, since where a kernel separates the classes all
gradients are as small as φ is, long before φ is at its minimum.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize
from sklearn.linear_model import SGDClassifier
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.core.text import counted
from tangentkit.linalg.operators.operator import Memory
from tangentkit.machines.solvers import newton
from tangentkit.machines.solvers.grams import Gram, HeldGram

MOST_POWER = 300
"""Of two, by which a kernel is divided: squares of it are numbers still."""
NEAR = 1e-3
"""How far φ may be above its minimum at the end of Newton's method, as a share of φ, where the gradient is small."""
MARGIN = 0.5
"""The share of the tolerance that Newton aims at: it knows the logits by recurrences, and A and b are judged."""


@dataclass(frozen=True)
class Objective:
    """φ(A, b), with its gradient."""

    gram: Gram
    """The kernel as given, (n, n) the same for all logits, or a block kernel (n c, n c)."""
    scale: float
    """What it is divided by: K = gram / scale."""
    labels: Int[Tensor, " n"]
    classes: int
    weights: Float[Tensor, " n"]
    """They sum to 1."""
    ridge: float
    intercept: bool
    memory: Memory = None

    @property
    def shape(self) -> tuple[int, int]:
        """Of A: (n, c), or (n c, 1) for a block kernel."""
        rows = self.gram.rows
        return rows, self.classes * len(self.labels) // rows

    def zeros(self) -> tuple[Float[Tensor, "nb q"], Float[Tensor, " c"]]:
        """Where fits start: A = 0 and b = 0."""
        return torch.zeros(self.shape).to(self.weights), torch.zeros(self.classes).to(self.weights)

    def times(self, A: Float[Tensor, "nb q"]) -> Float[Tensor, "nb q"]:
        """K A."""
        return self.gram.times(A) / self.scale

    def in_units(self, size: float) -> tuple["Objective", float]:
        """The same for a kernel divided by the power of two near `size`, and this number.

        Its minimum A is that of this objective times that number, which rounds nothing. By a size near that of K_ii,
        A and b matter alike.
        """
        unit = 2.0 ** max(-MOST_POWER, min(MOST_POWER, round(math.log2(size)))) if size > 0 else 1.0
        return replace(self, scale=self.scale * unit, ridge=self.ridge / unit**2), unit

    def held(self) -> tuple["Objective", Float[Tensor, "nb nb"]]:
        """The same with K as a matrix, which is given as well: for fits that read it very often."""
        K = self.gram.held(self.memory).K / self.scale
        return replace(self, gram=HeldGram(K), scale=1.0), K

    def gradient(
        self, A: Float[Tensor, "nb q"], b: Float[Tensor, " c"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "nb q"], Float[Tensor, " c"]]:
        """φ, ∂φ/∂A = Kᵀ R + ridge A and ∂φ/∂b = Σ_i R_i, with R = w (p - χ)."""
        z = self.times(A).reshape(len(self.labels), -1) + b
        own = z.gather(1, self.labels[:, None])[:, 0]
        value = self.weights @ (z.logsumexp(1) - own) + self.ridge / 2 * A.square().sum()
        return value, *self.gradient_at(z.softmax(1), A)

    def gradient_at(
        self, p: Float[Tensor, "n c"], A: Float[Tensor, "nb q"]
    ) -> tuple[Float[Tensor, "nb q"], Float[Tensor, " c"]]:
        """∂φ/∂A and ∂φ/∂b where the probabilities are known."""
        R = self.residuals(p)
        db = R.sum(0) if self.intercept else torch.zeros_like(R[0])
        return self.times(R.reshape(A.shape)) + self.ridge * A, db

    def residuals(self, p: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """R."""
        return self.weights[:, None] * (p - torch.nn.functional.one_hot(self.labels, self.classes))

    def slope(self, K: Float[Tensor, "nb nb"]) -> Callable[[Tensor, Tensor], float]:
        """The map from ∂φ/∂A and ∂φ/∂b to the largest of their entries, each relative to what it could be at zero."""
        uniform = torch.full_like(self.weights, 1 / self.classes)[:, None].expand(-1, self.classes)
        size, rows = self.residuals(uniform).norm(), K.norm(dim=1, keepdim=True) / self.scale
        of_A, of_b = size * rows.where(rows > 0, 1.0), size * len(self.labels) ** 0.5
        return lambda dA, db: float(torch.maximum((dA / of_A).abs().max(), (db / of_b).abs().max()))


@dataclass(frozen=True)
class Fitted:
    """What a minimizer found."""

    A: Float[Tensor, "nb q"]
    b: Float[Tensor, " c"]
    steps: int
    converged: bool
    message: str
    losses: list[float] = field(default_factory=list)
    """φ at every step, where it was computed."""


class Minimizer(ABC):
    """A way to fit a kernel GLM; an instance carries its options."""

    one_against_rest = False
    """Whether every class has a logistic loss of its own, instead of a softmax over all."""

    @abstractmethod
    def minimize(self, objective: Objective) -> Fitted:
        """Fits A and b."""


@dataclass(frozen=True)
class Newton(Minimizer):
    """Newton's method with preconditioned conjugate gradients: the optimum, however ill conditioned K is.

    It takes two more matrices of the size of K; of a kernel with fewer features than samples, two of their size.
    """

    max_steps: int = 100
    tol: float = 1e-6
    """The norm of the gradient at the end, relative to that at zero."""

    def minimize(self, objective: Objective) -> Fitted:
        """From zero, on the functions of K²: by A = K α the logits are K² α and the ridge is αᵀ K² α.

        Raises:
            BudgetError: the matrices are beyond the memory budget.
        """
        objective, unit = objective.in_units(abs(objective.gram.mean_diagonal()) / objective.scale)
        roots = objective.weights.sqrt()
        space, lift = objective.gram.squared_space(
            roots,
            scale=objective.scale,
            ridge=objective.ridge,
            intercept=objective.intercept,
            memory=objective.memory,
        )
        targets = torch.nn.functional.one_hot(objective.labels, objective.classes).to(roots)
        likelihood = newton.Likelihood(space, targets, roots, objective.ridge)

        def norm(p: Tensor, coefficients: Tensor) -> float:
            return _norm(objective.gradient_at(p, lift(coefficients)))

        goal = newton.Goal(slope=MARGIN * self.tol, norm=norm, near=NEAR)
        found = newton.minimize(likelihood, goal=goal, max_steps=self.max_steps)

        A, b = lift(found.coefficients), torch.zeros(objective.classes).to(roots)
        if objective.intercept:
            b = objective.weights @ (found.logits - objective.times(A).reshape(targets.shape))
            b = b - b.mean()  # the softmax does not see what is common to all
        value, *gradient = objective.gradient(A, b)
        start, *at_zero = objective.gradient(*objective.zeros())
        if not value <= start * (1 + 100 * torch.finfo(start.dtype).eps):
            return Fitted(
                *objective.zeros(),
                found.steps,
                False,
                f"rounding hides the optimum: {found.message}",
                [float(start)],
            )
        slope = _norm(gradient) / (_norm(at_zero) or 1.0)
        converged, message = found.converged and slope <= self.tol, found.message
        if found.converged and not converged:
            message = f"rounding leaves a relative gradient of {slope:.1e} (wanted {self.tol:.1e})"
        return Fitted(A / unit, b, found.steps, converged, message, [float(value)])


@dataclass(frozen=True)
class LBFGS(Minimizer):
    """Limited-memory BFGS on the whole data: slow where K is ill conditioned, but it needs no matrix beside K."""

    max_steps: int = 1000
    tol: float = 1e-6
    """The largest entry of the gradient at the end, relative to what it could be and to the objective."""

    def minimize(self, objective: Objective) -> Fitted:
        """Minimizes the objective, starting from zero."""
        objective, K = objective.held()
        objective, unit = objective.in_units(float(K.diagonal().abs().median()))
        (rows, q), losses, slopes, slope = objective.shape, [], [], objective.slope(K)
        best = np.zeros(rows * q + objective.classes)

        def split(x: np.ndarray) -> tuple[Tensor, Tensor]:
            values = torch.from_numpy(x).to(K)
            return values[: rows * q].reshape(rows, q), values[rows * q :]

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, dA, db = objective.gradient(*split(x))
            losses.append(float(value))
            slopes.append(_beside(slope(dA, db), losses))
            if losses[-1] <= min(losses):
                best[:] = x
            return losses[-1], torch.cat([dA.flatten(), db]).double().cpu().numpy()

        def stop_where_flat(_: np.ndarray) -> None:
            # The last point that was tried is the one that a step has just taken.
            if slopes[-1] <= self.tol:
                raise StopIteration

        found = minimize(
            value_and_gradient,
            np.zeros_like(best),
            jac=True,
            method="L-BFGS-B",
            callback=stop_where_flat,
            options={"maxiter": self.max_steps, "maxfun": 10 * self.max_steps, "gtol": 0.0, "ftol": 0.0},
        )
        A, b = split(best)
        value, *gradient = objective.gradient(A, b)
        losses.append(float(value))
        left = _beside(slope(*gradient), losses)
        converged, taken = left <= self.tol, counted(found.nit, "step")
        message = f"{'converged' if converged else 'stopped'} after {taken}, relative gradient {left:.1e}"
        if not converged:
            message += f" (wanted {self.tol:.1e}); try a larger ridge, more max_steps, or a normalized kernel"
        return Fitted(A / unit, b, int(found.nit), converged, message, losses)


@dataclass(frozen=True)
class SGD(Minimizer):
    """scikit-learn's SGDClassifier on rows of the kernel matrix, one class against the rest."""

    max_epochs: int = 1000
    tol: float = 1e-3
    class_weight: str | dict | None = "balanced"
    seed: int = 0

    one_against_rest = True

    def minimize(self, objective: Objective) -> Fitted:
        """One logistic regression for every class.

        Raises:
            InputError: the kernel is a block kernel.
        """
        if objective.shape[1] == 1:
            raise InputError(
                "SGD fits one kernel for all classes",
                expected="k(x, y) of shape (n, m)",
                got="a block kernel",
                hint='solver="newton" or "adam", or a kernel with outputs="trace"',
            )
        machine = SGDClassifier(
            loss="log_loss",
            penalty="l2",
            alpha=objective.ridge,
            fit_intercept=objective.intercept,
            class_weight=self.class_weight,  # pyright: ignore[reportArgumentType]
            max_iter=self.max_epochs,
            tol=self.tol,
            random_state=Key(self.seed).fold("sgd").entropy % 2**32,
        )
        n, (_, K) = len(objective.labels), objective.held()
        machine.fit(
            K.cpu().numpy(), objective.labels.cpu().numpy(), sample_weight=n * objective.weights.cpu().numpy()
        )
        A, b = (
            torch.from_numpy(np.array(found)).to(K)
            for found in (np.asarray(machine.coef_).T, machine.intercept_)
        )
        steps = int(machine.n_iter_)
        converged = steps < self.max_epochs
        return Fitted(
            A,
            b,
            steps,
            converged,
            f"{'converged' if converged else 'stopped'} after {counted(steps, 'epoch')}",
        )


@dataclass(frozen=True)
class Adam(Minimizer):
    """Adam on the whole data for a number of steps: a training run rather than an optimum."""

    steps: int = 8000
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    tol: float = 1e-6
    """What counts as converged: the largest entry of the gradient at the end, relative as that of `LBFGS`."""

    def minimize(self, objective: Objective) -> Fitted:
        """Minimizes the objective, starting from zero."""
        objective, K = objective.held()
        A, b = objective.zeros()
        optimizer = torch.optim.Adam([A, b], lr=self.learning_rate, betas=self.betas)
        losses: list[float] = []
        for _ in range(self.steps):
            value, A.grad, b.grad = objective.gradient(A, b)
            losses.append(float(value))
            optimizer.step()
        value, dA, db = objective.gradient(A, b)
        losses.append(float(value))
        slope = _beside(objective.slope(K)(dA, db), losses)
        message = f"{counted(self.steps, 'step')} of Adam, relative gradient {slope:.1e}"
        if losses[-1] > losses[0]:
            message += (
                f", above the start: {losses[-1]:.3g}, from {losses[0]:.3g}; try a smaller learning_rate"
            )
        return Fitted(A, b, self.steps, slope <= self.tol, message, losses)


def _beside(slope: float, losses: list[float]) -> float:
    """A gradient relative to φ, which began as the first of the losses and is now the last."""
    return slope / max(losses[-1] / losses[0], np.finfo(float).eps)


def _norm(parts: Iterable[Tensor]) -> float:
    return float(torch.cat([part.flatten() for part in parts]).norm())


MINIMIZERS: dict[str, type[Minimizer]] = {"newton": Newton, "lbfgs": LBFGS, "sgd": SGD, "adam": Adam}
