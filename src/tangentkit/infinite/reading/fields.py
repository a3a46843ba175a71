"""Hidden tensors of a module: what their axes mean, what is known of their law, and why some cannot be followed.

A hidden tensor is described by what each of its axes means: samples "n", channels "c", or the number of a position
axis; flattening merges several into one, and axes of one entry mean nothing.
"""

from dataclasses import dataclass

from tangentkit.core.errors import ModelError
from tangentkit.infinite.reading.tracing import ANOTHER_WAY

Axis = tuple[str | int, ...]
"""What one axis of a tensor means."""


@dataclass(frozen=True)
class FieldLaw:
    """What is known of a field as a random function, channel by channel."""

    gaussian: bool
    """Whether it is Gaussian of mean zero."""
    sources: frozenset[str]
    """The layers whose outputs it is made of, without other weights in between."""


@dataclass(frozen=True)
class Group:
    """Some channels of a hidden tensor that are alike: a node, its axes and the number of channels."""

    node: int
    axes: tuple[Axis, ...]
    width: int

    def axis_of(self, role: str | int) -> int | None:
        """The tensor axis that holds a role."""
        return next((i for i, axis in enumerate(self.axes) if role in axis), None)


@dataclass(frozen=True)
class Hidden:
    """A tensor of the module that depends on weights: its channels, group by group."""

    groups: tuple[Group, ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What its axes mean, where the groups agree."""
        return self.groups[0].axes


class Refusal(Exception):
    """A reason why an operation has no limit here; the reader adds the name of the operation."""


def refuse(what: str, why: str) -> ModelError:
    """The error for an operation without a limit."""
    return ModelError(f"{what} has no infinite-width limit in closed form here: {why}", hint=ANOTHER_WAY)
