"""Where training in a fixed kernel ends: kernel regression, of least norm where the kernel is singular."""

import math

import pytest
import torch

from machines.dynamics.problem import F0, K_TEST, PROBLEM, C, K, M, N, Y, close
from tangentkit import reference
from tangentkit.machines.dynamics.descents import (
    GradientDescent,
    GradientFlow,
    HeavyBall,
    MomentumFlow,
)
from tangentkit.machines.dynamics.dynamics import Dynamics, gradient_flow, max_learning_rate


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize(
    "descent", [GradientFlow(), MomentumFlow(0.5), GradientDescent(0.05), HeavyBall(0.05, 0.9)], ids=str
)
def test_the_end_of_training_is_kernel_regression(ridge, descent):
    training = Dynamics(K, Y, ridge=ridge, descent=descent)
    expected = reference.kernel_regression(K, Y, K_TEST, ridge=ridge)
    close(training.predictions(math.inf, K_TEST), expected)
    close(training.predictions(10**9, K_TEST), expected, atol=1e-8)
    close(training.predictions(math.inf), reference.kernel_regression(K, Y, K, ridge=ridge))
    close(K @ training.coefficients(math.inf) + ridge * training.coefficients(math.inf), Y)


def test_the_end_from_a_start_is_the_lazy_regression():
    found = gradient_flow(PROBLEM.K, Y, math.inf, f0=F0, K_test=PROBLEM.K_test, f0_test=PROBLEM.f0_test)
    flat = reference.kernel_regression(
        PROBLEM.K.reshape(N * C, -1), (Y - F0).reshape(-1), PROBLEM.K_test.reshape(M * C, -1)
    )
    close(found, PROBLEM.f0_test + flat.reshape(M, C))


def test_singular_kernels_end_at_least_norm_and_leave_what_they_cannot_reach():
    features = torch.randn(N, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    features[1] = features[0]
    kernel, cross = features @ features.T, features[:2] @ features.T
    training = Dynamics(kernel, Y, f0=F0)
    weights = torch.linalg.pinv(features) @ (Y - F0)
    close(training.predictions(math.inf), F0 + features @ weights)
    close(training.predictions(math.inf, cross, f0_test=F0[:2]), F0[:2] + features[:2] @ weights)
    for t in (1e6, 1e15, 1e300):
        # At the training points the modes that K does not know move as rounding lets them.
        rounding = 10 * torch.finfo(torch.float64).eps * float(torch.linalg.eigvalsh(kernel)[-1]) * t
        close(training.predictions(t), F0 + features @ weights, atol=min(rounding, 10))
        late = training.predictions(t, cross, f0_test=F0[:2])
        close(late, F0[:2] + features[:2] @ weights)
        close(training.smoother(t, cross), features[:2] @ torch.linalg.pinv(features))
    assert (training.time_to_fit()[3:] == math.inf).all()
    assert (training.time_to_fit()[:3] < math.inf).all()


@pytest.mark.parametrize("seed", range(3))
def test_rounding_of_a_kernel_in_float32_is_taken_for_what_it_is(seed):
    generator = torch.Generator().manual_seed(seed)
    features, others = (torch.randn(n, 5, generator=generator) for n in (60, 9))
    y = torch.randn(60, generator=generator).double()
    # Singular, computed in float32 and handed over in float64, with eigenvalues of -1e-7 and 1e-7 of the largest.
    kernel, cross = (features @ features.T).double(), (others @ features.T).double()
    assert torch.linalg.eigvalsh(kernel)[0] < 0
    expected = others.double() @ torch.linalg.pinv(features.double()) @ y
    for t in (1e6, math.inf):
        close(gradient_flow(kernel, y, t, K_test=cross), expected, atol=1e-4)


@pytest.mark.parametrize("mean", [0.0, 10.0])
def test_new_points_of_a_kernel_in_float32_follow_the_steps_on_the_same_numbers(mean):
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(n, 5, generator=generator) for n in (200, 50))
    y, weights = x[:, 0] * x[:, 1], torch.randn(5, 300, generator=generator)
    K, k = ((a + mean) @ weights for a in (x, z))
    K, k = K.relu() @ K.relu().T, k.relu() @ K.relu().T
    rate, alpha = 0.9 * max_learning_rate(K), torch.zeros(200).double()
    for _ in range(3000):
        alpha += rate * (y.double() - K.double() @ alpha)
    training = Dynamics(K, y, descent=GradientDescent(rate))
    for kernel in (K, k):
        expected = kernel.double() @ alpha
        assert (training.predictions(3000, kernel) - expected).norm() < 1e-3 * expected.norm()
    ridge = 1e-4 * float(K.diagonal().mean())
    exact = k.double() @ torch.linalg.solve(K.double() + ridge * torch.eye(200).double(), y.double())
    held = Dynamics(K, y, ridge=ridge).predictions(math.inf, k)
    assert (held - exact).norm() < 0.03 * exact.norm()


def test_a_kernel_of_zeros_learns_nothing():
    zeros = torch.zeros(N, N).double()
    for t in (0.0, 5.0, math.inf):
        close(gradient_flow(zeros, Y, t, f0=F0), F0, atol=1e-14)
    assert max_learning_rate(zeros) == math.inf
    assert max_learning_rate(torch.zeros(50, 50)) == math.inf
