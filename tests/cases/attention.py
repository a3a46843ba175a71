"""Attention and transformers."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cases.case import Zoo
from cases.draws import floats, joined, lengths
from cases.formula import Formula

zoo = Zoo()

zoo(
    "multi-head attention",
    lambda: Formula(
        lambda m, x: m.head(m.a(x, x, x)[0].mean(1)),
        a=nn.MultiheadAttention(4, 2, batch_first=True),
        head=nn.Linear(4, 2),
    ),
    floats(3, 4),
)
zoo(
    "multi-head attention without weights",
    lambda: Formula(
        lambda m, x: m.head(m.a(x, x, x, need_weights=False)[0][:, 0]),
        a=nn.MultiheadAttention(4, 2, batch_first=True),
        head=nn.Linear(4, 2),
    ),
    floats(3, 4),
)
zoo(
    "multi-head attention, sequence first",
    lambda: Formula(
        lambda m, x: m.head(_attend(m.a, x.transpose(0, 1))[-1]),
        a=nn.MultiheadAttention(4, 2),
        head=nn.Linear(4, 2),
    ),
    floats(3, 4),
)
zoo(
    "cross attention, other widths",
    lambda: Formula(
        lambda m, q, k: m.head(m.a(q, k, k)[0].flatten(1)),
        a=nn.MultiheadAttention(4, 2, kdim=3, vdim=3, batch_first=True),
        head=nn.Linear(8, 2),
    ),
    joined(floats(2, 4), floats(5, 3)),
)
zoo(
    "attention with bias_kv",
    lambda: Formula(
        lambda m, x: m.head(m.a(x, x, x)[0].mean(1)),
        a=nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True),
        head=nn.Linear(4, 2),
    ),
    floats(3, 4),
)
zoo(
    "attention with padding mask",
    lambda: Formula(
        lambda m, x, pad: m.head(m.a(x, x, x, key_padding_mask=pad)[0][:, 0]),
        a=nn.MultiheadAttention(4, 2, batch_first=True),
        head=nn.Linear(4, 2),
    ),
    joined(floats(4, 4), lengths(4)),
)


def _attend(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x, x, x, need_weights=False)[0]


def _encoder(
    *, batch_first: bool = True, norm_first: bool = False, layers: int = 2, nested: bool = True
) -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.1, batch_first=batch_first, norm_first=norm_first)
    return nn.TransformerEncoder(
        layer, layers, enable_nested_tensor=nested and batch_first and not norm_first
    )


zoo(
    "transformer encoder",
    lambda: Formula(lambda m, x: m.head(m.e(x).mean(1)), e=_encoder(), head=nn.Linear(4, 2)),
    floats(3, 4),
)
zoo(
    "transformer encoder, norm first",
    lambda: Formula(lambda m, x: m.head(m.e(x)[:, 0]), e=_encoder(norm_first=True), head=nn.Linear(4, 2)),
    floats(3, 4),
)
zoo(
    "transformer encoder, sequence first",
    lambda: Formula(lambda m, x: m.head(m.e(x)), e=_encoder(batch_first=False), head=nn.Linear(4, 2)),
    floats(3, 4),
    forward=lambda m, x: m(x.transpose(0, 1))[-1],
)
zoo(
    "transformer encoder with padding mask",
    lambda: Formula(
        lambda m, x, pad: m.head(m.e(x, src_key_padding_mask=pad)[:, 0]), e=_encoder(), head=nn.Linear(4, 2)
    ),
    joined(floats(4, 4), lengths(4)),
)
zoo(
    "transformer encoder, causal",
    lambda: Formula(
        lambda m, x: m.head(
            m.e(x, mask=torch.full((3, 3), -torch.inf, dtype=x.dtype).triu(1), is_causal=True)[:, -1]
        ),
        e=_encoder(layers=1),
        head=nn.Linear(4, 2),
    ),
    floats(3, 4),
)
zoo(
    "transformer decoder",
    lambda: Formula(
        lambda m, x, y: m.head(m.d(x, y).mean(1)),
        d=nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 6, batch_first=True), 1),
        head=nn.Linear(4, 2),
    ),
    joined(floats(3, 4), floats(2, 4)),
)
zoo(
    "scaled dot product attention",
    lambda: Formula(
        lambda m, x: m.o(
            F.scaled_dot_product_attention(*m.qkv(x).unflatten(2, (3, 2, 2)).permute(2, 0, 3, 1, 4))
            .transpose(1, 2)
            .flatten(2)
        )[:, -1],
        qkv=nn.Linear(3, 12),
        o=nn.Linear(4, 2),
    ),
    floats(4, 3),
)
zoo(
    "causal attention, heads first",
    lambda: Formula(
        lambda m, x: m.o(
            F.scaled_dot_product_attention(
                *m.qkv(x).unflatten(2, (3, 2, 2)).permute(2, 0, 3, 1, 4), is_causal=True
            )
            .transpose(1, 2)
            .flatten(2)
        ).mean(1),
        qkv=nn.Linear(3, 12),
        o=nn.Linear(4, 2),
    ),
    floats(4, 3),
)
zoo(
    "linear attention by einsum",
    lambda: Formula(
        lambda m, x: torch.einsum(
            "nth,nhe->nte", F.elu(x @ m.q) + 1, torch.einsum("nth,nte->nhe", F.elu(x @ m.k) + 1, x @ m.v)
        ).mean(1),
        q=(3, 4),
        k=(3, 4),
        v=(3, 2),
    ),
    floats(4, 3),
)
zoo(
    "learned queries",
    lambda: Formula(
        lambda m, x: (torch.softmax(m.q @ m.k(x).mT, 2) @ m.v(x)).flatten(1),
        q=(2, 3),
        k=nn.Linear(4, 3),
        v=nn.Linear(4, 2),
    ),
    floats(5, 4),
)
