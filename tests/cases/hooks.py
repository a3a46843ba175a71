"""What changes gradients beside the formula: hooks on tensors, on nodes of the graph, on modules."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cases.case import Zoo
from cases.draws import floats
from cases.formula import Formula

zoo = Zoo()


def _hooked(hook: Callable[[Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    def formula(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        if h.requires_grad:
            h.register_hook(hook)
        return m.b(h.tanh())

    return formula


def _masked(m: Any, x: Tensor) -> Tensor:
    h = m.b(m.a(x).tanh())
    if h.requires_grad:
        h.register_hook(lambda g: torch.where(x[:, :1] > 0.5, 3 * g, g))
    return h


def _on_the_node(m: Any, x: Tensor) -> Tensor:
    h = m.b(m.a(x).tanh())
    if h.grad_fn is not None:
        h.grad_fn.register_prehook(lambda g: (3 * g[0],))
    return h


def _with_backward_hook() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    model[2].register_full_backward_hook(lambda _, inputs, __: (-2 * inputs[0],))
    return model


def _layers() -> dict[str, nn.Module]:
    return {"a": nn.Linear(4, 5), "b": nn.Linear(5, 3)}


zoo("gradient reversed by a hook", lambda: Formula(_hooked(lambda g: -0.5 * g), **_layers()), floats(4))
zoo(
    "gradient clipped by a hook",
    lambda: Formula(_hooked(lambda g: g.clamp(-0.3, 0.3)), **_layers()),
    floats(4),
)
zoo("hook on some samples of the head's output", lambda: Formula(_masked, **_layers()), floats(4))
zoo("hook on a node", lambda: Formula(_on_the_node, **_layers()), floats(4))
zoo("backward hook of a module", _with_backward_hook, floats(4))
