"""What identities tell apart, and what they do not depend on."""

import functools
import json
import subprocess
import sys
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
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: x.sin(), lambda x: x.cos()),
    ],
)
def test_different_things_differ(a, b):
    assert identify(a) != identify(b)
    assert identify(a) == identify(a)
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
