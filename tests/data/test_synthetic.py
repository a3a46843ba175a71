import math

import pytest
import torch
from scipy import integrate

from tangentkit.core import InputError, Key, UnknownNameError
from tangentkit.data import Teacher, directional_data, function_data, grid_data, random_teacher
from tangentkit.data.synthetic import BOUNDARIES, SOFTPLUS_MEAN, SOFTPLUS_VARIANCE

FORMULAS = {
    "f1": lambda x: math.exp(math.sin(2 * math.pi * x)),
    "f2": lambda x: math.exp(3 * x),
    "f3": lambda x: math.cos(math.exp(3 * x)),
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize(("split", "nodes"), [("train", 201), ("test", 601)])
def test_functions_at_equispaced_nodes(name, split, nodes):
    data = function_data(name, split)
    x = data.inputs.flatten()
    assert data.inputs.shape == (nodes, 1)
    assert (x[0], x[-1], x[nodes // 2]) == (-1, 1, 0)
    assert torch.equal(x, -x.flip(0))
    torch.testing.assert_close(x.diff(), torch.full((nodes - 1,), 2 / (nodes - 1), dtype=torch.float64))
    expected = torch.tensor([FORMULAS[name](float(point)) for point in x], dtype=torch.float64)
    torch.testing.assert_close(data.targets, expected)


def test_every_training_node_is_a_test_node():
    train, test = (function_data("f1", split) for split in ("train", "test"))
    assert torch.equal(test.inputs[::3], train.inputs)
    assert torch.equal(test.targets[::3], train.targets)


@pytest.mark.parametrize("name", FORMULAS)
def test_weights_integrate_with_the_order_of_the_trapezoid_rule(name):
    exact, _ = integrate.quad(FORMULAS[name], -1, 1, epsabs=1e-12, limit=200)
    errors = []
    for split in ("train", "test"):
        data = function_data(name, split)
        assert data.weights is not None
        assert float(data.weights.sum()) == pytest.approx(2)
        errors.append(abs(float(data.weights @ data.targets) - exact))
    # Three times as many intervals, nine times less error; f1 is periodic and already exact.
    assert errors[1] < 1e-10 or errors[1] == pytest.approx(errors[0] / 9, rel=0.05)


@pytest.mark.parametrize(
    ("name", "shares"), [("F1", {"train": 0.552, "test": 0.540}), ("F2", {"train": 0.479, "test": 0.494})]
)
@pytest.mark.parametrize(("split", "count"), [("train", 96), ("test", 506)])
def test_grids_have_the_published_class_shares(name, shares, split, count):
    data = grid_data(name, split)
    assert data.inputs.shape == (count, 2)
    assert len(data.inputs.unique(dim=0)) == count
    assert data.targets.double().mean() == pytest.approx(shares[split], abs=5e-4)
    values = BOUNDARIES[name](data.inputs[:, 0], data.inputs[:, 1])
    assert values.abs().min() > 1e-4
    assert torch.equal((values.sign() + 1) / 2, data.targets.double())


@pytest.mark.parametrize(("axis", "train", "test"), [(0, 12, 23), (1, 8, 22)])
def test_grids_have_the_published_axes(axis, train, test):
    for split, count in (("train", train), ("test", test)):
        values = grid_data("F1", split).inputs[:, axis].unique()
        torch.testing.assert_close(values, torch.linspace(-1, 1, count, dtype=torch.float64))


def test_unknown_functions_and_splits_are_refused():
    with pytest.raises(UnknownNameError, match="unknown function 'f4'"):
        function_data("f4", "train")
    with pytest.raises(UnknownNameError, match="unknown boundary 'F3'"):
        grid_data("F3", "train")
    with pytest.raises(UnknownNameError, match="unknown split 'dev'"):
        grid_data("F1", "dev")


def test_the_constants_of_softplus_are_its_moments():
    def moment(power):
        def integrand(z):
            return math.log1p(math.exp(z)) ** power * math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)

        return integrate.quad(integrand, -12, 12)[0]

    assert moment(1) == pytest.approx(SOFTPLUS_MEAN, abs=1e-6)
    assert moment(2) - moment(1) ** 2 == pytest.approx(SOFTPLUS_VARIANCE, abs=2e-6)


@pytest.mark.parametrize(("k", "weight"), [(1, 1.0), (5, 0.2)])
def test_a_teacher_is_its_formula(k, weight):
    teacher = random_teacher(12, k=k, tau=0.2, key=Key(0))
    torch.testing.assert_close(teacher.directions @ teacher.directions.T, torch.eye(k, dtype=torch.float64))
    x = torch.randn(4, 12, dtype=torch.float64)
    for point, value in zip(x, teacher(x), strict=True):
        links = [
            (math.log1p(math.exp(float(point @ beta))) - 0.806059) / 0.271514**0.5
            for beta in teacher.directions
        ]
        expected = weight * sum(links) + 0.2 / 12 * float(point @ point)
        assert float(value) == pytest.approx(expected, rel=1e-12)


def test_a_teacher_without_tau_has_mean_zero_and_variance_one():
    y = random_teacher(50, tau=0.0, key=Key(0)).sample(40_000, noise=0.0, key=Key(1)).targets
    # Standard errors at 40,000 samples: 0.005 of the mean, about 0.01 of the variance.
    assert abs(float(y.mean())) < 0.025
    assert float(y.var()) == pytest.approx(1, abs=0.06)


def test_noise_is_added_to_the_same_inputs():
    teacher = random_teacher(30, key=Key(0))
    noisy, clean = (teacher.sample(20_000, noise=noise, key=Key(1)) for noise in (0.3, 0.0))
    assert torch.equal(noisy.inputs, clean.inputs)
    torch.testing.assert_close(clean.targets, teacher(clean.inputs))
    residual = noisy.targets - clean.targets
    assert float(residual.std()) == pytest.approx(0.3, rel=0.03)
    assert abs(float((residual * clean.targets).mean())) < 0.02


def test_teachers_differ_by_key_and_take_another_weight():
    assert not torch.equal(random_teacher(9, key=Key(0)).directions, random_teacher(9, key=Key(1)).directions)
    fifth, root = (random_teacher(9, k=5, tau=0.0, weight=w, key=Key(0)) for w in (None, 5**-0.5))
    x = torch.randn(3, 9, dtype=torch.float64)
    torch.testing.assert_close(root(x), math.sqrt(5) * fifth(x))
    for k in (0, 10):
        with pytest.raises(InputError, match="from 1 to d = 9"):
            random_teacher(9, k=k, key=Key(0))


def test_a_teacher_in_float32_gives_float32():
    teacher = random_teacher(9, key=Key(0))
    single = Teacher(teacher.directions.float(), teacher.tau, teacher.weight)
    data, reference = (one.sample(5, key=Key(1)) for one in (single, teacher))
    assert (data.inputs.dtype, data.targets.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(data.targets, reference.targets.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("half_margin", "margin"), [(False, 1.5), (True, 0.75)])
def test_directional_data_differ_along_u_only(half_margin, margin):
    u = torch.randn(1, 3, 4, dtype=torch.float64)
    data = directional_data(3 * u, 20_000, margin=1.5, variance=2.0, half_margin=half_margin, key=Key(0))
    assert data.inputs.shape == (20_000, 1, 3, 4)
    x, unit = data.inputs.flatten(1), (u / u.norm()).flatten()
    torch.testing.assert_close(x @ unit, margin * (2 * data.targets - 1).double())
    across = x - torch.outer(x @ unit, unit)
    expected = 2.0 * (torch.eye(12, dtype=torch.float64) - torch.outer(unit, unit))
    # The standard error of an entry is at most 2 sqrt(2 / 20,000) = 0.02.
    torch.testing.assert_close(across.T @ across / 20_000, expected, atol=0.1, rtol=0)
    # Labels are fair: 10,000 with standard deviation 71.
    assert abs(int(data.targets.sum()) - 10_000) < 355


def test_directional_data_have_the_published_size():
    assert len(directional_data(torch.ones(4), key=Key(0))) == 10_000


@pytest.mark.parametrize("u", [torch.zeros(3), torch.tensor([1.0, float("nan")])])
def test_bad_directions_are_refused(u):
    with pytest.raises(InputError, match="bad direction"):
        directional_data(u, 5, key=Key(0))
