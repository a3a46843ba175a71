"""The posterior of kernel regression: that of a Gaussian process."""

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from machines.estimators.problems import DUAL, features, network
from tangentkit.empirical import TangentKernel
from tangentkit.machines import KernelRegression


@pytest.mark.parametrize("solver", DUAL)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_posterior_is_that_of_a_gaussian_process(solver, weighted):
    x, z, y = features(20, 2).numpy(), features(6, 2, seed=1).numpy(), features(20, 1, seed=2)[:, 0].numpy()
    w = np.linspace(0.5, 2, 20) if weighted else np.ones(20)
    gp = GaussianProcessRegressor(RBF(1.3, "fixed"), alpha=0.1 / w, optimizer=None).fit(x, y)
    machine = KernelRegression(RBF(1.3), ridge=0.1, solver=solver).fit(x, y, w)
    for ours, theirs in zip(machine.predict(z, return_std=True), gp.predict(z, return_std=True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        machine.predict(z, return_cov=True)[1], gp.predict(z, return_cov=True)[1], rtol=1e-5, atol=1e-6
    )
    given = KernelRegression(ridge=0.1, solver=solver).fit(RBF(1.3)(x), y, w)
    prior, k = RBF(1.3)(z), RBF(1.3)(z, x)
    np.testing.assert_allclose(
        given.predict(k, return_std=True, prior=np.diag(prior))[1],
        gp.predict(z, return_std=True)[1],
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        given.predict(k, return_cov=True, prior=prior)[1],
        gp.predict(z, return_cov=True)[1],
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("shape", [(30, 6), (8, 20)])
@pytest.mark.parametrize("solver", ["features", "normal", "eigh", "cg"])
def test_posterior_deviations_from_features_and_from_the_kernel_agree(shape, solver):
    Phi, z, y = features(*shape), features(5, shape[1], seed=1), features(shape[0], 2, seed=2)
    w = features(shape[0], 1, seed=3)[:, 0].square()
    dense = KernelRegression("features", ridge=0.1, solver="cholesky").fit(Phi, y, w)
    other = KernelRegression("features", ridge=0.1, solver=solver).fit(Phi, y, w)
    std = other.predict(z, return_std=True)[1]
    assert std.shape == (5, 2)
    torch.testing.assert_close(std, dense.predict(z, return_std=True)[1], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(
        other.predict(z, return_cov=True)[1], dense.predict(z, return_cov=True)[1], rtol=1e-5, atol=1e-7
    )


def test_block_kernels_have_a_posterior_for_every_output():
    model, x, z, y = network(), features(6, 3), features(3, 3, seed=1), features(6, 2, seed=2)
    kernel = TangentKernel(model, outputs="full")
    machine = KernelRegression(kernel, ridge=0.1).fit(x, y)
    K, k, kz = kernel(x).reshape(12, 12), kernel(z, x).reshape(6, 12), kernel(z).reshape(6, 6)
    expected = kz - k @ torch.linalg.inv(K + 0.1 * torch.eye(12)) @ k.T
    torch.testing.assert_close(machine.predict(z, return_cov=True)[1], expected.reshape(3, 2, 3, 2))
    torch.testing.assert_close(
        machine.predict(z, return_std=True)[1], expected.diagonal().sqrt().reshape(3, 2)
    )
