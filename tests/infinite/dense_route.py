"""The obvious recursion on all pairs of positions, with torch's own layers saying what a filter or window sees.

Every field is a dense array (n, m, P, P'). What tap o of a convolution sees is found by convolving the unit images
with a filter that is one at o; what a pooling layer does, by pooling them. Nothing of the library is used.
"""

from math import pi, prod

import torch
from torch import Tensor, nn


def relu_dual(xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
    """The arc-cosine formulas (Cho and Saul 2009)."""
    norm = (xx * yy).sqrt()
    rho = torch.where(norm > 0, xy / norm.clamp_min(1e-300), 0.0).clamp(-1, 1)
    angle = pi - torch.arccos(rho)
    return norm * ((1 - rho**2).clamp_min(0).sqrt() + rho * angle) / (2 * pi), angle / (2 * pi)


def dense_kernel(
    model: nn.Sequential, x: Tensor, y: Tensor, *, w_std: float, b_std: float
) -> tuple[Tensor, Tensor]:
    """NNGP and NTK of a sequence of conv, ReLU, average pooling, flatten and linear layers."""
    shape = tuple(x.shape[1:])
    flat = {
        key: (u.flatten(2), v.flatten(2))
        for key, (u, v) in {"xx": (x, x), "xy": (x, y), "yy": (y, y)}.items()
    }
    k = {key: torch.einsum("icp,jcq->ijpq", u, v) / shape[0] for key, (u, v) in flat.items()}
    t = torch.zeros_like(k["xy"])
    for layer in model:
        if isinstance(layer, (nn.Conv1d, nn.Conv2d)):
            taps = _taps(layer, shape)
            seen = {key: _mean_over(taps, value) for key, value in k.items()}
            k = {key: w_std**2 * value + b_std**2 for key, value in seen.items()}
            t = w_std**2 * _mean_over(taps, t) + k["xy"]
            shape = (layer.out_channels, *_shape_after(layer, (layer.in_channels, *shape[1:]))[1:])
        elif isinstance(layer, nn.Linear):
            k = {
                key: w_std**2 * value.diagonal(dim1=2, dim2=3).mean(-1)[..., None, None] + b_std**2
                for key, value in k.items()
            }
            t = w_std**2 * t.diagonal(dim1=2, dim2=3).mean(-1)[..., None, None] + k["xy"]
            shape = (layer.out_features,)
        elif isinstance(layer, nn.ReLU):
            xx, yy = (k[key].diagonal(dim1=0, dim2=1).diagonal(dim1=0, dim2=1) for key in ("xx", "yy"))
            value, slope = relu_dual(xx[:, None, :, None], k["xy"], yy[None, :, None, :])
            k = {
                "xx": relu_dual(xx[:, None, :, None], k["xx"], xx[None, :, None, :])[0],
                "xy": value,
                "yy": relu_dual(yy[:, None, :, None], k["yy"], yy[None, :, None, :])[0],
            }
            t = t * slope
        elif isinstance(layer, nn.Flatten):
            pass
        else:
            a = _matrix(layer, shape)
            k = {key: a @ value @ a.T for key, value in k.items()}
            t = a @ t @ a.T
            shape = _shape_after(layer, shape)
    return k["xy"].squeeze((2, 3)), t.squeeze((2, 3))


def cntk(x: Tensor, y: Tensor, *, depth: int, q: int, gap: bool) -> Tensor:
    """Arora et al. (2019), as printed: [L(A)]_{(i,j),(k,l)} = Σ_{a,b} A_{(i+a,j+b),(k+a,l+b)}, c_σ = 2."""
    half, (h, w) = (q - 1) // 2, x.shape[1:]

    def patches(array: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(array, (half,) * 8)
        return sum(
            padded[
                half + a : half + a + h,
                half + b : half + b + w,
                half + a : half + a + h,
                half + b : half + b + w,
            ]
            for a in range(-half, half + 1)
            for b in range(-half, half + 1)
        )

    def products(u: Tensor, v: Tensor) -> Tensor:
        return torch.einsum("aij,akl->ijkl", u, v)

    sigma = {"xx": patches(products(x, x)), "xy": patches(products(x, y)), "yy": patches(products(y, y))}
    theta = sigma["xy"]
    for level in range(1, depth + 1):
        variance = {key: torch.einsum("ijij->ij", sigma[key]) for key in ("xx", "yy")}
        sides = {"xx": ("xx", "xx"), "xy": ("xx", "yy"), "yy": ("yy", "yy")}
        k, slope = {}, None
        for key, (left, right) in sides.items():
            value, derivative = relu_dual(
                variance[left][:, :, None, None], sigma[key], variance[right][None, None]
            )
            k[key] = 2 / q**2 * value
            slope = 2 / q**2 * derivative if key == "xy" else slope
        theta = slope * theta + k["xy"]
        if level < depth:
            theta = patches(theta)
        sigma = {key: patches(value) for key, value in k.items()}
    return theta.mean() if gap else torch.einsum("ijij->", theta)


def _mean_over(taps: list[Tensor], value: Tensor) -> Tensor:
    return sum(a @ value @ a.T for a in taps) / len(taps)


def _taps(layer: nn.Module, shape: tuple[int, ...]) -> list[Tensor]:
    one = type(layer)(
        1,
        prod(layer.kernel_size),
        layer.kernel_size,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        padding_mode=layer.padding_mode,
        bias=False,
        dtype=torch.float64,
    )
    with torch.no_grad():
        one.weight.copy_(torch.eye(prod(layer.kernel_size), dtype=torch.float64).reshape(one.weight.shape))
        seen = one(_units(shape))  # (P_in, taps, *out)
    return [seen[:, o].flatten(1).T for o in range(seen.shape[1])]


def _matrix(layer: nn.Module, shape: tuple[int, ...]) -> Tensor:
    return layer(_units(shape)).flatten(1).T


def _units(shape: tuple[int, ...]) -> Tensor:
    p = prod(shape[1:])
    return torch.eye(p, dtype=torch.float64).reshape(p, 1, *shape[1:])


def _shape_after(layer: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    dtype = next((p.dtype for p in layer.parameters()), torch.float64)
    return tuple(layer(torch.zeros(1, *shape, dtype=dtype)).shape[1:])
