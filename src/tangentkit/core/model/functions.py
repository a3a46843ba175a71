"""A module as a function: (parameters, batch) -> outputs (n, c), at a snapshot of its state."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from threading import RLock, local
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tangentkit.core.batches import Batch, copied, shapes, tensors
from tangentkit.core.errors import InputError, ModelError, NumericalError
from tangentkit.core.model.calls import call, check_outputs
from tangentkit.core.model.copies import CannotCopyError, Place, aliases, named_tensors, private_copy
from tangentkit.core.model.parameters import Selection, count, select_parameters
from tangentkit.core.model.portable import portable
from tangentkit.core.model.swaps import aliased, in_modes, plain_attention, plain_recurrence

Result = TypeVar("Result")
Forward = Callable[[nn.Module, Batch], Tensor]
"""A rule (model, batch) -> (n, c) for models with other inputs or outputs: a tensor, or an output with `.logits`."""
TURN = RLock()
"""Held while a model runs: parameters and modes of its copy, and flags of torch, are swapped for the time of a call.
One thread at a time, or the last to put them back would leave them changed."""
_HELD = local()
"""Of each thread, `by`: the function whose module is swapped at the moment, innermost of nested calls, with the
parameters and buffers that the module holds."""
_NOBODY: tuple[None, dict, dict] = (None, {}, {})


@dataclass(frozen=True, eq=False, repr=False)
class ModelFunction:
    """f(params, batch) of shape (n, c), with everything else of the module as it was at the snapshot.

    Whatever happens to the module later changes nothing here: code, options and modes are those of a copy, values are
    copies, and the user's module is never touched.
    """

    module: nn.Module
    """A copy of the module without its values, which are put in for the time of a call; the module itself where it
    cannot be copied."""
    forward: Forward
    """How the module is called."""
    params: dict[str, Tensor]
    """The selected parameters; of complex ones the real and imaginary parts, (..., 2)."""
    frozen: dict[str, Tensor]
    """The other parameters."""
    buffers: dict[str, Tensor]
    """The buffers."""
    modes: dict[str, bool]
    """`training` of every submodule."""
    complex: frozenset[str] = frozenset()
    """The selected parameters that are complex in the module."""
    aliases: tuple[Place, ...] = ()
    """Where parameters or buffers stand beside their places in the module (see `aliases`)."""

    def __call__(self, params: dict[str, Tensor], batch: Batch) -> Tensor:
        """The outputs (n, c) for given values of the selected parameters.

        Raises:
            ModelError: the output is not a tensor of shape (n, c).
        """
        # Some models differentiate themselves in their inputs (residuals of differential equations, forces).
        with torch.inference_mode(False), torch.enable_grad():
            outputs = self.run(params, batch)
        # Models may give their outputs in another precision (logits in float32, say): all else is in the parameters'.
        called = "model(**batch)" if isinstance(batch, dict) else "model(batch)"
        outputs = check_outputs(outputs, tensors(batch)[0].shape[0], called).to(self.dtype)
        # A view has a graph only where the caller wants one, and keeps the tangents of forward mode.
        return outputs if torch.is_grad_enabled() else outputs.view_as(outputs)

    def run(self, params: dict[str, Tensor], batch: Batch) -> object:
        """Whatever the model returns."""
        # A model may write to its input (an in-place activation, say): it gets a copy to write to.
        return self.within(params, lambda: self.forward(self.module, copied(batch)))

    def within(self, params: dict[str, Tensor], work: Callable[[], Result]) -> Result:
        """Does something while the module holds these parameters, and all else of the snapshot."""
        # A call may write to buffers (a counter, say): it gets copies to write to.
        buffers = {name: value.clone() for name, value in self.buffers.items()}
        state = buffers | self.frozen | self.as_held(params)
        with (
            TURN,
            in_modes(self.module, self.modes),
            plain_attention(),
            plain_recurrence(self.module),
            aliased(self.module, self.aliases, state),
            _held(self, params, buffers),
        ):
            staged = {f"module.{name}": value for name, value in state.items()}
            staged |= {f"module.{other}": state[name] for other, name in self._other_names.items()}
            return torch.func.functional_call(self._stage, staged, (work,), tie_weights=False)

    def held(self, params: dict[str, Tensor], work: Callable[[], Result]) -> Result:
        """As `within`, but at once where the module holds the same already: swapping takes longer than small work.

        Backward passes belong here: checkpointed blocks run forward again in them.
        """
        return work() if self._is_held(params) else self.within(params, work)

    def leaves(self) -> dict[str, Tensor]:
        """The selected parameters as new leaves, in which outputs can be differentiated."""
        return {name: p.detach().requires_grad_() for name, p in self.params.items()}

    def as_held(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Parameters as the module holds them: complex where it has complex ones."""
        return {
            name: torch.view_as_complex(p.contiguous()) if name in self.complex else p
            for name, p in params.items()
        }

    def _is_held(self, params: dict[str, Tensor]) -> bool:
        """Whether this thread has put these parameters into the module, and nothing has changed buffers since."""
        function, present, buffers = getattr(_HELD, "by", _NOBODY)
        if function is not self or not all(_same(present[name], p) for name, p in params.items()):
            return False
        # Buffers came as fresh copies: one that was written to has a version, and another may stand in its place.
        standing = dict(self.module.named_buffers()) if buffers else {}
        return all(standing.get(name) is b and b._version == 0 for name, b in buffers.items())

    def __repr__(self) -> str:
        everything = self.params | self.frozen
        numbers = (
            f"{count(self.params):,} of {count(everything):,}" if self.frozen else f"{count(self.params):,}"
        )
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{type(self.module).__name__}, {numbers} parameters, {dtype} on {self.device}"

    def __getstate__(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return state | {"forward": portable(self.forward)}

    @cached_property
    def _stage(self) -> "_Stage":
        return _Stage(self.module)

    @cached_property
    def _other_names(self) -> dict[str, str]:
        """Further places of tensors that the module shares, with the names that they have here.

        functional_call would look for them in every call, which takes as long as a small layer.
        """
        here, names = {*self.params, *self.frozen, *self.buffers}, defaultdict(list)
        for kind in (self.module.named_parameters, self.module.named_buffers):
            for name, tensor in kind(remove_duplicate=False):
                names[id(tensor)].append(name)
        return {
            other: name
            for shared in names.values()
            for name in shared
            if name in here
            for other in shared
            if other not in here
        }

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the selected parameters."""
        return next(iter(self.params.values())).dtype

    @property
    def device(self) -> torch.device:
        """The device of the selected parameters."""
        return next(iter(self.params.values())).device


class BorrowedModuleWarning(UserWarning):
    """A module cannot be copied, and is itself used while a kernel is computed."""


def snapshot(module: nn.Module, *, params: Selection = None, forward: Forward | None = None) -> ModelFunction:
    """The function of a module now, detached from whatever happens to the module later.

    Values, options, modes and hooks are copied, and calls run on the copy: other threads may use the module then.
    A module that cannot be copied is used itself, one thread at a time, with a `BorrowedModuleWarning`. A complex
    parameter is two real ones: derivatives are in real and imaginary parts.

    Args:
        module: in evaluation mode as far as samples would otherwise see each other or chance.
        params: which parameters are the function's argument (see `select_parameters`).
        forward: (model, batch) -> (n, c); by default the module is called as its signature takes it (see `call`).

    Raises:
        ModelError: a layer is in a mode in which outputs are random or depend on other samples; or the
            selected parameters differ in dtype or device.
        NumericalError: a parameter or buffer is not finite.

    Example:
        >>> f = snapshot(nn.Linear(3, 2))
        >>> f(f.params, torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """
    if not isinstance(module, nn.Module):
        raise ModelError("not a model", expected="an nn.Module", got=type(module).__name__)
    check_evaluation_mode(module)
    chosen = select_parameters(module, params)
    copies = _values(module)
    kinds = {(p.dtype.to_real(), p.device) for p in chosen.values()}
    if len(kinds) > 1:
        words = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise ModelError(
            "parameters are mixed", expected="one dtype and device", got=words, hint="model.to(...)"
        )
    buffers = {name: copies[name] for name, _ in module.named_buffers()}
    complex_ones = frozenset(name for name in chosen if copies[name].is_complex())
    modes = {name: child.training for name, child in module.named_modules()}
    code, rule, places = _own(module, forward or call)
    return ModelFunction(
        module=code,
        forward=rule,
        params={n: torch.view_as_real(copies[n]) if n in complex_ones else copies[n] for n in chosen},
        frozen={name: value for name, value in copies.items() if name not in chosen and name not in buffers},
        buffers=buffers,
        modes=modes,
        complex=complex_ones,
        aliases=places,
    )


def snapshot_to_call(module: nn.Module, *, forward: Forward | None = None) -> ModelFunction:
    """The function of a module now that is called, and not differentiated by its parameters: all may be frozen.

    Example:
        >>> f = snapshot_to_call(nn.Linear(3, 2).requires_grad_(False))
        >>> f(f.params, torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """
    trained = not isinstance(module, nn.Module) or any(p.requires_grad for p in module.parameters())
    return snapshot(module, params=None if trained else lambda *_: True, forward=forward)


def _values(module: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers."""
    copies = {}
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if torch.nn.parameter.is_lazy(value) or value.is_meta:
            raise ModelError(
                f"{name} has no values yet",
                hint="model(batch) once for lazy layers, load_state_dict for meta tensors",
            )
        # Tensors made in inference mode could never take part in a backward pass.
        with torch.inference_mode(False):
            copies[name] = value.detach().clone()
        if not _is_finite(copies[name]):
            raise NumericalError(
                f"{name} is not finite", hint="look for a diverged training run or a bad checkpoint"
            )
    return copies


def _is_finite(tensor: Tensor) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    if tensor.layout is not torch.strided:
        tensor = tensor._values() if tensor.is_sparse else tensor.values()
    return bool(tensor.isfinite().all())


def _own(module: nn.Module, forward: Forward) -> tuple[nn.Module, Forward, tuple[Place, ...]]:
    """A copy of a module with its rule, or the module itself where there can be none."""
    if named := named_tensors(module, forward):
        raise ModelError(
            f"{named[0]} is used by a global name, where the snapshot's value cannot be put",
            expected="parameters and buffers as attributes of the model",
            hint="the first argument of forward= and of hooks is the model",
        )
    try:
        code, rule = private_copy(module, forward)
    except CannotCopyError as reason:
        warnings.warn(
            f"{type(module).__name__} cannot be copied ({reason}): it is used itself while something is computed, so "
            "no other thread may use it then, and later changes of its plain attributes are seen. "
            "Try: keep what cannot be copied out of it, and use the first argument of forward= and of hooks",
            BorrowedModuleWarning,
            stacklevel=4,
        )
        code, rule = module, forward
    return code, rule, tuple(aliases(code, rule))


def check_evaluation_mode(module: nn.Module) -> None:
    """Refuses layers whose mode makes outputs random or lets samples of a batch see each other.

    Raises:
        ModelError: naming the layer.
    """
    for name, child in module.named_modules():
        if not child.training:
            continue
        batch_statistics = isinstance(child, nn.modules.batchnorm._BatchNorm)
        chance = getattr(child, "p", 0.0) if isinstance(child, nn.modules.dropout._DropoutNd) else 0.0
        if isinstance(child, (nn.MultiheadAttention, nn.RNNBase)):
            chance = child.dropout
        if batch_statistics or chance:
            reason = (
                "a sample's output depends on the others of its batch"
                if batch_statistics
                else "outputs are random"
            )
            raise ModelError(
                f"{type(child).__name__} {name or 'model'!r} is in training mode, where {reason}",
                hint="model.eval()",
            )


def check_inputs(function: ModelFunction, batch: Batch) -> None:
    """Refuses inputs that are not finite, or on another device or of another float type than the parameters.

    Raises:
        InputError: saying which.
    """
    for leaf in tensors(batch):
        if leaf.device != function.device:
            raise InputError(
                "inputs and model differ in device",
                expected=function.device,
                got=leaf.device,
                hint="x.to(device)",
            )
        if not leaf.is_floating_point():
            continue
        if leaf.dtype != function.dtype:
            raise InputError(
                "inputs and model differ in dtype",
                expected=function.dtype,
                got=leaf.dtype,
                hint=f"x.to({function.dtype}); x is {shapes(leaf)}",
            )
        if leaf.sum().isfinite():
            continue  # a sum is cheap, and finite only if all entries are
        finite = leaf.isfinite().flatten(1).all(1) if leaf.ndim > 1 else leaf.isfinite()
        if not finite.all():
            bad = (~finite).nonzero().flatten().tolist()
            raise InputError(
                "inputs are not finite", got=f"nan or inf in samples {bad[:5]} ({len(bad)} in all)"
            )


class _Stage(nn.Module):
    """Gives functional_call a module around the user's, whose forward is any work."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, work: Callable[[], Result]) -> Result:
        return work()


@contextmanager
def _held(function: ModelFunction, params: dict[str, Tensor], buffers: dict[str, Tensor]) -> Iterator[None]:
    before = getattr(_HELD, "by", _NOBODY)
    _HELD.by = function, params, buffers
    try:
        yield
    finally:
        _HELD.by = before


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two parameters are the same memory, and both wait for gradients or neither does."""
    return a.data_ptr() == b.data_ptr() and a.requires_grad == b.requires_grad
