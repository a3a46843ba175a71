"""Rows of tables by index."""

import torch
from torch import nn
from torch.nn import functional as F

from cases.case import Zoo
from cases.draws import floats, joined, tokens
from cases.formula import Formula

zoo = Zoo()

zoo(
    "embedding",
    lambda: Formula(lambda m, i: m.b(m.e(i).flatten(1)), e=nn.Embedding(6, 3), b=nn.Linear(12, 2)),
    tokens(6, 4),
)
zoo(
    "embedding with padding_idx",
    lambda: Formula(
        lambda m, i: m.b(m.e(i).tanh().mean(1)), e=nn.Embedding(6, 3, padding_idx=2), b=nn.Linear(3, 2)
    ),
    tokens(6, 4),
)
zoo(
    "embedding scaled by frequency",
    lambda: Formula(
        lambda m, i: m.b(m.e(i).tanh().mean(1)),
        e=nn.Embedding(4, 3, scale_grad_by_freq=True),
        b=nn.Linear(3, 2),
    ),
    tokens(4, 5),
)
zoo(
    "embedding with max_norm",
    lambda: Formula(
        lambda m, i: m.b(m.e(i).tanh().mean(1)), e=nn.Embedding(6, 3, max_norm=0.5), b=nn.Linear(3, 2)
    ),
    tokens(6, 4),
)
zoo(
    "embedding of one token",
    lambda: Formula(lambda m, i: m.b(m.e(i)), e=nn.Embedding(6, 3), b=nn.Linear(3, 2)),
    tokens(6),
)
zoo(
    "embedding, sequence first",
    lambda: Formula(
        lambda m, i: m.b(m.e(i.T.contiguous()).tanh()).mean(0), e=nn.Embedding(6, 3), b=nn.Linear(3, 2)
    ),
    tokens(6, 4),
)
zoo(
    "embedding of a large table",
    lambda: Formula(lambda m, i: m.b(m.e(i).tanh().mean(1)), e=nn.Embedding(200, 2), b=nn.Linear(2, 2)),
    tokens(200, 3),
)
for _mode in ("mean", "sum", "max"):
    zoo(
        f"embedding bag, {_mode}",
        lambda mode=_mode: Formula(
            lambda m, i: m.b(m.e(i).tanh()), e=nn.EmbeddingBag(6, 3, mode=mode), b=nn.Linear(3, 2)
        ),
        tokens(6, 4),
    )
zoo(
    "embedding bag with padding_idx",
    lambda: Formula(
        lambda m, i: m.b(m.e(i).tanh()),
        e=nn.EmbeddingBag(6, 3, mode="mean", padding_idx=2),
        b=nn.Linear(3, 2),
    ),
    tokens(6, 4),
)
zoo(
    "embedding bags of unequal size",
    lambda: Formula(
        # Two bags a sample: the first one of its tokens, and the rest.
        lambda m, i: m.b(
            m.e(i.flatten(), torch.arange(i.numel(), device=i.device).view_as(i)[:, :2].flatten())
            .unflatten(0, (len(i), 2))
            .flatten(1)
            .tanh()
        ),
        e=nn.EmbeddingBag(6, 3, mode="sum"),
        b=nn.Linear(6, 2),
    ),
    tokens(6, 4),
)
zoo(
    "embedding bag, weighted",
    lambda: Formula(
        lambda m, i, w: m.b(m.e(i, per_sample_weights=w).tanh()),
        e=nn.EmbeddingBag(6, 3, mode="sum"),
        b=nn.Linear(3, 2),
    ),
    joined(tokens(6, 4), floats(4)),
)
zoo(
    "positions and class token",
    lambda: Formula(
        lambda m, x: m.head(
            m.mix(torch.cat([m.cls.expand(len(x), -1, -1), x], 1) + m.positions).tanh()[:, 0]
            + m.mix(x).tanh().mean(1)
        ),
        cls=(1, 1, 3),
        positions=(1, 4, 3),
        mix=nn.Linear(3, 3),
        head=nn.Linear(3, 2),
    ),
    floats(3, 3),
)
zoo(
    "positional embedding by arange",
    lambda: Formula(
        lambda m, i: m.b((m.e(i) + m.p(torch.arange(i.shape[1]))).tanh().mean(1)),
        e=nn.Embedding(6, 3),
        p=nn.Embedding(4, 3),
        b=nn.Linear(3, 2),
    ),
    tokens(6, 4),
)
zoo(
    "parameter by index",
    lambda: Formula(lambda m, x, i: x * m.w[i] + m.b[i - 3], w=(5, 3), b=(5, 1)),
    joined(floats(3), tokens(3)),
)
zoo(
    "parameter by two indices",
    lambda: Formula(lambda m, i, j: m.w[i, j].tanh(), w=(4, 3, 2)),
    joined(tokens(4), tokens(3)),
)
zoo(
    "parameter by index_select",
    lambda: Formula(lambda m, x, i: x * torch.index_select(m.w, 0, i), w=(5, 3)),
    joined(floats(3), tokens(5)),
)
zoo(
    "parameter by gather",
    lambda: Formula(lambda m, i: m.w.expand(len(i), -1).gather(1, i).tanh(), w=(5,)),
    tokens(5, 3),
)
zoo(
    "one-hot times table",
    lambda: Formula(lambda m, i: (F.one_hot(i, 5).to(m.w) @ m.w).sum(1).tanh(), w=(5, 3)),
    tokens(5, 4),
)
zoo(
    "relative position bias",
    lambda: Formula(
        lambda m, x: (
            torch.softmax(x @ x.mT + m.t[(torch.arange(4)[:, None] - torch.arange(4)) + 3], 2) @ m.v(x)
        ).mean(1),
        t=(7,),
        v=nn.Linear(3, 2),
    ),
    floats(4, 3),
)
zoo(
    "entries by indices of all kinds",
    lambda: Formula(
        lambda m, i, j: (
            (m.pairs[i[:, :, None], i[:, None, :]] + m.columns[:, i].movedim(0, -1)[:, :, None])
            .tanh()
            .sum((1, 2))
            + m.apart[i[:, 0], :, j]
            + m.columns.index_select(1, j).T
            + torch.take(m.apart, i)[:, :2]
        ),
        pairs=(4, 4, 2),
        columns=(2, 4),
        apart=(4, 2, 3),
    ),
    joined(tokens(4, 3), tokens(3)),
)
zoo(
    "embedding bags of maxima, some of them empty",
    lambda: Formula(
        lambda m, i: m.b(m.e(i).tanh()),
        e=nn.EmbeddingBag(6, 3, mode="max", padding_idx=1),
        b=nn.Linear(3, 2),
    ),
    lambda g, n: torch.where(torch.arange(n)[:, None] == 1, 1, torch.randint(6, (n, 3), generator=g)),
)
