"""Which depth learns which degree: the spectra of MLP kernels on the cube over depths and hyper-parameters.

The kernels of an MLP of depth L on the cube are those of `tangentkit.infinite.scalar.mlp`: functions of <x, y>/d.
One pass over the layers gives every depth, for all settings of the hyper-parameters at once.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.whole_numbers import as_count
from tangentkit.infinite.duals.registry import dual_of
from tangentkit.infinite.scalar.cube import Cube, cube_nodes, cube_weights
from tangentkit.infinite.scalar.mlp import as_variance, mlp_layers

RESOLVED = 1e-6  # the largest error of a share, relative to the whole


@dataclass(frozen=True)
class DepthProfile:
    """The variance by degree of the kernels of MLPs of depth 0, 1, ..., and their totals φ(1).

    Depths come first, then the axes of the hyper-parameters; degrees come last.
    """

    d: int
    """The number of coordinates of the cube."""
    nngp: Float[Tensor, "t *settings k"]
    """Variances of the NNGP (conjugate) kernel Σ_L."""
    ntk: Float[Tensor, "t *settings k"]
    """Variances of the tangent kernel Θ_L."""
    nngp_total: Float[Tensor, " t *settings"]
    ntk_total: Float[Tensor, " t *settings"]

    def shares(self, kind: str) -> Float[Tensor, "t *settings k"]:
        """The fractional variances of one kernel, "nngp" or "ntk"."""
        if kind not in ("nngp", "ntk"):
            raise UnknownNameError("kernel", kind, ["nngp", "ntk"])
        return getattr(self, kind) / getattr(self, f"{kind}_total")[..., None]


def depth_profile(
    activation: object,
    *,
    d: int,
    top: int,
    depth: int,
    weight_variance: float | Float[Tensor, " *settings"],
    bias_variance: float | Float[Tensor, " *settings"],
) -> DepthProfile:
    """The spectra of MLP kernels of depth 0..depth on {-1, 1}^d, for all settings at once.

    Args:
        activation: what `dual_of` takes: a name such as "relu", a function or a module.
        d: the number of coordinates.
        top: the highest degree.
        depth: the largest number of hidden layers.
        weight_variance: σ_w², a number or a tensor.
        bias_variance: σ_b², a number or a tensor that broadcasts with σ_w².

    Raises:
        InputError: a negative variance, a depth below 0, or degrees so high that the rounding of the kernel
            hides them.

    Example:
        >>> profile = depth_profile("relu", d=7, top=1, depth=2, weight_variance=2.0, bias_variance=2.0)
        >>> profile.shares("nngp")[2]
        tensor([0.8388, 0.1300], dtype=torch.float64)
    """
    d = Cube(d).d
    top, depth = as_count(top, "highest degree", least=0, most=d), as_count(depth, "depth", least=0)
    _check_resolved(d, top)
    dual = dual_of(activation)
    sw, sb = (
        v[..., None]
        for v in torch.broadcast_tensors(
            as_variance("weight", weight_variance), as_variance("bias", bias_variance)
        )
    )
    t, weights = (
        torch.as_tensor(a, dtype=sw.dtype, device=sw.device)
        for a in (cube_nodes(d), cube_weights(d, top=top))
    )

    rows = list(mlp_layers(dual, t, sw, sb, depth=depth, tangent=True))
    variances = [torch.stack([_degrees_of(row[kind], weights) for row in rows]) for kind in (0, 1)]  # pyright: ignore[reportArgumentType]
    totals = [torch.stack([row[kind][..., 0] for row in rows]) for kind in (0, 1)]  # pyright: ignore[reportOptionalSubscript]
    return DepthProfile(d, *variances, *totals)


def optimal_depth(shares: Float[Tensor, "t *settings k"]) -> Int[Tensor, " k"]:
    """For each degree, the depth at which its share of the variance is largest, over all settings.

    Of equal shares the smallest depth counts. Settings without variance (NaN) are left out.

    Example:
        >>> optimal_depth(torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]]))
        tensor([0, 1])
    """
    if shares.ndim < 2 or not shares.numel():
        raise InputError("bad shares", expected="(depths, *settings, degrees)", got=tuple(shares.shape))
    flat = shares.nan_to_num(nan=-1.0).reshape(len(shares), -1, shares.shape[-1])
    return flat.amax(1).argmax(0)


def ntk_above_nngp(profile: DepthProfile, *, floor: float = 1e-15) -> Float[Tensor, " k"]:
    """For each degree, the fraction of settings and depths in which the NTK gives it the larger share.

    As published, settings count where the eigenvalue of the NTK is above `floor` of its trace. That filter asks
    for little more than a large share in the NTK when the degree is high, and so favors it: see what
    `floor=0.0` gives before reading a trend into the numbers. Shares that differ by rounding are equal.

    Returns:
        The fractions, of shape (top + 1,); NaN where no setting is left.

    Example:
        >>> sb = torch.tensor([0.5, 1.0, 2.0])
        >>> profile = depth_profile("relu", d=7, top=2, depth=3, weight_variance=2.0, bias_variance=sb)
        >>> ntk_above_nngp(profile)          # at depth 0 the kernels are equal
        tensor([0.0000, 0.7500, 1.0000], dtype=torch.float64)
    """
    top = profile.ntk.shape[-1] - 1
    sizes = torch.tensor(Cube(profile.d).sizes(top), dtype=torch.float64, device=profile.ntk.device)
    ntk, nngp = profile.shares("ntk"), profile.shares("nngp")
    rounding = 16 * torch.finfo(torch.float64).eps * sizes.sqrt()
    kept = ntk / sizes > floor
    larger = kept & (ntk - nngp > rounding)
    count, wins = (which.reshape(-1, top + 1).sum(0).double() for which in (kept, larger))
    return wins / count


def _degrees_of(values: Tensor, weights: Tensor) -> Tensor:
    """Σ_r w_kr φ_r, and 0 where that is below its rounding."""
    variances = values @ weights.T
    errors = 8 * torch.finfo(values.dtype).eps * (values.abs() @ weights.T.abs())
    return torch.where(variances > errors, variances, 0.0)


def _check_resolved(d: int, top: int) -> None:
    # The rounding of a kernel, seen in degree k, is ε sqrt(binom(d, k)) of the whole.
    largest = (RESOLVED / torch.finfo(torch.float64).eps) ** 2
    highest = next((k for k, size in enumerate(Cube(d).sizes(top)) if size > largest), top + 1) - 1
    if highest < top:
        raise InputError(
            f"rounding of the kernels hides high degrees on the cube of dimension {d}",
            expected=f"top <= {highest}",
            got=top,
            hint="boolean_cube_spectrum for one kernel at a time: it works in the complex plane",
        )
