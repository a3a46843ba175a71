"""Centered kernel alignment: how alike two representations of the same samples are."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.analysis.alignment.sums import LEAST_DEBIASED, KernelSums, sums_of
from tangentkit.compute.kernel import Kernel
from tangentkit.core.errors import InputError
from tangentkit.linalg.operators.checks import check_finite, check_symmetric, is_symmetric
from tangentkit.linalg.operators.matrices import DenseOperator, FactorOperator, as_tensor
from tangentkit.linalg.operators.operator import Memory, Operator
from tangentkit.linalg.spectra.labels import near_one

ROUNDING = 8
"""Entries of centered features and kernels that are smaller than this times ε of the uncentered ones are rounding."""


def cka(A: Any, B: Any, debiased: bool = True, *, memory: Memory = None) -> float:
    """Centered kernel alignment (Kornblith et al. 2019) of two representations of the same n samples.

    HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) with the linear kernels K = A Aᵀ, L = B Bᵀ of features. It is 1 where
    one is a rotation, a shift and a multiple of the other. HSIC is summed over tiles: no n x n matrix is formed.

    Args:
        A: features (n, d) or activations (n, ...); or a kernel, as an operator (`tk.gram(kernel, x)`), or as a
            symmetric tensor or array (n, n). Features that happen to be symmetric are given as A @ A.T.
        B: likewise, of the same samples in the same order.
        debiased: whether HSIC is the estimate without bias (Song et al. 2012), which is 0 on average for independent
            features and may be slightly negative; the biased form grows to 1 with the number of features.
        memory: working memory for tiles.

    Raises:
        InputError: the numbers of samples differ or are too few, or features are constant.
        NumericalError: a number is not finite, or a kernel is not symmetric.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> A = torch.randn(50, 3)
        >>> turn, _ = torch.linalg.qr(torch.randn(3, 3))
        >>> round(cka(A, 2 * A @ turn + 1), 4), abs(cka(A, torch.randn(50, 3))) < 0.2
        (1.0, True)
    """
    kernels = [_as_kernel(one, name) for one, name in ((A, "A"), (B, "B"))]
    n, m = (kernel.shape[0] for kernel, _ in kernels)
    if n != m:
        raise InputError("two numbers of samples", expected="the same samples in A and B", got=f"{n} and {m}")
    check_count(n, debiased)
    sums, scales = sums_of([kernel for kernel, _ in kernels], memory)
    floors = [(n * floor / s) ** 2 for (_, floor), s in zip(kernels, scales, strict=True)]
    floors = torch.tensor(floors, dtype=torch.float64)
    values = cka_matrix(sums, floors, debiased=debiased, names=["A", "B"])
    return float(values[0, 1])


def cka_matrix(
    sums: KernelSums, floors: Float[Tensor, " k"], *, debiased: bool, names: list[str]
) -> Float[Tensor, "k k"]:
    """The CKA of all pairs of some kernels.

    Kernels that debiasing leaves nothing of (features that are orthogonal but for their norms, say) are alike where
    the biased form says that they are the same, and cannot be compared with others.

    Args:
        sums: over their entries.
        floors: what rounding alone may put into ‖H K H‖² of each.
        debiased: which form.
        names: of the kernels, for errors.

    Raises:
        InputError: one is constant, or nothing is left of one.
    """
    centered = sums.centered()
    rounding = 64 * torch.finfo(torch.float64).eps * sums.raw().diagonal()
    biased = _cosines(centered)
    for name, flat in zip(names, are_constant(sums, floors), strict=True):
        if flat:
            raise InputError(
                f"the features of {name} are constant",
                expected="samples that differ",
                got="the same for all, to within rounding",
                hint="CKA compares differences between samples: leave it out",
            )
    if not debiased:
        return biased
    products = sums.debiased()
    vanishing = products.diagonal() <= torch.maximum(rounding, 1e-12 * centered.diagonal())
    found = _cosines(products.where(~torch.diag_embed(vanishing), 1.0))
    same = (biased - 1).abs() < 1e-9
    lost = vanishing[:, None] | vanishing[None, :]
    for k, m in (lost & ~same).nonzero().tolist():
        name = names[k if vanishing[k] else m]
        raise InputError(
            f"debiasing leaves nothing of {name}: its samples are orthogonal, or at one distance from each other",
            expected="inner products between samples that differ",
            got=f"{sums.n} samples",
            hint="more samples, or debiased=False",
        )
    return found.where(~lost, 1.0)


def are_constant(sums: KernelSums, floors: Float[Tensor, " k"]) -> list[bool]:
    """Of which kernels centering leaves nothing but rounding."""
    rounding = 64 * torch.finfo(torch.float64).eps * sums.raw().diagonal()
    return (sums.centered().diagonal() <= torch.maximum(floors.to(sums.products), rounding)).tolist()


def check_count(n: int, debiased: bool) -> None:
    """Refuses too few samples.

    Raises:
        InputError: with how many are needed.
    """
    least = LEAST_DEBIASED if debiased else 2
    if n < least:
        raise InputError("too few samples for CKA", expected=f"at least {least}", got=n)


def _cosines(products: Float[Tensor, "k k"]) -> Float[Tensor, "k k"]:
    scale = products.diagonal().clamp(min=torch.finfo(products.dtype).tiny).sqrt()
    found = products / torch.outer(scale, scale)
    return found.fill_diagonal_(1.0)


def _as_kernel(value: Any, name: str) -> tuple[Operator, float]:
    """The kernel of a representation, and how large entries may be that are rounding."""
    if isinstance(value, Kernel):
        raise InputError(
            f"{name} is a kernel without samples",
            expected="features or a kernel matrix",
            got=type(value).__name__,
            hint=f"cka(tk.gram({name}, x), ...)",
        )
    if isinstance(value, Operator):
        check_symmetric(value)
        return value, ROUNDING * torch.finfo(value.dtype).eps * float(value.diagonal().abs().max())
    features = as_tensor(value, f"features {name}")
    check_finite(features, f"features {name}")
    if features.ndim < 2 or 0 in features.shape:
        raise InputError(
            f"bad features {name}", expected="shape (n, d), samples first", got=tuple(features.shape)
        )
    features = near_one(features)
    if features.ndim == 2 and features.shape[0] == features.shape[1]:
        kernel = DenseOperator(features.to(_real(features.dtype)), symmetric=None)
        if is_symmetric(kernel):
            kernel.symmetric = True
            return kernel, ROUNDING * torch.finfo(features.dtype).eps * float(features.abs().max())
    flat = features.flatten(1).double()
    floor = (ROUNDING * torch.finfo(features.dtype).eps) ** 2 * float(flat.square().sum(1).max())
    return FactorOperator(flat - flat.mean(0)), floor


def _real(dtype: torch.dtype) -> torch.dtype:
    """What operators know: half precision becomes float32."""
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32
