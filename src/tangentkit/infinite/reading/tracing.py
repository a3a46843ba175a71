"""A module as a graph with shapes: traced once by torch.fx, rehearsed on a few samples for every input shape."""

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.conv import _ConvNd

from tangentkit import nn as tknn
from tangentkit.compute.identity import Plain, fingerprints
from tangentkit.core.batches import shapes
from tangentkit.core.errors import InputError, ModelError
from tangentkit.core.model.functions import check_evaluation_mode
from tangentkit.core.model.layers import expected_shape, layer_error
from tangentkit.infinite.duals.dual import Dual
from tangentkit.infinite.propagate.position_pairs import Patch

ANOTHER_WAY = "tk.MonteCarloKernel(make_model) averages the kernels of finite networks instead"

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
OURS = (tknn.Linear, tknn.Conv1d, tknn.Conv2d)
PLAIN = (nn.Linear.forward, nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward)


def is_layer(module: nn.Module) -> bool:
    """Whether a module is a linear or convolutional layer that computes as torch's or ours does."""
    return isinstance(module, LAYERS) and (type(module) in OURS or type(module).forward in PLAIN)


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        own = is_layer(m) or isinstance(getattr(m, "dual", None), Dual)
        return own or super().is_leaf_module(m, module_qualified_name)


class _Whole(nn.Module):
    """Gives a model that is itself a leaf a module around it, so that it is traced as one call."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


@dataclass(frozen=True, eq=False)
class Trace:
    """The graph of a module and a copy of it that has no weights, only their shapes.

    Buffers and the parameters of other modules are copies: what happens to the model later changes nothing.
    """

    graph: fx.Graph
    model: nn.Module
    names: dict[nn.Module, str]
    """Layer -> its name in the user's model."""

    @property
    def modules(self) -> dict[str, nn.Module]:
        """All modules by the names that the graph uses."""
        return dict(self.model.named_modules(remove_duplicate=False))

    def identity(self) -> dict[str, Plain]:
        """What identifies the model, for stored matrices: the values that count, and what is trained."""
        state = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        return {
            "constants": fingerprints((name, value) for name, value in state.items() if not value.is_meta),
            "trained": [name for name, p in self.model.named_parameters() if p.requires_grad],
        }

    def prepared(self, like: Tensor) -> nn.Module:
        """A copy of the model whose numbers have the device and (if it is one for them) the dtype of a tensor."""
        model = copy.deepcopy(self.model)
        dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()

        def converted(t: Tensor) -> Tensor:
            if t.is_meta:
                return t
            return t.to(like.device, dtype) if t.is_floating_point() else t.to(like.device)

        return model._apply(converted)


def trace(model: nn.Module) -> Trace:
    """The graph of a module, if its forward pass is one.

    Raises:
        ModelError: it depends on values, takes several inputs, or has layers in training mode or with hooks.
    """
    check_evaluation_mode(model)
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            raise ModelError(
                f"module {name!r} has forward hooks, which the kernel would not see",
                hint="remove them (weight_norm and spectral_norm of torch.nn.utils are hooks too)",
            )
        if isinstance(module, LAYERS) and torch.nn.utils.parametrize.is_parametrized(module):
            raise ModelError(
                f"the parameters of layer {name!r} are made by a parametrization and not independent normal numbers",
                hint=f"torch.nn.utils.parametrize.remove_parametrizations, or {ANOTHER_WAY}",
            )
    # Layers lose their weights: the copy is small, and no value of a weight can ever matter.
    # (Those within a module that is one call, such as attention, stay: it is run as it is, and refused by its name.)
    memo: dict[int, Any] = {}
    tracer = _Tracer()
    calls = [m for name, m in model.named_modules() if not is_layer(m) and tracer.is_leaf_module(m, name)]
    within = {id(part) for call in calls for part in call.modules()}
    for module in model.modules():
        if is_layer(module) and id(module) not in within:
            for parameter in module.parameters():
                memo[id(parameter)] = nn.Parameter(
                    torch.empty_like(parameter, device="meta"), requires_grad=parameter.requires_grad
                )
    copied = copy.deepcopy(model, memo)
    names = {module: name for name, module in copied.named_modules()}
    if tracer.is_leaf_module(copied, ""):
        copied = _Whole(copied)
    try:
        graph = tracer.trace(copied)
    except Exception as problem:
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        change = (
            "x.shape[0] for len(x)"
            if reason.startswith("'len'")
            else "take control flow on values out of forward"
        )
        raise ModelError(
            "torch.fx cannot trace the model",
            expected="a forward pass that is the same for all inputs",
            got=reason.partition(". ")[0],
            hint=f"{change}, or {ANOTHER_WAY}",
        ) from problem
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    if len([node for node in inputs if not node.args]) != 1:
        raise ModelError(
            "the infinite-width kernel is that of a function of one tensor",
            expected="forward(x)",
            got=f"forward({', '.join(str(node.target) for node in inputs)})",
            hint=f"a module around the model that takes one tensor, or {ANOTHER_WAY}",
        )
    parameters = dict(copied.named_parameters(remove_duplicate=False))
    for node in graph.nodes:
        if node.op == "get_attr" and str(node.target) in parameters and parameters[str(node.target)].is_meta:
            raise ModelError(
                f"the weights {str(node.target)!r} are used outside of their layer",
                expected="layers that are called",
                got=f"a function of the weights themselves (node {node.name!r} of the traced graph)",
                hint=f"call the layer instead of torch.nn.functional, or {ANOTHER_WAY}",
            )
    return Trace(graph, copied, names)


