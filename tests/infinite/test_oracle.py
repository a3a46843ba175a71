"""Values of an independent implementation, and the recursion of Arora et al. as it is printed."""

import json
from fractions import Fraction
from itertools import pairwise
from math import pi, sqrt
from pathlib import Path

import pytest
import torch
from torch import nn

from infinite.dense_route import cntk
from tangentkit.infinite import InfiniteKernel, Pointwise

ORACLE = json.loads((Path(__file__).parent / "oracle.json").read_text())
INPUTS = {name: torch.tensor(values, dtype=torch.float64) for name, values in ORACLE["inputs"].items()}


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Own(nn.Module):
    """A module that says itself which scalar function it is."""

    def __init__(self, function):
        super().__init__()
        self.dual = Pointwise(function)

    def forward(self, x):
        return self.dual.function(x)


ACTIVATIONS = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "leaky_relu_0.1": lambda: nn.LeakyReLU(0.1),
    "erf": lambda: Function(torch.erf),
    "abs": lambda: Function(torch.abs),
    "sin": lambda: Function(lambda x: x.sin()),
    "cos": lambda: Function(torch.cos),
    "sign": lambda: Function(torch.sign),
    "exp": lambda: Function(torch.exp),
    "monomial_2": lambda: Function(lambda x: x**2),
    "monomial_3": lambda: Function(lambda x: x.pow(3)),
    "gaussian": lambda: Own(lambda x: torch.exp(-x * x)),
    "sigmoid_like": lambda: Own(lambda x: 0.5 * torch.erf(x / 2.4020563531719796) + 0.5),
    "rbf_gamma1": lambda: Own(lambda x: sqrt(2) * torch.sin(sqrt(2) * x + pi / 4)),
}


class Residual(nn.Module):
    def __init__(self, branch):
        super().__init__()
        self.branch = branch

    def forward(self, x):
        return x + self.branch(x)


def network(case: dict) -> nn.Module:
    """The module of a case; widths mean nothing, except where the parameterization is the standard one."""
    bias = case.get("has_bias", True)

    def conv(channels: int, padding: str = "SAME") -> nn.Conv2d:
        pads = {"SAME": (1, "zeros"), "VALID": (0, "zeros"), "CIRCULAR": (1, "circular")}[padding]
        return nn.Conv2d(channels, 6, 3, padding=pads[0], padding_mode=pads[1])

    if case["name"] == "fc_relu_nohead":
        return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
    if case["name"] == "fc_layernorm":
        return nn.Sequential(
            nn.Linear(5, 8), nn.LayerNorm(8, eps=1e-12, elementwise_affine=False), nn.ReLU(), nn.Linear(8, 1)
        )
    if case["name"] == "conv_relu_avgpool_flatten":
        return nn.Sequential(
            conv(2), nn.ReLU(), nn.AvgPool2d(2), conv(6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 1)
        )
    if case["name"] == "conv_relu_residual_gap":
        branch = nn.Sequential(nn.ReLU(), conv(6))
        pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(conv(2), Residual(branch), nn.ReLU(), *pool, nn.Linear(6, 1))
    if case["kind"] == "fully_connected":
        widths = [5, *(case.get("widths") or [8] * case["hidden_layers"])]
        hidden = [
            layer
            for a, b in pairwise(widths)
            for layer in (nn.Linear(a, b, bias=bias), ACTIVATIONS[case["activation"]]())
        ]
        return nn.Sequential(*hidden, nn.Linear(widths[-1], 1, bias=bias))
    layers, side = [], 4
    for i in range(case["conv_layers"]):
        layers += [conv(6 if i else 2, case["padding"]), ACTIVATIONS[case["activation"]]()]
        side -= 2 * (case["padding"] == "VALID")
    head = [nn.Flatten()] if case["head"] == "flatten" else [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(6 * side**2 if case["head"] == "flatten" else 6, 1))


def scales(case: dict) -> dict:
    special = {
        "fc_relu_nohead": ({"0": 1.2, "2": 0.7}, {"0": 0.3, "2": 0.2}),
        "fc_layernorm": (1.3, 0.1),
        "conv_relu_residual_gap": (1.2, 0.1),
    }
    w_std, b_std = special.get(case["name"]) or (case["W_std"], case["b_std"])
    return {"w_std": w_std, "b_std": b_std}


