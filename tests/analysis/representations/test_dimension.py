"""Intrinsic dimensions of clouds whose dimension is known."""

import numpy as np
import pytest
import torch

from tangentkit.analysis import participation_ratio, two_nn
from tangentkit.core import InputError, NumericalError


@pytest.mark.parametrize("d", [1, 2, 5])
def test_two_nn_finds_the_dimension_of_a_rotated_cloud(d):
    cloud = torch.rand(1500, d) @ torch.linalg.qr(torch.randn(40, d)).Q.T
    # The standard error of a slope over n ratios is about d/√n; 5 of them, and the edge of the cube at d = 5.
    assert two_nn(cloud) == pytest.approx(d, abs=5 * d / 1500**0.5 + 0.1 * (d == 5) * d)


def test_copies_of_points_count_once():
    cloud = torch.rand(400, 3)
    assert two_nn(torch.cat([cloud, cloud])) == pytest.approx(two_nn(cloud), rel=1e-6)


@pytest.mark.parametrize("shape", [(50, 8), (8, 50)])
def test_the_participation_ratio_is_that_of_the_covariance(shape):
    h = np.random.default_rng(0).normal(size=shape) * np.arange(1, shape[1] + 1)
    values = np.linalg.eigvalsh(np.cov(h.T))
    assert participation_ratio(h) == pytest.approx(values.sum() ** 2 / np.square(values).sum(), rel=1e-9)


def test_an_isotropic_cloud_has_all_dimensions():
    assert participation_ratio(torch.randn(20_000, 6)) == pytest.approx(6, rel=0.01)


def test_what_has_no_dimension_is_refused():
    with pytest.raises(InputError, match="10 different points or more, got 1"):
        two_nn(torch.ones(50, 3))
    with pytest.raises(NumericalError, match="one distance"):
        two_nn(torch.arange(40.0)[:, None])
    with pytest.raises(NumericalError, match="constant"):
        participation_ratio(torch.ones(50, 3))
    with pytest.raises(NumericalError, match="not finite"):
        two_nn(torch.full((50, 3), torch.inf))
    with pytest.raises(InputError, match="discard"):
        two_nn(torch.rand(50, 3), discard=1.0)


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e-21, 1e30])
def test_dimensions_do_not_depend_on_the_scale_of_features(scale):
    torch.manual_seed(0)
    plane = torch.rand(200, 2) @ torch.randn(2, 20)
    assert two_nn(scale * plane) == pytest.approx(two_nn(plane), rel=1e-3)
    far = scale**5 * plane.double()
    assert participation_ratio(far) == pytest.approx(participation_ratio(plane), rel=1e-6)
