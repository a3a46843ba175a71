"""Which parameters a kernel is about."""

import fnmatch
from collections.abc import Callable, Iterable

from torch import Tensor, nn

from tangentkit.core.errors import InputError, UnknownNameError

Selection = Iterable[str] | Callable[[str, nn.Parameter], bool] | None
"""None (all that require grad), names or patterns such as "head.*", or a predicate of (name, parameter)."""


def select_parameters(module: nn.Module, params: Selection = None) -> dict[str, nn.Parameter]:
    """The parameters that a selection means, each once, in the module's order.

    Tied weights appear once, under their first name; any of their names selects them. Names and predicates
    may select frozen parameters too: who asks for one by name wants it.

    Args:
        module: whose parameters.
        params: None for all that require grad, names or patterns ("*" any letters, "?" one, "[ab]" one of these), or
            a predicate (name, parameter) -> bool.

    Returns:
        Name -> parameter, not empty.

    Raises:
        UnknownNameError: a name that the module does not have, or a pattern that none of its names fits.
        InputError: the selection is empty, or of something else than names.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        >>> list(select_parameters(model, lambda name, p: p.ndim == 2))
        ['0.weight', '1.weight']
        >>> list(select_parameters(model, ["1.*"]))
        ['1.weight', '1.bias']
    """
    unique = dict(module.named_parameters())
    if params is None:
        chosen = {name: p for name, p in unique.items() if p.requires_grad}
    elif callable(params):
        chosen = {name: p for name, p in unique.items() if params(name, p)}
    else:
        chosen = _by_name(module, unique, params)
    if not chosen:
        raise InputError(
            "no parameter is selected",
            expected="at least one",
            got=f"none of {len(unique)}",
            hint="requires_grad_(True), or params=[names]; model.named_parameters() lists them",
        )
    return chosen


def _by_name(
    module: nn.Module, unique: dict[str, nn.Parameter], names: Iterable[str]
) -> dict[str, nn.Parameter]:
    if isinstance(names, str):
        raise InputError(
            "params is one string", expected="a list of names", got=repr(names), hint=f"params=[{names!r}]"
        )
    by_any_name = dict(module.named_parameters(remove_duplicate=False))
    names = list(names)
    if any(not isinstance(name, str) for name in names):
        raise _no_names(names, by_any_name)
    wanted = set()
    for name in names:
        found = [name] if name in by_any_name else fnmatch.filter(by_any_name, name)
        if not found:
            raise UnknownNameError("parameter", name, by_any_name)
        wanted |= {id(by_any_name[one]) for one in found}
    return {name: p for name, p in unique.items() if id(p) in wanted}


def _no_names(given: list, known: dict[str, nn.Parameter]) -> InputError:
    """The error for parameters themselves, or anything else, where names are meant."""
    own = {id(p): name for name, p in known.items()}
    names = [own[id(one)] for one in given if id(one) in own]
    shown = ", ".join(map(repr, names[:3] or list(known)[:3])) + (", ..." if len(names or known) > 3 else "")
    kinds = sorted({type(one).__name__ for one in given if not isinstance(one, str)})
    return InputError(
        "params are no names",
        expected="names or patterns of parameters, or a predicate (name, parameter) -> bool",
        got=f"a list of {' and '.join(kinds)}",
        hint=f"params=[{shown}]; model.named_parameters() lists them",
    )


def count(parameters: dict[str, Tensor]) -> int:
    """The number of scalars."""
    return sum(p.numel() for p in parameters.values())
