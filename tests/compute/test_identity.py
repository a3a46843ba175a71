"""What identities tell apart, and what they do not depend on."""

import functools
import json
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.compute import identify
from tangentkit.compute.identity import differences
from tangentkit.core.errors import ModelError

SCALE = 2.0


def scaled(model, batch):
    return SCALE * model(batch)


def through_another(model, batch):
    return scaled(model, batch)


def closing_over(number):
    return lambda model, batch: number * model(batch)


def with_default(number):
    def forward(model, batch, factor=number):
        return factor * model(batch)

    return forward


@dataclass
class Options:
    width: int
    name: str = "a"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 2),
        (1.0, 1.5),
        (float("nan"), float("inf")),
        ("a", "b"),
        (None, 0),
        ([1, 2], [2, 1]),
        ({1, 2}, {1, 3}),
        ({"a": 1}, {"a": 2}),
        (torch.zeros(2), torch.zeros(3)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.float32, torch.float64),
        (Options(1), Options(2)),
        (nn.ReLU, nn.Tanh),
        (nn.LeakyReLU(0.1), nn.LeakyReLU(0.2)),
        (closing_over(1.0), closing_over(2.0)),
        (with_default(1.0), with_default(2.0)),
        (functools.partial(scaled, model=1), functools.partial(scaled, model=2)),
        (functools.partial(nn.ReLU()), functools.partial(nn.Tanh())),
        (nn.Linear(2, 2).forward, nn.Linear(2, 2).forward),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: x.sin(), lambda x: x.cos()),
    ],
)
def test_different_things_differ(a, b):
    assert identify(a) != identify(b)
    for value in (a, b):
        assert identify(value) == identify(value)
    json.dumps(identify(a))


@pytest.mark.parametrize("function", [scaled, through_another])
def test_a_global_number_counts(function, monkeypatch):
    before = identify(function)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert identify(function) != before


def test_code_counts_and_its_place_does_not():
    texts = [
        "def f(m, x):\n    return m(x) + 1",
        "\n\n\ndef f(m, x):\n    return m(x) + 1",
        "def f(m, x): return m(x)",
    ]
    found = []
    for text in texts:
        scope = {"__name__": "script"}
        exec(text, scope)
        found.append(identify(scope["f"]))
    assert found[0] == found[1] != found[2]


MODEL = """
import torch
from torch import nn

{constant}

class Wrapped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * {factor}

def helper(x):
    return torch.{function}(x)

class Net(nn.Module):
    scale = {scale}

    def __init__(self, option, **more):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self._private = more.get("private", 1.0)
        self.option = option
        self.register_forward_hook(more.get("hook"))
        for p in self.parameters():
            nn.init.ones_(p)

    def forward(self, x):
        inner = lambda z: helper(z) * CONSTANT["a"]
        return Wrapped.apply(inner(self.layer(x))) * self.scale * self._private
"""


def built(option=torch.tanh, constant="CONSTANT = {'a': 1.0}", factor=1, function="tanh", scale=1.0, **more):
    """The architecture of a model whose file says these things."""
    scope = {"__name__": "users_file"}
    exec(MODEL.format(constant=constant, factor=factor, function=function, scale=scale), scope)
    more = {"hook": lambda *call: call[2]} | more
    return tk.TangentKernel(scope["Net"](option, **more)).identity()["function"]["architecture"]


@pytest.mark.parametrize(
    "other",
    [
        {"option": torch.sin},
        {"option": [1, {"depth": 2}]},
        {"option": functools.partial(torch.add, alpha=2)},
        {"option": Options(2)},
        {"option": torch.zeros(2)},
        {"option": nn.Linear(2, 2)},
        {"option": torch.ones(2).mul},
        {"constant": "CONSTANT = {'a': 2.0}"},
        {"factor": 2},
        {"function": "sin"},
        {"scale": 2.0},
        {"private": 2.0},
        {"hook": lambda *call: 2 * call[2]},
    ],
    ids=lambda other: next(iter(other)),
)
def test_all_that_a_model_depends_on_counts(other):
    assert built() == built()
    assert built(**other) == built(**other)
    assert built(**other) != built()


