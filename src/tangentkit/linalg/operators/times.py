"""Products of a large matrix with a few columns, at the speed they should have."""

from jaxtyping import Float
from torch import Tensor


def times(M: Float[Tensor, "n m"], V: Float[Tensor, "m c"]) -> Float[Tensor, "n c"]:
    """M V, in the memory order in which BLAS is quick.

    For n = m = 5000 and c = 10 the orders of M and V decide between 0.03 s and 2 s: quick are a row-major M with
    a column-major V, and a column-major M as (Vᵀ Mᵀ)ᵀ.
    """
    rows_of_V = V.T.contiguous()
    return (rows_of_V @ M.T).T if M.stride(0) < M.stride(1) else M @ rows_of_V.T
