"""How well a kernel matrix fits labels: kernel-target alignment, and labels along eigenvectors."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.analysis.alignment.sums import sums_of
from tangentkit.core.errors import InputError
from tangentkit.linalg.operators.checks import check_symmetric
from tangentkit.linalg.operators.matrices import as_operator
from tangentkit.linalg.operators.operator import Memory, Operator
from tangentkit.linalg.spectra.labels import as_columns, centered, near_one
from tangentkit.linalg.spectra.spectrum import Spectrum, spectrum


def kernel_target_alignment(K: Any, y: Any, *, center: bool = False, memory: Memory = None) -> float:
    """<K, Y Yᵀ> / (‖K‖ ‖Y Yᵀ‖), the cosine between a kernel and the kernel of the labels.

    It is in [0, 1] for a positive semi-definite kernel, and in [-1, 1] of any other symmetric matrix.

    For one vector of labels it is yᵀ K y / (‖K‖ ‖y‖²) in the Frobenius norm (Cristianini et al. 2001).

    Args:
        K: an operator, a tensor or an array (n, n), symmetric; whether it is positive semi-definite is not looked at.
        y: labels (n,), such as -1 and 1, or (n, c), such as one column for each class. Numbers of more than two
            classes are no labels of this kind, and a warning says so: `torch.nn.functional.one_hot(y)` is.
        center: whether both are centered, K to H K H with H = I - 1 1ᵀ / n and y by its mean (Cortes et al. 2012).
            Without it, a kernel of large mean aligns with any labels whose mean is not zero.
        memory: working memory for tiles of the operator.

    Raises:
        InputError: labels of another length, zero, or constant where they are centered; or K is constant then.
        NumericalError: K is not symmetric or not finite.

    Example:
        >>> y = torch.tensor([1.0, -1.0, 1.0, -1.0])
        >>> kernel_target_alignment(torch.outer(y, y), y), kernel_target_alignment(torch.eye(4), y)
        (1.0, 0.5)
    """
    operator = _symmetric(K)
    y = near_one(as_columns(y, operator.shape[0])).to(operator.device)
    y = (centered(y) if center else y).to(operator.dtype)
    sums, [scale] = sums_of([operator], memory)
    size = float(sums.raw()[0, 0])
    square = float(sums.centered()[0, 0]) if center else size
    if square <= (8 * torch.finfo(operator.dtype).eps) ** 2 * size or size == 0:
        kind = "constant, and centering leaves nothing" if size > 0 else "zero"
        raise InputError(
            f"the kernel is {kind}", expected="entries that differ", got=f"‖K‖² = {size * scale**2:.3g}"
        )
    along = float((y.double() * (operator.product(y, memory=memory).double() / scale)).sum())
    return along / (square**0.5 * float((y.double().T @ y.double()).norm()))


def eigenvector_alignments(K: Any, y: Any, top: int | None = None) -> Float[Tensor, " r"]:
    """|v_jᵀ y| / ‖y‖ for each of the first eigenvectors v_j of a kernel: which of them the labels lie along.

    Their squares sum to 1 over all eigenvectors; the root of the sum over the first few is the energy concentration
    of the labels, `Spectrum.energy`.

    Args:
        K: a `Spectrum`, or an operator, a tensor or an array (n, n).
        y: labels (n,), or (n, c), whose columns count together: ‖v_jᵀ Y‖ / ‖Y‖.
        top: how many eigenvectors; None takes all, or all that the spectrum holds.

    Raises:
        InputError: labels of another length or zero, or `top` is out of range.

    Example:
        >>> eigenvector_alignments(torch.diag(torch.tensor([3.0, 2.0, 1.0])), torch.tensor([4.0, 3.0, 0.0]))
        tensor([0.8000, 0.6000, 0.0000])
    """
    found = K if isinstance(K, Spectrum) else spectrum(K, top)
    n, held = found.vectors.shape
    top = held if top is None else top
    if not 1 <= top <= held:
        raise InputError("bad number of eigenvectors", expected=f"1 to {held}, which are held", got=top)
    y = near_one(as_columns(y, n)).to(found.vectors)
    return torch.linalg.vector_norm(found.vectors[:, :top].T @ y, dim=1) / y.norm()


def _symmetric(K: Any) -> Operator:
    operator = as_operator(K)
    check_symmetric(operator)
    return operator
