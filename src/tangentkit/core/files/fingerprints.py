"""Fingerprints: SHA-256 of content, so that a stored number can say what made it."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

CHUNK = 2**24
"""Elements hashed at a time: a fingerprint never copies a whole tensor."""


def fingerprint(content: Any) -> str:
    """SHA-256 of a pytree: structure, dtypes, shapes, bytes of tensors and arrays, repr of anything else.

    Equal content gives equal fingerprints whatever the device and the memory layout; order counts.

    Example:
        >>> x = torch.arange(6.0).reshape(2, 3)
        >>> fingerprint(x) == fingerprint(x.clone()), fingerprint(x) == fingerprint(x.T)
        (True, False)
    """
    digest = hashlib.sha256()
    leaves, structure = pytree.tree_flatten(content)
    digest.update(repr(structure).encode())
    for leaf in leaves:
        for piece in _pieces(leaf):
            digest.update(piece)
    return digest.hexdigest()


def module_fingerprint(module: nn.Module) -> str:
    """SHA-256 of a module: its printed structure, and the names and values of parameters and buffers."""
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return fingerprint([str(module), sorted(state), [state[name] for name in sorted(state)]])


def _pieces(leaf: object) -> Iterator[bytes | memoryview]:
    if isinstance(leaf, np.ndarray) and leaf.dtype != object:
        yield f"array {leaf.dtype.str} {leaf.shape}".encode()
        flat = np.ascontiguousarray(leaf).reshape(-1)
        for start in range(0, flat.size, CHUNK):
            # Read where it stands: a copy would take as long as the digest.
            yield flat[start : start + CHUNK].view(np.uint8).data
    elif isinstance(leaf, Tensor):
        yield f"tensor {leaf.dtype} {tuple(leaf.shape)}".encode()
        if leaf.layout != torch.strided:
            entries = leaf.detach().to_sparse_coo().coalesce()
            yield from (piece for part in (entries.indices(), entries.values()) for piece in _pieces(part))
            return
        flat = leaf.detach().reshape(-1)
        for start in range(0, flat.numel(), CHUNK):
            # Bytes, since numpy knows no bfloat16.
            yield flat[start : start + CHUNK].cpu().contiguous().view(torch.uint8).numpy().data
    else:
        yield f"{type(leaf).__name__} {leaf!r}".encode()
