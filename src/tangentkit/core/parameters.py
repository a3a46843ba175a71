"""Which parameters a kernel is about."""

from collections.abc import Callable, Iterable

from torch import Tensor, nn

from tangentkit.core.errors import InputError, UnknownNameError

Selection = Iterable[str] | Callable[[str, nn.Parameter], bool] | None
"""None (all that require grad), names, or a predicate of (name, parameter)."""


def select_parameters(module: nn.Module, params: Selection = None) -> dict[str, nn.Parameter]:
    """The parameters that a selection means, each once, in the module's order.

    Tied weights appear once, under their first name; any of their names selects them. Names and predicates
    may select frozen parameters too: who asks for one by name wants it.

    Args:
        module: whose parameters.
        params: None for all that require grad, names, or a predicate (name, parameter) -> bool.

    Returns:
        Name -> parameter, not empty.

    Raises:
        UnknownNameError: a name that the module does not have.
        InputError: the selection is empty, or one string where a list of names is meant.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        >>> list(select_parameters(model, lambda name, p: p.ndim == 2))
        ['0.weight', '1.weight']
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
    wanted = set()
    for name in names:
        if name not in by_any_name:
            raise UnknownNameError("parameter", name, by_any_name)
        wanted.add(id(by_any_name[name]))
    return {name: p for name, p in unique.items() if id(p) in wanted}


def count(parameters: dict[str, Tensor]) -> int:
    """The number of scalars."""
    return sum(p.numel() for p in parameters.values())
