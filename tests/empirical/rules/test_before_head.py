"""The layer before a linear head: one direction does for all, and only where that is so."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cases import CASES, Formula, along, gap, kernel_of_jacobians
from tangentkit import reference
from tangentkit.empirical import TangentKernel
from tangentkit.empirical.engine import contraction, engine
from tangentkit.empirical.passes import routes
from tangentkit.empirical.passes.batching import Batching

pytestmark = pytest.mark.filterwarnings("ignore:.*do not reach the output")
X, Y = (torch.randn(n, 5, generator=torch.Generator().manual_seed(n)).double() for n in (7, 4))


MERGING = {
    "relu": lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4)),
    "gelu": lambda: nn.Sequential(nn.Linear(5, 6), nn.GELU(), nn.Linear(6, 4)),
    "two activations": lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.SiLU(), nn.Linear(6, 4)),
    "in place": lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Linear(6, 4)),
    "no activation": lambda: nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 4)),
    "no biases": lambda: nn.Sequential(nn.Linear(5, 6, bias=False), nn.ELU(), nn.Linear(6, 4, bias=False)),
    "deep": lambda: nn.Sequential(
        nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3), nn.Sigmoid(), nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4)
    ),
    "frozen head": lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4).requires_grad_(False)),
    "one output": lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1)),
    "head of a parameter": lambda: Formula(
        lambda m, x: m.a(x).relu() @ m.w, a=nn.Linear(5, 6), w=nn.Parameter(torch.randn(6, 4))
    ),
    "dropout at rest": lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 4)).eval(),
}  # fmt: skip
APART = {
    "residual": lambda: Formula(lambda m, x: m.c((y := m.a(x)).relu() + y), a=nn.Linear(5, 6), c=nn.Linear(6, 4)),
    "hidden layer that is an output, too": lambda: Formula(
        lambda m, x: torch.cat([m.c(y := m.a(x).relu()), y], 1), a=nn.Linear(5, 6), c=nn.Linear(6, 4)
    ),
    "function of outputs": lambda: Formula(
        lambda m, x: m.c(m.a(x).relu()).tanh(), a=nn.Linear(5, 6), c=nn.Linear(6, 4)
    ),
    "gate": lambda: Formula(
        lambda m, x: m.c(m.a(x).relu() * m.b(x)), a=nn.Linear(5, 6), b=nn.Linear(5, 6), c=nn.Linear(6, 4)
    ),
    "norm": lambda: nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Linear(6, 4)),
    "tokens": lambda: Formula(
        lambda m, x: m.c(m.a(x[:, :, None]).relu()).mean(1), a=nn.Linear(1, 6), c=nn.Linear(6, 4)
    ),
    "twice": lambda: Formula(lambda m, x: m.c(m.a(m.a(x).tanh()).tanh()), a=nn.Linear(5, 5), c=nn.Linear(5, 4)),
}  # fmt: skip


def merging(kernel):
    layers = kernel._profiles.of(X).structure.layers
    return [layer.weight for layer in layers if any(view.merges for view in layer.behind)]


@cache
def learned(make):
    """The kernel of a network, which no route and no choice of outputs changes, and both Jacobians."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make().double()
    return TangentKernel(model), *(reference.jacobian(model, batch) for batch in (X, Y))


def agrees(make, outputs):
    kernel, jx, jy = learned(make)
    kernel = along(kernel, outputs)
    assert gap(kernel(X), kernel_of_jacobians(jx, jx, outputs)) <= 1e-10
    assert gap(kernel(X, Y), kernel_of_jacobians(jx, jy, outputs)) <= 1e-10
    assert gap(sum(kernel.by_parameter(X, Y).values()), kernel_of_jacobians(jx, jy, outputs)) <= 1e-10
    return kernel


@pytest.mark.parametrize("outputs", ["trace", "full", "pseudo", 0])
@pytest.mark.parametrize("name", MERGING)
def test_the_layer_before_a_linear_head_merges_its_directions(name, outputs):
    kernel = agrees(MERGING[name], outputs)
    # Of all layers, the last before the head.
    assert len(merging(kernel)) == 1
    assert merging(kernel)[0] == {"deep": "4.weight", "head of a parameter": "a.weight"}.get(name, "0.weight")


@pytest.mark.parametrize("outputs", ["trace", "full"])
@pytest.mark.parametrize("name", APART)
def test_layers_that_do_not_feed_a_linear_head_alone_stay_apart(name, outputs):
    assert merging(agrees(APART[name], outputs)) == []


