"""Layer rules of tables: rows by index, alone or summed in bags."""

import math

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tangentkit.empirical.graph import MixedSamplesError
from tangentkit.empirical.rules import Lookup, NoRuleError, Site, layer_rule


@layer_rule("EmbeddingBackward0")
def embedding(site: Site) -> Lookup:
    """Rows of a table by index."""
    if site.node._saved_scale_grad_by_freq:
        raise NoRuleError("scale_grad_by_freq depends on the whole batch")
    return _lookup(site, site.node._saved_indices, padding=site.node._saved_padding_idx)


@layer_rule("IndexBackward0")
def index(site: Site) -> Lookup:
    """table[indices]."""
    indices = site.node._saved_indices
    if len(indices) != 1 or indices[0] is None or indices[0].dtype == torch.bool:
        raise NoRuleError("only one integer index is known")
    return _lookup(site, indices[0])


@layer_rule("IndexSelectBackward0")
def index_select(site: Site) -> Lookup:
    """torch.index_select along the first axis."""
    if site.node._saved_dim != 0:
        raise NoRuleError("only the first axis is known")
    return _lookup(site, site.node._saved_index)


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
def embedding_bag(site: Site) -> Lookup:
    """Sums or means of rows: bag b is Σ_k w_bk T[index_bk], with w = 1 / size for means."""
    node = site.node
    if node._saved_mode not in (0, 1) or node._saved_scale_grad_by_freq or site.slot != 0:
        raise NoRuleError("only sums and means of rows are known")
    bags, indices = node._input_metadata[0].shape[0], node._saved_indices
    # A last offset, if there is one, is the end of the last bag.
    starts = node._saved_offsets[:bags]
    sizes = torch.diff(starts, append=starts.new_tensor([len(indices)])).tolist()
    table = _rows_or_none(indices, site.shape[0], node._saved_padding_idx)
    padded = pad_sequence(list(table.split(sizes)), batch_first=True, padding_value=-1)
    if node._saved_mode == 1:
        weights = 1 / (padded >= 0).sum(1, keepdim=True).clamp_min(1).double()
    elif node._saved_per_sample_weights is not None:
        weights = pad_sequence(list(node._saved_per_sample_weights.split(sizes)), batch_first=True)
    else:
        weights = torch.ones_like(padded[:, :1])

    def outgoing(g: Tensor) -> Tensor:
        spread = g[:, None, :] * weights.to(g)[:, :, None]
        return site.axis.rows(spread.expand(-1, padded.shape[1], -1), site.n).flatten(1, 2)[:, None]

    return Lookup(site.axis.rows(padded, site.n).flatten(1), outgoing)
