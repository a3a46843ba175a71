"""scikit-learn's own checks of estimators, on kernels that are given and kernels that are functions."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tangentkit.machines import (
    KernelGLM,
    KernelLogistic,
    KernelRegression,
    KernelRidgeClassifier,
    NystromRegression,
)


class Rbf:
    """A kernel function whose name holds no address: workers of a parallel run must collect the same tests."""

    def __call__(self, x, y):
        return np.exp(-0.5 * ((x[:, None] - y[None]) ** 2).sum(-1))

    def __repr__(self):
        return "rbf"


rbf = Rbf()


def known_failures(estimator):
    """Checks that cannot pass, with the reason."""
    reasons = {}
    if estimator.kernel == "precomputed":
        indefinite = "the check makes an indefinite matrix of the kernel matrix, which is an error here"
        reasons["check_positive_only_tag_during_fit"] = indefinite + " (it subtracts the mean)"
        reasons["check_estimators_dtypes"] = indefinite + " (it rounds to integers)"
        if hasattr(estimator, "predict_proba"):
            misplaced = "the check passes samples where a kernel matrix belongs"
            reasons["check_decision_proba_consistency"] = misplaced
    if isinstance(estimator, KernelGLM):
        reasons["check_sample_weight_equivalence_on_dense_data"] = (
            "training samples are the features of this model: to repeat or remove one changes the model itself"
        )
        reasons.pop("check_positive_only_tag_during_fit", None)  # a GLM needs no positive kernel
        reasons.pop("check_estimators_dtypes", None)
    return reasons


QUICK = [
    KernelRegression(),
    KernelRegression(rbf, ridge=1e-3),
    KernelLogistic(rbf, ridge=1e-2),
    KernelGLM(rbf, ridge=1e-2),
    KernelRidgeClassifier(rbf, ridge=1e-2),
    NystromRegression(rbf, landmarks=150),
]
LONG = [
    KernelRegression(ridge=1.0, solver="cholesky"),
    KernelRegression("features", ridge=1e-3),
    KernelLogistic(ridge=1.0),
    KernelGLM(ridge=1e-2),
    KernelRidgeClassifier(ridge=1.0),
    KernelRidgeClassifier("features"),
    NystromRegression(rbf, landmarks=150, solver="falkon"),
]


@parametrize_with_checks(QUICK, expected_failed_checks=known_failures)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(LONG, expected_failed_checks=known_failures)
def test_scikit_learns_checks_of_other_options(estimator, check):
    check(estimator)
