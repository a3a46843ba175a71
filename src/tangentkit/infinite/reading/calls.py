"""What a node of a traced graph calls, with which arguments, and why some calls have no infinite-width limit."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from tangentkit.infinite.reading.fields import Hidden

REASONS = {
    "MaxPool": "the maximum of Gaussian variables has no covariance in closed form",
    "max_pool": "the maximum of Gaussian variables has no covariance in closed form",
    "amax": "the maximum of Gaussian variables has no covariance in closed form",
    "LPPool": "the norm of Gaussian variables has no covariance in closed form",
    "AdaptiveMaxPool": "the maximum of Gaussian variables has no covariance in closed form",
    "adaptive_max_pool": "the maximum of Gaussian variables has no covariance in closed form",
    "InstanceNorm": "its statistics are those of single channels and stay random at infinite width",
    "Multihead": "softmax of random scores has no covariance in closed form",
    "scaled_dot_product": "softmax of random scores has no covariance in closed form",
    "oftmax": "it mixes the outputs, which a kernel of independent outputs cannot follow",
    "Transpose": "transposed convolutions are not covered",
    "LSTM": "recurrent layers share their weights over time",
    "GRU": "recurrent layers share their weights over time",
    "RNN": "recurrent layers share their weights over time",
    "Embedding": "lookups are not covered",
    "bmm": "products of branches are not Gaussian",
    "matmul": "products of branches are not Gaussian",
}
"""Words in the name of a module or function, and the reason."""


def function_name(node: fx.Node) -> str:
    """The name of a function or method, without the underscores of operators and in-place forms."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return name.strip("_")


def reason_against(what: str) -> str | None:
    """Why something of this name has no limit, where that is known."""
    return next((reason for word, reason in REASONS.items() if word in what), None)


def argument_of(node: fx.Node, place: int, name: str, default: Any) -> Any:
    """An argument of a call, given by place or by name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def hidden_arguments(node: fx.Node, hidden: Mapping[str, Hidden]) -> list[fx.Node]:
    """The arguments of a call that depend on weights."""
    return [source for source in node.all_input_nodes if source.name in hidden]


def depends_on_input(node: fx.Node) -> bool:
    """Whether a value depends on the model's input at all."""
    waiting, seen = [node], set()
    while waiting:
        one = waiting.pop()
        if one.op == "placeholder":
            return True
        if one not in seen:
            seen.add(one)
            waiting += one.all_input_nodes
    return False


def per_axis(value: Any, rank: int) -> Sequence[Any]:
    """An option of a layer for each of its axes."""
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    return values if len(values) == rank else values[:1] * rank


def axes_after(name: str, node: fx.Node, rank: int) -> list[int]:
    """The axes of the input in the order of the output, found by doing the same to a small tensor."""
    example = torch.empty(*range(1, rank + 1), device="meta")
    rest, options = node.args[1:], {k: v for k, v in node.kwargs.items() if k != "input"}
    return [size - 1 for size in getattr(example, name)(*rest, **options).shape]


def pool_module(name: str) -> type[nn.Module]:
    """The kind of module that does what a pooling function does."""
    return getattr(nn, f"{'Adaptive' if name.startswith('adaptive') else ''}AvgPool{name[-2:]}")
