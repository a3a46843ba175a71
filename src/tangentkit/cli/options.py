"""Options that belong to a kernel or to a model, and are refused beside others."""

from typing import TypeVar

V = TypeVar("V")


def only_for(owner: str, option: str, value: V | None, default: V, *, applies: bool) -> V:
    """The value of an option, or its default where it was not given.

    Args:
        owner: what the option belongs to, for the message.
        option: its name, for the message.
        value: None where it was not given.
        default: what it is then.
        applies: whether it changes anything here.

    Raises:
        InputError: it was given where it changes nothing.

    Example:
        >>> only_for("kernel sketched", "--dim", None, 4096, applies=False)
        4096
    """
    if value is None:
        return default
    if not applies:
        from tangentkit.core.errors import InputError

        raise InputError(f"{option} belongs to {owner}", expected=f"{owner}, or no {option}", got=value)
    return value


def width_of_mlp(width: int | None, model: str) -> int:
    """The width of hidden layers, 512 by default.

    Raises:
        InputError: it was given for another model than mlp.
    """
    return only_for("--model mlp", "--width", width, 512, applies=model == "mlp")
