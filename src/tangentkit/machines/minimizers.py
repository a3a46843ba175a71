"""Ways to fit a kernel GLM: L-BFGS, stochastic gradients one class against the rest, Adam.

The objective is the mean cross-entropy of logits K A + b with a ridge,

    φ(A, b) = Σ_i w_i ℓ(y_i, z_i) / Σ_i w_i + (ridge / 2) ‖A‖²,    z = K A + b.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize
from sklearn.linear_model import SGDClassifier
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key


@dataclass(frozen=True)
class Objective:
    """φ(A, b), with its gradient."""

    K: Float[Tensor, "nb nb"]
    """(n, n), the same for all logits, or a block kernel (n c, n c)."""
    labels: Int[Tensor, " n"]
    classes: int
    weights: Float[Tensor, " n"]
    """They sum to 1."""
    ridge: float
    intercept: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Of A: (n, c), or (n c, 1) for a block kernel."""
        rows = len(self.K)
        return rows, self.classes * len(self.labels) // rows

    def gradient(
        self, A: Float[Tensor, "nb q"], b: Float[Tensor, " c"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "nb q"], Float[Tensor, " c"]]:
        """φ, ∂φ/∂A = Kᵀ R + ridge A and ∂φ/∂b = Σ_i R_i, with R = w (p - χ)."""
        z = (self.K @ A).reshape(len(self.labels), -1) + b
        own = z.gather(1, self.labels[:, None])[:, 0]
        value = self.weights @ (z.logsumexp(1) - own) + self.ridge / 2 * A.square().sum()
        R = z.softmax(1)
        R.scatter_add_(1, self.labels[:, None], -torch.ones_like(own)[:, None])
        R = self.weights[:, None] * R
        db = R.sum(0) if self.intercept else torch.zeros_like(b)
        return value, self.K @ R.reshape(A.shape) + self.ridge * A, db


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
class LBFGS(Minimizer):
    """Limited-memory BFGS on the whole data: the optimum, to within a tolerance."""

    max_steps: int = 1000
    tol: float = 1e-6
    """The largest entry of the gradient at the end."""

    def minimize(self, objective: Objective) -> Fitted:
        """From zero."""
        rows, q = objective.shape
        K, losses = objective.K, []

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
        message = f"{'converged' if converged else 'stopped'} after {found.nit} steps, gradient {largest:.1e}"
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
                hint='solver="lbfgs" or "adam", or a kernel with outputs="trace"',
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
        n, K = len(objective.labels), objective.K
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
            A, b, steps, converged, f"{'converged' if converged else 'stopped'} after {steps} epochs"
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
        """From zero."""
        A = torch.zeros(objective.shape).to(objective.K)
        b = torch.zeros(objective.classes).to(A)
        optimizer = torch.optim.Adam([A, b], lr=self.learning_rate, betas=self.betas)
        losses: list[float] = []
        for _ in range(self.steps):
            value, A.grad, b.grad = objective.gradient(A, b)
            losses.append(float(value))
            optimizer.step()
        value, dA, db = objective.gradient(A, b)
        largest = float(torch.cat([dA.flatten(), db]).abs().max())
        message = f"{self.steps} steps of Adam, gradient {largest:.1e}"
        return Fitted(A, b, self.steps, largest <= self.tol, message, [*losses, float(value)])


MINIMIZERS: dict[str, type[Minimizer]] = {"lbfgs": LBFGS, "sgd": SGD, "adam": Adam}