class _RefusedError(Exception):
    """A layer does not take what it is given."""

    def __init__(self, layer: nn.Module, given: Tensor):
        super().__init__()
        self.layer, self.given = layer, given


class Rehearsal(fx.Interpreter):
    """Runs a graph on some samples, with zeros for what layers give, and remembers shapes and numbers."""

    def __init__(self, traced: Trace, like: Tensor):
        super().__init__(traced.prepared(like), graph=traced.graph)
        self.seen: dict[str, Any] = {}
        self.dtypes: dict[str, torch.dtype] = {}

    def run_node(self, n: fx.Node) -> Any:
        """The value of a node, remembered."""
        value = super().run_node(n)
        self.seen[n.name] = value.shape if isinstance(value, Tensor) else value
        if isinstance(value, Tensor):
            self.dtypes[n.name] = value.dtype
        return value

    def call_module(self, target: Any, args: tuple, kwargs: dict) -> Any:
        """Layers give zeros of the right shape; everything else runs."""
        module = self.fetch_attr(target)
        if not is_layer(module):
            return super().call_module(target, args, kwargs)
        x = args[0] if args else next(iter(kwargs.values()))
        if not x.is_floating_point() or expected_shape(module, x) is not None:
            raise _RefusedError(module, x)
        # By formula: a run on the meta device would load a good part of torch's compiler.
        if isinstance(module, nn.Linear):
            return x.new_zeros(*x.shape[:-1], module.out_features)
        assert isinstance(module, _ConvNd)
        sizes = [patch.outputs for patch in patches(module, x.shape[2:])]
        if min(sizes) < 1:
            raise _RefusedError(module, x)
        return x.new_zeros(len(x), module.out_channels, *sizes)


def patches(layer: _ConvNd, sizes: Sequence[int]) -> list[Patch]:
    """What the filter of a convolution sees along each axis of an input."""
    found = []
    for a, size in enumerate(sizes):
        if layer.padding == "valid":
            padding = (0, 0)
        elif isinstance(layer.padding, str) or layer.padding_mode != "zeros":
            # Torch keeps the padding of the last axis first.
            before = 2 * (len(sizes) - 1 - a)
            padding = tuple(layer._reversed_padding_repeated_twice[before : before + 2])
        else:
            padding = (layer.padding[a],) * 2
        found.append(
            Patch(size, layer.kernel_size[a], layer.stride[a], layer.dilation[a], padding, layer.padding_mode)  # pyright: ignore
        )
    return found


@dataclass(frozen=True)
class Rehearsed:
    """What a graph does to two samples."""

    seen: dict[str, Any]
    """Shapes of tensors and values of everything else, by the name of the node."""
    dtypes: dict[str, torch.dtype]
    """Of the tensors."""
    varies: set[str]
    """Nodes whose values depend on the number of samples."""
    output_of_three: Any
    """The shape of the output for three samples."""


def rehearse(traced: Trace, x: Tensor) -> Rehearsed:
    """Runs the graph on two and on three samples like those of a batch.

    Raises:
        InputError: the model does not take such inputs.
    """
    runs = []
    for n in (2, 3):
        player, samples = Rehearsal(traced, x), x[:1].expand(n, *x.shape[1:]).contiguous()
        try:
            with torch.no_grad():
                player.run(samples)
        except _RefusedError as refused:
            names = {layer: name for name, layer in player.module.named_modules()}  # pyright: ignore
            name = traced.names[traced.modules[names[refused.layer]]]
            raise layer_error(name, refused.layer, refused.given, ran=samples, batch=x) from None
        except Exception as problem:
            reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
            raise InputError(
                "the model does not take this input", got=f"{shapes(x)}; it says: {reason}"
            ) from problem
        runs.append(player)
    two, three = runs
    varies = {
        name
        for name, value in two.seen.items()
        if not isinstance(value, torch.Size) and _differs(value, three.seen[name])
    }
    return Rehearsed(two.seen, two.dtypes, varies, three.seen["output"])


def _differs(a: Any, b: Any) -> bool:
    try:
        return bool(a != b)
    except Exception:
        return False


class Prelude(fx.Interpreter):
    """Runs the part of a graph that no weight touches, on all samples."""

    def __init__(self, traced: Trace, like: Tensor, wanted: Sequence[str], seen: Mapping[str, Any]):
        super().__init__(traced.prepared(like), garbage_collect_values=False, graph=traced.graph)
        self.nodes, self.wanted, self.constants = list(traced.graph.nodes), set(wanted), seen

    def values(self, x: Tensor, plain: Collection[str]) -> dict[str, Tensor]:
        """The wanted values for a batch."""
        self.env, self.args_iter = {}, iter((x,))
        found: dict[str, Tensor] = {}
        for node in self.nodes:
            if node.op == "output":
                break
            if node.name in plain:
                self.env[node] = self.run_node(node)
                if node.name in self.wanted:
                    found[node.name] = self.env[node]
            else:
                self.env[node] = self.constants[node.name]
        return found
