"""Layer rules of tables: rows or entries by index, alone or in bags."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tangentkit.empirical.reading.graph import MixedSamplesError, signed
from tangentkit.empirical.rules.base import Lookup, NoRuleError, Site, Vector, layer_rule, picked_gradient

MEAN, MAXIMUM = 1, 2
"""How bags are made, as autograd has it."""


@layer_rule("EmbeddingBackward0")
def embedding(site: Site) -> Lookup:
    """Rows of a table by index."""
    if site.node._saved_scale_grad_by_freq:
        raise NoRuleError("scale_grad_by_freq depends on the whole batch")
    return _lookup(site, site.node._saved_indices, padding=site.node._saved_padding_idx)


@layer_rule("IndexBackward0")
def index(site: Site) -> Lookup | Vector:
    """table[indices]: whole rows by one index of integers, else entries by any indices."""
    indices = site.node._saved_indices
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype.is_signed:
        return _lookup(site, indices[0])
    return _entries(site, lambda table: torch.ops.aten.index(table, indices))


@layer_rule("IndexSelectBackward0")
def index_select(site: Site) -> Lookup | Vector:
    """torch.index_select along any axis."""
    dim, picked = signed(site.node._saved_dim), site.node._saved_index
    if dim % len(site.shape) == 0:
        return _lookup(site, picked)
    return _entries(site, lambda table: table.index_select(dim, picked))


@layer_rule("TakeBackward0")
def take(site: Site) -> Vector:
    """torch.take: entries of a flattened tensor."""
    return _entries(site, lambda table: table.take(site.node._saved_index))


def _entries(site: Site, pick: Callable[[Tensor], Tensor]) -> Vector:
    """What picks entries of a tensor picks their numbers from a tensor of numbers."""

    def gradient(g: Tensor) -> Tensor:
        numbers = torch.arange(math.prod(site.shape), device=g.device).view(site.shape)
        return picked_gradient(g, pick(numbers), site)

    return Vector(gradient)


def _lookup(site: Site, indices: Tensor, *, padding: int = -1) -> Lookup:
    if site.axis.axis >= indices.ndim:
        raise MixedSamplesError("samples are not among the indices")
    indices = _rows_or_none(indices, site.shape[0], padding)

    def outgoing(g: Tensor) -> Tensor:
        return site.axis.front(g, site.n).reshape(site.n, 1, -1, math.prod(site.shape[1:]))

    return Lookup(site.axis.front(indices, site.n).reshape(site.n, -1), outgoing)


def _rows_or_none(indices: Tensor, rows: int, padding: int) -> Tensor:
    """Indices from 0 on, -1 for the padding index."""
    indices = torch.where(indices < 0, indices + rows, indices)
    # A padding index of "none" arrives as -1 wrapped to an unsigned number.
    return torch.where(indices == padding, -1, indices) if 0 <= padding < rows else indices


@layer_rule("EmbeddingBagBackward0")
def embedding_bag(site: Site) -> Lookup | Vector:
    """Sums, means or maxima of rows: bag b is Σ_k w_bk T[index_bk], with w = 1 / size for means."""
    node = site.node
    if node._saved_scale_grad_by_freq or site.slot != 0:
        raise NoRuleError("only the table is known, and gradients that are not scaled by frequency")
    if node._saved_mode == MAXIMUM:
        return _maxima(site)
    bags, indices = node._input_metadata[0].shape[0], node._saved_indices
    # A last offset, if there is one, is the end of the last bag.
    starts = node._saved_offsets[:bags]
    sizes = torch.diff(starts, append=starts.new_tensor([len(indices)])).tolist()
    table = _rows_or_none(indices, site.shape[0], node._saved_padding_idx)
    padded = pad_sequence(list(table.split(sizes)), batch_first=True, padding_value=-1)
    if node._saved_mode == MEAN:
        weights = 1 / (padded >= 0).sum(1, keepdim=True).clamp_min(1).double()
    elif node._saved_per_sample_weights is not None:
        weights = pad_sequence(list(node._saved_per_sample_weights.split(sizes)), batch_first=True)
    else:
        weights = torch.ones_like(padded[:, :1])

    def outgoing(g: Tensor) -> Tensor:
        spread = g[:, None, :] * weights.to(g)[:, :, None]
        return site.axis.rows(spread.expand(-1, padded.shape[1], -1), site.n).flatten(1, 2)[:, None]

    return Lookup(site.axis.rows(padded, site.n).flatten(1), outgoing)


def _maxima(site: Site) -> Vector:
    """Bags of the largest entries, each of a row of its own; of an empty bag nothing."""
    rows, sizes = site.node._saved_result3, site.node._saved_result2

    def gradient(g: Tensor) -> Tensor:
        entries = rows * g.shape[1] + torch.arange(g.shape[1], device=g.device)
        return picked_gradient(g, torch.where(sizes[:, None] > 0, entries, -1), site)

    return Vector(gradient)
