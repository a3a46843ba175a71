"""Layers in the NTK parameterization: standard normal parameters, scaled in the forward pass.

    z = w_std / sqrt(fan_in) · W x + b_std · b,        W, b ~ N(0, 1)

Gradients with respect to W and b then keep their size as the layers grow wide, and the tangent kernel converges to
that of `tangentkit.InfiniteKernel`.
"""

import copy
from collections.abc import Mapping
from math import isfinite, prod, sqrt

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tangentkit.core.errors import InputError, ModelError, UnknownNameError
from tangentkit.core.seeds import Key

Stds = float | Mapping[str, float]
"""One standard deviation for all layers, or one for each layer by its name."""


class _NTKLayer:
    """What the layers share: the scales, and parameters drawn from N(0, 1)."""

    weight: nn.Parameter
    bias: nn.Parameter | None
    w_std: float
    b_std: float

    def _set_stds(self, w_std: float, b_std: float) -> None:
        self.w_std, self.b_std = check_std("w_std", w_std), check_std("b_std", b_std)

    @property
    def fan_in(self) -> int:
        """Inputs that one output sums over."""
        return prod(self.weight.shape[1:])

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws all parameters from N(0, 1).

        Args:
            generator: where the numbers come from; by default torch's own generator, as in torch's layers.
        """
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                nn.init.normal_(parameter, generator=generator)

    def _scaled(self) -> tuple[Tensor, Tensor | None]:
        bias = None if self.bias is None else self.b_std * self.bias
        return self.w_std / sqrt(self.fan_in) * self.weight, bias


class Linear(_NTKLayer, nn.Linear):
    """z = w_std / sqrt(in_features) · W x + b_std · b.

    Args:
        in_features: size of each input.
        out_features: size of each output.
        bias: whether there is b.
        w_std: scale of the weights.
        b_std: scale of the bias; the default leaves it without effect.
        device: of the parameters.
        dtype: of the parameters.

    Example:
        >>> layer = Linear(784, 512, w_std=2**0.5, b_std=0.1)
        >>> layer(torch.randn(3, 784)).shape
        torch.Size([3, 512])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        w_std: float = 1.0,
        b_std: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        nn.Linear.__init__(self, in_features, out_features, bias, device=device, dtype=dtype)
        self._set_stds(w_std, b_std)

    def forward(self, input: Tensor) -> Tensor:
        """The scaled linear map."""
        return nn.functional.linear(input, *self._scaled())

    def extra_repr(self) -> str:
        """Sizes and scales, for printing."""
        return f"{nn.Linear.extra_repr(self)}, w_std={self.w_std:g}, b_std={self.b_std:g}"


class _NTKConv(_NTKLayer):
    def _set_up(self, layer: type, args: tuple, options: dict, w_std: float, b_std: float) -> None:
        layer.__init__(self, *args, **options)
        self._set_stds(w_std, b_std)

    def forward(self, input: Tensor) -> Tensor:
        """The scaled convolution."""
        return self._conv_forward(input, *self._scaled())  # pyright: ignore[reportAttributeAccessIssue]

    def extra_repr(self) -> str:
        """Sizes and scales, for printing."""
        return f"{super().extra_repr()}, w_std={self.w_std:g}, b_std={self.b_std:g}"  # pyright: ignore


class Conv1d(_NTKConv, nn.Conv1d):
    """A convolution over sequences: z = w_std / sqrt(channels · taps) · W * x + b_std · b.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: taps.
        args: stride, padding, dilation, ... as in `torch.nn.Conv1d`.
        w_std: scale of the weights.
        b_std: scale of the bias.
        options: as in `torch.nn.Conv1d`, with padding_mode, device and dtype.

    Example:
        >>> Conv1d(4, 8, 3, padding=1, w_std=2**0.5)(torch.randn(2, 4, 10)).shape
        torch.Size([2, 8, 10])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int],
        *args,
        w_std: float = 1.0,
        b_std: float = 0.0,
        **options,
    ):
        self._set_up(nn.Conv1d, (in_channels, out_channels, kernel_size, *args), options, w_std, b_std)


class Conv2d(_NTKConv, nn.Conv2d):
    """A convolution over images: z = w_std / sqrt(channels · taps) · W * x + b_std · b.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: height and width of the filter.
        args: stride, padding, dilation, ... as in `torch.nn.Conv2d`.
        w_std: scale of the weights.
        b_std: scale of the bias.
        options: as in `torch.nn.Conv2d`, with padding_mode, device and dtype.

    Example:
        >>> Conv2d(3, 16, 3, padding=1, padding_mode="circular")(torch.randn(2, 3, 8, 8)).shape
        torch.Size([2, 16, 8, 8])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        *args,
        w_std: float = 1.0,
        b_std: float = 0.0,
        **options,
    ):
        self._set_up(nn.Conv2d, (in_channels, out_channels, kernel_size, *args), options, w_std, b_std)


