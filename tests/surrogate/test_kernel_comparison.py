"""Kernels compared as surrogates: each as if it were alone, with its cost."""

import time

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import tangentkit as tk
from tangentkit.core import InputError
from tangentkit.surrogate.kernel_comparison import KernelComparison, cost_of


@pytest.fixture(scope="module")
def found():
    def one(seed):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 3))
        x, z = torch.randn(60, 4), torch.randn(30, 4)
        data = (x, torch.arange(60) % 3), TensorDataset(z, model(z).argmax(1))
        kernels = {"trNTK": tk.TangentKernel(model).normalized(), "CK": tk.ConjugateKernel(model)}
        return model, kernels, data, tk.compare_kernels(model, kernels, *data, bootstrap=5)

    return [one(seed) for seed in (0, 1)]


def test_each_kernel_is_compared_as_if_it_were_alone(found):
    model, kernels, ((x, y), test), comparison = found[0]
    z, labels = test.tensors
    for name, kernel in kernels.items():
        alone = tk.Surrogate(model, kernel).fit(x, y).faithfulness(z, labels, bootstrap=5)
        assert comparison.faithfulness[name].to_dict() == alone.to_dict()
    assert comparison.sizes == (60, 30)
    assert comparison.to_dict()["CK"]["seconds"] > 0
    assert "trNTK" in str(comparison)
    assert comparison.plot().get_xlabel().startswith("Kendall's τ")


def test_over_networks_the_scatter_is_the_error(found):
    both = KernelComparison.over([comparison for *_, comparison in found])
    values = [comparison.faithfulness["CK"].kendall_tau.value for *_, comparison in found]
    tau = both.faithfulness["CK"].kendall_tau
    assert tau.value == pytest.approx(sum(values) / 2)
    assert tau.error == pytest.approx(abs(values[0] - values[1]) / 2)


def test_a_kernel_made_once_serves_machines_of_other_options(found):
    model, kernels, ((x, y), test), comparison = found[0]
    z, _ = test.tensors
    first = comparison.surrogates["CK"]
    again = first.refitted(tk.KernelGLM(ridge=1e-2))
    assert again.features_ is first.features_
    expected = tk.Surrogate(model, kernels["CK"], machine=tk.KernelGLM(ridge=1e-2)).fit(x, y)
    torch.testing.assert_close(again.decision_function(z), expected.decision_function(z))
    assert first.machine_.ridge == 1e-4


def test_costs_are_seen():
    with cost_of() as cost:
        block = torch.ones(50_000_000)
        time.sleep(0.05)
    assert cost.seconds >= 0.05
    assert cost.peak_bytes > 100e6
    del block


def test_bad_input_is_named(found):
    model, _, data, comparison = found[0]
    with pytest.raises(InputError, match="no kernels"):
        tk.compare_kernels(model, {}, *data)
    with pytest.raises(InputError, match=r"\(inputs, labels\)"):
        tk.compare_kernels(model, [tk.ConjugateKernel(model)], (1, 2, 3), data[1])
    with pytest.raises(InputError, match="two or more"):
        KernelComparison.over([comparison])


def test_kernels_that_print_alike_are_all_compared():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    x, y = torch.randn(20, 4), torch.arange(20) % 2
    kernels = [tk.TangentKernel(model, params=[name]) for name in ("0.bias", "2.bias")]
    assert repr(kernels[0]) == repr(kernels[1])
    found = tk.compare_kernels(model, kernels, (x, y), (x, y), bootstrap=2, progress=False)
    assert list(found.faithfulness) == [repr(kernels[0]), f"{kernels[0]!r} (2)"]
