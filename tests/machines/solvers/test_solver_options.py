"""Every option of every solver object reaches the work: shown by what it changes."""

from dataclasses import fields

import pytest
import torch

from tangentkit.core.errors import BudgetError, InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.linalg import CG, Auto, Cholesky, Eigen, Nystrom
from tangentkit.linalg.operators.operator import Operator
from tangentkit.machines import LBFGS, SGD, Adam, KernelGLM, KernelRegression, Newton
from tangentkit.machines.solvers.minimizers import MINIMIZERS


class CountedReads(Operator):
    """A matrix that is read in blocks, and counts them."""

    def __init__(self, K):
        super().__init__(K.shape, dtype=K.dtype, device=K.device, symmetric=True)
        self.K, self.reads = K, 0

    def block(self, rows, cols):
        self.reads += 1
        return self.K[rows, cols]


def kernel(n=40):
    x = torch.linspace(-1, 1, n, dtype=torch.float64)[:, None]
    return torch.exp(-20 * (x - x.T).square()), torch.sin(5 * x[:, 0])


def fitted(solver, *, ridge=1e-3):
    return KernelRegression(solver=solver, ridge=ridge).fit(*kernel())


def jitter_is_allowed_or_not():
    K, y = torch.ones(3, 3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    K[2, 2] -= 1e-9
    with pytest.raises(NumericalError, match="not positive definite"):
        KernelRegression(solver=Cholesky(max_jitter=0.0)).fit(K, y)
    machine = KernelRegression(solver=Cholesky(max_jitter=1e-6)).fit(K, y)
    assert "jitter of" in machine.message_
    torch.testing.assert_close(machine.predict(K), y, rtol=1e-6, atol=0)


def refuses_a_small_budget(method):
    K, y = kernel()
    with pytest.raises(BudgetError):
        KernelRegression(solver=method(memory=100), ridge=1e-3).fit(CountedReads(K), y)


def eigenvectors_are_cut():
    values = torch.linalg.eigvalsh(kernel()[0])
    left = int((values > 0.5 * values.max()).sum())
    assert f"solved on {left} of 40" in fitted(Eigen(rtol=0.5)).message_


def the_tolerance_ends_it():
    assert fitted(CG(rtol=1e-2)).n_iter_ < fitted(CG(rtol=1e-8)).n_iter_


def the_steps_end_it():
    with pytest.warns(UserWarning, match="not converged after 2 steps"):
        assert fitted(CG(max_steps=2)).n_iter_ == 2


def the_preconditioner_helps():
    helped = CG(preconditioner=Nystrom(rank=30, key=Key(0)))
    assert fitted(helped).n_iter_ < fitted(CG()).n_iter_


def a_matrix_within_the_budget_is_read_once():
    (K, y), reads = kernel(), []
    for memory in ("1GB", 100):
        counted = CountedReads(K)
        KernelRegression(solver=CG(memory=memory), ridge=1e-3).fit(counted, y)
        reads.append(counted.reads)
    assert reads[0] < reads[1]


def the_budget_chooses():
    assert fitted(Auto(memory="1GB")).n_iter_ == 0
    assert fitted(Auto(memory=100)).n_iter_ > 0


METHODS = {
    (Cholesky, "max_jitter"): jitter_is_allowed_or_not,
    (Cholesky, "memory"): lambda: refuses_a_small_budget(Cholesky),
    (Eigen, "rtol"): eigenvectors_are_cut,
    (Eigen, "memory"): lambda: refuses_a_small_budget(Eigen),
    (CG, "rtol"): the_tolerance_ends_it,
    (CG, "max_steps"): the_steps_end_it,
    (CG, "preconditioner"): the_preconditioner_helps,
    (CG, "memory"): a_matrix_within_the_budget_is_read_once,
    (Auto, "memory"): the_budget_chooses,
}
"""What shows that an option of a method arrived."""

MINIMIZER_OPTIONS = {
    (Newton, "max_steps"): 1,
    (Newton, "tol"): 1e-1,
    (LBFGS, "max_steps"): 2,
    (LBFGS, "tol"): 1e-1,
    (SGD, "max_epochs"): 7,
    (SGD, "tol"): 1e-1,
    (SGD, "class_weight"): {0: 9.0, 1: 1.0},
    (SGD, "seed"): 5,
    (Adam, "steps"): 3,
    (Adam, "learning_rate"): 0.5,
    (Adam, "betas"): (0.1, 0.2),
}
"""A value of every option of a minimizer that changes what it finds."""


@pytest.mark.parametrize(
    ("method", "option"), METHODS, ids=lambda part: part if isinstance(part, str) else part.__name__
)
def test_an_option_of_a_method_of_linear_algebra_arrives(method, option):
    METHODS[method, option]()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("minimizer", "option"),
    MINIMIZER_OPTIONS,
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_an_option_of_a_minimizer_arrives(minimizer, option):
    (K, y), usual = kernel(), {"steps": 20} if minimizer is Adam else {}
    plain, changed = (
        KernelGLM(solver=minimizer(**options), ridge=1e-3).fit(K, (y > 0.2).long())
        for options in (usual, {**usual, option: MINIMIZER_OPTIONS[minimizer, option]})
    )
    assert not torch.allclose(plain.dual_coef_, changed.dual_coef_, rtol=1e-6, atol=0)


def test_what_counts_as_converged_by_adam_arrives():
    K, y = kernel()
    labels = (y > 0.2).long()
    assert KernelGLM(solver=Adam(steps=5, tol=10.0)).fit(K, labels).converged_
    assert not KernelGLM(solver=Adam(steps=5, tol=1e-9)).fit(K, labels).converged_


def test_no_option_is_left_out_here():
    methods = {(cls, field.name) for cls in (Cholesky, Eigen, CG, Auto) for field in fields(cls)}
    assert methods == set(METHODS)
    minimizers = {(cls, field.name) for cls in MINIMIZERS.values() for field in fields(cls)}  # type: ignore[arg-type]
    assert minimizers == {*MINIMIZER_OPTIONS, (Adam, "tol")}


@pytest.mark.parametrize("solver", ["cholesky", "cg", "normal", Cholesky(), Eigen(), CG()])
def test_a_cut_off_that_nothing_would_use_is_refused(solver):
    with pytest.raises(InputError, match="takes no cutoff"):
        KernelRegression(solver=solver, cutoff=1e-3, ridge=1e-3).fit(*kernel())
