"""Principal components of standardized activations: scikit-learn's, whichever side is smaller."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from tangentkit.analysis.representations import components
from tangentkit.analysis.representations.components import principal_components
from tangentkit.core import NumericalError


@pytest.mark.parametrize(("n", "d"), [(60, 12), (25, 90)])
def test_scores_and_variance_are_those_of_standardized_pca(n, d, monkeypatch):
    monkeypatch.setattr(components, "BLOCK", 700)  # several blocks of columns
    train, test = torch.randn(n, d) * torch.linspace(1, 50, d) + 7, torch.randn(9, d)
    scaler = StandardScaler().fit(train.double().numpy())
    pca = PCA(10, svd_solver="full").fit(scaler.transform(train.double().numpy()))
    found = principal_components(train, test, most=10)
    for mine, samples in ((found.train, train), (found.test, test)):
        theirs = pca.transform(scaler.transform(samples.double().numpy()))
        np.testing.assert_allclose(np.abs(mine), np.abs(theirs), atol=1e-6)
    np.testing.assert_allclose(found.variance, np.cumsum(pca.explained_variance_ratio_), rtol=1e-6)


@pytest.mark.parametrize("d", [30, 300])
def test_there_are_as_many_components_as_have_variance(d):
    low = torch.randn(40, 3, dtype=torch.float64) @ torch.randn(3, d, dtype=torch.float64)
    low[:, 5] = 4.0  # constant in training
    found = principal_components(low, low[:5] + 1e3 * torch.eye(d)[5], most=20)
    assert found.train.shape == (40, 3)
    np.testing.assert_allclose(found.test, found.train[:5], atol=1e-8)
    assert found.variance[-1] == pytest.approx(1)


def test_constant_activations_are_refused():
    with pytest.raises(NumericalError, match="constant"):
        principal_components(torch.full((9, 3), 0.1), torch.ones(2, 3), most=2)
