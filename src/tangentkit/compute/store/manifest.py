"""What a manifest must be before anything is made of it: it may come from a stranger, with a checksum that fits."""

import re
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tangentkit.compute.store.layout import GRAM
from tangentkit.compute.store.zarr_files import METADATA
from tangentkit.core.errors import DataError

MANIFEST_BYTES = 2**24
DEPTH = 200
"""Of names within names; a sum of kernels has one more for each of them."""
SIDE = 2**34
"""Rows or columns of a matrix."""
TILES = 2**22
"""Of an array: each is a file."""
TILE_BYTES = 2**34
"""Of a tile, which is read whole."""
ITEM_BYTES = {"float32": 4, "float64": 8}
ARRAY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
SHA256 = re.compile(r"[0-9a-f]{64}")


def check_manifest(content: Any, path: Path) -> None:
    """Refuses whatever is not the content of a manifest: kinds, bounds, and that its parts go together.

    Args:
        content: as JSON gives it.
        path: of the manifest, for the error.

    Raises:
        DataError: with the part that is wrong.
    """

    def need(what: str, value: Any, expected: str, is_right: Callable[[Any], bool]) -> Any:
        if not is_right(value):
            wrong = f"{path} is not the manifest of a store: bad {what}"
            raise DataError(wrong, expected=expected, got=reprlib.repr(value))
        return value

    need("content", content, f"names, at most {DEPTH} deep", lambda it: is_names(it) and _is_flat(it))
    identity = need("identity", content.get("identity"), "names", is_names)
    symmetric = need("symmetric", identity.get("symmetric"), "true or false", lambda it: isinstance(it, bool))
    tile = need("tile", identity.get("tile"), "a number of samples", is_count)
    outputs = need("outputs", identity.get("outputs"), "a number of outputs", is_count)
    arrays = need(
        "arrays", content.get("arrays"), f"{GRAM} and others", lambda it: is_names(it) and GRAM in it
    )
    for name, array in arrays.items():
        need("name of an array", name, "a word", lambda it: ARRAY.fullmatch(it) is not None)
        need(name, array, "shape, tile and dtype", is_names)
        shape = need(f"shape of {name}", array.get("shape"), f"two numbers up to {SIDE}", is_pair)
        sides = need(f"tile of {name}", array.get("tile"), "two numbers", is_pair)
        if name == GRAM:
            need(f"tile of {name}", sides, f"{tile * outputs} rows", lambda it: it == [tile * outputs] * 2)
        else:  # ranges of samples, of which a tile needs whole ones
            need(f"tile of {name}", sides[1], f"{shape[1]} columns", lambda it, all=shape[1]: it == all)
            need(f"tile of {name}", sides[0], f"a part of {tile} rows", lambda it: tile % it == 0)
        dtype = need(f"dtype of {name}", array.get("dtype"), " or ".join(ITEM_BYTES), is_dtype)
        tiles = -(-shape[0] // sides[0]) * -(-shape[1] // sides[1])
        need(f"number of tiles of {name}", tiles, f"at most {TILES}", lambda it: it <= TILES)
        nbytes = sides[0] * sides[1] * ITEM_BYTES[dtype]
        need(f"bytes of a tile of {name}", nbytes, f"at most {TILE_BYTES}", lambda it: it <= TILE_BYTES)
    if symmetric:
        need(f"shape of {GRAM}", arrays[GRAM]["shape"], "a square", lambda it: it[0] == it[1])
    named = {METADATA, *(f"{name}/{METADATA}" for name in arrays)}
    files = need(
        "files", content.get("files"), f"{sorted(named)}", lambda it: is_names(it) and set(it) == named
    )
    for name, digest in files.items():
        need(f"checksum of {name}", digest, "a SHA-256", is_digest)


def is_names(value: Any) -> bool:
    """Whether a value is a JSON object."""
    return isinstance(value, dict)


def is_dtype(value: Any) -> bool:
    """Whether a value is the name of a dtype that a store holds."""
    return isinstance(value, str) and value in ITEM_BYTES


def is_digest(value: Any) -> bool:
    """Whether a value is a SHA-256, in hexadecimal."""
    return isinstance(value, str) and SHA256.fullmatch(value) is not None


def is_count(value: Any) -> bool:
    """Whether a value is a whole number that can count rows.

    Example:
        >>> [is_count(value) for value in (3, 0, -3, True, 3.0, "3", 10**12)]
        [True, False, False, False, False, False, False]
    """
    return type(value) is int and 0 < value <= SIDE


def is_pair(value: Any) -> bool:
    """Whether a value is two counts."""
    return isinstance(value, list) and len(value) == 2 and all(map(is_count, value))


def _is_flat(content: Any) -> bool:
    """Whether values are at most `DEPTH` deep; not by recursion, which is what depth would break."""
    level = [content]
    for _ in range(DEPTH):
        items = [item for value in level for item in (value.values() if isinstance(value, dict) else value)]
        level = [item for item in items if isinstance(item, (dict, list))]
    return not level
