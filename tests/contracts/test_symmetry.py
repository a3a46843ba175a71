"""A symmetric call gives an exactly symmetric matrix, whatever the kernel, its outputs, the dtype and the tiles."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import tangentkit as tk
from tangentkit.compute import Kernel
from tangentkit.core.errors import NumericalError
from tangentkit.linalg import FactorOperator


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return fresh(dtype)


def fresh(dtype: torch.dtype) -> nn.Sequential:
    layers = nn.Linear(7, 33), nn.ReLU(), nn.Linear(33, 33), nn.ReLU(), nn.Linear(33, 3)
    return nn.Sequential(*layers).to(dtype)


class Rounded(Kernel):
    """A kernel of one's own that rounds k(x, y) and k(y, x) differently."""

    def __call__(self, x, y=None):
        y = x if y is None else y
        return (x * x.sum(1, keepdim=True)) @ (y.T * 0.1) / x.sum(1, keepdim=True)

    def diag(self, x):
        return 0.1 * x.square().sum(1)


KERNELS: dict[str, Callable[[torch.dtype], Kernel]] = {
    "trace": lambda dtype: tk.TangentKernel(network(dtype)),
    "full": lambda dtype: tk.TangentKernel(network(dtype), outputs="full"),
    "pseudo": lambda dtype: tk.TangentKernel(network(dtype), outputs="pseudo"),
    "one output": lambda dtype: tk.TangentKernel(network(dtype), outputs=1),
    "probes": lambda dtype: tk.TangentKernel(network(dtype), probes=4),
    "conjugate": lambda dtype: tk.ConjugateKernel(network(dtype), bias=True),
    "embedding": lambda dtype: tk.EmbeddingKernel(network(dtype)),
    "sketched": lambda dtype: tk.SketchedTangentKernel(network(dtype), dim=64),
    "infinite": lambda dtype: tk.InfiniteKernel(network(dtype)),
    "infinite nngp": lambda dtype: tk.InfiniteKernel(network(dtype), kind="nngp"),
    "monte carlo": lambda dtype: tk.MonteCarloKernel(partial(fresh, dtype), samples=2),
}
OTHERS = {"own": lambda _: Rounded()}
COMPOSITIONS: dict[str, Callable[[Kernel], Kernel]] = {
    "itself": lambda k: k,
    "normalized": lambda k: k.normalized(),
    "sum of multiples": lambda k: 0.3 * k + 1.7 * k.normalized(),
    "cast": lambda k: (k + k).normalized().to(torch.float64),
}
WAYS: dict[str, Callable[[Kernel, Tensor, object], Tensor]] = {
    "tiles": lambda k, x, _: tk.gram(k, x, tile=17, progress=False).dense(),
    "one tile": lambda k, x, _: tk.gram(k, x, progress=False).dense(),
    "threads": lambda k, x, _: tk.gram(k, x, tile=17, engine=tk.engines.Threads(2), progress=False).dense(),
    "store": lambda k, x, folder: tk.gram(k, x, tile=17, store=folder, progress=False).dense(),
}
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def samples(dtype: torch.dtype) -> Tensor:
    return torch.randn(41, 7, generator=torch.Generator().manual_seed(1), dtype=dtype)


def is_symmetric(K: Tensor) -> bool:
    matrix = K.reshape(K.shape[0] * (K.shape[1] if K.ndim == 4 else 1), -1)
    return torch.equal(matrix, matrix.T)


@every_dtype
@pytest.mark.parametrize("name", KERNELS)
def test_a_symmetric_call_is_exactly_symmetric(name, dtype):
    kernel = KERNELS[name](dtype)
    for composition, compose in COMPOSITIONS.items():
        assert is_symmetric(compose(kernel)(samples(dtype))), composition


@every_dtype
@pytest.mark.parametrize("name", ["full", "conjugate", "embedding", "own"])
def test_a_gram_matrix_is_exactly_symmetric(name, dtype, tmp_path):
    kernel = (KERNELS | OTHERS)[name](dtype)
    for way, gram in WAYS.items():
        for composition in ("itself", "normalized"):
            if (name, way) != ("own", "store"):  # a kernel of a test has no identity
                k = COMPOSITIONS[composition](kernel)
                assert is_symmetric(gram(k, samples(dtype), tmp_path / composition)), (way, composition)


def test_a_kernel_of_ones_own_that_is_not_symmetric_has_no_gram_matrix():
    class Skew(Rounded):
        def __call__(self, x, y=None):
            return x @ (x if y is None else y).flip(1).T * x[:, :1]

    with pytest.raises(NumericalError, match="not symmetric"):
        tk.gram(Skew(), samples(torch.float64), progress=False)


@every_dtype
@pytest.mark.parametrize("name", ["probes", "sketched"])
def test_kernels_with_errors_are_exactly_symmetric(name, dtype):
    kernel = KERNELS[name](dtype)
    for own in (kernel, kernel.normalized()) if name == "sketched" else (kernel,):
        assert all(map(is_symmetric, own.with_error(samples(dtype))))


def test_parts_of_parameters_are_exactly_symmetric():
    assert all(map(is_symmetric, tk.TangentKernel(network()).by_parameter(samples(torch.float32)).values()))


@every_dtype
def test_the_dense_form_of_a_symmetric_operator_is_exactly_symmetric(dtype):
    features = samples(dtype) * torch.logspace(0, 5, 7, dtype=dtype)
    K = FactorOperator(features)
    for operator in (K, 0.3 * K + 1.1 * K, K.shift(0.1)):
        for memory in (None, 2**16):
            assert is_symmetric(operator.dense(memory))
