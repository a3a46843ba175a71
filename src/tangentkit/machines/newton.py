"""Newton's method for kernel likelihoods: damped, with backtracking.

    φ(α) = Σ_i w_i ℓ(y_i, z_i) + (ridge / 2) αᵀ H α,    z = H α,

ℓ being the logistic loss (one logit) or the cross-entropy (c logits). With p the probabilities, χ the one-hot
labels, r = w (p - χ) + ridge α and C_i = w_i (diag(p_i) - p_i p_iᵀ) the curvature,

    ∇φ = H r,    ∇²φ = H C H + ridge H,    so that the step δ solves (C H + ridge I) δ = -r.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from tangentkit.core.errors import BudgetError
from tangentkit.core.memory import format_bytes, memory_budget
from tangentkit.linalg.operator import Memory
from tangentkit.machines.positivity import check_positive, not_positive

LEAST_DAMPING = 1e-10
"""Of the mean diagonal of H: stands in for a ridge of 0 in the step alone, not in the objective."""
ARMIJO, HALVINGS = 1e-4, 40


@dataclass(frozen=True)
class Likelihood:
    """φ for given labels, and its Newton steps."""

    H: Float[Tensor, "nb nb"]
    """The kernel matrix: (n, n), the same for all logits, or a block kernel (n c, n c)."""
    targets: Float[Tensor, "n c"]
    """χ: one column of zeros and ones, or one-hot rows."""
    weights: Float[Tensor, " n"]
    ridge: float

    @property
    def damping(self) -> float:
        """What stands on the diagonal of a step."""
        return max(self.ridge, LEAST_DAMPING * float(self.H.diagonal().mean()))

    def times(self, alpha: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """H α."""
        return (self.H @ alpha.reshape(len(self.H), -1)).reshape(alpha.shape)

    def probabilities(self, z: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """p."""
        return torch.sigmoid(z) if z.shape[1] == 1 else z.softmax(1)

    def loss(self, z: Float[Tensor, "n c"]) -> Float[Tensor, ""]:
        """Σ_i w_i ℓ(y_i, z_i)."""
        if z.shape[1] == 1:
            each = softplus(z[:, 0]) - self.targets[:, 0] * z[:, 0]
        else:
            each = z.logsumexp(1) - (self.targets * z).sum(1)
        return self.weights @ each

    def value(self, alpha: Float[Tensor, "n c"], z: Float[Tensor, "n c"]) -> Float[Tensor, ""]:
        """φ."""
        return self.loss(z) + self.ridge / 2 * (alpha * z).sum()

    def projection(self) -> Callable[[Float[Tensor, "n c"]], Float[Tensor, "n c"]]:
        """Without a ridge, r ↦ its part in the range of H: the rest moves no logit and would drown the step."""
        if self.ridge > 0:
            return lambda r: r
        values, vectors = torch.linalg.eigh(self.H)
        U = vectors[:, values > len(values) * torch.finfo(values.dtype).eps * values[-1]]
        return lambda r: (U @ (U.T @ r.reshape(len(U), -1))).reshape(r.shape)

    def separates(self, z: Float[Tensor, "n c"]) -> bool:
        """Whether every sample with a weight has its own class strictly in front."""
        if z.shape[1] == 1:
            margins = (2 * self.targets[:, 0] - 1) * z[:, 0]
        else:
            own = (self.targets * z).sum(1)
            margins = own - z.masked_fill(self.targets > 0, -torch.inf).amax(1)
        return bool((margins[self.weights > 0] > 0).all())

    def step(self, p: Float[Tensor, "n c"], r: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """δ with (C H + damping I) δ = -r.

        Raises:
            NumericalError: H is not positive semi-definite.
        """
        if p.shape[1] == 1:
            return self._step_of_one(p, r)
        return self._step_of_blocks(p, r) if len(self.H) > len(p) else self._step_of_many(p, r)

    def _factor(self, A: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
        """The Cholesky factor of a matrix that is positive but for rounding, which it may change."""
        for power in range(5):
            factor, failed = torch.linalg.cholesky_ex(A)
            if not failed:
                return factor
            A.diagonal().add_(10**power * len(A) * torch.finfo(A.dtype).eps * A.diagonal().abs().mean())
        raise not_positive(self.H, ridge=None, hint="another kernel")

    def _step_of_one(self, p: Float[Tensor, "n 1"], r: Float[Tensor, "n 1"]) -> Float[Tensor, "n 1"]:
        """By C = s sᵀ and (μ + s sᵀ H)⁻¹ = (1 - s (μ + sᵀ H s)⁻¹ sᵀ H) / μ."""
        mu, s = self.damping, (self.weights[:, None] * p * (1 - p)).sqrt()
        A = s * self.H * s.T
        A.diagonal().add_(mu)
        return (s * torch.cholesky_solve(s * (self.H @ r), self._factor(A)) - r) / mu

    def _step_of_blocks(self, p: Float[Tensor, "n c"], r: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """The same with C_i = S_i S_iᵀ, S_i = √w_i diag(√p_i) (I - √p_i √p_iᵀ)."""
        (n, c), mu, q = p.shape, self.damping, p.sqrt()
        S = self.weights.sqrt()[:, None, None] * (torch.diag_embed(q) - p[:, :, None] * q[:, None, :])
        half = torch.einsum("iab,iam->ibm", S, self.H.view(n, c, n * c)).reshape(n * c, n, c)
        A = torch.einsum("mia,iab->mib", half, S).reshape(n * c, n * c)
        A.diagonal().add_(mu)
        right = torch.einsum("iab,ia->ib", S, self.times(r))
        solved = torch.cholesky_solve(right.reshape(-1, 1), self._factor((A + A.T) / 2)).reshape(n, c)
        return (torch.einsum("iab,ib->ia", S, solved) - r) / mu

    def _step_of_many(self, p: Float[Tensor, "n c"], r: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """For one kernel and c logits in c + 1 factorizations of (n, n) (Rasmussen, Williams 2006, algorithm 3.3).

        With D_k = diag(w p_k), E_k = D_k^½ (μ I + D_k^½ H D_k^½)⁻¹ D_k^½ and b = -r / μ,
        δ = b - (E - E R (Rᵀ E R)⁻¹ Rᵀ E) H b, where R stacks c identities.
        """
        mu, b = self.damping, -r / self.damping
        Hb = self.H @ b
        E = []
        for column in (self.weights[:, None] * p).T:
            s = column.sqrt()
            A = s[:, None] * self.H * s
            A.diagonal().add_(mu)
            half = torch.linalg.solve_triangular(self._factor(A), torch.diag(s), upper=False)
            E.append(half.T @ half)
        total = _sum(E)
        # A sample of no weight has no row; its part of the right-hand side is zero as well.
        total.diagonal().add_((total.diagonal() == 0).to(total))
        EHb = torch.stack([E_k @ column for E_k, column in zip(E, Hb.T, strict=True)], 1)
        common = torch.cholesky_solve(EHb.sum(1, keepdim=True), self._factor(total))
        back = torch.cat([E_k @ common for E_k in E], 1)
        return b - EHb + back


@dataclass(frozen=True)
class Minimum:
    """Where an iteration ended."""

    alpha: Float[Tensor, "n c"]
    value: float
    steps: int
    converged: bool
    message: str


def minimize(likelihood: Likelihood, *, max_steps: int, tol: float, memory: Memory = None) -> Minimum:
    """Newton from α = 0 until φ is within `tol` Σ w of its minimum, by the Newton decrement.

    Where the data can be separated and there is no ridge, the infimum is at infinity: the iteration goes on to its
    end and says so.

    Raises:
        NumericalError: H is not positive semi-definite.
        BudgetError: the matrices of a step are beyond the memory budget.
    """
    _check_budget(likelihood, memory)
    check_positive(likelihood.H, hint="another kernel")
    alpha = torch.zeros_like(likelihood.targets)
    z, value = torch.zeros_like(alpha), likelihood.value(alpha, alpha)
    enough = tol * float(likelihood.weights.sum())
    decrement = float("inf")
    project = likelihood.projection()
    taken, done = 0, False
    while not done and taken < max_steps:
        p = likelihood.probabilities(z)
        r = project(likelihood.weights[:, None] * (p - likelihood.targets) + likelihood.ridge * alpha)
        step = likelihood.step(p, r)
        Hstep = likelihood.times(step)
        decrement = -float((Hstep * r).sum())
        done = decrement <= 2 * enough
        found = _backtrack(likelihood, (alpha, z, value), (step, Hstep), decrement)
        if found is None:
            break
        # The last step is taken as well: it doubles the digits.
        alpha, z, value = found
        taken += 1
    if likelihood.ridge == 0 and likelihood.separates(z):
        message = (
            f"the data are separable and ridge is 0: the optimum is at infinity; stopped after {taken} steps"
        )
        return Minimum(alpha, float(value), taken, False, message)
    if not done and taken < max_steps:
        message = f"no step lowers the objective any more (decrement {decrement:.1e}): rounding"
        return Minimum(alpha, float(value), taken, False, message)
    if not done:
        message = f"stopped after {taken} steps, about {decrement / 2:.1e} above the minimum; try more, or more ridge"
        return Minimum(alpha, float(value), taken, False, message)
    return Minimum(alpha, float(value), taken, True, f"converged in {taken} steps")


def _backtrack(
    likelihood: Likelihood,
    here: tuple[Tensor, Tensor, Tensor],
    along: tuple[Tensor, Tensor],
    decrement: float,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """The first of the steps 1, ½, ¼, ... with enough of a decrease, or None."""
    (alpha, z, value), (step, Hstep), size = here, along, 1.0
    for _ in range(HALVINGS):
        new_alpha, new_z = alpha + size * step, z + size * Hstep
        new_value = likelihood.value(new_alpha, new_z)
        if new_value <= value - ARMIJO * size * decrement:
            return new_alpha, new_z, new_value
        size /= 2
    return None


def _sum(matrices: list[Tensor]) -> Tensor:
    total = matrices[0].clone()
    for matrix in matrices[1:]:
        total += matrix
    return total


def _check_budget(likelihood: Likelihood, memory: Memory) -> None:
    H, c = likelihood.H, likelihood.targets.shape[1]
    needed = (3 + (c if len(H) == len(likelihood.targets) and c > 1 else 0)) * H.numel() * H.element_size()
    budget = memory_budget(memory, device=H.device)
    if needed > budget:
        raise BudgetError(
            "the matrices of a Newton step are beyond the memory budget",
            expected=f"at most {format_bytes(budget)}",
            got=f"{format_bytes(needed)} for {len(likelihood.targets)} samples and {c} logits",
            hint="KernelGLM, which needs the kernel matrix alone, or memory=...",
        )
