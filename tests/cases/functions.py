"""Autograd functions of one's own, checkpoints, inner gradients, writing in place."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cases.case import Zoo
from cases.draws import floats, joined, tokens
from cases.formula import Formula

zoo = Zoo()


class Cube(torch.autograd.Function):
    """x³ in the old style, which vmap does not know."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # pyright: ignore
        """x³."""
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore
        """3 x² g."""
        return 3 * ctx.saved_tensors[0] ** 2 * g


class Scale(torch.autograd.Function):
    """x * w, as a function of its own that takes a parameter."""

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:  # pyright: ignore
        """x * w."""
        return x * w

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:  # noqa: ARG004
        """Keeps both."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore
        """Both products, the second summed over what was broadcast."""
        x, w = ctx.saved_tensors
        return g * w, (g * x).sum(0)


zoo(
    "custom function",
    lambda: Formula(lambda m, x: m.b(Cube.apply(m.a(x))), a=nn.Linear(4, 3), b=nn.Linear(3, 2)),
    floats(4),
)
zoo(
    "custom function of a parameter",
    lambda: Formula(lambda m, x: Scale.apply(m.a(x).tanh(), m.w), a=nn.Linear(4, 3), w=(3,)),
    floats(4),
)
zoo(
    "checkpoint",
    lambda: Formula(
        lambda m, x: m.b(checkpoint(lambda h: torch.tanh(m.a(h)), x, use_reentrant=False)),
        a=nn.Linear(4, 5),
        b=nn.Linear(5, 2),
    ),
    floats(4),
)
zoo(
    "checkpoint in the middle",
    lambda: Formula(
        lambda m, x: m.c(
            checkpoint(nn.Sequential(m.b, nn.Tanh(), m.b), torch.tanh(m.a(x)), use_reentrant=False)
        ),
        a=nn.Linear(4, 5),
        b=nn.Linear(5, 5),
        c=nn.Linear(5, 2),
    ),
    floats(4),
)


def _force(m: Any, x: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (force,) = torch.autograd.grad(m.e(x).sum(), x, create_graph=True)
    return force


zoo(
    "gradient of an energy",
    lambda: Formula(_force, e=nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))),
    floats(3),
    unused=True,
)
zoo(
    "rotary positions",
    lambda: Formula(
        lambda m, x: (
            torch.view_as_real(
                torch.view_as_complex(m.a(x).unflatten(2, (2, 2)).contiguous())
                * torch.polar(torch.ones(3, 1, dtype=x.dtype), torch.arange(3, dtype=x.dtype)[:, None])
            )
            .flatten(2)
            .tanh()
            .sum(1)
        ),
        a=nn.Linear(3, 4),
    ),
    floats(3, 3),
)
zoo(
    "in-place accumulation",
    lambda: Formula(lambda m, x: _accumulate(m, x), a=nn.Linear(4, 3), w=(3,)),
    floats(4),
)


def _accumulate(m: Any, x: Tensor) -> Tensor:
    out = x.new_zeros(len(x), 3)
    out += m.a(x)
    out[:, 1] *= m.w[1]
    out[:, 0] = m.w[0]
    return out.tanh()


def _write(m: Any, x: Tensor) -> Tensor:
    h = m.e(x).transpose(0, 1).clone()
    h[1:3] = m.rows
    h[0, :, 1:] += m.part
    h[3].mul_(m.scale)
    return h.tanh().sum(0)


zoo(
    "written slices, sequence first",
    lambda: Formula(_write, e=nn.Linear(3, 4), rows=(2, 1, 4), part=(3,), scale=()),
    floats(5, 3),
)


def _multiply_into(m: Any, x: Tensor) -> Tensor:
    h = m.e(x).clone()
    h[:, 1:].addmm_(x, m.w)
    return h.tanh()


zoo(
    "product written into a slice",
    lambda: Formula(_multiply_into, e=nn.Linear(3, 4), w=(3, 3)),
    floats(3),
)


def _masked_tokens(m: Any, x: Tensor, hidden: Tensor, place: Tensor) -> Tensor:
    h, samples = m.e(x).clone(), torch.arange(len(x))
    h[hidden > 1] = m.mask
    table = m.table.expand(len(x), -1, -1).clone()
    table[samples, place] = x[:, 0]
    return m.head(h.index_put((samples, place), m.more, accumulate=True).tanh().sum(1)) + table.sum(1)


zoo(
    "tokens written by mask and by index",
    lambda: Formula(
        _masked_tokens, e=nn.Linear(3, 4), mask=(4,), more=(4,), table=(5, 3), head=nn.Linear(4, 3)
    ),
    joined(floats(5, 3), tokens(4, 5), tokens(5)),
)
