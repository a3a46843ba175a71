"""A network expanded about its weights: f(w0, x) + J(w0, x) u + ..., as a module that trains u."""

from dataclasses import dataclass, replace
from math import factorial
from typing import Any

import torch
from torch import nn

from tangentkit.core.batches import Batch
from tangentkit.core.errors import InputError, ModelError
from tangentkit.core.model.functions import TURN, Forward, ModelFunction, snapshot
from tangentkit.core.model.hooks import refuse_hooked_parameters
from tangentkit.core.model.parameters import Selection, select_parameters
from tangentkit.linearized.derivatives import ROUTES
from tangentkit.linearized.evaluation import Evaluation, Outputs, Weights
from tangentkit.linearized.finite import finite_orders
from tangentkit.linearized.named_tensors import NamedTensors
from tangentkit.linearized.routes import TROUBLE, choose_route


def linearize(
    model: nn.Module, *, constant: bool = True, params: Selection = None, forward: Forward | None = None
) -> "LinearizedModel":
    """The first-order model of a network about its present weights w0.

        f_lin(u, x) = f(w0, x) + J(w0, x) u,    u = 0 at the start

    The result is called as the model is and returns what it returns. Its parameters are the displacements u,
    in the order and under the names of the model's parameters; a gradient in u is one backward pass, whatever the
    number of outputs. The model itself is left as it is, and what happens to it later changes nothing here.

    As for every kernel, layers whose outputs are random or depend on other samples in training mode (dropout,
    BatchNorm) must be in evaluation mode: call `model.eval()` first.

    Args:
        model: any module that torch can differentiate.
        constant: whether f(w0, x) is part of it; False leaves the differential J(w0, x) u alone.
        params: which parameters may be displaced (see `select_parameters`); the others stay at w0.
        forward: (model, batch) -> outputs, for models that are to be called otherwise; the result is then
            called with the batch.

    Raises:
        ModelError: the model is not initialized, mixes dtypes, or has dropout or BatchNorm in
            training mode.

    Example:
        >>> network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> model, x = linearize(network), torch.ones(5, 3)
        >>> torch.equal(model(x), network(x)), [name for name, _ in model.named_parameters()][:2]
        (True, ['displacement.0.weight', 'displacement.0.bias'])
    """
    return LinearizedModel(_function(model, params, forward), constant=constant)


def taylorize(
    model: nn.Module, degree: int, *, params: Selection = None, forward: Forward | None = None
) -> "Expansion":
    """The Taylor polynomial of a network in its weights, of a degree, about its present weights w0.

        f_m(u, x) = Σ_{k ≤ m} D^k f(w0, x)[u, ..., u] / k!

    Degree 1 is `linearize(model)`. A call costs about 2^degree forward passes.

    Args:
        model: any module that torch can differentiate as often.
        degree: at least 1.
        params: which parameters may be displaced.
        forward: (model, batch) -> outputs.

    Raises:
        InputError: the degree is not a positive integer.
        ModelError: the model is not initialized, mixes dtypes, or has dropout or BatchNorm in
            training mode.

    Example:
        >>> square = nn.Linear(1, 1, bias=False)
        >>> model = taylorize(square, 2, forward=lambda m, x: m(x) ** 2)
        >>> _ = nn.init.constant_(next(model.parameters()), 0.5)
        >>> bool((model(torch.ones(1, 1)) - (square.weight + 0.5) ** 2).abs() < 1e-5)
        True
    """
    if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1:
        raise InputError("bad degree", expected="an integer of at least 1", got=repr(degree))
    function = _function(model, params, forward)
    return LinearizedModel(function) if degree == 1 else TaylorModel(function, degree)


