"""Training in a fixed kernel: against the reference, explicit training, an ODE solver, and wide networks."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from torch import nn

from machines.dynamics.problem import F0, K_TEST, LOSSES, PROBLEM, C, K, M, N, Problem, Y, close
from tangentkit import models, reference
from tangentkit.core.errors import InputError, NumericalError, UnknownNameError
from tangentkit.linalg import DenseOperator, FactorOperator
from tangentkit.machines.dynamics.descents import (
    GradientDescent,
    GradientFlow,
    HeavyBall,
    MomentumFlow,
    Nesterov,
)
from tangentkit.machines.dynamics.dynamics import Dynamics, gradient_flow, max_learning_rate


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


def test_arguments_are_not_changed_and_results_have_no_graph():
    kernel, y = K.clone().requires_grad_(), Y.clone()
    assert not gradient_flow(kernel, y, 1.0).requires_grad
    assert torch.equal(kernel, K)
    assert torch.equal(y, Y)


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
