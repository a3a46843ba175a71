"""A store notices a model that computes something else, wherever the difference hides; and nothing but that."""

import json
import os
import types
from dataclasses import dataclass, field
from types import MethodType

import pytest
import torch
from torch import nn

import tangentkit as tk
from compute.toy_kernels import Counted, Gaussian
from tangentkit.compute import Kernel, engines, gram, open_gram
from tangentkit.compute.probes import take_probe
from tangentkit.compute.sources import as_source
from tangentkit.core.errors import DataError, ModelError, NumericalError

ANOTHER = "same weights, but the model computes something else: probe entries differ by"


def samples(n: int = 7, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(n, 3, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def layers() -> nn.Sequential:
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return net


class Net(nn.Module):
    """Equal weights always; what else it holds is an option."""

    def __init__(self, option=None):
        super().__init__()
        self.layers, self.option = layers(), option


class Appending(Net):
    def forward(self, x):
        outs = []
        for scale in self.option.values() if isinstance(self.option, dict) else self.option:
            outs.append(self.layers(scale * x))  # noqa: PERF401 - the loop is the point
        return torch.stack(outs).sum(0)


class Writing(Net):
    def forward(self, x):
        h = self.layers[0](x)
        h[:, 0] = 0
        return self.layers[2](h * (self.option["a"] if isinstance(self.option, dict) else self.option[0]))


class Adding(Net):
    def forward(self, x):
        h = self.layers(x)
        factor = self.option["a"] if isinstance(self.option, dict) else self.option[0]
        return torch.add(h, h * factor)


class SetWhenNone(Net):
    def forward(self, x):
        if self.option is None:
            self.option = 1.0
        return self.layers(self.option * x)


class SameNameElsewhere(Net):
    def __init__(self, option):
        super().__init__(option)
        self.other = types.SimpleNamespace()

    def forward(self, x):
        self.other.option = len(x)
        return self.layers(self.option * x)


class Config:
    """Options that will not be pickled."""

    def __init__(self, scale):
        self.scale = scale

    def __reduce_ex__(self, protocol):
        raise TypeError("no")


class Configured(Net):
    def forward(self, x):
        return self.layers(self.option.scale * x)


class FromEnvironment(Net):
    def forward(self, x):
        return self.layers(float(os.environ["TANGENTKIT_TEST_SCALE"]) * x)


class Scripted(Net):
    def __init__(self, scale: float):
        super().__init__()
        self.scale: float = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(self.scale * x)


def of_sequential(scale: float) -> Kernel:
    net = layers()
    net.mask = torch.full((3,), scale, dtype=torch.float64)
    return tk.TangentKernel(net, forward=lambda model, x: model(model.mask * x))


def patched(scale: float) -> Kernel:
    net = layers()

    def forward(self, x):
        return nn.Linear.forward(self, x) + scale * x.sum(1, keepdim=True)

    net[0].forward = MethodType(forward, net[0])
    return tk.TangentKernel(net)


def hooked(scale: float) -> Kernel:
    net = layers()
    net[0].register_forward_hook(lambda module, inputs, output: scale * output)  # noqa: ARG005
    return tk.TangentKernel(net)


@dataclass(eq=False)
class Private(Gaussian):
    """A kernel with a field that it does not tell."""

    _power: float = field(default=1.0, kw_only=True)

    def __call__(self, x, y=None):
        return super().__call__(x, y) ** self._power


@dataclass(eq=False)
class PrivateOfPairs(Private):
    """The same where two batches meet, and not where a batch meets itself."""

    def __call__(self, x, y=None):
        return Gaussian.__call__(self, x, y) if y is None else super().__call__(x, y)


@dataclass(eq=False)
class Turned(Kernel):
    """x · y by features that are turned: the kernel is the same, and the stored features are not."""

    _angle: float

    def features(self, x):
        c, s = torch.tensor(self._angle).cos(), torch.tensor(self._angle).sin()
        return torch.stack([c * x[:, 0] - s * x[:, 1], s * x[:, 0] + c * x[:, 1], x[:, 2]], 1)

    def __call__(self, x, y=None):
        return self.features(x) @ self.features(x if y is None else y).T

    def diag(self, x):
        return x.square().sum(1)


def tangent(model, *options):
    return lambda: [tk.TangentKernel(model(option)) for option in options]


PAIRS = {
    "a list, and append": tangent(Appending, [1.0, 2.0], [5.0, 7.0]),
    "a dict, and append": tangent(Appending, {"a": 1.0, "b": 2.0}, {"a": 5.0, "b": 7.0}),
    "a list, and h[:, 0] = 0": tangent(Writing, [1.0], [2.0]),
    "a dict, and h[:, 0] = 0": tangent(Writing, {"a": 1.0}, {"a": 2.0}),
    "a list, and torch.add": tangent(Adding, [1.0], [2.0]),
    "a dict, and torch.add": tangent(Adding, {"a": 1.0}, {"a": 2.0}),
    "an attribute set when None": tangent(SetWhenNone, 2.0, 3.0),
    "the same name on another object": tangent(SameNameElsewhere, 2.0, 3.0),
    "a config that refuses pickling": tangent(Configured, Config(2.0), Config(3.0)),
    "a scripted module": tangent(lambda scale: torch.jit.script(Scripted(scale)), 2.0, 3.0),
    "a tensor on a Sequential": lambda: [of_sequential(2.0), of_sequential(3.0)],
    "a patched method": lambda: [patched(2.0), patched(3.0)],
    "a hook": lambda: [hooked(2.0), hooked(3.0)],
    "a private field": lambda: [Private(), Private(_power=2.0)],
    "turned features": lambda: [Turned(0.0), Turned(1.0)],
    "Monte Carlo": lambda: [
        tk.MonteCarloKernel(lambda: Configured(Config(2.0)), 1),
        tk.MonteCarloKernel(lambda: Configured(Config(3.0)), 1),
    ],
    "a term of a sum": lambda: [
        Private() + tk.TangentKernel(layers()),
        Private(_power=2.0) + tk.TangentKernel(layers()),
    ],
    "a scaled and normalized kernel": lambda: [
        2.0 * patched(2.0).normalized(),
        2.0 * patched(3.0).normalized(),
    ],
    "features of activations": lambda: [
        tk.ConjugateKernel(Configured(Config(2.0))),
        tk.ConjugateKernel(Configured(Config(3.0))),
    ],
    "a sketch": lambda: [
        tk.SketchedTangentKernel(Configured(Config(2.0)), 16),
        tk.SketchedTangentKernel(Configured(Config(3.0)), 16),
    ],
    "infinite width": lambda: [
        tk.InfiniteKernel(nn.Sequential(nn.Linear(3, 4), act, nn.Linear(4, 1)).double())
        for act in (nn.ReLU(), nn.Tanh())
    ],
}


def refused(one: Kernel, other: Kernel, folder, y=None) -> None:
    """Of two kernels, the store of one is not that of the other, and is still that of the first."""
    gram(one, samples(), y, store=folder, tile=4)
    before = open_gram(folder).dense()
    with pytest.raises(DataError, match=ANOTHER):
        gram(other, samples(), y, store=folder)
    assert torch.equal(gram(one, samples(), y, store=folder).dense(), before)


@pytest.mark.parametrize("case", PAIRS)
def test_another_behavior_is_seen_wherever_it_hides(tmp_path, case):
    refused(*PAIRS[case](), tmp_path / "k")


@pytest.mark.parametrize("case", ["a list, and append", "a private field", "turned features"])
def test_rectangular_matrices_are_probed_too(tmp_path, case):
    refused(*PAIRS[case](), tmp_path / "k", y=samples(4, 1))


def test_a_variable_of_the_environment_counts(tmp_path, monkeypatch):
    kernel = tk.TangentKernel(FromEnvironment())
    monkeypatch.setenv("TANGENTKIT_TEST_SCALE", "2.0")
    gram(kernel, samples(), store=tmp_path / "k", tile=4)
    monkeypatch.setenv("TANGENTKIT_TEST_SCALE", "3.0")
    with pytest.raises(DataError, match=ANOTHER):
        gram(kernel, samples(), store=tmp_path / "k")


FILE = """
import torch
from torch import nn

class Net(nn.Linear):
    def forward(self, x):
        return torch.tanh(super().forward(x))

def fw(model, x):
    return {factor} * model(x)

def kernel(tk):
    net = Net(3, 2).double()
    nn.init.eye_(net.weight)
    nn.init.ones_(net.bias)
    return tk.TangentKernel(net, forward=fw)
"""


def imported(name: str, factor: float = 2.0) -> Kernel:
    scope = {"__name__": name}
    exec(FILE.format(factor=factor), scope)
    return scope["kernel"](tk)


def test_the_same_code_under_another_name_is_the_same(tmp_path):
    gram(imported("__main__"), samples(), store=tmp_path / "k")
    before = (tmp_path / "k" / "manifest.json").read_bytes()
    gram(imported("mymod"), samples(), store=tmp_path / "k")
    assert (tmp_path / "k" / "manifest.json").read_bytes() == before
    with pytest.raises(DataError, match=ANOTHER):
        gram(imported("mymod", factor=2.5), samples(), store=tmp_path / "k")


class Counting(Net):
    def forward(self, x):
        self.option.append(len(x))
        self.calls = len(self.option)
        return self.layers(x)


def test_what_a_model_counts_and_keeps_while_it_runs_does_not_count(tmp_path):
    one, other = tk.TangentKernel(Counting([])), tk.TangentKernel(Counting([1, 2, 3]))
    matrices = [gram(kernel, samples(), store=tmp_path / "k").dense() for kernel in (one, other, one)]
    assert all(torch.equal(matrix, one(samples())) for matrix in matrices)


def test_the_error_lists_other_names_where_values_differ(tmp_path):
    gram(tk.TangentKernel(layers()), samples(), store=tmp_path / "k")

    def doubled(model, x):
        return 2 * model(x)

    with pytest.raises(
        DataError, match=r"differ by 0\.75 of .* \(kernel\.function\.forward was call, is .*doubled\)"
    ):
        gram(tk.TangentKernel(layers(), forward=doubled), samples(), store=tmp_path / "k")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rounding_is_no_difference(tmp_path, dtype):
    """Another number of threads, other passes, other samples beside each other."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(1, 9, 3), nn.GELU(), nn.Flatten(), nn.LayerNorm(270), nn.Linear(270, 5)).to(
        dtype
    )
    x = torch.randn(20, 1, 32).to(dtype)
    manifests = []
    for memory, threads in ((None, 1), ("8MB", 2)):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            kernel = tk.TangentKernel(net, memory=memory)
            gram(kernel.to(torch.float32).normalized(), x, store=tmp_path / "k", tile=8)
        finally:
            torch.set_num_threads(before)
        manifests.append((tmp_path / "k" / "manifest.json").read_bytes())
    assert manifests[0] == manifests[1]


def test_a_change_a_little_above_rounding_is_seen(tmp_path):
    x = samples(dtype=torch.float32)
    for scale, seen in ((1.0, False), (1.0 + 1e-6, False), (1.0 + 1e-4, True)):
        kernel = tk.TangentKernel(
            layers().float(), forward=lambda model, batch, scale=scale: model(scale * batch)
        )
        if seen:
            with pytest.raises(DataError, match=ANOTHER):
                gram(kernel, x, store=tmp_path / "k")
        else:
            gram(kernel, x, store=tmp_path / "k")


@dataclass(eq=False)
class Fickle(Gaussian):
    """Another kernel at each call."""

    how: str = "chance"
    calls: list = field(default_factory=list, repr=False)

    def identity(self):
        return {}

    def __call__(self, x, y=None):
        self.calls.append(len(x))
        factor = {
            "chance": lambda: 1 + torch.rand(()),
            "memory": lambda: len(self.calls),
            "company": lambda: len(x),
        }[self.how]()
        return factor * super().__call__(x, y)


@pytest.mark.parametrize("how", ["chance", "memory", "company"])
def test_a_kernel_that_changes_from_call_to_call_is_refused_at_once(tmp_path, how):
    with pytest.raises(ModelError, match="other values from call to call"):
        gram(Fickle(how=how), samples(), store=tmp_path / "k")
    assert not (tmp_path / "k").exists()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_samples_are_probes_enough(tmp_path, n):
    gram(Private(), samples(n), samples(1, 1), store=tmp_path / "k")
    gram(Private(), samples(n), samples(1, 1), store=tmp_path / "k")
    with pytest.raises(DataError, match=ANOTHER):
        gram(Private(_power=2.0), samples(n), samples(1, 1), store=tmp_path / "k")


def test_probes_are_few_whatever_the_size(tmp_path):
    kernel = Counted(Gaussian())
    gram(kernel, samples(3000), store=tmp_path / "k", tile=1000)
    tried = [call for call in kernel._calls if call[1] < 1000]
    assert sum(n * max(m, 1) for _, n, m in tried) <= 100
    kept = json.loads((tmp_path / "k" / "manifest.json").read_bytes())["identity"]["probes"]
    assert kept["samples"]["x"] == [0, 428, 856, 1285, 1713, 2142, 2570, 2999]
    full = tk.TangentKernel(nn.Linear(3, 100).double(), "full")
    gram(full, samples(), store=tmp_path / "full")
    assert (tmp_path / "full" / "manifest.json").stat().st_size < 20_000


@pytest.mark.parametrize(
    "kept", [None, {}, {"values": {"kernel": "?"}}, {"values": {"kernel": [[1.0]], "diagonal-x": [None]}}]
)
def test_what_are_no_probe_values_is_an_error(kept):
    source = as_source(samples())
    probe = take_probe(Private(), {"x": source}, {"x": source.hashes()}, outputs=1)
    assert probe.gap(probe.plain()) is None
    with pytest.raises(DataError, match="probe values of the store are damaged"):
        probe.gap(kept)


@pytest.mark.parametrize("engine", [engines.Serial(), engines.Threads(2)])
def test_samples_that_change_in_memory_are_an_error(tmp_path, engine):
    x = samples(9)

    def write(stage: str, done: int, total: int) -> None:
        x[-1] = done

    with pytest.raises(DataError, match=r"samples 6 to 8 have changed since they were first read"):
        gram(Gaussian(), x, store=tmp_path / "k", tile=3, engine=engine, progress=write)
    assert not list((tmp_path / "k" / "gram" / "c").glob("*/2"))


def test_samples_that_change_while_a_tile_is_computed_leave_it_alone(tmp_path):
    x = samples(6)

    class Rewriting(Gaussian):
        def __call__(self, a, b=None):
            x.zero_()
            k = super().__call__(a, b)
            x.copy_(samples(6))
            return k

    G = gram(Rewriting(), x, store=tmp_path / "k", tile=3)
    assert torch.equal(G.dense(), gram(Gaussian(), samples(6), tile=3).dense())


@dataclass(eq=False)
class Undefined(Gaussian):
    """Not a number for large samples."""

    def __call__(self, x, y=None):
        k = super().__call__(x, y)
        k[x[:, 0] > 100] = torch.nan
        return k


def test_a_probe_that_is_not_finite_names_the_sample_and_leaves_no_store(tmp_path):
    x = samples(50)
    x[[8, 49], 0] = 101  # the first is no probe
    with pytest.raises(NumericalError, match=r"nan or inf for samples \[49\] of x"):
        gram(Undefined(), x, store=tmp_path / "k")
    zero = samples(50)
    zero[49] = 0
    with pytest.raises(NumericalError, match=r"zero for samples \[49\] of x"):
        gram(Turned(0.0).normalized(), zero, store=tmp_path / "k")
    assert not (tmp_path / "k").exists()
