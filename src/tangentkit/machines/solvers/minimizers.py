"""Ways to fit a kernel GLM: Newton, L-BFGS, stochastic gradients one class against the rest, Adam.

The objective is the mean cross-entropy of logits K A + b with a ridge,

    φ(A, b) = Σ_i w_i ℓ(y_i, z_i) / Σ_i w_i + (ridge / 2) ‖A‖²,    z = K A + b.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
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
        R = self.weights[:, None] * (p - torch.nn.functional.one_hot(self.labels, self.classes))
        db = R.sum(0) if self.intercept else torch.zeros_like(R[0])
        return self.times(R.reshape(A.shape)) + self.ridge * A, db


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

        goal = newton.Goal(slope=MARGIN * self.tol, norm=norm)
        found = newton.minimize(likelihood, goal=goal, max_steps=self.max_steps)

        A, b = lift(found.coefficients), torch.zeros(objective.classes).to(roots)
        if objective.intercept:
            b = objective.weights @ (found.logits - objective.times(A).reshape(targets.shape))
            b = b - b.mean()  # the softmax does not see what is common to all
        value, *gradient = objective.gradient(A, b)
        _, *at_zero = objective.gradient(*objective.zeros())
        size, first = _norm(gradient), _norm(at_zero)
        converged, message = found.converged and size <= self.tol * first, found.message
        if found.converged and not converged:
            message = f"rounding leaves a relative gradient of {size / first:.1e} (wanted {self.tol:.1e})"
        return Fitted(A, b, found.steps, converged, message, [float(value)])


@dataclass(frozen=True)
class LBFGS(Minimizer):
    """Limited-memory BFGS on the whole data: slow where K is ill conditioned, but it needs no matrix beside K."""

    max_steps: int = 1000
    tol: float = 1e-6
    """The largest entry of the gradient at the end."""

    def minimize(self, objective: Objective) -> Fitted:
        """Minimizes the objective, starting from zero."""
        (rows, q), (objective, K), losses = objective.shape, objective.held(), []

        def split(x: np.ndarray) -> tuple[Tensor, Tensor]:
            values = torch.from_numpy(x).to(K)
            return values[: rows * q].reshape(rows, q), values[rows * q :]

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, dA, db = objective.gradient(*split(x))
            losses.append(float(value))
            return losses[-1], torch.cat([dA.flatten(), db]).double().cpu().numpy()

        options = {"maxiter": self.max_steps, "maxfun": 10 * self.max_steps, "gtol": self.tol, "ftol": 0.0}
        start = np.zeros(rows * q + objective.classes)
        found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
        largest = float(np.abs(found.jac).max())
        converged = largest <= self.tol
        taken = counted(found.nit, "step")
        message = f"{'converged' if converged else 'stopped'} after {taken}, gradient {largest:.1e}"
        if not converged:
            message += f" (wanted {self.tol:.1e}); try a larger ridge, more max_steps, or a normalized kernel"
        return Fitted(*split(found.x), int(found.nit), converged, message, losses)


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
    """What counts as converged: the largest entry of the gradient at the end."""

    def minimize(self, objective: Objective) -> Fitted:
        """Minimizes the objective, starting from zero."""
        objective, _ = objective.held()
        A, b = objective.zeros()
        optimizer = torch.optim.Adam([A, b], lr=self.learning_rate, betas=self.betas)
        losses: list[float] = []
        for _ in range(self.steps):
            value, A.grad, b.grad = objective.gradient(A, b)
            losses.append(float(value))
            optimizer.step()
        value, dA, db = objective.gradient(A, b)
        largest = float(torch.cat([dA.flatten(), db]).abs().max())
        message = f"{counted(self.steps, 'step')} of Adam, gradient {largest:.1e}"
        return Fitted(A, b, self.steps, largest <= self.tol, message, [*losses, float(value)])


def _norm(parts: Iterable[Tensor]) -> float:
    return float(torch.cat([part.flatten() for part in parts]).norm())


MINIMIZERS: dict[str, type[Minimizer]] = {"newton": Newton, "lbfgs": LBFGS, "sgd": SGD, "adam": Adam}
