"""What an engine is: whoever can apply a function to many items."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from tangentkit.core.errors import TangentkitError

Item = TypeVar("Item")
Result = TypeVar("Result")


class EngineError(TangentkitError, RuntimeError):
    """Workers or their scheduler are gone, or cannot be had."""


@runtime_checkable
class Engine(Protocol):
    """Whoever can apply a function to many items."""

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results, in whatever order they come.

        Args:
            work: may be large (it holds a model): it goes to each worker once. Doing an item twice does no harm.
                Where it has a method `group`, items of one group are best done by one worker; where it has a method
                `within`, that binds it to the memory of a worker.
            items: small.
        """
        ...