def inputs(case: dict) -> tuple[torch.Tensor, torch.Tensor]:
    if case["kind"] != "conv":
        return INPUTS["X1"], INPUTS["X2"]
    return INPUTS["I1"].permute(0, 3, 1, 2), INPUTS["I2"].permute(0, 3, 1, 2)


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("case", ORACLE["cases"], ids=lambda case: case["name"])
def test_values_of_an_independent_implementation(case, kind):
    x, y = inputs(case)
    options = scales(case) | {"parameterization": "standard" if case["standard"] else "ntk"}
    kernel = InfiniteKernel(network(case), kind, **options)
    expected = {pair: torch.tensor(case[f"{kind}_{pair}"], dtype=torch.float64) for pair in ("11", "12")}
    scale = expected["11"].abs().max()
    torch.testing.assert_close(kernel(x, y), expected["12"], rtol=0, atol=1e-9 * max(1, scale))
    found = kernel(x)
    off = ~torch.eye(len(x), dtype=torch.bool)
    torch.testing.assert_close(found[off], expected["11"][off], rtol=0, atol=1e-9 * max(1, scale))
    assert torch.equal(found.diagonal(), kernel.diag(x))
    diagonal = expected["11"].diagonal()
    if (case["name"], kind) in ROUNDED:
        # The other implementation takes arccos of correlations that are 1 up to rounding, and loses half the digits:
        # fractions say that it is off by more than we allow ourselves, and that we are not.
        exact = torch.tensor(exact_diagonal(case["conv_layers"]), dtype=torch.float64)
        assert ((diagonal / exact - 1).abs() > 1e-9).any()
        torch.testing.assert_close(diagonal, exact, rtol=1e-8, atol=0)
        diagonal = exact
    torch.testing.assert_close(found.diagonal(), diagonal, rtol=1e-9, atol=0)


ROUNDED = {(f"conv_relu_depth{depth}_CIRCULAR_flatten_W1.414_b0.1", "ntk") for depth in (2, 3)}


def exact_diagonal(depth: int) -> list[float]:
    """Θ(x, x) of circular convolutions with w_std² = 2, b_std = 1/10: ReLU halves K and Θ at every position."""
    w2, b2 = Fraction(2), Fraction(1, 100)
    around = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    places = [(i, j) for i in range(4) for j in range(4)]

    def patches(field):
        return {(i, j): sum(field[(i + a) % 4, (j + b) % 4] for a, b in around) / 9 for i, j in places}

    diagonal = []
    for image in ORACLE["inputs"]["I1"]:
        k = {(i, j): sum(Fraction(str(v)) ** 2 for v in image[i][j]) / 2 for i, j in places}
        t = dict.fromkeys(k, Fraction(0))
        for _ in range(depth):
            k = {p: w2 * v + b2 for p, v in patches(k).items()}
            t = {p: w2 * v + k[p] for p, v in patches(t).items()}
            k, t = ({p: v / 2 for p, v in field.items()} for field in (k, t))
        diagonal.append(float(w2 * sum(t.values()) / 16 + w2 * sum(k.values()) / 16 + b2))
    return diagonal


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_diagonal_is_a_rational_function(depth):
    case = next(
        c for c in ORACLE["cases"] if c["name"] == f"conv_relu_depth{depth}_CIRCULAR_flatten_W1.414_b0.1"
    )
    kernel, x = InfiniteKernel(network(case), **scales(case)), inputs(case)[0]
    exact = torch.tensor(exact_diagonal(depth), dtype=torch.float64)
    torch.testing.assert_close(kernel.diag(x), exact, rtol=1e-14, atol=0)
    for i in range(len(x)):
        assert kernel(x[i : i + 1]).item() == pytest.approx(float(exact[i]), rel=1e-14)


@pytest.mark.parametrize("gap", [False, True], ids=["vanilla", "gap"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_cntk_as_it_is_printed(depth, gap):
    x, y = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    layers = []
    for i in range(depth):
        layers += [nn.Conv2d(7 if i else 3, 7, 3, padding=1, bias=False), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten()] if gap else [nn.Flatten()]
    model = nn.Sequential(*layers, *head, nn.Linear(7 if gap else 140, 1, bias=False))
    # Their factor 2 / (C q²) stands after each activation, ours (w_std² and the means over patches) before each
    # layer. So our first layer has w_std = 1, and what is left over is a mean over the 3 channels of the image
    # where they have a sum, and one over the positions in the flatten head: q² cancels.
    w_std = {str(2 * i): sqrt(2) for i in range(depth)} | {"0": 1.0, str(len(model) - 1): sqrt(2)}
    ours = InfiniteKernel(model, w_std=w_std)(x[None], y[None]).item()
    theirs = cntk(x, y, depth=depth, q=3, gap=gap).item()
    assert 3 * (1 if gap else 20) * ours == pytest.approx(theirs, rel=1e-12)
