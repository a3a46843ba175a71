"""The theory page: its formulas for layers, as they are printed, are what `InfiniteKernel` computes."""

import pytest
import torch
from torch import nn

from infinite.theory.printed import B, W
from tangentkit.infinite import InfiniteKernel


class Written(nn.Module):
    def __init__(self, forward, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.rule = forward

    def forward(self, x):
        return self.rule(self, x)


def kernels(forward, x, y, *, standard: bool = False, **layers):
    options = {"w_std": W, "b_std": B, "parameterization": "standard" if standard else "ntk"}
    return [InfiniteKernel(Written(forward, **layers), kind, **options)(x, y) for kind in ("nngp", "ntk")]


def layer(k, t, *, fan_in: float | None = None):
    """A linear layer; in the standard parameterization with its fan_in."""
    gains = (W**2, B**2) if fan_in is None else (fan_in, 1.0)
    return W**2 * k + B**2, W**2 * t + gains[0] * k + gains[1]


def relu(k, t, q, r):
    """ReLU by its angle: (S + (π - θ) xy)/2π and (π - θ)/2π."""
    root = (q * r - k * k).clamp(min=0).sqrt()
    angle = torch.pi - torch.arctan2(root, k)
    return (root + angle * k) / (2 * torch.pi), t * angle / (2 * torch.pi)


@pytest.fixture
def images():
    x, y = torch.randn(2, 2, 3, 6, dtype=torch.float64)
    return x, y


def pairs(x, y):
    """<x_p, y_q>/d of sequences (n, d, p), as (n, m, p, q)."""
    return torch.einsum("ncp,mcq->nmpq", x, y) / x.shape[1]


def variances(x):
    return torch.einsum("ncp,ncp->np", x, x) / x.shape[1]


def hidden(x, y):
    """K and Θ behind a layer that acts on each position alone, and a ReLU."""
    q, r = (W**2 * variances(v) + B**2 for v in (x, y))
    return relu(*layer(pairs(x, y), 0 * pairs(x, y)), q[:, None, :, None], r[None, :, None, :])


@pytest.mark.parametrize("standard", [False, True], ids=["ntk", "standard"])
def test_linear_layers_and_activations(standard):
    x, y = torch.randn(2, 3, 5, dtype=torch.float64)
    k, q, r = x @ y.T / 5, (x * x).sum(1)[:, None] / 5, (y * y).sum(1) / 5
    after = layer(k, 0 * k, fan_in=5 if standard else None)
    after = relu(*after, W**2 * q + B**2, W**2 * r + B**2)
    expected = layer(*after, fan_in=8 if standard else None)
    found = kernels(
        lambda m, x: m.b(m.a(x).relu()), x, y, standard=standard, a=nn.Linear(5, 8), b=nn.Linear(8, 1)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


def test_filters_windows_and_heads(images):
    x, y = images
    k, t = hidden(x, y)
    conv, head = nn.Conv1d(3, 8, 1), nn.Linear(8, 1)
    same = torch.arange(6)
    # (1/F) Σ_a K(p + a, q + a) without padding, then the mean over p = q.
    filtered = [sum(f[:, :, a : a + 4, a : a + 4] for a in range(3)) / 3 for f in (k, t)]
    middle = layer(*filtered)
    cases = {
        "flatten": (
            lambda m, x: m.wide(m.conv(x).relu().flatten(1)),
            layer(*(f[:, :, same, same].mean(-1) for f in (k, t))),
        ),
        "global pooling": (
            lambda m, x: m.head(m.conv(x).relu().mean(2)),
            layer(*(f.mean((2, 3)) for f in (k, t))),
        ),
        "windows": (
            lambda m, x: m.third(nn.functional.avg_pool1d(m.conv(x).relu(), 2).flatten(1)),
            layer(
                *(
                    torch.stack(
                        [f[:, :, i : i + 2, i : i + 2].mean((2, 3)) for i in range(0, 6, 2)], -1
                    ).mean(-1)
                    for f in (k, t)
                )
            ),
        ),
        "a sum": (
            lambda m, x: m.head(m.conv(x).relu().sum(2)),
            layer(*(36 * f.mean((2, 3)) for f in (k, t))),
        ),
        "a filter": (
            lambda m, x: m.head(m.next(m.conv(x).relu()).mean(2)),
            layer(*(f.mean((2, 3)) for f in middle)),
        ),
        "zeros around": (
            lambda m, x: m.ten(nn.functional.pad(m.conv(x).relu(), (1, 3)).flatten(1)),
            layer(*(f[:, :, same, same].sum(-1) / 10 for f in (k, t))),
        ),
    }
    for name, (forward, expected) in cases.items():
        found = kernels(
            forward,
            x,
            y,
            conv=conv,
            head=head,
            wide=nn.Linear(48, 1),
            third=nn.Linear(24, 1),
            ten=nn.Linear(80, 1),
            next=nn.Conv1d(8, 8, 3),
        )
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12, msg=name)


def test_branches_channels_and_normalization(images):
    x, y = (v[..., 0] for v in images)
    k, t = (f[:, :, 0, 0] for f in hidden(x[..., None], y[..., None]))
    q, r = (W**2 * variances(v[..., None])[:, 0] + B**2 for v in (x, y))
    branch = layer(k, t)
    plain = layer(x @ y.T / 3, 0 * k)
    norm = (q[:, None] + 1e-3).sqrt() * (r + 1e-3).sqrt()
    layers = {
        "a": nn.Linear(3, 8),
        "b": nn.Linear(8, 8),
        "c": nn.Linear(3, 24),
        "head": nn.Linear(8, 1),
        "wide": nn.Linear(32, 1),
        "norm": nn.LayerNorm(8, eps=1e-3, elementwise_affine=False),
    }

    def sums(m, x):
        h = m.a(x)
        return m.head(2 * h - 0.5 * m.b(h.relu()))

    cases = {
        "a scaled sum": (sums, layer(*(4 * p + 0.25 * b for p, b in zip(plain, branch, strict=True)))),
        "channels": (
            lambda m, x: m.wide(torch.cat([m.a(x).relu(), m.c(x)], 1)),
            layer(*(0.25 * a + 0.75 * p for a, p in zip((k, t), plain, strict=True))),
        ),
        "a part": (lambda m, x: m.head(m.c(x)[:, 5:13]), layer(*plain)),
        "a norm": (lambda m, x: m.head(m.norm(m.a(x))), layer(*(f / norm for f in plain))),
    }
    for name, (forward, expected) in cases.items():
        for one, other in zip(kernels(forward, x, y, **layers), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12, msg=name)
