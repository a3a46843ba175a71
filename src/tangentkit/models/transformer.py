"""A small transformer that classifies token sequences and can be pre-trained on next tokens."""

from math import sqrt
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tangentkit.core.errors import InputError, ModelError
from tangentkit.models.inits import Init, Seed, initialized, truncated_normal

Pooling = Literal["mean", "last"]
Ids = Int[Tensor, "n s"]
Mask = Bool[Tensor, "n s"] | Int[Tensor, "n s"]
"""True or 1 at tokens, False or 0 at padding."""


class Attention(nn.Module):
    """Multi-head self-attention: `softmax(q kᵀ/√d) v` per head, over the pairs that the mask allows."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "n s w"], allowed: Bool[Tensor, "#n s s"]) -> Float[Tensor, "n s w"]:
        """The attended sequence. Written out, since fused attention has no forward-mode derivative."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        scores = torch.einsum("nqhd,nkhd->nhqk", q, k) / sqrt(q.shape[-1])
        weights = scores.masked_fill(~allowed[:, None], float("-inf")).softmax(-1)
        return self.out(torch.einsum("nhqk,nkhd->nqhd", weights, v).flatten(2))


class EncoderBlock(nn.Module):
    """Pre-norm block: `x ← x + attention(LN(x))`, then `x ← x + mlp(LN(x))`."""

    def __init__(self, width: int, heads: int, *, dropout: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "n s w"], allowed: Bool[Tensor, "#n s s"]) -> Float[Tensor, "n s w"]:
        """The sequence after the block."""
        x = x + self.dropout(self.attention(self.norm1(x), allowed))
        return x + self.dropout(self.mlp(self.norm2(x)))


class TransformerClassifier(nn.Module):
    """Token and position embeddings, pre-norm encoder blocks, a pooled hidden vector and a linear head.

    Padding is never attended to and takes no part in the pooling; a sequence of padding alone has no
    meaningful embedding.

    Args:
        vocabulary: number of tokens.
        length: longest sequence.
        width: of the hidden vectors.
        depth: number of encoder blocks.
        heads: of the attention; they share the width.
        outputs: number of classes.
        causal: whether a position sees only its past, as next-token pre-training needs.
        pooling: "mean" over the tokens, or the "last" token.
        dropout: share of what each block adds that is dropped in training mode.
        seed: of the initialization.
        init: how weights are drawn.

    Raises:
        InputError: heads do not divide the width, or the pooling is neither "mean" nor "last".

    Example:
        >>> model = TransformerClassifier(50, width=16)
        >>> ids = torch.tensor([[3, 1, 4, 1], [5, 9, 0, 0]])
        >>> mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
        >>> model(ids, mask).shape, model.embed(ids, mask).shape
        (torch.Size([2, 2]), torch.Size([2, 16]))
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        length: int = 128,
        width: int = 64,
        depth: int = 2,
        heads: int = 4,
        outputs: int = 2,
        causal: bool = False,
        pooling: Pooling = "mean",
        dropout: float = 0.0,
        seed: Seed = 0,
        init: Init = truncated_normal,
    ):
        if width % heads:
            raise InputError("heads must share the width", expected=f"a divisor of {width}", got=heads)
        if pooling not in ("mean", "last"):
            raise InputError("bad pooling", expected='"mean" or "last"', got=repr(pooling))
        super().__init__()
        self.causal, self.pooling = causal, pooling
        with torch.device("meta"):
            self.tokens = nn.Embedding(vocabulary, width)
            self.positions = nn.Embedding(length, width)
            self.blocks = nn.ModuleList(EncoderBlock(width, heads, dropout=dropout) for _ in range(depth))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, outputs)
        initialized(self, init, seed)

    def forward(self, ids: Ids, mask: Mask | None = None) -> Float[Tensor, "n c"]:
        """The logits of the classes."""
        return self.head(self.embed(ids, mask))

    def embed(self, ids: Ids, mask: Mask | None = None) -> Float[Tensor, "n w"]:
        """The final hidden vector: the mean over the tokens, or that of the last token."""
        mask = _tokens(ids, mask)
        if self.pooling == "last":
            places = torch.arange(ids.shape[1], device=ids.device)
            pooled = places == torch.where(mask, places, 0).amax(1, keepdim=True)
        else:
            pooled = mask
        hidden = self.hidden(ids, mask)
        total = torch.einsum("ns,nsw->nw", pooled.to(hidden.dtype), hidden)
        return total / pooled.sum(1, keepdim=True).clamp(min=1)

    def hidden(self, ids: Ids, mask: Mask | None = None) -> Float[Tensor, "n s w"]:
        """The hidden vectors of all positions after the last norm.

        Raises:
            InputError: the sequences are longer than the positions that the model knows.
        """
        s = ids.shape[1]
        if s > self.positions.num_embeddings:
            raise InputError(
                "sequences are too long", expected=f"at most {self.positions.num_embeddings} tokens", got=s
            )
        places = torch.arange(s, device=ids.device)
        # Each position may see itself: a row without any key would be a softmax of nothing, NaN.
        allowed = _tokens(ids, mask)[:, None, :] | (places == places[:, None])
        if self.causal:
            allowed = allowed & (places <= places[:, None])
        # Places are looked up by each sample for itself, so that per-sample gradients keep their axis.
        x = self.tokens(ids) + self.positions(places.expand_as(ids))
        for block in self.blocks:
            x = block(x, allowed)
        return self.norm(x)

    def next_token_logits(self, ids: Ids, mask: Mask | None = None) -> Float[Tensor, "n s v"]:
        """Logits of the token after each position, by the transposed token embedding.

        Raises:
            ModelError: the model is not causal, so that the next token is in plain sight.
        """
        if not self.causal:
            raise ModelError(
                "next tokens need a causal model", hint="TransformerClassifier(..., causal=True)"
            )
        return self.hidden(ids, mask) @ self.tokens.weight.T


def _tokens(ids: Ids, mask: Mask | None) -> Bool[Tensor, "n s"]:
    return torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
