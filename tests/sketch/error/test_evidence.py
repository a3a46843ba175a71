"""What exact norms tell of the error of a seed, against plain conditioning of normal numbers."""

import math

import torch

from tangentkit.core.seeds import Key
from tangentkit.sketch.error import evidence as module
from tangentkit.sketch.error.evidence import evidence
from tangentkit.sketch.error.sketched import Sketched


def normal(name, *shape):
    return torch.randn(*shape, generator=Key(0).fold(name).torch(), dtype=torch.float64)


def test_the_regression_is_that_of_normal_numbers(monkeypatch):
    monkeypatch.setattr(module, "SLACK", 1e-10)
    n, dim = 4, 7
    features = normal("features", n, dim)
    found = features.square().sum(1)
    norms = found * torch.tensor([0.8, 1.1, 1.3, 0.9]).double()
    seen = evidence(features, norms, torch.zeros(n).double())

    scaled = features * (norms / found).sqrt()[:, None]
    r = scaled @ scaled.T
    covariance = (torch.einsum("ik,jl->ijkl", r, r) + torch.einsum("il,jk->ijkl", r, r)) / dim
    diagonal = torch.arange(n)
    with_diagonal = covariance[:, :, diagonal, diagonal]
    gain = with_diagonal @ torch.linalg.inv(with_diagonal[diagonal, diagonal])
    torch.testing.assert_close(seen.error(slice(0, n)), gain @ (found - norms), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(seen.variance(), torch.einsum("ijij->", covariance))
    explained = torch.einsum("ijk,ijk->", gain, with_diagonal)
    torch.testing.assert_close(seen.explained, explained, rtol=1e-5, atol=1e-7)


def test_norms_that_are_mere_rounding_say_nothing():
    features = normal("features", 5, 9)
    found = features.square().sum(1)
    seen = evidence(features, 3 * found, 1e6 * found)
    assert seen.error(slice(0, 5)).abs().max() <= 1e-6 * found.max()
    assert seen.explained <= 1e-6 * seen.variance()
    torch.testing.assert_close(seen.features, features, rtol=1e-6, atol=0)


def test_samples_without_gradient_are_no_trouble():
    features = normal("features", 5, 9)
    features[2] = 0
    norms = features.square().sum(1) * 1.1
    seen = evidence(features, norms, torch.zeros(5).double())
    assert seen.error(slice(0, 5)).isfinite().all()
    nothing = Sketched(torch.zeros(3, 0), [torch.zeros(3, 8)] * 2, [0.5, 0.5], norms=torch.zeros(3))
    assert nothing.error() == 0


def test_more_samples_than_landmarks():
    n, dim, rank, seeds = module.LANDMARKS + 150, 64, 20, 12
    root = normal("root", n, rank) / torch.arange(1, rank + 1)
    root[:, 0] += 2.0  # one eigenvalue dominates
    truth = root @ root.T
    ratios = []
    for seed in range(seeds):
        halves = [root @ normal(f"half {seed} {i}", rank, dim // 2) / math.sqrt(dim // 2) for i in range(2)]
        sketched = Sketched(torch.zeros(n, 0).double(), halves, [0.5, 0.5], norms=truth.diagonal())
        phi = sketched.sketched
        ratios.append(sketched.error() / ((phi @ phi.T - truth).norm() / truth.norm()))
    assert (torch.stack(ratios).log().abs() <= math.log(1.5)).double().mean() >= 0.9
