"""Folders of the user's own among the settings of a trial: what lies in them belongs to what the trial is."""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tangentkit.core.files.safe import as_path, digest

NAMES = ("folder", "model")
"""Settings that may name a folder: of pictures, of the weights of a model."""


def contents(settings: Mapping[str, Any]) -> dict[str, str]:
    """Name of a setting -> SHA-256 of what lies in the folder that it names, for those that name one."""
    named = {name: settings[name] for name in NAMES if isinstance(settings.get(name), str) and settings[name]}
    return {name: content(path) for name, text in named.items() if (path := as_path(text)).is_dir()}


def content(folder: Path) -> str:
    """SHA-256 of the names and bytes of all files below a folder, but for hidden ones.

    Files are read again only where a name, a size or a time of change is another one.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> before = content(folder)
        >>> _ = (folder / "a.txt").write_text("a")
        >>> content(folder) == before
        False
    """
    files = {path.relative_to(folder): path.stat() for path in folder.rglob("*") if path.is_file()}
    shown = sorted(name for name in files if not any(part.startswith(".") for part in name.parts))
    return _digest(
        folder.resolve(), tuple((name, files[name].st_size, files[name].st_mtime_ns) for name in shown)
    )


@lru_cache(maxsize=8)
def _digest(folder: Path, files: tuple[tuple[Path, int, int], ...]) -> str:
    known = [[name.as_posix(), digest(folder / name)] for name, _, _ in files]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()
