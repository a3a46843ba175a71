"""Tensor programs: the limit against the NNGP recursion and exact moments, and its law by sampling."""

import math
import operator
from typing import Any

import pytest
import torch

from tangentkit.core.errors import InputError, ModelError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.infinite.duals.closed_forms import Erf, Rectifier
from tangentkit.infinite.duals.expectations import gaussian_expectation, root
from tangentkit.infinite.programs.networks import convolutional, feedforward, recurrent, residual
from tangentkit.infinite.programs.program import Program

GRAM = torch.tensor([[1.0, 0.3, -0.6], [0.3, 0.8, 0.1], [-0.6, 0.1, 1.5]], dtype=torch.float64)


def nngp(dual, depth: int, sw: float, sb: float) -> torch.Tensor:
    K = sw * GRAM + sb
    for _ in range(depth):
        xx = K.diagonal()
        K = sw * dual(xx[:, None], K, xx) + sb
    return K


@pytest.mark.parametrize(("function", "dual"), [(torch.relu, Rectifier()), (torch.erf, Erf())])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_an_mlp_has_its_nngp_kernel(function, dual, depth):
    program = Program()
    vectors = feedforward(
        program, GRAM, depth=depth, activation=function, weight_variance=1.7, bias_variance=0.3
    )
    law = program.limit()
    torch.testing.assert_close(law.matrix(*vectors), nngp(dual, depth, 1.7, 0.3), rtol=1e-12, atol=1e-12)
    assert float(law.error(vectors[0], vectors[1])) == 0
    assert law.mean(*vectors).eq(0).all()


@pytest.mark.parametrize(
    ("function", "dual", "tolerance"),
    [(lambda x: torch.erf(x), Erf(), 1e-10), (lambda x: torch.relu(x), Rectifier(), 5e-3)],
    ids=["smooth", "kinked"],
)
def test_expectations_without_a_closed_form_state_their_error(function, dual, tolerance):
    program = Program()
    vectors = feedforward(program, GRAM, depth=2, activation=function, weight_variance=1.7)
    law = program.limit()
    truth = nngp(dual, 2, 1.7, 0.0)
    for i, x in enumerate(vectors):
        for j, y in enumerate(vectors):
            gap, stated = float((law.covariance(x, y) - truth[i, j]).abs()), float(law.error(x, y))
            assert gap <= 3 * stated + 1e-12
            assert stated <= tolerance


def test_recurrent_weights_tie_the_times_together():
    # By hand: with h_1 = u_1, h_2 = W φ(u_1) + u_2, h_3 = W φ(h_2) + u_3 the moments are those of the duals.
    K = torch.tensor([[1.0, 0.5, 0.2], [0.5, 1.0, 0.5], [0.2, 0.5, 1.0]], dtype=torch.float64)
    program, sw, dual = Program(), 1.5, Rectifier()
    ((h1, h2, h3),) = recurrent(
        program, [program.inputs(K)], activation=torch.relu, weight_variance=sw, bias_variance=0.0
    )
    law = program.limit()
    v2 = sw * dual.diag(K[0, 0]) + K[1, 1]
    c23 = sw * dual(K[0, 0], K[0, 1], v2) + K[1, 2]
    v3 = sw * dual.diag(v2) + K[2, 2]
    expected = torch.stack(
        [
            torch.stack([K[0, 0], K[0, 1], K[0, 2]]),
            torch.stack([K[0, 1], v2, c23]),
            torch.stack([K[0, 2], c23, v3]),
        ]
    )
    torch.testing.assert_close(law.matrix(h1, h2, h3), expected)

    # with a fresh matrix at every time, the second product knows nothing of the first
    fresh = Program()
    u1, u2, u3 = fresh.inputs(K)
    g2 = fresh.matrix(sw) @ fresh.apply(torch.relu, u1) + u2
    g3 = fresh.matrix(sw) @ fresh.apply(torch.relu, g2) + u3
    torch.testing.assert_close(fresh.limit().covariance(g2, g3), K[1, 2])


def test_residual_blocks_add_their_covariance():
    # By hand: K ← K + branch² σ_w² E[φ(u) φ(v)], a fresh matrix in every block.
    program, dual = Program(), Rectifier()
    vectors = residual(
        program, program.inputs(GRAM), blocks=2, activation=torch.relu, weight_variance=1.7, branch=0.5
    )
    K = GRAM
    for _ in range(2):
        xx = K.diagonal()
        K = K + 0.25 * 1.7 * dual(xx[:, None], K, xx)
    torch.testing.assert_close(program.limit().matrix(*vectors), K)


