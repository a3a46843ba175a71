"""Principal components of standardized activations, fitted on training samples and applied to test samples."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from tangentkit.core.errors import NumericalError

BLOCK = 2**22
"""Numbers of standardized activations that are made at a time where only their products are needed."""


class ConstantActivationsError(NumericalError):
    """A layer puts out the same for all samples, as a dead one does."""


@dataclass(frozen=True, eq=False)
class Components:
    """Scores of samples along principal components, the largest first."""

    train: NDArray[np.float64]
    """(n, r)."""
    test: NDArray[np.float64]
    """(m, r)."""
    variance: NDArray[np.float64]
    """(r,) the share of the variance of the training samples that the first 1, 2, ... components have."""


def principal_components(train: Float[Tensor, "n d"], test: Float[Tensor, "m d"], most: int) -> Components:
    """The first components of activations, each coordinate standardized by its mean and deviation in training.

    Of wide layers (d > n) by the n × n matrix of inner products, of others by the d × d covariance; coordinates that
    are constant in training do not count.

    Args:
        train: activations of the training samples.
        test: of the test samples.
        most: how many components at most; there are at most as many as have a variance beyond rounding.

    Raises:
        ConstantActivationsError: all coordinates are constant.

    Example:
        >>> found = principal_components(torch.randn(9, 4), torch.randn(5, 4), most=10)
        >>> found.train.shape, found.test.shape, round(float(found.variance[-1]), 6)
        ((9, 4), (5, 4), 1.0)
    """
    mean, scale = _mean_and_deviation(train)
    # A deviation of rounding is none.
    varies = scale > 8 * torch.finfo(train.dtype).eps * mean.abs()
    if not varies.any():
        raise ConstantActivationsError(
            "activations are constant", expected="a coordinate that varies over samples"
        )
    if not varies.all():
        train, test, mean, scale = train[:, varies], test[:, varies], mean[varies], scale[varies]
    most = min(most, len(train) - 1, train.shape[1])
    wide = train.shape[1] > len(train)
    fit = _by_inner_products if wide else _by_covariance
    scores, projected, variances, total = fit(train, test, mean, scale, most)
    rank = int((variances > len(train) * np.finfo(float).eps * variances[0]).sum())
    return Components(scores[:, :rank], projected[:, :rank], np.cumsum(variances[:rank]) / total)


def _mean_and_deviation(h: Float[Tensor, "n d"]) -> tuple[Tensor, Tensor]:
    """Of every coordinate, in float64, by blocks of columns."""
    parts = [
        torch.std_mean(part.double(), 0, correction=0) for part in h.split(max(1, BLOCK // len(h)), dim=1)
    ]
    scale, mean = (torch.cat(each) for each in zip(*parts, strict=True))
    return mean, scale


def _by_covariance(
    train: Tensor, test: Tensor, mean: Tensor, scale: Tensor, most: int
) -> tuple[NDArray, NDArray, NDArray, float]:
    from sklearn.decomposition import PCA

    pca = PCA(most, svd_solver="covariance_eigh")
    z = ((train - mean) / scale).numpy()
    scores = pca.fit_transform(z)
    return scores, pca.transform(((test - mean) / scale).numpy()), pca.explained_variance_, _total(z)


def _total(z: NDArray) -> float:
    return float(np.square(z).sum() / (len(z) - 1))


def _by_inner_products(
    train: Tensor, test: Tensor, mean: Tensor, scale: Tensor, most: int
) -> tuple[NDArray, NDArray, NDArray, float]:
    from sklearn.decomposition import KernelPCA

    n, m = len(train), len(test)
    K, L = torch.zeros(n, n, dtype=torch.float64), torch.zeros(m, n, dtype=torch.float64)
    for columns in torch.arange(train.shape[1]).split(max(1, BLOCK // (n + m))):
        a, b = ((part[:, columns] - mean[columns]) / scale[columns] for part in (train, test))
        K.addmm_(a, a.T)
        L.addmm_(b, a.T)
    pca = KernelPCA(most, kernel="precomputed", eigen_solver="dense")
    scores = pca.fit_transform(K.numpy())
    return (
        scores,
        pca.transform(L.numpy()),
        np.asarray(pca.eigenvalues_) / (n - 1),
        float(K.trace()) / (n - 1),
    )
