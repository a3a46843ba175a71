"""What depends on the data: experts, masks, orders."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cases.case import Zoo
from cases.draws import floats, joined, signs, tokens
from cases.formula import Formula

zoo = Zoo()


def _routed(m: Any, x: Tensor) -> Tensor:
    out = x.new_zeros(len(x), 2)
    left = x[:, 0] > 0
    out[left] = m.a(x[left])
    out[~left] = torch.tanh(m.b(x[~left]))
    return out


def _routed_tokens(m: Any, x: Tensor) -> Tensor:
    out = x.new_zeros(*x.shape[:2], 2)
    some = x[:, :, 0] > 0
    out[some] = torch.tanh(m.a(x[some]))
    return out.sum(1)


def _branching(m: Any, x: Tensor) -> Tensor:
    return torch.stack([m.a(row) if row.sum() > 0 else torch.tanh(m.b(row)) for row in x])


def _expert_if_any(m: Any, x: Tensor) -> Tensor:
    # Skips an expert that no sample asks for: the numbers are those of torch.where, the graph is not.
    left = x[:, :1] > 0
    out = m.a(x)
    return torch.where(left, torch.tanh(m.b(x)), out) if left.any() else out


zoo(
    "experts by where",
    lambda: Formula(
        lambda m, x: torch.where(x[:, :1] > 0, m.a(x), torch.tanh(m.b(x))),
        a=nn.Linear(4, 2),
        b=nn.Linear(4, 2),
    ),
    floats(4),
)
zoo(
    "experts by mask",
    lambda: Formula(_routed, a=nn.Linear(4, 2), b=nn.Linear(4, 2)),
    signs(1, -1, 1, -1, 1, -1),
)
zoo(
    "experts by mask, the second one late",
    lambda: Formula(_routed, a=nn.Linear(4, 2), b=nn.Linear(4, 2)),
    signs(1, 1, 1, 1, 1, -1),
)
zoo("tokens by mask", lambda: Formula(_routed_tokens, a=nn.Linear(3, 2)), floats(4, 3))
zoo(
    "expert that is skipped at first",
    lambda: Formula(_expert_if_any, a=nn.Linear(4, 2), b=nn.Linear(4, 2)),
    signs(-1, -1, -1, -1, -1, 1),
)
zoo(
    "control flow of each sample",
    lambda: Formula(_branching, a=nn.Linear(4, 2), b=nn.Linear(4, 2)),
    floats(4),
)
zoo(
    "top experts",
    lambda: Formula(
        lambda m, x: (
            (m.e[m.g(x).topk(2, 1).indices] * x[:, None, :, None]).sum((1, 2)) * m.g(x).amax(1, keepdim=True)
        ),
        g=nn.Linear(4, 3),
        e=(3, 4, 2),
    ),
    floats(4),
)
zoo(
    "parameter that reaches the output for some inputs",
    lambda: Formula(lambda m, x: m.a(x) + F.relu(x[:, :1]) * m.w, a=nn.Linear(4, 3), w=(3,)),
    signs(-1, 1, -1, -1, -1, 1),
)
zoo(
    "parameter that never reaches the output",
    lambda: Formula(lambda m, x: m.a(x).tanh(), a=nn.Linear(4, 3), idle=(3,)),
    floats(4),
    unused=True,
)
zoo(
    "cancelled parameter",
    lambda: Formula(lambda m, x: m.a(x) + 0 * m.w, a=nn.Linear(4, 3), w=(3,)),
    floats(4),
)
zoo(
    "max over positions",
    lambda: Formula(lambda m, x: m.b(m.a(x).amax(1)), a=nn.Linear(3, 4), b=nn.Linear(4, 2)),
    floats(5, 3),
)
zoo(
    "sorted within samples",
    lambda: Formula(lambda m, x: m.b(m.a(x).sort(1).values), a=nn.Linear(3, 4), b=nn.Linear(4, 2)),
    floats(3),
)
zoo(
    "scatter",
    lambda: Formula(
        lambda m, x, i: x.new_zeros(len(x), 4).scatter_add(1, i, m.a(x)).tanh(), a=nn.Linear(3, 5)
    ),
    joined(floats(3), tokens(4, 5)),
)
zoo(
    "gather",
    lambda: Formula(lambda m, x, i: m.a(x).gather(1, i).tanh(), a=nn.Linear(3, 5)),
    joined(floats(3), tokens(5, 3)),
)
zoo(
    "last token by length",
    lambda: Formula(
        lambda m, x, i: m.b(m.a(x).tanh().cumsum(1)[torch.arange(len(i)), i]),
        a=nn.Linear(3, 4),
        b=nn.Linear(4, 2),
    ),
    joined(floats(4, 3), tokens(4)),
)
zoo(
    "fourier",
    lambda: Formula(lambda m, x: torch.fft.rfft(m.a(x)).abs().square(), a=nn.Linear(4, 5)),
    floats(4),
)
zoo(
    "spectral filter",
    lambda: Formula(
        lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * torch.complex(m.re, m.im), n=6).tanh(),
        re=(4,),
        im=(4,),
    ),
    floats(6),
)


def _dispatched(m: Any, x: Tensor) -> Tensor:
    n, expert = len(x), (x[:, 0] > 0).long()
    place = (F.one_hot(expert, 2).cumsum(0).gather(1, expert[:, None]) - 1)[:, 0]
    sent = x.new_zeros(n, 2, n)
    sent[torch.arange(n), expert, place] = 1
    h = torch.tanh(torch.einsum("ecd,edo->eco", torch.einsum("nec,nd->ecd", sent, x), m.w))
    return torch.einsum("nec,eco->no", sent, h)


def _added_by_index(m: Any, x: Tensor) -> Tensor:
    gate, expert = m.gate(x).softmax(1).max(1)
    out = x.new_zeros(len(x), 2)
    for e in range(3):
        rows = (expert == e).nonzero()[:, 0]
        out = out.index_add(0, rows, torch.tanh(x[rows] @ m.w[e]) * gate[rows, None])
    return out


def _sorted_by_expert(m: Any, x: Tensor) -> Tensor:
    order = (x[:, 0] > 0).long().argsort(stable=True)
    out = x.new_zeros(len(x), 2)
    out[order] = m.b(torch.tanh(m.a(x[order])))
    return out


# The samples that are looked at first (0, 1, 2, 3 and 5) stand in the order of the experts; sample 4 does not.
zoo(
    "samples sorted by expert, but not at first",
    lambda: Formula(_sorted_by_expert, a=nn.Linear(4, 3), b=nn.Linear(3, 2)),
    signs(-1, -1, -1, 1, -1, 1),
)
zoo(
    "samples sent to experts by products, at first all to one",
    lambda: Formula(_dispatched, w=(2, 4, 2)),
    signs(-1, -1, -1, -1, 1, -1),
)
zoo("experts added by index", lambda: Formula(_added_by_index, gate=nn.Linear(4, 3), w=(3, 4, 2)), floats(4))


def _rolled(m: Any, x: Tensor, steps: int) -> Tensor:
    return m.b(m.a(x.roll(steps, 0)).tanh()).roll(-steps, 0)


def _with_room(m: Any, x: Tensor) -> Tensor:
    """Every expert has room for all samples."""
    weight, expert = m.gate(x).softmax(1).max(1)
    mine = F.one_hot(expert, 3)
    place = ((mine.cumsum(0) - 1) * mine).sum(1)
    each = torch.tanh(torch.einsum("nd,edo->neo", x, m.w))
    return (each * mine[:, :, None]).sum(1) * (weight * (place < len(x)))[:, None]


def _tokens_by_expert(m: Any, x: Tensor) -> Tensor:
    """Tokens of all samples in the order of their experts, and back."""
    flat = x.flatten(0, 1)
    expert = (flat[:, 0] > 0).long()
    order = expert.argsort(stable=True)
    given = torch.where(expert[order, None] > 0, torch.tanh(flat[order] @ m.w[0]), flat[order] @ m.w[1])
    return flat.new_zeros(len(flat), 2).index_add(0, order, given).unflatten(0, x.shape[:2]).sum(1)


# Of the samples that are looked at first (0, 1, 2, 3 and 5) none is large; sample 4 is.
zoo(
    "samples shifted if one of them is large",
    lambda: Formula(
        lambda m, x: _rolled(m, x, 2 * bool((x[:, 0] > 0).any())), a=nn.Linear(4, 3), b=nn.Linear(3, 2)
    ),
    signs(-1, -1, -1, -1, 1, -1),
)
zoo(
    "samples shifted by the number of large ones",
    lambda: Formula(
        lambda m, x: _rolled(m, x, int((x[:, 0] > 0).sum())), a=nn.Linear(4, 3), b=nn.Linear(3, 2)
    ),
    signs(-1, -1, -1, -1, 1, -1),
)
zoo("experts with room for all", lambda: Formula(_with_room, gate=nn.Linear(4, 3), w=(3, 4, 2)), floats(4))
zoo("tokens of all samples by expert", lambda: Formula(_tokens_by_expert, w=(2, 4, 2)), floats(3, 4))
