"""Whole architectures in small."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cases.case import Zoo
from cases.draws import floats, joined
from cases.formula import Formula

zoo = Zoo()


def _convnext(m: Any, x: Tensor) -> Tensor:
    h = m.stem(x)
    block = m.b(F.gelu(m.a(m.norm(m.depthwise(h).permute(0, 2, 3, 1))))) * m.scale
    return m.head((h + block.permute(0, 3, 1, 2)).mean((2, 3)))


zoo(
    "convnext",
    lambda: Formula(
        _convnext,
        stem=nn.Conv2d(2, 4, 2, stride=2),
        depthwise=nn.Conv2d(4, 4, 3, padding=1, groups=4),
        norm=nn.LayerNorm(4),
        a=nn.Linear(4, 8),
        b=nn.Linear(8, 4),
        scale=(4,),
        head=nn.Linear(4, 3),
    ),
    floats(2, 6, 6),
)


def _shifted_windows(m: Any, x: Tensor) -> Tensor:
    x = m.embed(x)
    for shift in (0, 1):
        h = torch.roll(m.norm(x), (-shift, -shift), (1, 2)).unflatten(2, (2, 2)).unflatten(1, (2, 2))
        h = h.transpose(2, 3).reshape(-1, 4, 4)  # windows of two by two, flattened with the samples
        q, k, v = m.qkv(h).unflatten(2, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        bias = m.table[torch.arange(4)[:, None] - torch.arange(4) + 3].permute(2, 0, 1)
        h = m.out(((q @ k.mT / 2 + bias).softmax(-1) @ v).transpose(1, 2).flatten(2))
        h = h.view(len(x), 2, 2, 2, 2, 4).transpose(2, 3).reshape(x.shape)
        x = x + torch.roll(h, (shift, shift), (1, 2))
    return m.head(x.mean((1, 2)))


zoo(
    "attention in shifted windows",
    lambda: Formula(
        _shifted_windows,
        embed=nn.Linear(3, 4),
        norm=nn.LayerNorm(4, eps=0.1),  # of few entries some have little variance, and float32 loses digits
        qkv=nn.Linear(4, 12),
        out=nn.Linear(4, 4),
        table=(7, 2),
        head=nn.Linear(4, 2),
    ),
    floats(4, 4, 3),
)
zoo(
    "hypernetwork of a learned code",
    lambda: Formula(
        lambda m, x: m.head(
            torch.tanh(F.linear(x, m.weights(m.code).reshape(4, 4), m.biases(m.code).flatten()))
        ),
        code=(2, 3),
        weights=nn.Linear(3, 8),
        biases=nn.Linear(3, 2),
        head=nn.Linear(4, 2),
    ),
    floats(4),
)
zoo(
    "convolution whose weights come from the sample",
    lambda: Formula(
        lambda m, x, z: m.head(
            F.conv2d(x.reshape(1, -1, 4, 4), m.weights(z).view(-1, 2, 3, 3), groups=len(x))
            .tanh()
            .view(len(x), -1)
        ),
        weights=nn.Linear(3, 36),
        head=nn.Linear(8, 2),
    ),
    joined(floats(2, 4, 4), floats(3)),
)


def _scan(m: Any, x: Tensor) -> Tensor:
    u, gate = m.inputs(x).chunk(2, -1)
    u = F.silu(m.conv(u.mT)[..., : x.shape[1]].mT)
    b, c = m.bc(u).chunk(2, -1)
    dt, decay = F.softplus(m.dt(u)), -m.log_decay.exp()
    state, seen = x.new_zeros(len(x), *decay.shape), []
    for t in range(x.shape[1]):
        state = (
            torch.exp(dt[:, t, :, None] * decay) * state + (dt[:, t] * u[:, t])[:, :, None] * b[:, t, None]
        )
        seen.append((state * c[:, t, None]).sum(-1))
    return m.head(((torch.stack(seen, 1) + m.skip * u) * F.silu(gate)).mean(1))


zoo(
    "selective state space",
    lambda: Formula(
        _scan,
        inputs=nn.Linear(2, 6),
        conv=nn.Conv1d(3, 3, 2, groups=3, padding=1),
        bc=nn.Linear(3, 4),
        dt=nn.Linear(3, 3),
        log_decay=(3, 2),
        skip=(3,),
        head=nn.Linear(3, 2),
    ),
    floats(4, 2),
)


def _attention_by_einsum(m: Any, x: Tensor) -> Tensor:
    q, k, v = m.qkv(x).unflatten(-1, (3, 2, -1)).unbind(2)
    weights = torch.einsum("nqhd,nkhd->nhqk", q, k).softmax(-1)
    return m.head(torch.einsum("nhqk,nkhd->nqhd", weights, v).flatten(2)).mean(1)


zoo(
    "attention by einsum, another graph for one sample",
    lambda: Formula(_attention_by_einsum, qkv=nn.Linear(3, 12), head=nn.Linear(4, 2)),
    floats(5, 3),
)
zoo(
    "standardized weights",
    lambda: Formula(
        lambda m, x: (
            F.conv2d(x, (m.w - m.w.mean((1, 2, 3), True)) / m.w.std((1, 2, 3), keepdim=True))
            .tanh()
            .sum((2, 3))
        ),
        w=(3, 2, 3, 3),
    ),
    floats(2, 4, 4),
)
zoo(
    "tied convolutional autoencoder",
    lambda: Formula(
        lambda m, x: F.conv_transpose2d(F.conv2d(x, m.w).tanh(), m.w).flatten(1)[:, ::4], w=(3, 2, 3, 3)
    ),
    floats(2, 5, 5),
)
zoo(
    "fourier operator",
    lambda: Formula(
        lambda m, x: (
            torch.fft.irfft(torch.einsum("nik,iok->nok", torch.fft.rfft(x), torch.complex(m.re, m.im)), n=6)
            .tanh()
            .mean(2)
        ),
        re=(2, 3, 4),
        im=(2, 3, 4),
    ),
    floats(2, 6),
)
zoo(
    "vector quantizer",
    lambda: Formula(
        lambda m, x: _quantized(m, m.a(x)), a=nn.Linear(4, 3), book=nn.Embedding(5, 3), b=nn.Linear(3, 2)
    ),
    floats(4),
)


def _quantized(m: Any, h: Tensor) -> Tensor:
    code = m.book(torch.cdist(h, m.book.weight).argmin(1))
    return m.b(h + (code - h).detach()) + code[:, :2]  # the gradient goes straight through


def _windows(m: Any, x: Tensor) -> Tensor:
    h = x.view(len(x), 2, 2, 2, 2, 4).transpose(2, 3).reshape(-1, 4, 4)
    q, k, v = m.qkv(h).unflatten(2, (3, 2, 2)).permute(2, 0, 3, 1, 4)
    place = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")).flatten(1)
    down, right = place[:, :, None] - place[:, None] + 1
    h = (q @ k.mT / 2 + m.table[down, right].permute(2, 0, 1)).softmax(-1) @ v
    return m.head(m.out(h.transpose(1, 2).flatten(2)).tanh().view(len(x), -1, 4).mean(1))


zoo(
    "windows with a table of two indices",
    lambda: Formula(
        _windows, table=(3, 3, 2), qkv=nn.Linear(4, 12), out=nn.Linear(4, 4), head=nn.Linear(4, 2)
    ),
    floats(4, 4, 4),
)
