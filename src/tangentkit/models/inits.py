"""Initializations, drawn from named random streams and never from torch's global one.

An init redraws the weights and biases of a module in place and returns it: `lecun_normal(model, Key(3))`.
With an integer or a `Key` each parameter has a stream of its own, addressed by its name: the same on every
device, and unmoved by layers added elsewhere. With a `torch.Generator` they are drawn one after the other.

Linear and convolutional layers are drawn by the rule of the init, with fan_in the number of inputs that one
unit sums over. Embeddings are N(0, 1), as in torch (a lookup reads one input), unless the init says
otherwise. Norm layers are left as they are. A module with parameters of another kind is refused before
anything is drawn.
"""

from collections.abc import Callable, Iterator
from math import sqrt
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from tangentkit.core.errors import ModelError
from tangentkit.core.seeds import Key

Seed = int | Key | torch.Generator
"""Where random numbers come from: a seed, a key (an address below a seed), or a generator."""

M = TypeVar("M", bound=nn.Module)

TRUNCATED_STD = 0.8796256610342398
"""Standard deviation of a standard normal that is truncated at ±2."""

Drawn = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Embedding
"""Layers whose parameters an init draws."""

NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
"""Layers whose parameters start at fixed values, which an init leaves alone."""


class Init(Protocol):
    """A function (module, seed) -> the module, redrawn in place."""

    def __call__(self, module: M, seed: Seed, /) -> M:
        """The module, redrawn."""
        ...


def pytorch_default(module: M, seed: Seed = 0) -> M:
    """W, b ~ U(-1/√fan_in, 1/√fan_in): torch's own choice, of variance 1/(3 fan_in).

    Example:
        >>> layer = pytorch_default(nn.Linear(100, 5), Key(0))
        >>> bool(layer.weight.abs().max() <= 0.1)
        True
    """

    def uniform(values: Tensor, fan: Fan, rng: torch.Generator) -> None:
        values.uniform_(-1 / sqrt(fan.inputs), 1 / sqrt(fan.inputs), generator=rng)

    return _redraw(module, seed, weight=uniform, bias=uniform)


def lecun_normal(module: M, seed: Seed = 0) -> M:
    """W normal with variance 1/fan_in after truncation at ±2 standard deviations; b = 0 (Flax's default).

    Example:
        >>> layer = lecun_normal(nn.Linear(10_000, 5), Key(0))
        >>> f"{layer.weight.std():.2f}", layer.bias.abs().max().item()
        ('0.01', 0.0)
    """
    return _redraw(
        module, seed, weight=_truncated(lambda fan: 1 / sqrt(fan.inputs) / TRUNCATED_STD), bias=_zero
    )


def glorot(module: M, seed: Seed = 0) -> M:
    """W ~ N(0, 2/(fan_in + fan_out)), b = 0.

    The theoretical form N(0, σ²/fan_in) is `yang_salman(module, seed, sigma_w=σ, sigma_b=0)`.

    Example:
        >>> layer = glorot(nn.Linear(6_000, 4_000), Key(0))
        >>> f"{layer.weight.std():.4f}"
        '0.0141'
    """
    return _redraw(module, seed, weight=_normal(lambda fan: sqrt(2 / (fan.inputs + fan.outputs))), bias=_zero)


def standard_normal(module: M, seed: Seed = 0) -> M:
    """All weights and biases N(0, 1), for networks that scale in the forward pass.

    Example:
        >>> layer = standard_normal(nn.Linear(1_000, 1_000), Key(0))
        >>> f"{layer.weight.std():.2f}"
        '1.00'
    """
    return _redraw(module, seed, weight=_normal(lambda _: 1.0), bias=_normal(lambda _: 1.0))


def arora_ntk(module: M, seed: Seed = 0) -> M:
    """All weights N(0, 1), for networks of the Arora parameterization, which has no biases.

    Raises:
        ModelError: a layer has a bias.

    Example:
        >>> layer = arora_ntk(nn.Linear(1_000, 1_000, bias=False), Key(0))
        >>> f"{layer.weight.std():.2f}"
        '1.00'
    """
    for name, layer in _drawn_layers(module):
        if getattr(layer, "bias", None) is not None:
            raise ModelError(
                f"layer {name!r} has a bias, which the Arora parameterization does not know",
                hint="build it with bias=False, or use standard_normal",
            )
    return standard_normal(module, seed)


