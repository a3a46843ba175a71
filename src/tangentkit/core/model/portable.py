"""Functions of the user in pickles: lambdas and local functions too."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tangentkit.core.errors import InputError


def portable(function: Callable[..., Any]) -> "Callable[..., Any] | Written":
    """The function, or where pickle cannot find it by its name, what writes it down as it is.

    Example:
        >>> import pickle
        >>> pickle.loads(pickle.dumps(portable(lambda x: x + 1)))(2)
        3
    """
    try:
        pickle.dumps(function)
    except Exception:
        return Written(function)
    return function


@dataclass(frozen=True)
class Written:
    """Pickles as the code of a function, and comes back as the function."""

    function: Callable[..., Any]

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        try:
            import cloudpickle
        except ImportError:
            raise InputError(
                "a lambda or local function cannot be pickled",
                expected="a function that stands in a module, found by its name",
                got=repr(self.function),
                hint="def forward(model, batch): ... at the top of a module, or pip install cloudpickle",
            ) from None
        return cloudpickle.loads, (cloudpickle.dumps(self.function),)
