"""Which line of the user's code a warning is about."""

import sys
from pathlib import Path

PACKAGE = str(Path(__file__).parent.parent)
DECORATORS = ("contextlib.py", "_contextlib.py")
"""Files whose frames stand between ours where a function is decorated, such as by `torch.no_grad`."""


def users_level() -> int:
    """The `stacklevel` of a warning, given by the function that asks, that points at the call of this library.

    Example:
        >>> users_level()
        1
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    return level


def _is_ours(file: str) -> bool:
    return file.startswith(PACKAGE) or file.endswith(DECORATORS)
