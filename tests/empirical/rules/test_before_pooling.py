"""Convolutions seen from behind their pooling: where they are, and that both views give the same."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cases import CASES, along, expected, gap, kernel_of, kernel_of_jacobians
from cases.pooling import SEEN_AS_IT_IS, SEEN_FROM_BEHIND
from tangentkit import models, reference
from tangentkit.core import buffer_pool
from tangentkit.empirical import TangentKernel
from tangentkit.empirical.engine import engine
from tangentkit.empirical.passes import routes
from tangentkit.empirical.passes.batching import Batching
from tangentkit.empirical.rules import base, before_pooling
from tangentkit.empirical.rules.base import Matrix


@pytest.fixture
def from_behind(monkeypatch):
    """As if the way through a pooling had no end."""
    monkeypatch.setattr(routes, "THROUGH_POOLING", 1e9)


def views(kernel, x):
    layers = kernel._profiles.of(x).structure.layers
    return {layer.weight: any(not view.merges for view in layer.behind) for layer in layers}


@pytest.mark.parametrize("name", SEEN_FROM_BEHIND)
def test_the_first_convolution_is_seen_from_behind(name):
    x, _ = CASES[name].batches()
    found = views(CASES[name].kernel(), x)
    assert any(found.values())
    # Gradients pass through later convolutions anyway.
    assert not found.get("3.weight", False)


@pytest.mark.parametrize("name", SEEN_AS_IT_IS)
def test_where_it_is_not_possible(name):
    x, _ = CASES[name].batches()
    assert not any(views(CASES[name].kernel(), x).values())


@pytest.mark.parametrize("name", SEEN_FROM_BEHIND)
@pytest.mark.parametrize(
    # One direction is no group.
    ("groups", "outputs"),
    [(False, "trace"), (False, "full"), (False, "pseudo"), (True, "trace"), (True, "full")],
)
def test_both_views_agree(name, outputs, groups, from_behind, monkeypatch):
    if groups:  # of directions and of samples, the last of them smaller
        monkeypatch.setattr(
            engine,
            "batching",
            lambda _foot, work, *_: Batching(4, work.r if work.full else -(-work.r * 2 // 3), 3),
        )
    kernel, (x, y) = kernel_of(name, outputs), CASES[name].batches()
    assert gap(kernel(x), expected(name, outputs, symmetric=True)) <= 1e-10
    assert gap(kernel(x, y), expected(name, outputs, symmetric=False)) <= 1e-10
    parts = kernel.by_parameter(x, y)
    assert gap(sum(parts.values()), expected(name, outputs, symmetric=False)) <= 1e-10
    with monkeypatch.context() as usual:
        usual.setattr(routes, "THROUGH_POOLING", -1e9)
        direct = kernel.by_parameter(x, y)
    assert parts.keys() == direct.keys()
    assert all(gap(parts[key], direct[key]) <= 1e-10 for key in parts)


def test_passes_end_at_the_pooling(from_behind, monkeypatch):
    """The gradient of the convolution's output, the largest tensor of all, is made once, not for each direction."""
    model, x = (
        CASES["two convs, each with its pool"].model(),
        CASES["two convs, each with its pool"].batches()[0],
    )
    kernel, made = TangentKernel(model), []
    kernel(x)
    measured = before_pooling.local_derivative
    monkeypatch.setattr(before_pooling, "local_derivative", lambda *args: made.append(1) or measured(*args))
    with torch.profiler.profile() as profile:
        kernel(x)
    pools = [e.count for e in profile.key_averages() if e.key == "aten::max_pool2d_with_indices_backward"]
    assert (pools, len(made)) == ([1], 1)


@pytest.mark.parametrize(("outputs", "seen"), [(1, False), (2, False), (10, True), (100, True)])
def test_the_cheaper_view_is_taken(outputs, seen):
    """With few output directions it does not pay to prepare the inputs; the plan says what is done."""
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(6 * 196, outputs)
    )
    kernel, x = TangentKernel(model), torch.randn(64, 1, 28, 28)
    profile = kernel._profiles.of(x)
    work = routes.Workload(64, 64, outputs, full=False, symmetric=True)
    arranged = routes.arrange(profile.structure.layers, profile.sizes, work, 4)
    assert (profile.structure.layers[0] not in arranged) == seen
    rows = {row.parameter: row for row in kernel.plan(x).rows}
    assert rows.keys() == dict(model.named_parameters()).keys()
    direct = 2 * 64 * outputs * 784 * 150
    assert (rows["0.weight"].flops < direct) == (seen and outputs > 1)


def doubled(site):
    right = before_pooling.pooled(site)
    if isinstance(right, Matrix):
        return Matrix(lambda s: 2 * right.inputs(s), right.outgoing, right.transposed)
    return right


def raising(site):
    raise ValueError("a rule with a bug")


