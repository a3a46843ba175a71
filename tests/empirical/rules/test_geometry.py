"""Random geometry: perceptrons, convolutions and token layouts of any size, against the reference."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cases import Formula, gap, kernel_of_jacobians
from tangentkit import reference
from tangentkit.empirical import TangentKernel
from tangentkit.empirical.engine import engine
from tangentkit.empirical.passes import routes
from tangentkit.empirical.passes.batching import Batching

quick = settings(max_examples=15, deadline=None, derandomize=True)
small = st.integers(1, 3)


def agrees(model, x, y, outputs="full"):
    model = model.double()
    jx, jy = (reference.jacobian(model, batch) for batch in (x, y))
    kernel = TangentKernel(model, outputs)
    return (
        gap(kernel(x), kernel_of_jacobians(jx, jx, outputs)) <= 1e-10
        and gap(kernel(x, y), kernel_of_jacobians(jx, jy, outputs)) <= 1e-10
    )


@quick
@given(
    widths=st.lists(st.integers(1, 6), min_size=2, max_size=5),
    n=st.integers(1, 7),
    m=st.integers(1, 7),
    bias=st.booleans(),
)
def test_perceptrons_of_any_widths_agree_with_autograd(widths, n, m, bias):
    layers = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b, bias=bias), nn.Tanh())]
    x, y = torch.randn(n, widths[0]).double(), torch.randn(m, widths[0]).double()
    assert agrees(nn.Sequential(*layers), x, y)
    assert agrees(nn.Sequential(*layers), x, y, "trace")


@quick
@given(
    data=st.data(), rank=st.integers(1, 3), transposed=st.booleans(), n=st.integers(1, 4), m=st.integers(1, 4)
)
def test_convolutions_of_any_geometry_agree_with_autograd(data, rank, transposed, n, m):
    def draw(low, high):
        return tuple(data.draw(st.tuples(*[st.integers(low, high)] * rank)))

    kernel, stride, dilation, groups = draw(1, 3), draw(1, 2), draw(1, 2), data.draw(small)
    channels, outputs = groups * data.draw(small), groups * data.draw(small)
    padding = tuple(data.draw(st.integers(0, d * (k - 1))) for k, d in zip(kernel, dilation, strict=True))
    size = tuple(
        d * (k - 1) + 1 + data.draw(st.integers(0, 2)) for k, d in zip(kernel, dilation, strict=True)
    )
    layer = getattr(nn, f"Conv{'Transpose' * transposed}{rank}d")
    made = (
        layer(channels, outputs, kernel, stride, padding, dilation=dilation, groups=groups)
        if not transposed
        else layer(channels, outputs, kernel, stride, padding, groups=groups, dilation=dilation)
    )
    model = Formula(lambda m, x: (m.conv(x).tanh() * m.s).flatten(2).cumsum(2).mean(2), conv=made, s=())
    assert agrees(model, torch.randn(n, channels, *size).double(), torch.randn(m, channels, *size).double())


@quick
@given(
    t=st.integers(1, 9),
    before=small,
    n=st.integers(1, 5),
    m=st.integers(1, 5),
    first=st.booleans(),
    read=st.integers(-1, 1),
)
def test_tokens_in_any_order(t, before, n, m, first, read):
    """Rows (before, n, t) of a linear layer, read at one position or averaged over all."""

    def formula(model, x):
        h = model.b(torch.tanh(model.a(x.transpose(0, 1).contiguous() if first else x)))
        h = h.transpose(0, 1) if first else h
        return h.mean((1, 2)) if read < 0 else h[:, read % before, (read + 1) % t]

    model = Formula(formula, a=nn.Linear(2, 3), b=nn.Linear(3, 2))
    assert agrees(model, torch.randn(n, before, t, 2).double(), torch.randn(m, before, t, 2).double())


@quick
@given(
    vocabulary=st.integers(1, 9),
    t=st.integers(1, 5),
    n=st.integers(1, 5),
    m=st.integers(1, 5),
    padding=st.booleans(),
)
def test_lookups_of_any_size_agree_with_autograd(vocabulary, t, n, m, padding):
    table = nn.Embedding(vocabulary, 3, padding_idx=vocabulary - 1 if padding else None)
    model = Formula(lambda m, i: m.b(m.e(i).tanh().cumsum(1)[:, -1]), e=table, b=nn.Linear(3, 2))
    assert agrees(model, torch.randint(vocabulary, (n, t)), torch.randint(vocabulary, (m, t)))


@pytest.mark.parametrize("directions", [1, 2])
def test_passes_of_unequal_size(directions, monkeypatch):
    """The sum hands out one gradient for all positions: memory that nothing may be written to."""

    def written(*args):
        found = {cost.route: cost for cost in routes.routes(*args)}
        return found.get("gradient") or next(iter(found.values()))

    monkeypatch.setattr(engine, "batching", lambda _foot, work, *_: Batching(work.n, directions, 3))
    monkeypatch.setattr(routes, "cheapest", written)
    model = Formula(lambda m, x: m.b(m.a(x)).flatten(2).sum(2), a=nn.Conv2d(1, 2, 2), b=nn.Conv2d(2, 2, 2))
    assert agrees(model, torch.randn(7, 1, 5, 5).double(), torch.randn(4, 1, 5, 5).double(), "trace")
