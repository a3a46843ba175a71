"""Alignment of functions with a tangent kernel: the average gradient is the quadratic form of the Gram."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tangentkit as tk
from cases import CASES, N, expected, gap
from cases.catalog import FAMILIES
from tangentkit.core import BudgetError, InputError, NumericalError
from tangentkit.core.seeds import Key

pytestmark = pytest.mark.filterwarnings("ignore:.*do not reach the output")
ONE_OF_EACH = [next(iter(family.zoo)) for family in FAMILIES]


def quadratic(K, f):
    return torch.einsum("ik,ij,jk->k", f, K, f) / len(f) ** 2


def small():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.GELU(), nn.Flatten(), nn.Linear(3 * 16, 5)).double()
    return model, torch.randn(23, 1, 6, 6).double(), torch.randn(23, 7).double()


def check_case(name):
    case, x = CASES[name], CASES[name].batches()[0]
    f = torch.randn(N, 3, generator=Key(0).fold("functions").torch(), dtype=torch.float64)
    for outputs in ("trace", 0):
        truth = quadratic(expected(name, outputs, symmetric=True), f)
        found = tk.target_alignment(case.model(), x, f, outputs=outputs, **case.keywords)
        assert gap(found, truth) <= 1e-10


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_jacobian_route_is_the_gram_route_for_every_family_of_modules(name):
    check_case(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_jacobian_route_is_the_gram_route_for_the_whole_zoo(name):
    check_case(name)


@pytest.mark.parametrize("outputs", ["trace", "pseudo", 2, torch.arange(5.0)], ids=str)
def test_outputs_choose_the_kernel(outputs):
    model, x, f = small()
    truth = quadratic(tk.TangentKernel(model, outputs)(x), f)
    assert gap(tk.target_alignment(model, x, f, outputs=outputs), truth) < 1e-12


def test_a_small_budget_takes_more_passes_and_gives_the_same(monkeypatch):
    from tangentkit.analysis.alignment import target

    model, x, f = small()
    passes = []
    inner = target._Alignment._square_norms
    monkeypatch.setattr(
        target._Alignment,
        "_square_norms",
        lambda self, columns, some: (passes.append(columns.shape[1]), inner(self, columns, some))[1],
    )
    truth = tk.target_alignment(model, x, f)
    assert passes == [7]
    memory = 8 * 2 * 275 * 11  # averages of eleven gradients fit half
    assert gap(tk.target_alignment(model, x, f, memory=memory), truth) < 1e-12
    assert len(passes) > 3


@pytest.mark.parametrize("side", [1, 5, 23])
@pytest.mark.parametrize("outputs", ["trace", "pseudo", 2])
def test_tiles_of_any_size_give_the_same(monkeypatch, outputs, side):
    from tangentkit.analysis.alignment import target

    model, x, f = small()
    truth = tk.target_alignment(model, x, f, outputs=outputs)
    monkeypatch.setattr(target._Alignment, "_tiles_are_less_work", lambda *_: True)
    monkeypatch.setattr(target._Alignment, "_side", lambda *_: side)
    assert gap(tk.target_alignment(model, x, f, outputs=outputs), truth) < 1e-12


def test_tiles_are_taken_where_the_kernel_is_less_work_than_gradients():
    """The kernel of an MLP is two matrix products; that of a LeNet takes gradients, as its averages do."""
    from tangentkit.analysis.alignment.target import _Alignment
    from tangentkit.compute.sources import sources_of
    from tangentkit.core.memory import Budget

    mlp = nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 1))
    x = torch.zeros(10_000, 1, 28, 28)
    for model, functions, tiles in (
        (mlp, 1, False),
        (mlp, 1_000, True),
        (tk.models.lenet(outputs=1), 1_000, False),
    ):
        kernel = tk.TangentKernel(model)
        work = _Alignment(kernel, sources_of(kernel, x)["x"], Budget(60_000_000))
        assert work._tiles_are_less_work(functions, *work._together(functions)) == tiles


def test_output_directions_go_one_after_the_other_before_functions_do():
    """A direction repeats forward passes, a function the backward passes of all directions, too."""
    from tangentkit.analysis.alignment.target import _Alignment
    from tangentkit.compute.sources import sources_of
    from tangentkit.core.memory import Budget

    kernel, x = tk.TangentKernel(tk.models.lenet()), torch.zeros(300, 1, 28, 28)
    work = _Alignment(kernel, sources_of(kernel, x)["x"], Budget(60_000_000))
    together, group = work._together(1_000)
    assert 100 < together < 200
    assert group == 1
    assert work._together(20) == (20, together // 20)


def test_data_sets_and_loaders_are_read_a_few_at_a_time():
    model, x, f = small()
    model, x = model.float(), x.float()
    read = []

    class Counted(TensorDataset):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    labeled = Counted(x, torch.arange(23))
    truth = tk.target_alignment(model, x, f)
    assert gap(tk.target_alignment(model, labeled, f), truth) < 1e-5
    assert len(read) <= 2 * 23 + 4  # one look at the first samples, one pass
    assert gap(tk.target_alignment(model, DataLoader(labeled, batch_size=5), f), truth) < 1e-5


def test_one_function_gives_a_number_and_its_eigenfunctions_have_mercer_eigenvalues():
    model, x, _ = small()
    phi = tk.eigenfunctions(tk.TangentKernel(model), x, 6)
    found = tk.target_alignment(model, x, 23**0.5 * phi.vectors)
    assert gap(found, phi.mercer_values) < 1e-10
    assert tk.target_alignment(model, x, phi.vectors[:, 0]).shape == ()


def test_averages_of_a_model_in_half_precision_are_summed_in_float32():
    # In bfloat16, whose numbers have eight bits, 1 added to 256 is 256.
    model = nn.Linear(1, 1, bias=False).bfloat16()
    x = torch.ones(600, 1, dtype=torch.bfloat16)
    assert float(tk.target_alignment(model, x, torch.full((600,), 1.001))) == pytest.approx(
        1.001**2, rel=1e-5
    )


def test_bad_functions_and_samples_are_refused_with_their_shapes():
    model, x, f = small()
    with pytest.raises(InputError, match=r"expected shape \(23,\) or \(23, c\), got \(22, 7\)"):
        tk.target_alignment(model, x, f[:22])
    with pytest.raises(NumericalError, match="non-finite functions"):
        tk.target_alignment(model, x, f * torch.nan)
    with pytest.raises(InputError, match="the functions are zero"):
        tk.target_alignment(model, x, f * 0)
    with pytest.raises(InputError, match="full"):
        tk.target_alignment(model, x, f, outputs="full")
    with pytest.raises(InputError, match=r"made of float64 \(23, 1, 5, 6\)"):
        tk.target_alignment(model, x[:, :, :5], f)
    with pytest.raises(BudgetError, match="average gradient"):
        tk.target_alignment(model, x, f, memory=1000)


MEASURED = """
import re
from pathlib import Path
import torch
from torch import nn
import tangentkit as tk
from tangentkit.analysis.alignment.target import _Alignment, _aligned
from tangentkit.empirical.tangent import outside_autograd

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

model = nn.Sequential(nn.Linear(500, 900), nn.ReLU(), nn.Linear(900, 500), nn.ReLU(), nn.Linear(500, 10))
x, f = torch.randn(12, 500), torch.randn(12, 4)
kernel = tk.TangentKernel(model, memory=34 * 2**20)
_Alignment._tiles_are_less_work = lambda *_: False
kernel._profiles.of(x)  # the verification of a model's rules has a memory of its own
Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
idle = peak()
outside_autograd(_aligned)(kernel, x, f)
print(peak() - idle)
"""


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak memory of a process"
)
def test_memory_bounds_what_averages_and_the_orders_of_weights_take():
    words = [sys.executable, "-c", MEASURED]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    # The averages of all functions and outputs would be 145 MB; the allocator keeps some beside the budget.
    assert int(done.stdout) < 1.25 * 34 * 2**20
