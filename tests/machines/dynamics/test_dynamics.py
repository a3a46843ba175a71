"""Training in a fixed kernel: against the reference, explicit training, an ODE solver, and wide networks."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from torch import nn

from tangentkit import models, reference
from tangentkit.core.errors import BudgetError, InputError, NumericalError, UnknownNameError
from tangentkit.linalg import DenseOperator, FactorOperator, Operator
from tangentkit.machines.dynamics.descents import (
    GradientDescent,
    GradientFlow,
    HeavyBall,
    MomentumFlow,
    Nesterov,
)
from tangentkit.machines.dynamics.dynamics import Dynamics, gradient_flow, max_learning_rate

N, M, C = 7, 4, 3

LOSSES = {
    "half_sum": lambda f, y: (f - y).square().sum() / 2,
    "sum": nn.MSELoss(reduction="sum"),
    "half_mean": lambda f, y: nn.functional.mse_loss(f, y) / 2,
    "mean": nn.MSELoss(),
    "half_sample_mean": lambda f, y: (f - y).square().sum() / len(y) / 2,
    "sample_mean": lambda f, y: (f - y).square().sum() / len(y),
}


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, **({"rtol": 0, "atol": 1e-10} | tolerance))


class Problem:
    """A small network linearized at its start: Jacobians, outputs, kernels and targets."""

    def __init__(self, outputs=C, seed=0):
        generator = torch.Generator().manual_seed(seed)
        model = models.arora_mlp((5, 20, outputs), activation=nn.Tanh, seed=seed).double()
        x, z = (torch.randn(n, 5, dtype=torch.float64, generator=generator) for n in (N, M))
        self.jx, self.jz = reference.jacobian(model, x), reference.jacobian(model, z)
        self.f0, self.f0_test = model(x).detach(), model(z).detach()
        self.y = torch.randn(N, outputs, dtype=torch.float64, generator=generator)
        self.K, self.K_test = (reference.full_kernel(j, self.jx) for j in (self.jx, self.jz))

    @property
    def scalar(self):
        """Kernels (N, N) and (M, N) of the first output."""
        return self.K[:, 0, :, 0], self.K_test[:, 0, :, 0]

    def train(self, optimizer_of, loss, steps):
        """Outputs at training and test points before every step of explicit training."""
        u = torch.zeros(self.jx.shape[-1], dtype=torch.float64, requires_grad=True)
        optimizer, path = optimizer_of([u]), []
        for _ in range(steps):
            f, g = self.f0 + self.jx @ u, self.f0_test + self.jz @ u
            path.append((f.detach(), g.detach()))
            optimizer.zero_grad()
            LOSSES[loss](f, self.y).backward()
            optimizer.step()
        return (torch.stack(part) for part in zip(*path, strict=True))


PROBLEM = Problem()
K, K_TEST = PROBLEM.scalar
Y, F0 = PROBLEM.y, PROBLEM.f0


@pytest.mark.parametrize("y", [Y[:, 0], Y, Y[:, :1]], ids=["(n,)", "(n, c)", "(n, 1)"])
@pytest.mark.parametrize("t", [0.0, 0.1, 3.0, 1e4])
def test_flow_is_that_of_the_reference(y, t):
    f0 = F0[:, 0] if y.ndim == 1 else F0[:, : y.shape[1]]
    close(gradient_flow(K, y, t), reference.gradient_flow(K, y, t), atol=1e-12)
    close(gradient_flow(K, y, t, f0=f0), reference.gradient_flow(K, y, t, f0=f0), atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_flow_solves_its_equation_at_training_and_test_points(loss):
    joint = torch.cat([PROBLEM.K, PROBLEM.K_test]).reshape((N + M) * C, N * C).numpy()

    def motion(_, f):
        f = torch.from_numpy(f[: N * C]).reshape(N, C).requires_grad_()
        (gradient,) = torch.autograd.grad(LOSSES[loss](f, Y), f)
        return -joint @ gradient.numpy().reshape(-1)

    start = torch.cat([F0, PROBLEM.f0_test]).reshape(-1).numpy()
    times = [0.0, 0.3, 1.0]
    path = solve_ivp(motion, (0, 1), start, t_eval=times, rtol=1e-10, atol=1e-12, method="DOP853")
    path = torch.from_numpy(path.y.T.copy()).reshape(3, N + M, C)
    training = Dynamics(PROBLEM.K, Y, f0=F0, loss=loss)
    close(training.predictions(times), path[:, :N], atol=1e-8)
    close(training.predictions(times, PROBLEM.K_test, f0_test=PROBLEM.f0_test), path[:, N:], atol=1e-8)
    expected = torch.stack([LOSSES[loss](f, Y) for f in path[:, :N]])
    close(training.losses(times), expected, rtol=1e-7)


def sgd(descent, weight_decay):
    return lambda parameters: torch.optim.SGD(
        parameters,
        lr=descent.lr,
        momentum=getattr(descent, "momentum", 0.0),
        nesterov=isinstance(descent, Nesterov),
        weight_decay=weight_decay,
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", [GradientDescent, HeavyBall, Nesterov])
@pytest.mark.parametrize("weight_decay", [0.0, 0.2])
def test_steps_are_those_of_training_the_linearized_network(loss, kind, weight_decay):
    momentum = () if kind is GradientDescent else (0.8,)
    lr = 0.4 * max_learning_rate(PROBLEM.K, loss=loss)
    descent, steps = kind(lr, *momentum), torch.arange(25)
    train, test = PROBLEM.train(sgd(descent, weight_decay), loss, len(steps))
    # The scale between weight decay and ridge is the second derivative of the loss in one output.
    zeros = torch.zeros(N, C).double()
    one = zeros.clone()
    one[0, 0] = 1.0
    scale = 2 * float(LOSSES[loss](one, zeros))
    training = Dynamics(PROBLEM.K, Y, f0=F0, loss=loss, ridge=weight_decay / scale, descent=descent)
    close(training.predictions(steps), train)
    close(training.predictions(steps, PROBLEM.K_test, f0_test=PROBLEM.f0_test), test)
    close(training.losses(steps), torch.stack([LOSSES[loss](f, Y) for f in train]))


@pytest.mark.parametrize("seed", range(3))
def test_small_steps_approach_the_flow_at_first_order(seed):
    problem = Problem(outputs=1, seed=seed)
    kernel, y = problem.scalar[0], problem.y[:, 0]
    t, lr = 8 / float(torch.linalg.eigvalsh(kernel)[-1]), 0.2 * max_learning_rate(kernel)
    flow, errors = gradient_flow(kernel, y, t), []
    for halvings in range(4):
        steps = 2**halvings * round(t / lr)
        descent = GradientDescent(t / steps)
        errors.append(float((Dynamics(kernel, y, descent=descent).predictions(steps) - flow).norm()))
    assert errors[-2] / errors[-1] == pytest.approx(2, abs=0.15)


def test_momentum_approaches_its_flow_at_first_order_in_the_root_of_the_learning_rate():
    y, friction, t = Y[:, 0], 1.5, 4.0
    flow, errors = Dynamics(K, y, descent=MomentumFlow(friction)).predictions(t), []
    for steps in (400, 800, 1600):
        h = t / steps
        descent = HeavyBall(h**2, 1 - friction * h)
        errors.append(float((Dynamics(K, y, descent=descent).predictions(steps) - flow).norm()))
    assert errors[1] / errors[2] == pytest.approx(2, abs=0.1)


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


def test_a_kernel_of_zeros_learns_nothing():
    zeros = torch.zeros(N, N).double()
    for t in (0.0, 5.0, math.inf):
        close(gradient_flow(zeros, Y, t, f0=F0), F0, atol=1e-14)
    assert max_learning_rate(zeros) == math.inf
    assert max_learning_rate(torch.zeros(50, 50)) == math.inf


@pytest.mark.parametrize("loss", LOSSES)
def test_mode_curves_add_up_to_the_loss(loss):
    times = [0.0, 0.2, 1.0, 50.0]
    for kernel in (K, PROBLEM.K):
        training = Dynamics(kernel, Y, f0=F0, loss=loss)
        total = torch.stack([LOSSES[loss](f, Y) for f in training.predictions(times)])
        close(training.losses(times), total, atol=1e-12)
        close(training.mode_losses(times).sum(-1), total, atol=1e-12)
        assert (training.mode_losses(times).diff(dim=0) <= 0).all()


def test_modes_are_projections_of_the_error_and_decay_by_themselves():
    training, times = Dynamics(K, Y, f0=F0, loss="mean"), torch.tensor([0.0, 0.7], dtype=torch.float64)
    vectors = torch.linalg.eigh(K).eigenvectors.flip(1)
    modes = training.modes(times)
    assert modes.shape == (2, N, C)
    error = training.predictions(times) - Y
    close((vectors.T @ error).abs(), modes.abs(), atol=1e-12)
    rates = 2 / (N * C) * training.eigenvalues
    close(modes[1], modes[0] * torch.exp(-0.7 * rates)[:, None], atol=1e-12)
    assert Dynamics(PROBLEM.K, Y).modes(times).shape == (2, N * C)
    assert Dynamics(K, Y[:, 0]).modes(1.0).shape == (N,)


@pytest.mark.parametrize("fraction", [0.5, 0.01])
def test_after_the_time_to_fit_the_fraction_is_left(fraction):
    training = Dynamics(K, Y[:, 0], loss="mean")
    times = training.time_to_fit(fraction)
    left = torch.stack([training.modes(float(t))[i] for i, t in enumerate(times)]) / training.modes(0.0)
    close(left, torch.full((N,), fraction, dtype=torch.float64))
    ridged = Dynamics(K, Y[:, 0], ridge=0.7)
    learned = torch.stack([ridged.modes(float(t))[i] for i, t in enumerate(ridged.time_to_fit(fraction))])
    start, end = ridged.modes(0.0), ridged.modes(math.inf)
    close((learned - end) / (start - end), torch.full((N,), fraction, dtype=torch.float64))


@pytest.mark.parametrize("descent", [GradientDescent(0.01), HeavyBall(0.01, 0.5), MomentumFlow(3.0)], ids=str)
def test_times_to_fit_tell_the_late_decay(descent):
    training = Dynamics(K, Y[:, 0], descent=descent)
    slowest = -1
    t = float(training.time_to_fit(math.exp(-1))[slowest])
    early, late = (float(training.modes(round(k * t))[slowest]) for k in (3, 4))
    assert math.log(early / late) == pytest.approx(round(4 * t) / t - round(3 * t) / t, rel=1e-3)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)])
@pytest.mark.parametrize("kernel", [K, PROBLEM.K], ids=["samples", "block"])
def test_the_axes_of_the_times_come_first(kernel, shape):
    training, times = Dynamics(kernel, Y), torch.rand(shape, dtype=torch.float64)
    rows = training.eigenvalues.shape
    assert training.predictions(times).shape == (*shape, N, C)
    assert training.coefficients(times).shape == (*shape, N, C)
    assert training.losses(times).shape == shape
    assert training.mode_losses(times).shape == (*shape, *rows)
    assert training.smoother(times).shape == (*shape, *rows, *rows)
    last = tuple(k - 1 for k in shape)
    for quantity in ("predictions", "coefficients", "losses", "mode_losses", "modes", "smoother"):
        ask = getattr(training, quantity)
        close(ask(times)[last], ask(float(times[last])))


def test_the_smoother_is_the_map_from_targets_to_predictions():
    times = [0.0, 0.4, math.inf]
    for descent, ridge in ((GradientFlow(), 0.0), (HeavyBall(0.01, 0.9), 0.5)):
        training = Dynamics(K, Y, f0=F0, descent=descent, ridge=ridge)
        when = times if descent == GradientFlow() else [0, 9, math.inf]
        close(F0 + training.smoother(when) @ (Y - F0), training.predictions(when), atol=1e-12)
        test = training.predictions(when, K_TEST, f0_test=PROBLEM.f0_test)
        close(PROBLEM.f0_test + training.smoother(when, K_TEST) @ (Y - F0), test, atol=1e-12)
    block = Dynamics(PROBLEM.K, Y).smoother(0.4, PROBLEM.K_test)
    close((block @ Y.reshape(-1)).reshape(M, C), gradient_flow(PROBLEM.K, Y, 0.4, K_test=PROBLEM.K_test))


@given(
    n=st.integers(1, 6),
    m=st.integers(1, 4),
    outputs=st.integers(0, 3),
    times=st.lists(st.floats(0, 1e3), max_size=3),
    rank=st.integers(1, 8),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_every_shape_agrees_with_the_reference(n, m, outputs, times, rank, seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(k, rank, dtype=torch.float64, generator=generator) for k in (n, m))
    y = torch.randn(n, *(outputs,) * (outputs > 0), dtype=torch.float64, generator=generator)
    kernel = a @ a.T
    found = gradient_flow(kernel, y, times)
    assert found.shape == (len(times), *y.shape)
    assert gradient_flow(kernel, y, times, K_test=b @ a.T).shape == (len(times), m, *y.shape[1:])
    for t, f in zip(times, found, strict=True):
        close(f, reference.gradient_flow(kernel, y, t), atol=1e-9)


@given(n=st.integers(1, 4), outputs=st.integers(1, 3), t=st.floats(0, 100), seed=st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_independent_outputs_are_a_block_kernel_with_identity(n, outputs, t, seed):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(n, 5, dtype=torch.float64, generator=generator)
    y = torch.randn(n, outputs, dtype=torch.float64, generator=generator)
    kernel = a @ a.T
    block = torch.einsum("ij,ab->iajb", kernel, torch.eye(outputs).double())
    for loss in ("mean", "sample_mean"):
        expected = gradient_flow(kernel, y, t, loss=loss)
        close(gradient_flow(block, y, t, loss=loss), expected)
        if n > 1:  # a matrix and one row of targets are not told from n targets laid down
            close(gradient_flow(block.reshape(n * outputs, -1), y, t, loss=loss), expected)
        close(gradient_flow(block, y, t, K_test=block[:1], loss=loss), expected[:1])


def test_operators_and_arrays_are_kernels_too():
    features = PROBLEM.jx[:, 0]
    expected = gradient_flow(K, Y, [0.5, math.inf], K_test=K_TEST)
    operator = FactorOperator(features)
    close(
        gradient_flow(operator, Y, [0.5, math.inf], K_test=FactorOperator(PROBLEM.jz[:, 0], features)),
        expected,
    )
    close(gradient_flow(K.numpy(), Y.numpy(), np.array([0.5, np.inf]), K_test=K_TEST.numpy()), expected)
    flat = DenseOperator(PROBLEM.K.reshape(N * C, N * C))
    close(gradient_flow(flat, Y, 0.5), gradient_flow(PROBLEM.K, Y, 0.5))
    assert max_learning_rate(operator) == pytest.approx(max_learning_rate(K), rel=1e-10)


def test_float32_is_computed_in_float64_and_handed_back():
    found = gradient_flow(K.float(), Y.float(), 2.0, K_test=K_TEST.float())
    assert found.dtype == torch.float32
    expected = gradient_flow(K.float().double(), Y.float().double(), 2.0, K_test=K_TEST.float().double())
    assert torch.equal(found, expected.float())
    assert gradient_flow(K.float(), torch.ones(N, dtype=torch.long), 1.0).dtype == torch.float32


def test_nothing_is_written_to_the_arguments_or_kept_in_the_graph():
    kernel, y = K.clone().requires_grad_(), Y.clone()
    assert not gradient_flow(kernel, y, 1.0).requires_grad
    assert torch.equal(kernel, K)
    assert torch.equal(y, Y)


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


def trained_beside_prediction(width, seed):
    """How far a network of some width, trained by gradient descent, is from its prediction, at test points."""
    generator = torch.Generator().manual_seed(seed)
    x, z = (
        nn.functional.normalize(torch.randn(n, 4, dtype=torch.float64, generator=generator)) for n in (6, 8)
    )
    y = x[:, :1] * x[:, 1:2] * 3
    model = models.arora_mlp((4, width, 1), activation=nn.Tanh, seed=seed).double()
    jx, jz = reference.jacobian(model, x)[:, 0], reference.jacobian(model, z)[:, 0]
    descent = GradientDescent(0.5 * max_learning_rate(jx @ jx.T))
    training = Dynamics(jx @ jx.T, y, f0=model(x).detach(), descent=descent)
    optimizer = torch.optim.SGD(model.parameters(), lr=descent.lr)
    predicted = training.predictions(range(41), jz @ jx.T, f0_test=model(z).detach())
    for _ in range(40):
        optimizer.zero_grad()
        ((model(x) - y).square().sum() / 2).backward()
        optimizer.step()
    moved = float((predicted[-1] - predicted[0]).norm())
    return float((model(z).detach() - predicted[-1]).norm()) / moved


def test_wide_networks_approach_the_prediction():
    errors = [
        math.exp(np.mean([math.log(trained_beside_prediction(width, seed)) for seed in range(6)]))
        for width in (32, 2048)
    ]
    # Theory has the error fall at least like width^(-1/2), by 8 over these widths.
    assert errors[0] / errors[1] > 8
    assert errors[1] < 0.01


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: gradient_flow(K, Y[:3], 1.0), InputError, r"targets do not fit the kernel: expected shape \(7,\)"),
        (lambda: gradient_flow(K, Y.T, 1.0), InputError, "targets do not fit"),
        (lambda: gradient_flow(K, Y[:, :0], 1.0), InputError, "targets do not fit"),
        (lambda: gradient_flow(PROBLEM.K, Y[:, 0], 1.0), InputError, r"expected shape \(7, 3\)"),
        (lambda: gradient_flow(PROBLEM.K, Y.T, 1.0), InputError, r"expected shape \(7, 3\)"),
        (lambda: gradient_flow(K_TEST, Y, 1.0), InputError, "not square"),
        (lambda: gradient_flow(K[0], Y, 1.0), InputError, r"expected shape \(n, m\) or \(n, c, m, c\), got \(7,\)"),
        (lambda: gradient_flow(K.long(), Y, 1.0), InputError, "expected float32 or float64"),
        (lambda: gradient_flow([[1.0]], Y[:1], 1.0), InputError, "a tensor or an array"),
        (lambda: gradient_flow(K + K.triu(1), Y, 1.0), NumericalError, "not symmetric"),
        (lambda: gradient_flow(-K, Y, 1.0), NumericalError, "not positive semi-definite"),
        (lambda: gradient_flow(K * math.nan, Y, 1.0), NumericalError, "non-finite matrix"),
        (lambda: gradient_flow(K, Y * math.inf, 1.0), NumericalError, "non-finite targets"),
        (lambda: gradient_flow(K, Y * 1j, 1.0), InputError, "complex targets"),
        (lambda: gradient_flow(K, Y, -1.0), InputError, "bad time"),
        (lambda: gradient_flow(K, Y, [0.0, math.nan]), InputError, "bad time"),
        (lambda: gradient_flow(K, Y, "soon"), InputError, "bad time: expected a number, or several, got 'soon'"),
        (lambda: gradient_flow(K, Y, None), InputError, "bad time"),  # pyright: ignore
        (lambda: gradient_flow(K, Y, 1.0, f0=F0[:, 0]), InputError, r"bad f0: expected shape \(7, 3\), got \(7,\)"),
        (lambda: gradient_flow(K, Y, 1.0, f0=F0 * math.nan), NumericalError, "non-finite f0"),
        (lambda: gradient_flow(K, Y, 1.0, f0=F0, K_test=K_TEST), InputError, "f0_test is missing"),
        (lambda: gradient_flow(K, Y, 1.0, f0_test=F0), InputError, "f0_test came without K_test"),
        (lambda: gradient_flow(K, Y, 1.0, K_test=K_TEST, f0_test=F0), InputError, r"bad f0_test: .* \(4, 3\)"),
        (lambda: gradient_flow(K, Y, 1.0, K_test=K_TEST.T), InputError, r"expected shape \(m, 7\).*got \(7, 4\)"),
        (lambda: gradient_flow(PROBLEM.K, Y, 1.0, K_test=K_TEST), InputError, "of the test points does not fit"),
        (lambda: gradient_flow(K, Y, 1.0, K_test=PROBLEM.K_test), InputError, "of the test points does not fit"),
        (lambda: gradient_flow(K, Y, 1.0, K_test=K_TEST * math.nan), NumericalError, "non-finite"),
        (lambda: gradient_flow(K, Y, 1.0, loss="means"), KeyError, "loss 'means'. Try: 'mean'"),  # pyright: ignore
        (lambda: Dynamics(K, Y, ridge=-1.0), InputError, "bad ridge"),
        (lambda: Dynamics(K, Y).time_to_fit(1.0), InputError, "bad fraction"),
        (lambda: Dynamics(K, Y, descent=GradientDescent(1e3)), NumericalError, "expected a learning rate below"),
        (lambda: Dynamics(K, Y, descent=MomentumFlow(0.0)).predictions(math.inf), NumericalError, "no limit"),
        (lambda: Dynamics(K, Y, descent=GradientDescent(1e-3)).predictions(1.5), InputError, "bad number of steps"),
        (lambda: max_learning_rate(-K), NumericalError, "not positive semi-definite"),
        (lambda: max_learning_rate(K_TEST), InputError, "not square"),
        (lambda: max_learning_rate(K + K.triu(1)), NumericalError, "not symmetric"),
        (lambda: max_learning_rate(PROBLEM.K, outputs=2), InputError, "expected 3, as K says, got 2"),
        (lambda: max_learning_rate(K, loss="mean", outputs=0), InputError, "bad number of outputs"),
        (lambda: max_learning_rate(K, momentum=1.0), InputError, "bad momentum"),
        (lambda: max_learning_rate(K, loss="mse"), UnknownNameError, "unknown loss"),  # pyright: ignore
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_words(make, error, match):
    with pytest.raises(error, match=match):
        make()
