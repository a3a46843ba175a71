"""Bases of the gradients of every parameter, from a calibration batch.

For the gradient G = Σ_s Γ_s ⊗ a_s of a parameter there are two: U_g of the stacked outgoing gradients and U_a of the
inputs, the leading eigenvectors of Σ G Gᵀ and Σ Gᵀ G over samples. They are found from the images of random vectors;
neither matrix is formed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentkit.core.batches import Batch
from tangentkit.core.errors import BudgetError, NumericalError
from tangentkit.core.memory import format_bytes
from tangentkit.core.seeds import Key
from tangentkit.empirical.passes.layer_gradients import LayerGradients
from tangentkit.empirical.passes.parameter_gradients import Orders
from tangentkit.sketch.methods.factors import Factors, all_factors
from tangentkit.sketch.methods.hashes import normals
from tangentkit.sketch.methods.model_sketch import pieces

RANK = 64
"""Most vectors of a basis."""
NEGLIGIBLE = 1e-4
"""Share of the energy of all gradients that the basis of one parameter may leave out."""
CORES = 2**15
"""Most coordinates of all cores together."""
LONGEST = 2**19
"""Longest vectors that have a basis. Fixed: what is exact must not depend on the memory of a machine."""

KEY = Key(0).fold("calibration")
"""Of the random vectors: bases depend on no seed."""

Sides = Callable[[Batch], Iterator[tuple[slice, int, LayerGradients]]]
"""Runs a batch, all directions at once: samples, number of the first direction, recording with gradients."""


@dataclass(frozen=True)
class Basis:
    """Of the gradient of one parameter."""

    kind: str
    outgoing: Tensor
    """U_g (r q, k)"""
    inputs: Tensor
    """U_a (p, l)"""

    @property
    def size(self) -> int:
        """Coordinates of the core U_gᵀ G U_a."""
        return self.outgoing.shape[1] * self.inputs.shape[1]

    def cut(self, rank: int) -> "Basis":
        """The leading vectors of both."""
        return Basis(self.kind, self.outgoing[:, :rank], self.inputs[:, :rank])


@dataclass(frozen=True, eq=False)
class Search:
    """For the basis of one parameter: random vectors Ω, and Σ G Gᵀ Ω and Σ Gᵀ G Ω so far."""

    kind: str
    probes: tuple[Tensor, Tensor]
    images: tuple[Tensor, Tensor]

    @classmethod
    def begin(cls, name: str, factors: Factors) -> "Search":
        """With factors like those that come."""
        drawn = [
            _probes(KEY.fold(name, which), length).to(factors.outgoing)
            for which, length in (("outgoing", factors.rows), ("inputs", factors.p))
        ]
        images = [torch.zeros(omega.shape, dtype=torch.float64, device=omega.device) for omega in drawn]
        return cls(factors.kind, (drawn[0], drawn[1]), (images[0], images[1]))

    @staticmethod
    def bytes(factors: Factors) -> int:
        """The bytes that the bases take."""
        entries = sum(length * min(length, 2 * RANK) for length in (factors.rows, factors.p))
        return entries * (8 + factors.outgoing.element_size())

    def add(self, factors: Factors, chosen: Tensor, buffer: int) -> None:
        """Adds the chosen samples."""
        rows = chosen.nonzero().flatten()
        for part in pieces(len(rows), buffer, factors.entries):
            for image, more in zip(self.images, factors.take(rows[part]).images(*self.probes), strict=True):
                image += more.double()

    def basis(self, negligible: float) -> Basis:
        """The fewest vectors that leave out no more than a negligible energy, at most RANK."""
        outgoing, inputs = (
            _sufficient(*_leading(omega.double(), image), negligible).to(omega)
            for omega, image in zip(self.probes, self.images, strict=True)
        )
        return Basis(self.kind, outgoing, inputs)


def find_bases(
    sides: Sides, x: Batch, made: Tensor, orders: Orders, *, buffer: int, budget: int
) -> tuple[dict[str, Basis], Tensor]:
    """Parameter -> basis, and |gradient|² (n,) of all samples.

    Args:
        sides: runs a batch, all directions at once.
        x: the batch.
        made: which samples bases are made from (n,).
        orders: of the parameters.
        buffer: entries of factors that are worked on at a time.
        budget: bytes that the search may take.

    Raises:
        BudgetError: it takes more.
        NumericalError: gradients are not finite.
    """
    searches: dict[str, Search] = {}
    needed, energy = 0, torch.zeros(len(made), dtype=torch.float64)
    for rows, _, side in sides(x):
        energy[rows] = side.square_norms().sum(1).double().cpu()
        check_finite(energy)
        chosen = made[rows].to(side.recording.outputs.device)
        for name, factors in all_factors(side, orders):
            if max(factors.rows, factors.p) > LONGEST:
                continue
            if name not in searches:
                needed += Search.bytes(factors)
                check_budget(needed, budget)
                searches[name] = Search.begin(name, factors)
            searches[name].add(factors, chosen, buffer)
    negligible = NEGLIGIBLE * float(energy[made].sum())
    found = {name: search.basis(negligible) for name, search in searches.items()}
    return _fitting({name: basis for name, basis in found.items() if basis.size}), energy


def check_finite(energy: Tensor) -> None:
    """Refuses calibration samples whose gradients are not finite.

    Raises:
        NumericalError: naming the samples.
    """
    if not energy.isfinite().all():
        bad = (~energy.isfinite()).nonzero().flatten().tolist()
        raise NumericalError(
            "gradients of the calibration batch are not finite",
            got=f"nan or inf in samples {bad[:5]}",
            hint="look at these samples, or use float64",
        )


def check_budget(needed: int, budget: int) -> None:
    """Refuses a calibration that takes too much memory.

    Raises:
        BudgetError: saying how much.
    """
    if needed > budget:
        raise BudgetError(
            "calibration does not fit the memory budget",
            expected=f"at least {format_bytes(needed)}",
            got=format_bytes(budget),
            hint='memory=..., fewer calibration samples, fewer params=, or outputs="pseudo"',
        )


def _probes(key: Key, length: int) -> Tensor:
    width = 2 * RANK
    if length <= width:
        return torch.eye(length, dtype=torch.float64)
    return normals(key, length * width).view(length, width)


def _leading(probes: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
    """Leading eigenvalues and eigenvectors of a matrix M from M Ω, by Nyström's formula M Ω (Ωᵀ M Ω)⁺ Ωᵀ M."""
    inner = probes.T @ images
    values, vectors = torch.linalg.eigh((inner + inner.T) / 2)
    kept = values > 1e-12 * values[-1].clamp_min(torch.finfo(values.dtype).tiny)
    root = images @ (vectors[:, kept] / values[kept].sqrt())
    if root.shape[1] == 0:
        return values.new_zeros(0), root
    left, singular, _ = torch.linalg.svd(root, full_matrices=False)
    return singular.square(), left * sign(left)


def _sufficient(values: Tensor, vectors: Tensor, negligible: float) -> Tensor:
    left_out = values.flip(0).cumsum(0).flip(0)
    return vectors[:, : min(RANK, int((left_out > negligible).sum()))]


def _fitting(bases: dict[str, Basis]) -> dict[str, Basis]:
    """The bases, with fewer vectors each if their cores would be too many coordinates."""
    rank = RANK
    while sum(basis.size for basis in bases.values()) > CORES and rank > 1:
        rank //= 2
        bases = {name: basis.cut(rank) for name, basis in bases.items()}
    return bases


def sign(vectors: Tensor) -> Tensor:
    """Signs (1, k) for vectors (n, k) that have none of their own, as eigenvectors: the largest entry is positive."""
    return vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
