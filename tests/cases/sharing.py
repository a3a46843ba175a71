"""One parameter, several uses."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cases.case import Zoo
from cases.draws import floats, joined, tokens
from cases.formula import Formula

zoo = Zoo()


class Tied(nn.Module):
    """Two layers of one weight; each has its own bias."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        """A, tanh, the same weight again."""
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


class LanguageModel(nn.Module):
    """Embedding and output head of one table."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the last token."""
        return self.head(torch.tanh(self.mix(self.embed(ids))).cumsum(1)[:, -1])


zoo("tied weights", Tied, floats(4))
zoo("tied embedding and head", LanguageModel, tokens(7, 3))
zoo(
    "tied embedding with padding_idx",
    lambda: Formula(
        # Logits of every token, of which the outputs take a few.
        lambda m, i: (torch.tanh(m.a(m.e(i))) @ m.e.weight.T)[:, :, 1:4].mean(1),
        e=nn.Embedding(9, 4, padding_idx=2),
        a=nn.Linear(4, 4),
    ),
    tokens(9, 5),
)
zoo(
    "tied embedding used twice",
    lambda: Formula(
        lambda m, i: nn.functional.linear(
            torch.tanh(nn.functional.linear(m.e(i), m.e.weight)[:, :, :4] + m.e(i.flip(1))).sum(1), m.e.weight
        ),
        e=nn.Embedding(6, 4),
    ),
    tokens(6, 3),
)
zoo(
    "layer applied twice",
    lambda: Formula(lambda m, x: m.b(m.a(torch.tanh(m.a(x)))), a=nn.Linear(4, 4), b=nn.Linear(4, 2)),
    floats(4),
)
zoo(
    "shared layer in a loop",
    lambda: Formula(
        lambda m, x: m.b(_repeat(lambda h: torch.tanh(m.a(h) + x), x, 5)),
        a=nn.Linear(4, 4),
        b=nn.Linear(4, 2),
    ),
    floats(4),
)
zoo(
    "shared layer on tokens and on their mean",
    lambda: Formula(lambda m, x: m.a(x).tanh().mean(1) + m.a(x.mean(1)), a=nn.Linear(4, 3)),
    floats(3, 4),
)
zoo(
    "weight and its transpose", lambda: Formula(lambda m, x: torch.tanh(x @ m.w.T) @ m.w, w=(5, 3)), floats(3)
)
zoo(
    "square weight on both sides",
    lambda: Formula(lambda m, x: torch.tanh(x @ m.w) + (m.w @ x.T).T, w=(3, 3)),
    floats(3),
)
zoo(
    "shared bias",
    lambda: Formula(lambda m, x: torch.tanh(x @ m.a + m.c) @ m.b + m.c, a=(3, 4), b=(4, 4), c=(4,)),
    floats(3),
)
zoo(
    "siamese",
    lambda: Formula(
        lambda m, a, b: m.head((m.net(a) - m.net(b)).abs()), net=nn.Linear(3, 5), head=nn.Linear(5, 2)
    ),
    joined(floats(3), floats(3)),
)
zoo(
    "weight as matrix and as scale",
    lambda: Formula(lambda m, x: torch.tanh(x @ m.w) * m.w.sum(0) + m.w[0], w=(4, 3)),
    floats(4),
)


def _repeat(step: Callable[[Tensor], Tensor], h: Tensor, times: int) -> Tensor:
    for _ in range(times):
        h = step(h)
    return h