def raising_later(site):
    right = before_pooling.pooled(site)
    return Matrix(raising, right.outgoing, right.transposed) if isinstance(right, Matrix) else right


@pytest.mark.parametrize("wrong", [doubled, raising, raising_later])
def test_a_wrong_view_is_caught(wrong, from_behind, monkeypatch):
    name = "conv, relu, max pool"
    monkeypatch.setitem(base.RULES, "MaxPool2DWithIndicesBackward0", wrong)
    x, y = CASES[name].batches()
    assert gap(CASES[name].kernel()(x, y), expected(name, "trace", symmetric=False)) <= 1e-10


@pytest.mark.parametrize("place", ["conv", "relu", "pool"])
def test_hooks_of_the_user_on_the_way(place, from_behind):
    """A hook that changes gradients is part of what autograd says."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 2, 2), nn.Linear(8, 3)

        def forward(self, x):
            tensors = {"conv": self.conv(x)}
            tensors["relu"] = tensors["conv"].relu()
            tensors["pool"] = nn.functional.max_pool2d(tensors["relu"], 2)
            if tensors[place].requires_grad:
                tensors[place].register_hook(lambda g: 3 * g)
            return self.head(tensors["pool"].flatten(1))

    model, x = Net().double(), torch.randn(5, 1, 5, 5).double()

    def gradients(output):
        return torch.cat([g.flatten() for g in torch.autograd.grad(output, parameters, retain_graph=True)])

    parameters = list(model.parameters())
    jacobian = torch.stack([torch.stack([gradients(c) for c in model(one[None])[0]]) for one in x])
    assert gap(TangentKernel(model)(x), kernel_of_jacobians(jacobian, jacobian, "trace")) <= 1e-10


@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data(), n=st.integers(1, 5), m=st.integers(1, 4), rank=st.integers(2, 3))
def test_convolutions_before_pooling_of_any_geometry_give_the_kernel(data, n, m, rank):
    def draw(low, high):
        return tuple(data.draw(st.tuples(*[st.integers(low, high)] * rank)))

    kernel, stride, dilation, window = draw(1, 3), draw(1, 2), draw(1, 2), draw(1, 3)
    groups = data.draw(st.integers(1, 2))
    channels, outputs = groups * data.draw(st.integers(1, 2)), groups * data.draw(st.integers(1, 3))
    padding = tuple(data.draw(st.integers(0, d * (k - 1))) for k, d in zip(kernel, dilation, strict=True))
    # Room for one window at least, and for what is left over at the border.
    size = tuple(
        d * (k - 1) + 1 + s * w + data.draw(st.integers(0, 2))
        for k, s, d, w in zip(kernel, stride, dilation, window, strict=True)
    )
    conv, pool = (
        getattr(nn, f"{kind}{rank}d") for kind in ("Conv", data.draw(st.sampled_from(["MaxPool", "AvgPool"])))
    )
    first = nn.Sequential(
        conv(channels, outputs, kernel, stride, padding, dilation, groups, bias=data.draw(st.booleans())),
        nn.ReLU(),
        pool(window),
        nn.Flatten(),
    )
    features = first(torch.zeros(1, channels, *size)).shape[1]
    model = nn.Sequential(first, nn.Linear(features, 3)).double()
    x, y = (torch.randn(k, channels, *size).double() for k in (n, m))
    jx, jy = (reference.jacobian(model, batch) for batch in (x, y))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes, "THROUGH_POOLING", 1e9)
        learned = TangentKernel(model)
        for kind in ("trace", "full"):
            found = along(learned, kind)
            assert gap(found(x), kernel_of_jacobians(jx, jx, kind)) <= 1e-10
            assert gap(found(x, y), kernel_of_jacobians(jx, jy, kind)) <= 1e-10
        assert views(found, x)["0.0.weight"]


def test_a_row_whose_view_changes(monkeypatch):
    """What a row of tiles keeps of its left side belongs to one view."""
    name = "conv, relu, max pool"
    x, y = CASES[name].batches()
    row = CASES[name].kernel().row(x)
    for weight in (1e9, -1e9, 1e9):
        monkeypatch.setattr(routes, "THROUGH_POOLING", weight)
        assert gap(row(y), expected(name, "trace", symmetric=False)) <= 1e-10


def test_no_call_needs_fresh_memory(monkeypatch):
    """Blocks of nearly the same size would drive each other out of the pool, in turns for ever."""
    kernel, x = TangentKernel(models.lenet(), memory="2GB"), torch.randn(512, 1, 28, 28)
    for _ in range(3):
        kernel(x)
    made, real = [], buffer_pool.np.empty

    def empty(size, *args, **options):
        if isinstance(size, int) and size >= buffer_pool.LARGE:
            made.append(size)
        return real(size, *args, **options)

    monkeypatch.setattr(buffer_pool.np, "empty", empty)
    kernel(x)
    assert made == []
