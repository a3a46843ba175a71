"""Recurrent layers."""

from typing import Any

from torch import Tensor, nn

from cases.case import Zoo
from cases.draws import floats, joined, tokens
from cases.formula import Formula

zoo = Zoo()

for _name, _make in {
    "rnn": lambda **o: nn.RNN(3, 4, nonlinearity="relu", **o),
    "gru": lambda **o: nn.GRU(3, 4, **o),
    "lstm": lambda **o: nn.LSTM(3, 4, **o),
}.items():
    zoo(
        _name,
        lambda make=_make: Formula(
            lambda m, x: m.b(m.r(x)[0][:, -1]), r=make(batch_first=True), b=nn.Linear(4, 2)
        ),
        floats(4, 3),
    )
    zoo(
        f"{_name}, sequence first",
        lambda make=_make: Formula(
            lambda m, x: m.b(m.r(x.transpose(0, 1))[0].sum(0)), r=make(), b=nn.Linear(4, 2)
        ),
        floats(3, 3),
    )
zoo(
    "bidirectional lstm of two layers",
    lambda: Formula(
        lambda m, x: m.b(m.r(x)[0].mean(1)),
        r=nn.LSTM(2, 2, num_layers=2, bidirectional=True, batch_first=True),
        b=nn.Linear(4, 2),
    ),
    floats(3, 2),
)
zoo(
    "lstm with projection",
    lambda: Formula(
        lambda m, x: m.b(m.r(x)[1][0][0]), r=nn.LSTM(3, 4, proj_size=2, batch_first=True), b=nn.Linear(2, 2)
    ),
    floats(3, 3),
)
zoo(
    "cells in a loop",
    lambda: Formula(
        lambda m, x: m.b(_unroll(m, x)), g=nn.GRUCell(2, 3), l=nn.LSTMCell(3, 3), b=nn.Linear(3, 2)
    ),
    floats(4, 2),
)


def _unroll(m: Any, x: Tensor) -> Tensor:
    h, state = x.new_zeros(len(x), 3), (x.new_zeros(len(x), 3), x.new_zeros(len(x), 3))
    for step in x.unbind(1):
        h = m.g(step, h)
        state = m.l(h, state)
    return state[0]


def _packed(m: Any, x: Tensor, last: Tensor) -> Tensor:
    packed = nn.utils.rnn.pack_padded_sequence(x, last + 1, batch_first=True, enforce_sorted=False)
    return m.b(m.r(packed)[1][-1])


zoo(
    "packed sequences",
    lambda: Formula(_packed, r=nn.GRU(3, 4, batch_first=True), b=nn.Linear(4, 2)),
    joined(floats(4, 3), tokens(4)),
)