@pytest.mark.parametrize("route", ["factored", "gradient"])
@pytest.mark.parametrize("directions", [1, 3, 4])
@pytest.mark.parametrize("name", ["relu", "no biases", "deep", "head of a parameter"])
def test_routes_and_groups_of_directions(name, directions, route, monkeypatch):
    def chosen(*args):
        found = {cost.route: cost for cost in routes.routes(*args)}
        return found.get(route) or next(iter(found.values()))

    monkeypatch.setattr(routes, "cheapest", chosen)
    monkeypatch.setattr(contraction, "LONGEST_SUM", 7)
    monkeypatch.setattr(engine, "batching", lambda _foot, work, *_: Batching(4, min(work.r, directions), 3))
    agrees(MERGING[name], "trace")


def test_probes_merge_too():
    model = MERGING["relu"]().double()
    kernel = TangentKernel(model, probes=64)
    j = reference.jacobian(model, X)
    mean, error = kernel.with_error(X)
    assert gap(kernel(X), mean) <= 1e-10
    assert ((mean - reference.trace_kernel(j, j)).abs() <= 6 * error + 1e-10).all()


def test_the_sum_over_outputs_is_not_paid_for_each():
    counted = {}
    for outputs in (2, 200):
        model = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, outputs))
        rows = TangentKernel(model).plan(torch.randn(512, 5)).rows
        counted[outputs] = {row.parameter: row.flops for row in rows}
    assert counted[2]["0.weight"] == counted[200]["0.weight"]
    assert counted[2]["2.weight"] < counted[200]["2.weight"]


@pytest.mark.parametrize(
    "hook", [lambda g: 3 * g, lambda g: g * torch.arange(1.0, len(g) + 1)[:, None].double()]
)
def test_hooks_on_the_input_of_the_head(hook):
    """Autograd's word counts: that of each sample alone, where a hook makes them differ within a batch."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.head = nn.Linear(5, 6), nn.Linear(6, 3)

        def forward(self, x):
            z = self.a(x).relu()
            if z.requires_grad:
                z.register_hook(hook)
            return self.head(z)

    model = Net().double()
    kernel = TangentKernel(model)

    def gradients(output):
        parameters = list(model.parameters())
        return torch.cat([g.flatten() for g in torch.autograd.grad(output, parameters, retain_graph=True)])

    jacobian = torch.stack([torch.stack([gradients(c) for c in model(one[None])[0]]) for one in X])
    assert gap(kernel(X), kernel_of_jacobians(jacobian, jacobian, "trace")) <= 1e-10


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    widths=st.tuples(*[st.integers(1, 7)] * 3),
    c=st.integers(1, 6),
    n=st.integers(1, 9),
    activation=st.sampled_from([nn.ReLU, nn.Tanh, nn.Hardswish, nn.LeakyReLU]),
)
def test_merged_directions_give_the_kernel_at_any_width(widths, c, n, activation):
    a, b, d = widths
    model = nn.Sequential(
        nn.Linear(a, b), activation(), nn.Linear(b, d), activation(), nn.Linear(d, c)
    ).double()
    x = torch.randn(n, a).double()
    j, kernel = reference.jacobian(model, x), TangentKernel(model)
    for outputs in ("trace", "full"):
        assert gap(along(kernel, outputs)(x), kernel_of_jacobians(j, j, outputs)) <= 1e-10


def test_merged_directions_are_right_in_half_precision():
    model = MERGING["deep"]()
    exact = TangentKernel(model.double())(X)
    rough = TangentKernel(model.bfloat16())(X.bfloat16()).double()
    assert gap(rough, exact) <= 5e-2


def test_a_case_of_the_zoo_merges():
    x, _ = CASES["hundred outputs"].batches()
    layers = CASES["hundred outputs"].kernel()._profiles.of(x).structure.layers
    assert any(view.merges for layer in layers for view in layer.behind)


def test_layers_without_bias_keep_their_view_beside_generic_ones():
    model = Formula(
        lambda m, x: m.c(m.a(x * m.s.exp().cumsum(0)).relu()),
        a=nn.Linear(5, 6, bias=False),
        c=nn.Linear(6, 4),
        s=nn.Parameter(torch.zeros(5)),
    ).double()
    kernel = TangentKernel(model)
    assert merging(kernel) == ["a.weight"]
    structure = kernel._profiles.of(X).structure.without({"s": "forced"})
    assert [layer.weight for layer in structure.layers if layer.behind] == ["a.weight"]