def test_convolutions_add_along_diagonals_of_positions():
    # By hand: K[p, q] ← σ_w²/3 Σ_o E[φ φ][p+o, q+o] + σ_b², positions in a circle.
    program, dual = Program(), Rectifier()
    x = torch.randn(8, 8, dtype=torch.float64)
    K = x @ x.T / 8
    first = program.inputs(K)
    one, two = convolutional(
        program,
        [first[:4], first[4:]],
        depth=2,
        reach=1,
        activation=torch.relu,
        weight_variance=1.7,
        bias_variance=0.3,
    )
    for _ in range(2):
        xx = K.diagonal()
        images = dual(xx[:, None], K, xx).reshape(2, 4, 2, 4)
        shifted = [images.roll((-offset, -offset), (1, 3)) for offset in (-1, 0, 1)]
        K = (1.7 / 3 * torch.stack(shifted).sum(0) + 0.3).reshape(8, 8)
    torch.testing.assert_close(program.limit().matrix(*one, *two), K)


def test_linear_combinations_are_bilinear():
    program = Program()
    x, y = program.inputs([[2.0, 0.5], [0.5, 1.0]], mean=[1.0, -2.0])
    z, w = 3.0 * x - y, -x + 0.5 * y
    law = program.limit()
    assert law.mean(z, w).tolist() == pytest.approx([5.0, -2.0])
    assert float(law.covariance(z, w)) == pytest.approx(-3 * 2.0 + 1.5 * 0.5 + 0.5 - 0.5 * 1.0)
    assert float(law.covariance(x, x - x)) == 0


def test_a_linear_program_has_exact_moments():
    program = Program()
    x, y = program.inputs([[2.0, 0.5], [0.5, 1.0]], mean=[1.0, -2.0])
    A, B = program.matrix(3.0), program.matrix(0.5)
    g, h = A @ x, A @ y
    k = B @ (g + h)
    law = program.limit()
    # E[x²] = K + μ²: the product sees the mean of its argument, and has none itself
    torch.testing.assert_close(
        law.matrix(g, h, k),
        torch.tensor([[9.0, -4.5, 0], [-4.5, 15.0, 0], [0, 0, 0.5 * (9 + 15 - 9)]], dtype=torch.float64),
    )
    assert law.mean(g, h, k).eq(0).all()
    assert float(law.covariance(g, x)) == 0


def test_functions_of_several_vectors():
    program = Program()
    x, y = program.inputs([[1.3, 0.4], [0.4, 0.7]])
    gate = program.matrix(2.0) @ program.apply(lambda a, b: a * b, x, y)
    # E[(xy)²] = K_xx K_yy + 2 K_xy²
    assert float(program.limit().covariance(gate, gate)) == pytest.approx(2 * (1.3 * 0.7 + 2 * 0.4**2))


def test_images_of_images_compose():
    def through(program: Program, nested: bool):
        x, y = program.inputs([[1.0, 0.2], [0.2, 1.0]])
        W = program.matrix(1.0)
        if nested:
            h = program.apply(lambda a, b: torch.tanh(a) + b, program.apply(torch.sin, x), y)
        else:
            h = program.apply(lambda a, b: torch.tanh(torch.sin(a)) + b, x, y)
        g = W @ h
        return program.limit().covariance(g, g), program.sample(50, Key(0))[g]

    for one, two in zip(through(Program(), True), through(Program(), False), strict=True):
        torch.testing.assert_close(one, two)


def test_equal_inputs_stay_equal():
    program = Program()
    x, y = feedforward(program, torch.ones(2, 2), depth=3, activation=torch.tanh, weight_variance=1.5)
    law = program.limit()
    assert float(law.covariance(x, x)) == pytest.approx(float(law.covariance(x, y)), rel=1e-12)
    run = program.sample(40, Key(0))
    torch.testing.assert_close(run[x], run[y])


# the law ------------------------------------------------------------------------------------------------------


def mlp_program():
    program = Program()
    vectors = feedforward(
        program, GRAM[:2, :2], depth=2, activation=torch.relu, weight_variance=1.8, bias_variance=0.2
    )
    return program, vectors


