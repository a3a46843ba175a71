"""JSON that bears its own checksum: no flipped bit of it goes unnoticed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SEAL = "sha256"


def seal(content: Mapping[str, Any]) -> bytes:
    """The text of plain content and its SHA-256.

    Example:
        >>> unseal(seal({"state": "finished"}))
        {'state': 'finished'}
    """
    plain = json.dumps(content, sort_keys=True)
    own = hashlib.sha256(plain.encode()).hexdigest()
    return json.dumps({**json.loads(plain), SEAL: own}, indent=1, sort_keys=True).encode()


def unseal(raw: bytes) -> dict[str, Any] | None:
    """The content of a sealed text; None if it is not what was written, in whatever way.

    Example:
        >>> unseal(seal({"tau": 0.75}).replace(b"7", b"8")) is None
        True
    """
    try:
        content = json.loads(raw)
        content = {name: value for name, value in content.items() if name != SEAL}
        # Written again it must give the same bytes: nothing hides in a blank.
        return content if seal(content) == raw else None
    except (ValueError, AttributeError, RecursionError):
        return None
