"""Ways down a parabola, against torch's optimizers, matrix exponentials and fifty digits."""

import math

import mpmath
import pytest
import torch
from scipy.linalg import expm

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.machines.dynamics.descents import (
    GradientDescent,
    GradientFlow,
    HeavyBall,
    MomentumFlow,
    Nesterov,
)
from tangentkit.machines.dynamics.doubling import expm1, repeated

STEPPING = [
    GradientDescent(0.3),
    HeavyBall(0.3, 0.0),
    HeavyBall(0.3, 0.5),
    HeavyBall(0.3, 0.97),
    Nesterov(0.3, 0.5),
    Nesterov(0.3, 0.97),
]
FLOWS = [GradientFlow(), MomentumFlow(0.0), MomentumFlow(0.7), MomentumFlow(2.0), MomentumFlow(50.0)]
ALL = STEPPING + FLOWS


def doubles(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def optimizer_of(descent, parameters):
    return torch.optim.SGD(
        parameters,
        lr=descent.lr,
        momentum=getattr(descent, "momentum", 0.0),
        nesterov=isinstance(descent, Nesterov),
    )


@pytest.mark.parametrize("descent", STEPPING, ids=str)
def test_steps_are_those_of_torch(descent):
    # Of x = lr ρ: at rest, slow, overdamped, critical for momentum 0.5, oscillating, one step, overshooting.
    rates = doubles(0.0, 1e-3, 0.05, (1 - math.sqrt(0.5)) ** 2, 0.3, 1.0, 1.3) / descent.lr
    error = torch.ones_like(rates, requires_grad=True)
    optimizer, path = optimizer_of(descent, [error]), []
    for _ in range(30):
        path.append(error.detach().clone())
        optimizer.zero_grad()
        (rates * error.square() / 2).sum().backward()
        optimizer.step()
    steps, path = torch.arange(30.0).double(), torch.stack(path)
    torch.testing.assert_close(descent.remaining(rates, steps), path, rtol=1e-12, atol=1e-13)
    progress = descent.progress(rates, steps)
    torch.testing.assert_close(rates * progress, 1 - path, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("friction", [0.0, 0.7, 2.0, 50.0])
def test_momentum_flow_solves_its_equation(friction):
    """s'' = -friction s' - rate s, by its matrix exponential in forty digits: an ODE solver is off by 1e-9 here."""
    times = torch.linspace(0, 4, 9).double()
    for rate in (0.0, 0.01, 1.0, friction**2 / 4, 30.0):
        with mpmath.workdps(40):
            system = mpmath.matrix([[0, 1], [-rate, -friction]])
            path = doubles(*(float(mpmath.expm(system * float(t))[0, 0]) for t in times))
        found = MomentumFlow(friction).remaining(doubles(rate), times)[:, 0]
        torch.testing.assert_close(found, path, rtol=0, atol=1e-14)


def exact_progress(descent, rate, t):
    """(1 - φ)/ρ with fifty digits, from the definition."""
    with mpmath.workdps(50):
        rate, t = mpmath.mpf(rate), mpmath.mpf(t)
        if isinstance(descent, GradientFlow):
            return float((1 - mpmath.exp(-rate * t)) / rate)
        if isinstance(descent, MomentumFlow):
            half = mpmath.mpf(descent.friction) / 2
            root = mpmath.sqrt(mpmath.mpc(half**2 - rate))
            a, b = half - root, half + root
            phi = (b * mpmath.exp(-a * t) - a * mpmath.exp(-b * t)) / (b - a)
            return float(mpmath.re((1 - phi) / rate))
        x, b = mpmath.mpf(descent.lr) * rate, mpmath.mpf(getattr(descent, "momentum", 0.0))
        # (φ, v) -> next, with velocity v in units of the error.
        step = mpmath.matrix([[1 - x, -b], [x, b]])
        if isinstance(descent, Nesterov):
            step = mpmath.matrix([[1 - (1 + b) * x, -(b**2)], [x, b]])
        return float((1 - (step ** int(t))[0, 0]) / rate)


@pytest.mark.parametrize("descent", [d for d in ALL if d != MomentumFlow(0.0)], ids=str)
@pytest.mark.parametrize("t", [1, 1000, 10**8, 10**12])
def test_progress_is_exact_for_slow_modes_and_many_steps(descent, t):
    rates = doubles(1e-18, 1e-12, 1e-9, 1e-4, 0.05, 0.9)
    found = descent.progress(rates, doubles(t))[0]
    expected = doubles(*(exact_progress(descent, float(rate), t) for rate in rates))
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=0)


@pytest.mark.parametrize("descent", ALL, ids=str)
def test_a_mode_of_rate_zero_is_the_limit_of_slow_modes(descent):
    times = doubles(0, 1, 7, 100)
    rates = doubles(0.0, 1e-13)
    progress = descent.progress(rates, times)
    torch.testing.assert_close(progress[:, 0], progress[:, 1], rtol=1e-8, atol=0)
    assert torch.equal(descent.remaining(rates, times)[:, 0], torch.ones(4).double())
    assert torch.equal(progress[0], torch.zeros(2).double())


@pytest.mark.parametrize("descent", STEPPING, ids=str)
def test_decay_is_the_spectral_radius_of_a_step(descent):
    b = getattr(descent, "momentum", 0.0)
    for x in (1e-6, 0.01, 0.2, 0.9, 1.1, 0.999 * descent.bound, 1.001 * descent.bound):
        step = torch.tensor([[1 - x, -b], [x, b]], dtype=torch.float64)
        if isinstance(descent, Nesterov):
            step = torch.tensor([[1 - (1 + b) * x, -(b**2)], [x, b]], dtype=torch.float64)
        radius = float(torch.linalg.eigvals(step).abs().max())
        decay = float(descent.decay(doubles(x / descent.lr)))
        assert decay == pytest.approx(-math.log(radius), rel=1e-6, abs=1e-12)
        assert (decay > 0) == (x < descent.bound)


@pytest.mark.parametrize("friction", [0.7, 2.0, 50.0])
def test_decay_of_momentum_flow_is_that_of_its_slowest_root(friction):
    for rate in (1e-9, 0.01, 1.0, 400.0):
        with mpmath.workdps(40):
            root = mpmath.sqrt(mpmath.mpc(mpmath.mpf(friction) ** 2 / 4 - rate))
            slowest = float(mpmath.re(mpmath.mpf(friction) / 2 - root))
        found = float(MomentumFlow(friction).decay(doubles(rate)))
        assert found == pytest.approx(slowest, rel=1e-12)


def test_gradient_descent_just_fits_in_one_step_and_swings_at_the_bound():
    rates, steps = doubles(1.0, 2.0), doubles(0, 1, 2, 2**40, 2**40 + 1)
    remaining = GradientDescent(1.0).remaining(rates, steps)
    assert torch.equal(remaining[:, 0], doubles(1, 0, 0, 0, 0))
    assert torch.equal(remaining[:, 1], doubles(1, -1, 1, 1, -1))


@pytest.mark.parametrize("descent", STEPPING, ids=str)
def test_a_learning_rate_beyond_the_bound_is_refused_with_the_bound(descent):
    descent.check_converges(doubles(0.999 * descent.bound / descent.lr, 0.0))
    largest = 1.1 * descent.bound / descent.lr
    with pytest.raises(NumericalError, match="training diverges") as error:
        descent.check_converges(doubles(largest, 0.0))
    assert f"below {descent.bound / largest:.6g}" in str(error.value)


def test_repeated_is_a_power_and_expm1_an_exponential():
    matrices = torch.randn(4, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 3
    start = torch.ones(4, 3, dtype=torch.float64)
    for count in (0, 1, 2, 5, 13):
        power = torch.linalg.matrix_power(torch.eye(3).double() + matrices, count) @ start[..., None]
        torch.testing.assert_close(repeated(matrices, start, torch.tensor([count]))[0], power[..., 0])
    for scale in (0.0, 1e-9, 1.0, 20.0):
        expected = torch.stack([torch.from_numpy(expm((scale * m).numpy())) for m in matrices])
        torch.testing.assert_close(
            torch.eye(3).double() + expm1(scale * matrices), expected, rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("descent", [GradientFlow(), HeavyBall(0.1, 0.9)], ids=str)
@pytest.mark.parametrize("time", [-1.0, float("nan"), -math.inf])
def test_times_before_the_start_are_refused(descent, time):
    with pytest.raises(InputError, match="bad time: expected numbers >= 0"):
        descent.check_times(doubles(1.0, time))


@pytest.mark.parametrize("steps", [0.5, 2.0**60])
def test_steps_are_countable(steps):
    HeavyBall(0.1, 0.9).check_times(doubles(0, 3, math.inf))
    with pytest.raises(InputError, match="bad number of steps"):
        HeavyBall(0.1, 0.9).check_times(doubles(steps))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: GradientDescent(0.0), "bad learning rate"),
        (lambda: GradientDescent(math.inf), "bad learning rate"),
        (lambda: HeavyBall(0.1, 1.0), "bad momentum"),
        (lambda: Nesterov(-0.1, 0.5), "bad learning rate"),
        (lambda: Nesterov(0.1, -0.5), "bad momentum"),
        (lambda: MomentumFlow(-1.0), "bad friction"),
        (lambda: MomentumFlow(float("nan")), "bad friction"),
    ],
)
def test_descents_refuse_bad_numbers(make, match):
    with pytest.raises(InputError, match=match):
        make()