def rnn_program():
    program = Program()
    K = torch.tensor([[1.0, 0.5], [0.5, 1.0]]).kron(torch.eye(3) + 0.2)
    u = program.inputs(K)
    one, two = recurrent(
        program, [u[:3], u[3:]], activation=torch.tanh, weight_variance=1.4, bias_variance=0.1
    )
    return program, (one[-1], two[-1])


def residual_program():
    program = Program()
    x, y = residual(
        program,
        program.inputs(GRAM[:2, :2], mean=[0.3, -0.2]),
        blocks=2,
        activation=torch.sin,
        weight_variance=1.0,
        branch=0.5,
    )
    return program, (x, y)


PROGRAMS = {"mlp": mlp_program, "rnn": rnn_program, "residual": residual_program}
PSI = {
    "product": torch.mul,
    "bounded": lambda a, b: torch.cos(a) * torch.sigmoid(b),
    "kinked": lambda a, b: torch.relu(a - b),
}


def deviations(program, vectors, width: int, draws: int, tag: str) -> torch.Tensor:
    """(1/n) Σ ψ - E ψ(Z), for every draw and ψ."""
    law = program.limit(points=2**14)
    truth = torch.stack([law.expectation(psi, *vectors) for psi in PSI.values()])
    runs = [program.sample(width, Key(0).fold(tag, width, i)) for i in range(draws)]
    return (
        torch.stack([torch.stack([run.average(psi, *vectors) for psi in PSI.values()]) for run in runs])
        - truth
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_averages_converge_at_the_rate_of_the_root_of_the_width(name):
    program, vectors = PROGRAMS[name]()
    sizes = [deviations(program, vectors, n, 24, name).square().mean(0).sqrt() for n in (64, 512)]
    # 8 times the width: the error over √8; each root mean square of 24 draws is itself known to 15 %
    ratio = (sizes[0] / sizes[1]).log().mean().exp() / math.sqrt(8)
    assert 0.65 < float(ratio) < 1.55, sizes


@pytest.mark.parametrize("name", PROGRAMS)
def test_wide_programs_have_the_mean_of_the_limit(name):
    program, vectors = PROGRAMS[name]()
    gaps = deviations(program, vectors, 1000, 12, name)
    standard_errors = gaps.std(0) / math.sqrt(len(gaps))
    # of 12 draws: Student's t with 11 degrees of freedom is beyond 4.5 once in a thousand; a bias of order 1/n too
    assert (gaps.mean(0).abs() <= 4.5 * standard_errors + 10 / 1000).all(), (gaps.mean(0), standard_errors)


def test_entries_become_gaussian():
    program, vectors = mlp_program()
    law, run = program.limit(), program.sample(3000, Key(3))
    z = run[vectors[0]] / law.covariance(vectors[0], vectors[0]).sqrt()
    for power, moment in {2: 1.0, 4: 3.0}.items():
        spread = math.sqrt((math.prod(range(1, 2 * power, 2)) - moment**2) / 3000)
        # the layers before add correlated noise of the same order
        assert abs(float((z**power).mean()) - moment) < 8 * spread


def test_a_matrix_is_the_same_wherever_it_is_used():
    program = Program()
    (x,) = program.inputs([[1.0]])
    A, B = program.matrix(1.0), program.matrix(1.0)
    first, _, again = A @ x, B @ x, A @ x
    run = program.sample(30, Key(0))
    assert torch.equal(run[first], run[again])
    law = program.limit()
    assert law.covariance(first, again) == law.covariance(first, first)


def test_runs_are_addressed_by_their_seed():
    program, (x, _) = mlp_program()
    state = torch.random.get_rng_state()
    one, two, other = (program.sample(20, Key(seed))[x] for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(state, torch.random.get_rng_state())
    assert program.sample(20, Key(0), dtype=torch.float32)[x].dtype == torch.float32


# expectations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "tolerance"), [(1, 1e-12), (2, 1e-12), (4, 1e-9), (7, 2e-3)])
def test_gaussian_expectations_of_an_exponential(k, tolerance):
    A = torch.randn(k, k, dtype=torch.float64) / k
    K, mean, direction = A @ A.T, torch.linspace(-1, 1, k, dtype=torch.float64), torch.ones(k).double()
    found = gaussian_expectation(lambda *z: torch.exp(torch.stack(z).sum(0)), mean, K)
    truth = torch.exp(direction @ mean + direction @ K @ direction / 2)
    assert float(found / truth) == pytest.approx(1, abs=tolerance)


def test_roots_have_as_many_columns_as_the_rank():
    x = torch.randn(6, 2, dtype=torch.float64)
    R = root(x @ x.T)
    assert R.shape == (6, 2)
    torch.testing.assert_close(R @ R.T, x @ x.T)
    assert root(torch.zeros(3, 3)).shape == (3, 0)
    # variances of very different size
    K = torch.diag(torch.tensor([1.0, 1e-30], dtype=torch.float64))
    torch.testing.assert_close(root(K) @ root(K).T, K, rtol=1e-12, atol=0)


# bad input ------------------------------------------------------------------------------------------------------


def test_transposes_are_refused():
    with pytest.raises(ModelError, match=r"no transposes.*Try: a matrix of its own"):
        Program().matrix(1.0).T  # noqa: B018


def test_programs_do_not_mix():
    one, two = Program(), Program()
    (x,), (y,) = one.inputs([[1.0]]), two.inputs([[1.0]])
    for mix in (
        lambda: x + y,
        lambda: one.matrix(1.0) @ y,
        lambda: one.apply(torch.mul, x, y),
        lambda: one.limit().covariance(x, y),
        lambda: one.sample(3, Key(0))[y],
    ):
        with pytest.raises(InputError, match="two programs"):
            mix()


def test_later_lines_need_a_new_run():
    program = Program()
    (x,) = program.inputs([[1.0]])
    law, run = program.limit(), program.sample(5, Key(0))
    g = program.matrix(1.0) @ x
    for late in (lambda: law.covariance(x, g), lambda: run[g]):
        with pytest.raises(InputError, match=r"later line.*again"):
            late()
    assert float(program.limit().covariance(g, g)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("covariance", "mean", "error", "words"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], None, NumericalError, "not a covariance"),
        ([[1.0, 0.5], [0.0, 1.0]], None, NumericalError, "not a covariance"),
        ([[-1.0]], None, NumericalError, "not a covariance"),
        ([[math.nan]], None, NumericalError, "finite"),
        ([[1.0, 0.0]], None, InputError, "shape"),
        ([1.0], None, InputError, "shape"),
        ([[1.0]], [0.0, 0.0], InputError, "mean"),
        ([[1.0]], [math.inf], NumericalError, "finite"),
    ],
)
def test_bad_inputs_are_refused(covariance, mean, error, words):
    program = Program()
    with pytest.raises(error, match=words):
        program.inputs(covariance, mean=mean)
    assert not program.sources
    assert not program.blocks


