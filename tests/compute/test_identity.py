"""What identities tell apart, what they do not depend on, and how they say what differs."""

import functools
import json
import subprocess
import sys
import threading
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import tangentkit as tk
from compute.toy_kernels import Gaussian
from tangentkit.compute import identify
from tangentkit.compute.identity import differences


@dataclass
class Options:
    width: int
    name: str = "a"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 2),
        (1.0, 1.5),
        (np.int64(1), np.int64(2)),
        (float("nan"), float("inf")),
        ("a", "b"),
        (None, 0),
        ([1, 2], [2, 1]),
        ({1, 2}, {1, 3}),
        ({"a": 1}, {"a": 2}),
        ({"a": None}, {}),
        (torch.zeros(2), torch.zeros(3)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.float32, torch.float64),
        (Options(1), Options(2)),
        (nn.Linear(2, 2), nn.Linear(2, 2)),
    ],
)
def test_different_things_differ(a, b):
    assert list(differences(identify(a), identify(b), ("a",)))
    for value in (a, b):
        again = json.loads(json.dumps(identify(value)))
        assert list(differences(again, identify(value), ("a",))) == []


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (nn.ReLU, nn.Tanh),
        (abs, lambda x: x),
        (functools.partial(abs), threading.Lock()),
        (iter([]), object()),
        ([abs, 1], [max, 1]),
        (np.int64(3), 3),
    ],
)
def test_names_are_kept_and_are_no_difference(a, b):
    assert list(differences(identify(a), identify(b))) == []
    json.dumps([identify(a), identify(b)])


def test_a_child_called_identity_does_not_speak_for_its_module():
    class Skipping(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.identity = nn.Identity()

    assert set(identify(Skipping())["parameters"]) == {"weight", "bias"}


def test_an_object_may_speak_for_itself():
    class Own:
        def identity(self):
            return {"version": 3}

    assert identify([Own()]) == [{"version": 3}]


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


def test_another_process_finds_the_same(capsys):
    code = (
        "import json, torch, tangentkit as tk\n"
        "torch.manual_seed(0)\n"
        "model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))\n"
        "kernel = tk.TangentKernel(model, forward=lambda m, x: m(x))\n"
        "kernel.names = {'a', 'b', 'c'}\n"
        "print(json.dumps(kernel.identity()))"
    )
    words = [sys.executable, "-c", code]
    there = subprocess.run(words, check=True, capture_output=True, text=True, timeout=120).stdout
    exec(code, {"__name__": "__main__"})
    assert capsys.readouterr().out == there


def words(a, b) -> list[str]:
    return list(differences({"kernel": a.identity()}, {"kernel": b.identity()}))


def network(*changed: str, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=bias)).eval()
    for name, value in (*net.named_parameters(), *net.named_buffers()):
        if name in changed:
            value.data += 1
    return net


TANGENT = functools.partial(tk.TangentKernel, memory="100MB")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (
            lambda: TANGENT(network("1.weight", "2.bias")),
            ["the weights differ (2 of 6 parameters, first: 1.weight)"],
        ),
        (
            lambda: TANGENT(network("1.running_mean")),
            ["the buffers differ (1 of 3 buffers, first: 1.running_mean)"],
        ),
        (
            lambda: TANGENT(network(bias=False)),
            ["the weights differ (1 of 6 parameters, first: 2.bias (only in the store))"],
        ),
        (
            lambda: TANGENT(network(), params=["0.weight"]),
            ["kernel.function.params was all, is ['0.weight']"],
        ),
        (lambda: TANGENT(network(), "pseudo"), ["kernel.outputs was trace, is pseudo"]),
        (
            lambda: TANGENT(network(), seed=3, probes=2),
            ["kernel.probes was None, is 2", "kernel.seed was 0, is 3"],
        ),
        (lambda: TANGENT(network()).normalized(), ["kernel was a TangentKernel, is a NormalizedKernel"]),
        (lambda: TANGENT(network(), forward=lambda m, x: 2 * m(x)), []),
    ],
)
def test_differences_are_said_in_words(other, expected):
    assert words(TANGENT(network()), other()) == expected


def test_the_place_in_a_composed_kernel_is_said():
    one, other = (TANGENT(network(*changed)) for changed in ((), ("0.bias",)))
    assert words(2.0 * one + Gaussian(), 2.0 * other + Gaussian(width=2.0)) == [
        "the weights of kernel.left.kernel.function differ (1 of 6 parameters, first: 0.bias)",
        "kernel.right.width was 1.0, is 2.0",
    ]