PLAIN = {nn.Linear: Linear, nn.Conv1d: Conv1d, nn.Conv2d: Conv2d}
"""Layers of torch, and the same in the NTK parameterization."""


def ntk_parameterize(
    model: nn.Module,
    *,
    w_std: Stds = 1.0,
    b_std: Stds = 0.0,
    seed: int | torch.Generator = 0,
) -> nn.Module:
    """A copy of a model with every linear and convolutional layer in the NTK parameterization.

    All its weights and biases are drawn anew from N(0, 1); the model itself is not changed. Layers that are one
    object, and parameters that are tied, stay so. All other modules are copied as they are.

    Args:
        model: any module tree with `nn.Linear`, `nn.Conv1d` or `nn.Conv2d` in it.
        w_std: scale of the weights; one value, or a mapping from layer names (others have 1.0).
        b_std: scale of the biases; one value, or a mapping from layer names (others have 0.0).
        seed: same seed, same draw, layer by layer whatever the rest of the model; or a generator to draw from.

    Raises:
        ModelError: there is no such layer, or one has its weight made by a parametrization.
        InputError: a scale is negative or not finite.
        UnknownNameError: a mapping names a layer that is not there.

    Example:
        >>> net = nn.Sequential(nn.Flatten(), nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 1))
        >>> ntk_parameterize(net, w_std={"1": 2**0.5})[1]
        Linear(in_features=9, out_features=64, bias=True, w_std=1.41421, b_std=0)
    """
    plain = {name: layer for name, layer in model.named_modules() if type(layer) in PLAIN}
    for name, layer in model.named_modules():
        if isinstance(layer, tuple(PLAIN)) and parametrize.is_parametrized(layer):
            raise ModelError(
                f"layer {name!r} has a parametrization, which the conversion would lose",
                hint="torch.nn.utils.parametrize.remove_parametrizations first",
            )
    if not plain:
        raise ModelError(
            "nothing to convert", expected="nn.Linear, nn.Conv1d or nn.Conv2d", got=type(model).__name__
        )
    stds = layer_stds(plain, w_std=w_std, b_std=b_std)
    memo: dict[int, object] = {}
    for name, layer in plain.items():
        memo[id(layer)] = _converted(layer, *stds[name], memo)
    converted = copy.deepcopy(model, memo)
    drawn: set[int] = set()
    for name, layer in converted.named_modules():
        if isinstance(layer, _NTKLayer) and name in plain:
            for kind, parameter in (("weight", layer.weight), ("bias", layer.bias)):
                if parameter is not None and id(parameter) not in drawn:
                    drawn.add(id(parameter))
                    _draw(parameter, seed, f"{name}.{kind}")
    return converted


def layer_stds(
    layers: Mapping[str, nn.Module], *, w_std: Stds, b_std: Stds
) -> dict[str, tuple[float, float]]:
    """The two scales of each layer, checked.

    Raises:
        InputError: a scale is negative or not finite.
        UnknownNameError: a mapping names a layer that is not there.
    """
    for stds in (w_std, b_std):
        if isinstance(stds, Mapping):
            for name in stds:
                if name not in layers:
                    raise UnknownNameError("layer", name, layers)

    def value(kind: str, stds: Stds, name: str, default: float) -> float:
        chosen = stds.get(name, default) if isinstance(stds, Mapping) else stds
        return check_std(f"{kind} of layer {name!r}" if isinstance(stds, Mapping) else kind, chosen)

    return {name: (value("w_std", w_std, name, 1.0), value("b_std", b_std, name, 0.0)) for name in layers}


def check_std(name: str, value: float) -> float:
    """The value as a float, if it can be a standard deviation.

    Raises:
        InputError: it is negative or not a finite number.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not (isfinite(number) and number >= 0):
        raise InputError(f"bad {name}", expected="a finite number >= 0", got=repr(value))
    return number


def _converted(layer: nn.Module, w_std: float, b_std: float, memo: dict[int, object]) -> nn.Module:
    """The layer as one of ours, with all it has (mode, hooks, frozen or tied parameters) except the scale."""
    new = PLAIN[type(layer)].__new__(PLAIN[type(layer)])
    memo[id(layer)] = new
    new.__dict__.update(copy.deepcopy(layer.__dict__, memo))
    new._set_stds(w_std, b_std)
    return new


def _draw(parameter: nn.Parameter, seed: int | torch.Generator, name: str) -> None:
    generator = seed if isinstance(seed, torch.Generator) else Key(seed).fold(name).torch(parameter.device)
    with torch.no_grad():
        parameter.normal_(generator=generator)