def test_bad_lines_are_refused():
    program = Program()
    (x,) = program.inputs([[1.0]])
    variances: list[Any] = [-1.0, math.nan, math.inf, "1"]
    for variance in variances:
        with pytest.raises(InputError, match="variance"):
            program.matrix(variance)
    with pytest.raises(InputError, match="nothing"):
        program.apply(torch.relu)
    for operation, other in [
        (operator.mul, x),
        (operator.add, 1.0),
        (operator.sub, 1.0),
        (operator.matmul, x),
    ]:
        with pytest.raises(TypeError):
            operation(x, other)
    widths: list[Any] = [0, -1, 2.5, True]
    for width in widths:
        with pytest.raises(InputError, match="width"):
            program.sample(width, Key(0))
    with pytest.raises(InputError, match="nothing to run on"):
        recurrent(program, [[]], activation=torch.tanh, weight_variance=1.0)
    for samples in ([], [[]], [[x], [x, x]]):
        with pytest.raises(InputError, match="nothing to convolve"):
            convolutional(program, samples, depth=1, reach=1, activation=torch.tanh, weight_variance=1.0)


def test_functions_that_are_not_entrywise_or_not_finite_are_refused():
    program = Program()
    (x,) = program.inputs([[1.0]])
    law = program.limit()
    with pytest.raises(InputError, match="entry by entry"):
        law.expectation(lambda a: a.sum(), x)
    with pytest.raises(NumericalError, match="finite"):
        law.expectation(torch.log, x)
    g = program.matrix(1.0) @ program.apply(lambda a: a.mean(), x)
    with pytest.raises(InputError, match="entry by entry"):
        program.sample(5, Key(0))[g]
