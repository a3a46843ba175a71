"""The largest learning rate: below it training in a fixed kernel converges, above it diverges."""

import pytest
import torch

from machines.dynamics.problem import F0, LOSSES, PROBLEM, C, K, N, Y
from tangentkit.core.errors import BudgetError
from tangentkit.linalg import Operator
from tangentkit.machines.dynamics.dynamics import gradient_flow, max_learning_rate


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_largest_learning_rate_is_a_sharp_threshold(loss, momentum):
    bound, matrix = max_learning_rate(PROBLEM.K, loss=loss, momentum=momentum), PROBLEM.K.reshape(N * C, -1)
    top = torch.linalg.eigh(matrix).eigenvectors[:, -1]
    errors = []
    for lr in (0.97 * bound, 1.03 * bound):
        f, velocity = F0.clone(), torch.zeros_like(F0)
        for _ in range(250):
            f.requires_grad_()
            (gradient,) = torch.autograd.grad(LOSSES[loss](f, Y), f)
            velocity = momentum * velocity + (matrix @ gradient.reshape(-1)).reshape(N, C)
            f = f.detach() - lr * velocity
        errors.append(abs(float(top @ (f - Y).reshape(-1))))
    # In 250 steps the error of the top mode changes by about exp(± 250 · 0.06) without momentum.
    start = abs(float(top @ (F0 - Y).reshape(-1)))
    assert errors[0] < 0.1 * start
    assert errors[1] > 10 * start


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e-25), (torch.float64, 1e-300)])
def test_the_bound_goes_with_the_size_of_the_kernel_however_small(dtype, size):
    W = torch.randn(120, 240, dtype=dtype, generator=torch.Generator().manual_seed(0))
    small = size * (W @ W.T / 240)
    assert size * max_learning_rate(small) == pytest.approx(max_learning_rate(W @ W.T / 240), rel=1e-5)


def test_both_conventions_of_the_mean_have_their_bound():
    largest = float(torch.linalg.eigvalsh(K / N)[-1])
    assert max_learning_rate(K, loss="half_mean") == pytest.approx(2 / largest)
    assert max_learning_rate(K, loss="mean") == pytest.approx(1 / largest)
    assert max_learning_rate(K, loss="sample_mean", outputs=C) == pytest.approx(1 / largest)
    assert max_learning_rate(K, loss="mean", outputs=C) == pytest.approx(C / largest)
    assert isinstance(max_learning_rate(K), float)


def test_the_largest_learning_rate_of_a_large_operator_needs_no_matrix():
    class Rows(Operator):
        """11ᵀ + I, which fits in no memory."""

        def block(self, rows, cols):
            i, j = (torch.arange(s.start, s.stop) for s in (rows, cols))
            return 1 + (i[:, None] == j).double()

        def _product(self, V, memory):  # noqa: ARG002
            return V.sum(0) + V

    n = 100_000
    operator = Rows((n, n), dtype=torch.float64, device="cpu", symmetric=True)
    assert max_learning_rate(operator) == pytest.approx(2 / (n + 1), rel=1e-9)
    with pytest.raises(BudgetError):
        gradient_flow(operator, torch.ones(n).double(), 1.0)
