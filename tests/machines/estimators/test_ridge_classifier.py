"""The ridge classifier against scikit-learn's, and its regressions."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeClassifier
from torch import nn

import tangentkit as tk
from tangentkit.core.errors import InputError


def problem(classes, n=60):
    rng = np.random.default_rng(classes)
    x = rng.normal(size=(n, 5))
    words = np.array(["ant", "bee", "cow", "dog"])[:classes]
    return x, words[(x @ rng.normal(size=(5, classes))).argmax(1)]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_scikit_learns_ridge_classifier_on_features(classes, weighted):
    x, y = problem(classes)
    weights = np.random.default_rng(1).uniform(0.2, 2, size=60) if weighted else None
    peer = RidgeClassifier(alpha=0.7, fit_intercept=False).fit(x, y, weights)
    for kernel, given in (("features", x), ("precomputed", x @ x.T), (lambda x, y: x @ y.T, x)):
        machine = tk.KernelRidgeClassifier(kernel, ridge=0.7).fit(given, y, weights)
        assert list(machine.classes_) == list(peer.classes_)
        np.testing.assert_allclose(machine.decision_function(given), peer.decision_function(x), atol=1e-8)
        assert (machine.predict(given) == peer.predict(x)).all()
        assert machine.score(given, y) == peer.score(x, y)
    assert not hasattr(machine, "predict_proba")


def test_its_regressions_are_kernel_ridge_regressions_of_signs():
    x, y = problem(4)
    machine = tk.KernelRidgeClassifier("features", ridge=0.3, solver="eigh").fit(x, y)
    signs = np.where(y[:, None] == machine.classes_, 1.0, -1.0)
    peer = KernelRidge(alpha=0.3, kernel="linear").fit(x, signs)
    np.testing.assert_allclose(machine.decision_function(x), peer.predict(x), atol=1e-8)
    assert machine.regression_.leave_one_out().shape == (60, 4)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_block_kernel_has_one_output_for_every_class(classes):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, classes)).double()
    x, y = problem(classes)
    kernel = tk.TangentKernel(model, outputs="full")
    machine = tk.KernelRidgeClassifier(kernel, ridge=0.1).fit(x, y)
    signs = np.where(y[:, None] == machine.classes_, 1.0, -1.0)
    expected = tk.KernelRegression(kernel, ridge=0.1).fit(x, signs).predict(x)
    assert (machine.predict(x) == machine.classes_[expected.argmax(1)]).all()
    with pytest.raises(InputError, match="do not match"):
        machine.fit(x, problem(classes + 1)[1])


def test_a_portable_one_needs_no_network():
    torch.manual_seed(0)
    x, y = problem(3)
    kernel = tk.TangentKernel(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)).double())
    machine = tk.KernelRidgeClassifier(kernel, ridge=0.1).fit(x, y)
    slim = pickle.loads(pickle.dumps(machine.portable()))
    assert (slim.predict(kernel(torch.from_numpy(x)).numpy()) == machine.predict(x)).all()
    assert slim.kernel == "precomputed"


def test_tensors_give_tensors_and_labels_must_be_labels():
    x, y = problem(3)
    labels = torch.from_numpy(np.unique(y, return_inverse=True)[1])
    machine = tk.KernelRidgeClassifier("features", ridge=0.1).fit(torch.from_numpy(x), labels)
    assert isinstance(machine.predict(torch.from_numpy(x)), torch.Tensor)
    assert isinstance(machine.decision_function(x), np.ndarray)
    with pytest.raises(InputError, match="nothing to tell apart"):
        machine.fit(x, np.zeros(60))
    with pytest.raises(InputError, match="a class is empty"):
        machine.fit(x, y, (y != "ant").astype(float))
