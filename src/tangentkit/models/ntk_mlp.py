"""Perceptrons in the NTK parameterization: weights N(0, 1), scaled in the forward pass, no biases."""

from collections.abc import Sequence
from math import sqrt

import torch
from torch import nn

from tangentkit.models.inits import Seed, arora_ntk, initialized
from tangentkit.models.layers import Activation, Scale, normalized_tanh, second_moment
from tangentkit.models.mlp import check_sizes


def arora_mlp(sizes: Sequence[int], *, activation: Activation = nn.ReLU, seed: Seed = 0) -> nn.Sequential:
    """The network of Arora et al. (2019).

    `g_0 = x`, `g_h = √(c_σ/d_h) σ(W_h g_{h-1})`, `f = W_{L+1} g_L`, with `c_σ = 1 / E σ(z)²`, z ~ N(0, 1)
    (2 for ReLU), so that the activations keep their norm in the mean.

    Args:
        sizes: widths d_0, ..., d_{L+1} from the inputs to the outputs.
        activation: class of σ.
        seed: of the initialization.

    Raises:
        InputError: fewer than two sizes, or one below 1.

    Example:
        >>> arora_mlp((10, 64, 64, 1))(torch.zeros(5, 10)).shape
        torch.Size([5, 1])
    """
    sizes = check_sizes(sizes)
    gain = 1 / second_moment(activation())
    return _ntk_mlp(sizes, input_scale=1.0, gain=gain, activation=activation, seed=seed)


def wang_mlp(
    sizes: Sequence[int], *, activation: Activation = normalized_tanh, seed: Seed = 0
) -> nn.Sequential:
    """The network of Wang et al. (2023) for the linear-width regime.

    `h_0 = x/√d`, `h_l = σ(W_l h_{l-1})/√n_l`, `f = v·h_{L-1}`.

    Args:
        sizes: widths d, n_1, ..., n_{L-1} and the number of outputs.
        activation: class of σ.
        seed: of the initialization.

    Raises:
        InputError: fewer than two sizes, or one below 1.

    Example:
        >>> wang_mlp((10, 64, 64, 1))(torch.zeros(5, 10)).shape
        torch.Size([5, 1])
    """
    sizes = check_sizes(sizes)
    return _ntk_mlp(sizes, input_scale=1 / sqrt(sizes[0]), gain=1.0, activation=activation, seed=seed)


def two_layer(
    inputs: int, width: int, *, activation: Activation = normalized_tanh, seed: Seed = 0
) -> nn.Sequential:
    """`f(x) = h^{-1/2} Σ_i v_i σ(w_i·x/√d)`: the network of the spectral evolution studies.

    W is `model.fc1.weight` of shape (h, d), v is `model.fc2.weight` of shape (1, h).

    Args:
        inputs: d.
        width: h.
        activation: class of σ.
        seed: of the initialization.

    Raises:
        InputError: a size below 1.

    Example:
        >>> two_layer(10, 64)(torch.zeros(5, 10)).shape
        torch.Size([5, 1])
    """
    return wang_mlp((inputs, width, 1), activation=activation, seed=seed)


def _ntk_mlp(
    sizes: Sequence[int], *, input_scale: float, gain: float, activation: Activation, seed: Seed
) -> nn.Sequential:
    with torch.device("meta"):
        model = nn.Sequential()
        model.add_module("flatten", nn.Flatten())
        model.add_module("scale0", Scale(input_scale))
        for i in range(1, len(sizes)):
            model.add_module(f"fc{i}", nn.Linear(sizes[i - 1], sizes[i], bias=False))
            if i < len(sizes) - 1:
                model.add_module(f"act{i}", activation())
                model.add_module(f"scale{i}", Scale(sqrt(gain / sizes[i])))
    return initialized(model, arora_ntk, seed)
