"""What is changed for the time of a call, in a module and in torch, and put back."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tangentkit.core.model.copies import Place

P = ParamSpec("P")
T = TypeVar("T")


def outside_autograd(method: Callable[P, T]) -> Callable[P, T]:
    """Runs a method as if the caller had switched nothing on or off: neither gradients nor inference mode."""

    @functools.wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with torch.inference_mode(False), torch.no_grad():
            return method(*args, **kwargs)

    return run


@contextmanager
def aliased(module: nn.Module, places: Sequence[Place], state: dict[str, Tensor]) -> Iterator[None]:
    """Puts tensors by name also where they stand beside their places in a module (see `copies.aliases`)."""
    if not places:
        yield
        return
    names = {id(t): name for name, t in (*module.named_parameters(), *module.named_buffers())}
    before = [(holder, name, getattr(holder, name)) for holder, name in places]

    def fresh(leaf: object) -> object:
        return state[names[id(leaf)]] if id(leaf) in names else leaf

    for holder, name, value in before:
        object.__setattr__(holder, name, pytree.tree_map(fresh, value))
    try:
        yield
    finally:
        for holder, name, value in before:
            object.__setattr__(holder, name, value)


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention without its fast path."""
    # The fast path of attention layers is for inference: it has no derivatives, and other rounding.
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def plain_recurrence(module: nn.Module) -> Iterator[None]:
    """LSTM layers of a module without the fused form."""
    # The fused float32 LSTM of oneDNN has neither forward-mode derivatives nor cells that can be told apart.
    enabled = torch._C._get_mkldnn_enabled()
    handles = []
    for child in module.modules():
        if isinstance(child, nn.LSTM):
            handles += [
                child.register_forward_pre_hook(lambda *_: torch._C._set_mkldnn_enabled(False)),
                child.register_forward_hook(
                    lambda *_: torch._C._set_mkldnn_enabled(enabled), always_call=True
                ),
            ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def in_modes(module: nn.Module, modes: dict[str, bool]) -> Iterator[None]:
    """`training` of submodules by name."""
    changed = [
        (child, child.training)
        for name, child in module.named_modules()
        if modes.get(name, child.training) != child.training
    ]
    for child, training in changed:
        child.training = not training
    try:
        yield
    finally:
        for child, training in changed:
            child.training = training
