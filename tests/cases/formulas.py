"""Parameters in formulas of one's own."""

import torch
from torch import nn
from torch.nn import functional as F

from cases.case import Zoo
from cases.draws import floats, joined
from cases.formula import Formula

zoo = Zoo()

zoo("prelu", lambda: nn.Sequential(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 2)), floats(4))
zoo(
    "prelu of channels",
    lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.PReLU(3), nn.Flatten(), nn.Linear(12, 2)),
    floats(2, 3, 3),
)
zoo(
    "bilinear",
    lambda: Formula(lambda m, a, b: m.f(a, b).tanh(), f=nn.Bilinear(3, 2, 3)),
    joined(floats(3), floats(2)),
)
zoo(
    "einsum",
    lambda: Formula(
        lambda m, x: torch.einsum("nij,jk,il->nkl", x, m.a, m.b).flatten(1).tanh(), a=(3, 2), b=(4, 2)
    ),
    floats(4, 3),
)
zoo("matmul", lambda: Formula(lambda m, x: torch.tanh(x @ m.a) @ m.b, a=(4, 5), b=(5, 3)), floats(4))
zoo(
    "batched matmul",
    lambda: Formula(
        lambda m, x: (x.unflatten(1, (2, 3)).transpose(0, 1) @ m.w).transpose(0, 1).flatten(1).tanh(),
        w=(2, 3, 2),
    ),
    floats(6),
)
zoo(
    "bmm",
    lambda: Formula(
        lambda m, x: torch.bmm(x.unflatten(1, (2, 3)).transpose(0, 1), m.w).transpose(0, 1).flatten(1).tanh(),
        w=(2, 3, 2),
    ),
    floats(6),
)
zoo(
    "baddbmm",
    lambda: Formula(
        lambda m, x: (
            torch.baddbmm(m.c, x.unflatten(1, (2, 3)).transpose(0, 1), m.w, alpha=0.5)
            .transpose(0, 1)
            .flatten(1)
        ),
        w=(2, 3, 2),
        c=(2, 1, 2),
    ),
    floats(6),
)
zoo(
    "addmm with factors",
    lambda: Formula(lambda m, x: torch.addmm(m.c, x, m.w, beta=0.3, alpha=2.0).tanh(), c=(3,), w=(4, 3)),
    floats(4),
)
zoo(
    "matrix times vector",
    lambda: Formula(lambda m, x: torch.stack([torch.tanh(x @ m.w), x @ m.v], 1), w=(4,), v=(4,)),
    floats(4),
)
zoo(
    "product with a parameter",
    lambda: Formula(lambda m, x: torch.tanh(x * m.w) + m.s * x - m.c, w=(4,), s=(), c=(1,)),
    floats(4),
)
zoo(
    "scale of tokens and channels",
    lambda: Formula(lambda m, x: (x * m.a[:, None] * m.b).tanh().sum(1), a=(3,), b=(4,)),
    floats(3, 4),
)
zoo(
    "division",
    lambda: Formula(lambda m, x: x / (1 + m.a.square()) + m.b / (2 + x.square()), a=(4,), b=(4,)),
    floats(4),
)
zoo(
    "powers",
    lambda: Formula(lambda m, x: (1 + x.square()) ** m.p + torch.lerp(x, x.square(), m.q), p=(4,), q=(4,)),
    floats(4),
)
zoo(
    "powers at the edges",
    lambda: Formula(
        lambda m, x: F.relu(x) ** (1 + m.p.abs()) + F.relu(m.q) ** x.round().abs() + torch.lerp(m.p, x, 0.3),
        p=(4,),
        q=(4,),
    ),
    floats(4),
)
zoo(
    "ties with a parameter",
    lambda: Formula(
        lambda m, x: torch.maximum(x.round(), m.t - m.t.detach()) + torch.minimum(m.t, m.t * x.round()),
        t=(4,),
    ),
    floats(4),
)
zoo("vector on tokens", lambda: Formula(lambda m, x: torch.tanh(x @ m.w), w=(4,)), floats(3, 4))
zoo(
    "bilinear on tokens, sequence first",
    lambda: Formula(
        lambda m, x: m.f(x.transpose(0, 1), x.transpose(0, 1).square()).tanh().mean(0), f=nn.Bilinear(3, 3, 2)
    ),
    floats(4, 3),
)
zoo(
    "baddbmm with factors, weights on the left",
    lambda: Formula(
        lambda m, x: (
            torch.baddbmm(m.b, m.w, x.permute(1, 2, 0), beta=0.5, alpha=2).permute(2, 0, 1).flatten(1).tanh()
        ),
        b=(3, 2, 1),
        w=(3, 2, 4),
    ),
    floats(3, 4),
)
zoo(
    "comparisons with a parameter",
    lambda: Formula(
        lambda m, x: torch.maximum(x, m.t) + torch.minimum(x, m.u) + torch.clamp(x, m.t, m.t.abs() + 3),
        t=(4,),
        u=(4,),
    ),
    floats(4),
)
zoo(
    "distances to prototypes",
    lambda: Formula(
        lambda m, x: torch.exp(-(x[:, None] - m.p).square().sum(2)) + torch.cdist(x, m.p), p=(3, 4)
    ),
    floats(4),
)
zoo(
    "cosine head",
    lambda: Formula(
        lambda m, x: F.normalize(m.a(x), dim=1) @ F.normalize(m.w, dim=1).T * m.s.exp(),
        a=nn.Linear(4, 3),
        w=(5, 3),
        s=(),
    ),
    floats(4),
)
zoo(
    "scalar parameters",
    lambda: Formula(lambda m, x: torch.stack([m.a * x[:, 0], torch.sin(m.b * x[:, 1])], 1), a=(), b=(1,)),
    floats(2),
)
zoo(
    "parameter in slices",
    lambda: Formula(lambda m, x: torch.tanh(x @ m.w[:3]) + x.square() @ m.w[3:] + m.w[0, 0], w=(6, 4)),
    floats(3),
)
zoo(
    "parameters joined",
    lambda: Formula(
        lambda m, x: torch.tanh(x @ torch.cat([m.a, m.b], 1)) @ torch.stack([m.c, m.d, m.c]),
        a=(4, 1),
        b=(4, 2),
        c=(2,),
        d=(2,),
    ),
    floats(4),
)
zoo(
    "parameter in chunks",
    lambda: Formula(
        lambda m, x: torch.tanh(x @ m.w.chunk(2, 1)[1]) * torch.tanh(x @ m.w.chunk(2, 1)[0]), w=(4, 6)
    ),
    floats(4),
)
zoo(
    "cumulative product of parameters",
    lambda: Formula(lambda m, x: x * torch.cumprod(1 + m.w / 4, 0), w=(4,)),
    floats(4),
)
zoo("softmax of a parameter", lambda: Formula(lambda m, x: x @ torch.softmax(m.w, 0), w=(4, 3)), floats(4))
zoo(
    "mixture of tokens by a softmax of a parameter",
    lambda: Formula(
        lambda m, x: torch.einsum("ntd,t->nd", m.a(x).tanh(), torch.softmax(m.w, 0)),
        w=(4,),
        a=nn.Linear(3, 2),
    ),
    floats(4, 3),
)
zoo(
    "product of parameters",
    lambda: Formula(lambda m, x: torch.tanh(x @ (m.a @ m.b)) * (m.a.sum() * m.b.sum()), a=(4, 2), b=(2, 3)),
    floats(4),
)
zoo(
    "kronecker product of parameters",
    lambda: Formula(lambda m, x: torch.tanh(x @ torch.kron(m.a, m.b)), a=(2, 2), b=(3, 2)),
    floats(6),
)
zoo(
    "triangular parameter",
    lambda: Formula(
        lambda m, x: torch.tanh(x @ m.w.tril()) @ torch.linalg.inv(torch.eye(4, dtype=x.dtype) * 5 + m.w),
        w=(4, 4),
    ),
    floats(4),
)
zoo(
    "outer product", lambda: Formula(lambda m, x: torch.tanh(x[:, :, None] * m.w).sum(1), w=(4, 3)), floats(4)
)
zoo("output is a parameter", lambda: Formula(lambda m, x: m.w.expand(len(x), -1) + 0 * x, w=(3,)), floats(3))
zoo("expanded parameter as output", lambda: Formula(lambda m, x: m.w.expand(len(x), -1), w=(3,)), floats(3))
zoo(
    "repeated parameter",
    lambda: Formula(lambda m, x: torch.cat([m.w.repeat(len(x), 2), x], 1).tanh(), w=(1, 2)),
    floats(2),
)
zoo(
    "bounds of all kinds",
    lambda: Formula(
        lambda m, x: (
            torch.clamp(x, m.a, m.b)  # the bounds cross
            + 2 * torch.clamp_min(x, m.a)
            + torch.clamp_max(m.b, x)
            + torch.clamp(2 * x, max=m.b)
            + torch.clamp(m.a, x, x + 1)
            + x.masked_fill(x < 0, 0).masked_fill(x > 1, m.c)
        ),
        a=(4,),
        b=(4,),
        c=(),
    ),
    floats(4),
)
zoo(
    "distances of all kinds",
    lambda: Formula(
        lambda m, x: (
            torch.cdist(m.a(x), m.p).exp().reciprocal().sum(1)
            + torch.cdist(m.p, x[:, 0], p=1.0).T
            + torch.cdist(x[:, 1], m.many)[:, ::10]
        ),
        a=nn.Linear(3, 3),
        p=(3, 3),
        many=(30, 3),
    ),
    floats(5, 3),
)
zoo(
    "functions of two tensors",
    lambda: Formula(
        lambda m, x: (
            torch.logaddexp(x, m.a)
            + torch.atan2(m.b, x)
            + torch.addcmul(m.a, x, m.b, value=0.5)
            + torch.addcdiv(x, m.a, 2 + m.b.square())
        ),
        a=(4,),
        b=(4,),
    ),
    floats(4),
)