class Expansion(nn.Module):
    """A network in powers of the displacement u of its weights.

    The parameters are `displacement.NAME`. The buffers are `origin.NAME`: the weights w0 and all else of the
    network's state, so that `state_dict` holds everything, and `to`, `double`, `deepcopy` and pickle do what they
    do to any module. The network's code is kept beside them, in the modes that its layers had at w0: `train()` and
    `eval()` have no effect on it.

    Args:
        function: the network at w0, called with (args, kwargs).
        degree: the highest power of u.
    """

    def __init__(self, function: ModelFunction, degree: int):
        super().__init__()
        with torch.inference_mode(False):  # tensors made in that mode could never be trained
            zeros = {name: nn.Parameter(torch.zeros_like(w)) for name, w in function.params.items()}
        self.displacement = NamedTensors(zeros)
        self.origin = NamedTensors(function.params | function.frozen | function.buffers)
        self.degree = degree
        self._routes: dict[bool, str] = {}
        self._code = replace(function, params={}, frozen={}, buffers={})
        self._network_buffers = frozenset(function.buffers)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The expansion, in the place of the network's outputs; the arguments are the network's."""
        # Compilation and inference mode would drop tangents without a word.
        if torch.compiler.is_compiling():
            return torch.compiler.disable(self._expanded)(*args, **kwargs)
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False), torch.no_grad():
                return self._expanded(*args, **kwargs)
        return self._expanded(*args, **kwargs)

    def _expanded(self, *args: Any, **kwargs: Any) -> Any:
        evaluate = Evaluation(self._function(), (args, kwargs))
        return evaluate.rebuilt(self._polynomial(self._orders(evaluate)))

    @property
    def route(self) -> str | None:
        """How derivatives are computed, a name in `ROUTES`; found and verified with the first batch."""
        return self._routes.get(False, self._routes.get(True))

    def weights(self) -> Weights:
        """The state of the network at w0 + u: `network.load_state_dict(model.weights())` takes it.

        It has every name of the network's own `state_dict`: displaced parameters, the others, and buffers.
        """
        code, state = self._code.module, dict(self.origin.named_buffers(remove_duplicate=False))
        with torch.no_grad():
            state |= self._code.as_held({name: state[name] + u for name, u in self._u().items()})
        # One tensor may have several names (tied weights), of which the origin has the first.
        first = {id(w): name for name, w in (*code.named_parameters(), *code.named_buffers())}
        wanted = code.state_dict(keep_vars=True)
        return {name: state[first[id(w)]] if id(w) in first else w for name, w in wanted.items()}

    def extra_repr(self) -> str:
        """The network and the degree."""
        return f"{type(self._code.module).__name__}, degree={self.degree}"

    def _polynomial(self, orders: list[Outputs]) -> Outputs:
        """The value from φ(0), φ'(0), ..., where φ(s) = f(w0 + s u)."""
        raise NotImplementedError

    def _orders(self, evaluate: Evaluation) -> list[Outputs]:
        with TURN:  # forward mode is one for the whole process
            return self._by_route(evaluate)

    def _by_route(self, evaluate: Evaluation) -> list[Outputs]:
        if torch._C._are_functorch_transforms_active():
            # Where nothing can be tried out; and this alone works.
            return ROUTES["jvp"](evaluate, self._u(), self.degree)
        inputs = evaluate.inputs_require_grad and torch.is_grad_enabled()
        if inputs not in self._routes:
            self._routes[inputs] = choose_route(evaluate, self.degree)
        try:
            return finite_orders(ROUTES[self._routes[inputs]], evaluate, self._u(), self.degree)
        except TROUBLE:
            # Another batch may take another path through the network, or be one that no route can take.
            route = choose_route(evaluate, self.degree)
            if route == self._routes[inputs]:
                raise
            self._routes[inputs] = route
            return finite_orders(ROUTES[route], evaluate, self._u(), self.degree)

    def _u(self) -> Weights:
        return dict(self.displacement.named_parameters(remove_duplicate=False))

    def _function(self) -> ModelFunction:
        state, u = dict(self.origin.named_buffers(remove_duplicate=False)), self._u()
        return replace(
            self._code,
            params={name: state[name] for name in u},
            frozen={
                name: w for name, w in state.items() if name not in u and name not in self._network_buffers
            },
            buffers={name: state[name] for name in self._network_buffers},
        )


class LinearizedModel(Expansion):
    """f(w0, x) + J(w0, x) u, or without the constant J(w0, x) u (see `linearize`)."""

    def __init__(self, function: ModelFunction, *, constant: bool = True):
        super().__init__(function, degree=1)
        self.constant = constant

    def extra_repr(self) -> str:
        """The network, and whether its constant is there."""
        return f"{type(self._code.module).__name__}, constant={self.constant}"

    def _polynomial(self, orders: list[Outputs]) -> Outputs:
        outputs, slopes = orders
        return tuple(f + df for f, df in zip(outputs, slopes, strict=True)) if self.constant else slopes


class TaylorModel(Expansion):
    """The Taylor polynomial of degree two or more (see `taylorize`)."""

    def _polynomial(self, orders: list[Outputs]) -> Outputs:
        terms = zip(*orders, strict=True)
        return tuple(sum(d / factorial(k) for k, d in enumerate(term)) for term in terms)  # pyright: ignore


@dataclass(frozen=True)
class _ByRule:
    """A user's rule (model, batch) as a rule for the arguments of a call."""

    rule: Forward

    def __call__(self, module: nn.Module, call: Batch) -> Any:
        args, kwargs = call
        if len(args) != 1 or kwargs:
            got = f"{len(args)} positional and {len(kwargs)} keyword arguments"
            raise InputError("bad call", expected="one batch, for forward(model, batch)", got=got)
        return self.rule(module, args[0])


def _as_called(module: nn.Module, call: Batch) -> Any:
    args, kwargs = call
    return module(*args, **kwargs)


def _function(model: nn.Module, params: Selection, forward: Forward | None) -> ModelFunction:
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    if any(
        isinstance(p, nn.UninitializedParameter | nn.UninitializedBuffer)
        for p in (*model.parameters(), *model.buffers())
    ):
        raise ModelError(
            "the model is not initialized",
            hint="call it once with a batch, so that lazy layers learn their shapes",
        )
    _refuse_scaled_gradients(model, params)
    function = snapshot(model, params=params, forward=_ByRule(forward) if forward else _as_called)
    refuse_hooked_parameters(model, function.params)
    return function


def _refuse_scaled_gradients(model: nn.Module, params: Selection) -> None:
    """They are no derivatives, which shows only in batches where a word comes twice."""
    chosen = {id(p) for p in select_parameters(model, params).values()}
    for name, child in model.named_modules():
        if getattr(child, "scale_grad_by_freq", False) and id(child.weight) in chosen:
            raise ModelError(
                f"{type(child).__name__} {name!r} has scale_grad_by_freq, a gradient that is no derivative",
                hint="scale_grad_by_freq=False, or leave its weight out by params=",
            )
