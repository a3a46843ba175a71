"""The files by which zarr knows a store: what the group is, and the form of each array."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tangentkit.compute.store.tiles import TileArray
from tangentkit.core.errors import DataError
from tangentkit.core.files.safe import read_json

METADATA = "zarr.json"
GROUP = "tangentkit gram"
"""The attribute that tells a group of ours, without a manifest as yet, from somebody's data."""


def descriptions(arrays: Mapping[str, TileArray]) -> dict[str, bytes]:
    """Name of a file -> its content, as zarr writes it; that of the group first."""
    # Here and not above: zarr takes half a second to import, and reading a store needs none of it.
    import zarr
    from zarr.codecs import BytesCodec, Crc32cCodec
    from zarr.storage import MemoryStore

    # Into memory: files that zarr writes are not there whole or not at all.
    written: dict[str, Any] = {}
    place = MemoryStore(written)
    zarr.create_group(place, attributes={GROUP: True})
    for name, array in arrays.items():
        zarr.create_array(
            place,
            name=name,
            shape=array.shape,
            chunks=array.tile,
            shards=array.tile,
            dtype=word(array.dtype),
            fill_value=float("nan"),  # not zero: a tile of zeros is no hole
            serializer=BytesCodec(endian="little"),
            compressors=[Crc32cCodec()],
            filters=None,
        )
    return {name: content.to_bytes() for name, content in written.items()}


def is_ours(path: Path) -> bool:
    """Whether a file describes a group that was made here."""
    try:
        return read_json(path)["attributes"][GROUP] is True
    except (DataError, KeyError, TypeError):
        return False


def word(dtype: torch.dtype) -> str:
    """The name of a dtype, the same to torch, numpy and zarr.

    Example:
        >>> word(torch.float32)
        'float32'
    """
    return str(dtype).removeprefix("torch.")
