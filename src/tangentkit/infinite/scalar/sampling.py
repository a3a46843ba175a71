"""Draws of Gaussian processes: on any points, and on the whole Boolean cube; their variance by degree.

A wide random network is a draw f ~ GP(0, K), which is f = Σ_i sqrt(λ_i) ω_i u_i with ω ~ N(0, I) and (λ, u)
the eigenpairs of K; singular kernels are no trouble.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.core.whole_numbers import as_count
from tangentkit.infinite.scalar.cube import check_listable
from tangentkit.linalg import Operator, as_operator
from tangentkit.linalg.operators.checks import check_finite, check_symmetric
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.spectra.measures import clip

Randomness = Key | torch.Generator


def sample_gaussian_process(
    K: Float[Tensor, "n n"] | Operator, *, samples: int, seed: Randomness, memory: Memory = None
) -> Float[Tensor, "samples n"]:
    """Independent draws of f ~ N(0, K), one in each row.

    Args:
        K: the kernel matrix of the points, positive semi-definite to rounding; it may be singular.
        samples: the number of draws.
        seed: a `Key`, or a generator on the device of K.
        memory: the most bytes the dense form of K may take.

    Raises:
        InputError: K is not square, or samples is below 1.
        NumericalError: K is not finite, not symmetric, or has an eigenvalue that is negative beyond rounding.

    Example:
        >>> K = torch.ones(3, 3, dtype=torch.float64)      # of rank one: all points move together
        >>> f = sample_gaussian_process(K, samples=2, seed=Key(0))
        >>> f.shape, bool((f == f[:, :1]).all() or (f - f[:, :1]).abs().max() < 1e-12)
        (torch.Size([2, 3]), True)
    """
    operator = as_operator(K)
    check_symmetric(operator, memory=memory)
    matrix = operator.dense(memory)
    check_finite(matrix, "kernel matrix")
    values, vectors = torch.linalg.eigh(matrix)
    omega = _normal((as_count(samples, "number of samples"), len(values)), matrix, seed)
    return (omega * clip(values).sqrt()) @ vectors.T


def sample_on_cube(
    mu: Float[Tensor, " k"], d: int, *, samples: int, seed: Randomness
) -> Float[Tensor, "samples n"]:
    """Draws of the Gaussian process on all 2^d points of the cube, in the order of `cube_points`.

        f = Σ_S sqrt(μ_|S|) ω_S χ_S,    ω ~ N(0, I)

    by a fast Walsh-Hadamard transform: d 2^d operations for each draw, and no matrix.

    Args:
        mu: the eigenvalues μ_0..μ_d of the kernel, as `boolean_cube_spectrum` gives them; where fewer come,
            the other degrees have none.
        d: the number of coordinates, at most 30.
        samples: the number of draws.
        seed: a `Key`, or a generator on the device of mu.

    Raises:
        InputError: d is out of range, or mu is negative or too long.

    Example:
        >>> mu = torch.tensor([0.0, 0.0, 1.0])         # nothing but the parity x_1 x_2
        >>> f = sample_on_cube(mu, 2, samples=1, seed=Key(0))[0]
        >>> bool(torch.allclose(f, f[0] * torch.tensor([1.0, -1.0, -1.0, 1.0])))
        True
    """
    check_listable(d)
    if mu.ndim != 1 or not 1 <= len(mu) <= d + 1 or not bool((mu >= 0).all()):
        raise InputError(
            "bad eigenvalues",
            expected=f"up to {d + 1} numbers >= 0",
            got=f"shape {tuple(mu.shape)}" + (f", smallest {float(mu.min()):.3g}" if mu.numel() else ""),
        )
    spread = torch.cat([mu, mu.new_zeros(d + 1 - len(mu))]).sqrt()[_degrees(d, mu.device)]
    return walsh_hadamard(_normal((as_count(samples, "number of samples"), 2**d), mu, seed) * spread)


def walsh_hadamard(f: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """Σ_S f_S χ_S(x) for all points x of the cube; applied twice it is 2^d times the identity.

    Example:
        >>> walsh_hadamard(torch.tensor([1.0, 2.0]))
        tensor([ 3., -1.])
    """
    n = f.shape[-1] if f.ndim else 0
    if n < 1 or n & (n - 1):
        raise InputError("bad number of values on a cube", expected="2^d along the last axis", got=n)
    for bit in range(n.bit_length() - 1):
        plus, minus = f.reshape(*f.shape[:-1], -1, 2, 2**bit).unbind(-2)
        f = torch.stack([plus + minus, plus - minus], dim=-2).reshape(f.shape)
    return f


def degree_energies(f: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch k"]:
    """The variance of a function on the cube in each degree: Σ_{|S| = k} E_x[f(x) χ_S(x)]², k = 0..d.

    They sum to E_x[f(x)²] (Parseval). Over draws of a Gaussian process their mean is binom(d, k) μ_k.

    Args:
        f: the values on all points, in the order of `cube_points`, along the last axis.

    Example:
        >>> x = torch.tensor([1.0, -1.0, 1.0, -1.0])       # the first coordinate
        >>> degree_energies(3 * x)
        tensor([0., 9., 0.])
    """
    energies = (walsh_hadamard(f) / f.shape[-1]) ** 2
    degrees = _degrees(f.shape[-1].bit_length() - 1, f.device)
    out = f.new_zeros(*f.shape[:-1], f.shape[-1].bit_length())
    return out.index_add(-1, degrees, energies)


def empirical_fractional_variance(f: Float[Tensor, "samples n"]) -> Float[Tensor, " k"]:
    """The share of each degree in the variance of many draws; its limit is `fractional_variance`.

    Example:
        >>> empirical_fractional_variance(torch.tensor([[2.0, 2.0], [1.0, -1.0]]))
        tensor([0.8000, 0.2000])
    """
    energies = degree_energies(f).sum(0)
    if not float(energies.sum()) > 0:
        raise InputError("no variance to share", expected="draws that are not all 0", got=tuple(f.shape))
    return energies / energies.sum()


def _degrees(d: int, device: torch.device) -> Tensor:
    """|S| of every subset S, numbered by its bits."""
    degrees = torch.zeros(1, dtype=torch.long, device=device)
    for _ in range(d):
        degrees = torch.cat([degrees, degrees + 1])
    return degrees


def _normal(shape: tuple[int, ...], like: Tensor, seed: Randomness) -> Tensor:
    generator = seed.torch(like.device) if isinstance(seed, Key) else seed
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