def test_options_of_torch_that_are_not_printed_count():
    def layer(activation):
        torch.manual_seed(0)
        return nn.TransformerEncoderLayer(4, 1, 8, activation=activation, batch_first=True).eval()

    relu, gelu = (identify(layer(name)) for name in ("relu", "gelu"))
    assert relu["values"] == gelu["values"]
    assert relu["architecture"] != gelu["architecture"]
    assert identify(layer("relu")) == relu


def test_what_a_model_counts_and_keeps_while_it_runs_does_not_count():
    class Counting(nn.Linear):
        in_all = 0

        def __init__(self):
            super().__init__(3, 2)
            self.calls, self.log, self.lock, self.parts = 0, [], threading.Lock(), [self]

        def forward(self, x):
            Counting.in_all += 1
            self.calls += 1
            self._note(x)
            return super().forward(x)

        def _note(self, x):
            self.log.append(len(x))

    heard = []
    model = Counting()
    kernel = tk.TangentKernel(model, forward=lambda m, x: (heard.append(1), m(x))[1])
    before = kernel.identity()
    kernel(torch.ones(2, 3))
    with torch.no_grad():
        model.weight.zero_()
    assert kernel.function.module.calls
    assert heard
    assert kernel.identity() == before


def test_an_option_set_by_a_method_counts():
    class Scaled(nn.Linear):
        def __init__(self):
            super().__init__(3, 2)
            self.factor = 1.0

        def set_factor(self, factor):
            self.factor = factor

        def forward(self, x):
            return self.factor * super().forward(x)

    model = Scaled()
    before = identify(model)
    model.set_factor(2.0)
    assert identify(model) != before


def test_recurrent_networks_are_snapshots_too():
    model = nn.LSTM(3, 2, batch_first=True)
    kernel = tk.TangentKernel(model, forward=lambda m, x: m(x)[0][:, -1])
    before = kernel.identity()
    with torch.no_grad():
        model.weight_ih_l0.zero_()
    assert kernel.identity() == before


def test_memory_does_not_count():
    model = nn.Linear(3, 2)
    one, other = (tk.TangentKernel(model, memory=memory).identity() for memory in ("1GB", None))
    assert one == other
    one, other = (tk.ConjugateKernel(model, memory=memory).identity() for memory in (10**9, None))
    assert one == other


def test_using_a_kernel_does_not_change_what_it_is():
    kernel = tk.ConjugateKernel(nn.Linear(3, 2)) + tk.TangentKernel(nn.Linear(3, 2)).normalized()
    before = kernel.identity()
    kernel(torch.zeros(2, 3) + 1)
    assert kernel.identity() == before


def test_another_process_finds_the_same():
    code = (
        "import json, torch, tangentkit as tk\n"
        "torch.manual_seed(0)\n"
        "model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))\n"
        "f = lambda m, x: m(x) * (x.shape[0] in {1, 2, 'a', 'b'})\n"
        "print(json.dumps(tk.TangentKernel(model, forward=f).identity()))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
        ).stdout
        for _ in range(2)
    }
    assert len(outputs) == 1


def test_what_cannot_be_told_is_an_error_with_its_place():
    with pytest.raises(ModelError, match=r"kernel\.options\[1\]"):
        identify({"options": [1, iter([])]})


def test_an_object_may_speak_for_itself():
    class Own:
        def identity(self):
            return {"version": 3}

    assert identify([Own()]) == [{"version": 3}]


def test_differences_are_found_at_any_depth():
    a = {"k": {"x": 1, "y": [1, 2]}, "z": 0}
    assert list(differences(a, a)) == []
    assert [path for path, _, _ in differences(a, {"k": {"x": 1, "y": [1, 3]}, "w": 0})] == ["k.y", "z", "w"]