def yang_salman(module: M, seed: Seed = 0, *, sigma_w: float, sigma_b: float) -> M:
    """W ~ N(0, sigma_w²/fan_in), b ~ N(0, sigma_b²).

    Example:
        >>> layer = yang_salman(nn.Linear(400, 2_000), Key(0), sigma_w=2.0, sigma_b=0.0)
        >>> f"{layer.weight.std():.1f}", layer.bias.abs().max().item()
        ('0.1', 0.0)
    """
    return _redraw(
        module,
        seed,
        weight=_normal(lambda fan: sigma_w / sqrt(fan.inputs)),
        bias=_normal(lambda _: sigma_b),
    )


def truncated_normal(module: M, seed: Seed = 0, *, std: float = 0.02) -> M:
    """W and embeddings N(0, std²) truncated at ±2 std, b = 0: the random transformers of the literature.

    Example:
        >>> embedding = truncated_normal(nn.Embedding(1_000, 64), Key(0))
        >>> bool(embedding.weight.abs().max() <= 0.04)
        True
    """
    rule = _truncated(lambda _: std)
    return _redraw(module, seed, weight=rule, bias=_zero, embedding=rule)


def initialized(module: M, init: Init, seed: Seed) -> M:
    """A module that was built on the meta device, brought to the default device and drawn by an init.

    Layers built on the meta device draw nothing, so that torch's global generator stays untouched and large
    networks are drawn once. Where meta is the default device the module stays there, without values.
    """
    device = torch.get_default_device()
    if device.type == "meta":
        return module
    module.to_empty(device=device)
    for layer in module.modules():
        if isinstance(layer, NORMS):
            layer.reset_parameters()
    return init(module, seed)


class Fan(NamedTuple):
    """How many inputs a unit sums over, and how many units an input reaches."""

    inputs: int
    outputs: int


Rule = Callable[[Tensor, Fan, torch.Generator], object]
"""Fills a tensor in place, given the fan of its layer."""


def _normal(std: Callable[[Fan], float]) -> Rule:
    return lambda values, fan, rng: values.normal_(generator=rng).mul_(std(fan))


def _truncated(std: Callable[[Fan], float]) -> Rule:
    return lambda values, fan, rng: nn.init.trunc_normal_(values, a=-2, b=2, generator=rng).mul_(std(fan))


def _zero(values: Tensor, _fan: Fan, _rng: torch.Generator) -> None:
    values.zero_()


_STANDARD = _normal(lambda _: 1.0)


def _redraw(module: M, seed: Seed, *, weight: Rule, bias: Rule, embedding: Rule = _STANDARD) -> M:
    stream = _streams(seed)
    done = set()
    # A list, since the walk checks every layer: nothing is drawn in a module that is refused.
    for prefix, layer in list(_drawn_layers(module)):
        rules = {"weight": embedding if isinstance(layer, nn.Embedding) else weight, "bias": bias}
        for name, parameter in layer.named_parameters(recurse=False):
            # Tied weights are drawn once, and the meta device holds no values to draw.
            if id(parameter) in done or parameter.is_meta:
                continue
            done.add(id(parameter))
            rng = stream(f"{prefix}.{name}".lstrip("."))
            values = torch.empty(parameter.shape, dtype=parameter.dtype, device=rng.device)
            rules[name](values, _fan(layer.weight), rng)
            if isinstance(layer, nn.Embedding) and layer.padding_idx is not None:
                values[layer.padding_idx] = 0
            with torch.no_grad():
                parameter.copy_(values)
    return module


def _drawn_layers(module: nn.Module) -> Iterator[tuple[str, Drawn]]:
    for name, layer in module.named_modules():
        if isinstance(layer, Drawn):
            yield name, layer
        elif not isinstance(layer, NORMS) and (own := [n for n, _ in layer.named_parameters(recurse=False)]):
            raise ModelError(
                f"no rule to draw {', '.join(own)} of {type(layer).__name__} {name!r}",
                expected="parameters of linear, convolutional, embedding and norm layers",
                hint="draw these by hand, and apply the init to the other submodules",
            )


def _fan(weight: Tensor) -> Fan:
    window = weight[0, 0].numel()
    return Fan(weight.shape[1] * window, weight.shape[0] * window)


def _streams(seed: Seed) -> Callable[[str], torch.Generator]:
    if isinstance(seed, torch.Generator):
        return lambda _: seed
    key = seed if isinstance(seed, Key) else Key(seed)
    return lambda name: key.fold("init", name).torch()
