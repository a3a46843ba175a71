"""Eigenfunctions: of kernels whose eigenfunctions are known, extended to points that were not seen."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import tangentkit as tk
from tangentkit.compute import Kernel
from tangentkit.core import InputError, NumericalError


class Brownian(Kernel):
    """min(s, t) on [0, 1]: eigenfunctions √2 sin((j - ½) π t), eigenvalues ((j - ½) π)⁻²."""

    def __call__(self, x, y=None):
        return torch.minimum(x, (x if y is None else y).T)

    def diag(self, x):
        return x[:, 0]


def nodes(n):
    return ((torch.arange(n, dtype=torch.float64) + 0.5) / n)[:, None]


def test_the_brownian_kernel_has_its_sines_on_data_and_between_them():
    x, z = nodes(400), torch.linspace(0.05, 0.95, 13, dtype=torch.float64)[:, None]
    phi = tk.eigenfunctions(Brownian(), x, 4)
    frequency = (torch.arange(4, dtype=torch.float64) + 0.5) * math.pi
    assert torch.allclose(phi.mercer_values, frequency**-2, rtol=1e-3)
    truth = 2**0.5 * torch.sin(z * frequency)
    found = phi(z) * 20  # √n: of mean square 1
    signs = (found * truth).sum(0).sign()
    assert torch.allclose(found * signs, truth, atol=2e-3)


def test_at_its_own_samples_the_extension_is_the_eigenvectors_whatever_the_budget():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 1)).double()
    x = torch.randn(30, 3).double()
    phi = tk.eigenfunctions(tk.TangentKernel(model), x, 5)
    assert torch.allclose(phi(x), phi.vectors)
    tight = tk.eigenfunctions(tk.TangentKernel(model), TensorDataset(x, torch.arange(30)), 5, memory=2000)
    assert torch.allclose(tight(TensorDataset(x, torch.arange(30))).abs(), phi.vectors.abs(), atol=1e-8)
    assert torch.allclose(phi.vectors.T @ phi.vectors, torch.eye(5).double(), atol=1e-10)


def test_binarized_targets_keep_four_fifths_of_an_eigenfunction():
    # SPEC 7.8 and S1-K2: about 0.78 on data, √(2/π) = 0.798 of Gaussian values, 2√2/π = 0.900 of a sine.
    phi = tk.eigenfunctions(Brownian(), nodes(500), 3)
    assert torch.allclose(phi.sign_overlaps(), torch.full((3,), 2 * 2**0.5 / math.pi).double(), atol=2e-3)
    labels = phi.binarized()
    assert labels.dtype == torch.long
    overlap = (phi.vectors * (2 * labels - 1)).sum(0) / 500**0.5
    assert torch.allclose(overlap, phi.sign_overlaps())


@pytest.mark.slow
def test_eigenfunctions_of_digits_overlap_with_their_signs_as_published():
    from sklearn.datasets import load_digits

    x = torch.from_numpy(load_digits().data).double() / 16
    model = tk.models.mlp([64, 100, 100, 1], init=tk.models.lecun_normal).double()
    overlaps = tk.eigenfunctions(tk.TangentKernel(model), x, 400).sign_overlaps()
    chosen = overlaps[[4, 19, 49, 99, 199, 399]]
    assert 0.75 < float(chosen.min()) <= float(chosen.max()) < 0.84


def test_eigenvalues_that_are_rounding_are_not_extended():
    model = nn.Linear(2, 1, bias=False).double()
    phi = tk.eigenfunctions(tk.TangentKernel(model), torch.randn(9, 2).double(), 4)
    with pytest.raises(NumericalError, match=r"2 of 4 eigenvalues are within rounding of zero.*top=2"):
        phi(torch.randn(3, 2).double())


def test_bad_kernels_and_numbers_are_refused():
    with pytest.raises(InputError, match="not a kernel"):
        tk.eigenfunctions(torch.eye(3), nodes(3), 2)
    with pytest.raises(InputError, match="from 1 to 3"):
        tk.eigenfunctions(Brownian(), nodes(3), 4)


def test_it_is_a_table_a_picture_and_plain_numbers():
    phi = tk.eigenfunctions(Brownian(), nodes(20), 3)
    assert len(phi.table().rows) == 3
    assert phi.plot().get_xlabel() == "j"
    assert phi.to_dict()["values"] == phi.values.tolist()


def test_a_kernel_between_outputs_is_refused():
    model = torch.nn.Linear(3, 2)
    with pytest.raises(InputError, match="one number for each pair"):
        tk.eigenfunctions(tk.TangentKernel(model, outputs="full"), torch.randn(8, 3), 2)
