"""Exact coordinates from a calibration batch: what most gradients have in common is not left to chance.

For every parameter, two bases: U_g of the stacked outgoing gradients and U_a of the inputs, the leading
eigenvectors of Σ G Gᵀ and Σ Gᵀ G over calibration samples. In all of these cores U_gᵀ G U_a together, V: the leading
principal components of the calibration samples. The rows of (⊕ U_g ⊗ U_a) V are orthonormal in the space of
gradients, so P = W Wᵀ is an orthogonal projector, and

    <x, y> = <P x, P y> + <x - P x, y - P y>,

where the first term is exact in rank(P) coordinates, and the second is sketched: S(x - P x) = S x - (Wᵀ x) S(W), by
linearity. P does not depend on the random numbers of S, so the kernel is unbiased whatever the calibration batch;
a good batch makes the second term small.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentkit.core.batches import Batch, batch_size
from tangentkit.core.errors import NumericalError
from tangentkit.core.seeds import Key
from tangentkit.empirical.side import Side
from tangentkit.sketch.bits import normals
from tangentkit.sketch.factors import TABLES, Factors, all_factors, energies
from tangentkit.sketch.layout import Orders
from tangentkit.sketch.model_sketch import ModelSketch, pieces

RANK = 64
"""Most vectors of a basis."""
NEGLIGIBLE = 1e-4
"""Share of the energy of all gradients that the basis of one parameter may leave out."""
CORES = 2**15
"""Most coordinates of all cores together."""
LEAST_RESIDUAL = 0.25
"""Share of the coordinates that the sketch of the residual has at least."""

KEY = Key(0).fold("calibration")
"""Of the random vectors that find the bases: the projector depends on no seed."""

Sides = Callable[[Batch], Iterator[tuple[slice, int, Side]]]


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
        """Coordinates of the core."""
        return self.outgoing.shape[1] * self.inputs.shape[1]


@dataclass(frozen=True, eq=False)
class Projection:
    """An orthogonal projector in the space of gradients, of all parameters and directions."""

    bases: dict[str, Basis]
    mixing: dict[str, Tensor]
    """Parameter -> its rows of V (k l, rank)."""
    rank: int
    directions: int
    captured: float
    """Share of the energy of calibration samples that it holds, told by samples that it was not made from."""

    def coordinates(self, side: Side, orders: Orders, first: int) -> Tensor:
        """Wᵀ x (n, rank), the part of the directions that are at hand."""
        total = side.recording.outputs.new_zeros(side.n, self.rank)
        for name, factors in all_factors(side, orders):
            if name in self.bases:
                basis = self.bases[name]
                q = basis.outgoing.shape[0] // self.directions
                rows = slice(first * q, (first + side.r) * q)
                if factors.kind != basis.kind:
                    # These samples took another way through the model than those of the calibration.
                    factors = factors.as_kind(basis.kind, name, orders, r=side.r, q=q)
                total += factors.core(basis.outgoing[rows], basis.inputs) @ self.mixing[name]
        return total.detach()

    def sketched(self, sketch: ModelSketch, *, like: Tensor) -> list[Tensor]:
        """S(W) (rank, dim) for each half of a sketch."""
        out = sketch.coordinates(self.rank, like=like)
        for name, basis in self.bases.items():
            # Column k of W is Σ_ij V_kij u_i ⊗ b_j.
            core = self.mixing[name].T.unflatten(1, (basis.outgoing.shape[1], -1))
            u, b = basis.outgoing.T.unflatten(1, (self.directions, -1)), basis.inputs.T
            if basis.kind == "matrix":
                sketch.add_core(out, name, u, b, core)
                continue
            # Rows of a table are its inputs, those of other parameters their outputs.
            formula = "nkl,lp,krq->nrpq" if basis.kind in TABLES else "nkl,lp,krq->nrqp"
            for some in pieces(self.rank, sketch.buffer, u[0].numel() * b.shape[1]):
                written = sketch.orders.restore(name, torch.einsum(formula, core[some], b, u).flatten(2))
                sketch.add_written([half.rows(some) for half in out], name, written, 0)
        return [half.sums() for half in out]


def calibrate(sides: Sides, x: Batch, orders: Orders, *, dim: int, buffer: int) -> Projection | None:
    """The projector that makes the error smallest, or None if no projector is worth its coordinates.

    Bases come from every other sample; the others tell what is captured, and so how many coordinates pay: with a
    share ρ of the energy left to a sketch of dim - rank coordinates, the error is about ρ / sqrt(dim - rank).

    Args:
        sides: runs a batch, all directions at once.
        x: the calibration batch.
        orders: of the parameters.
        dim: coordinates in all.
        buffer: entries of factors that are worked on at a time.

    Raises:
        NumericalError: gradients of the calibration batch are not finite.
    """
    n = batch_size(x)
    made = torch.arange(n) % 2 == 0
    bases, energy = _bases(sides, x, made, orders, buffer)
    if not energy.isfinite().all():
        bad = (~energy.isfinite()).nonzero().flatten().tolist()
        raise NumericalError(
            "gradients of the calibration batch are not finite",
            got=f"nan or inf in samples {bad[:5]} ({len(bad)} in all)",
            hint="look at these samples, or use float64",
        )
    if not bases:
        return None
    cores: dict[str, Tensor] = {}
    directions = 0
    for rows, _, side in sides(x):
        directions = side.r
        for name, factors in all_factors(side, orders):
            if name in bases:
                core = factors.core(bases[name].outgoing, bases[name].inputs).detach()
                cores.setdefault(name, core.new_zeros(n, bases[name].size))[rows] = core
    together = torch.cat(list(cores.values()), 1).double()
    rank, captured = _best_rank(together.cpu(), energy, made, dim)
    if rank == 0:
        return None
    components = _components(together)[:, :rank]
    like = next(iter(bases.values())).outgoing
    parts = components.to(like).split([bases[name].size for name in cores])
    return Projection(
        {name: bases[name] for name in cores},
        dict(zip(cores, parts, strict=True)),
        components.shape[1],
        directions,
        captured,
    )


def _bases(
    sides: Sides, x: Batch, made: Tensor, orders: Orders, buffer: int
) -> tuple[dict[str, Basis], Tensor]:
    """The bases of all parameters, from the samples that they are to be made from, and |gradient|² of all samples."""
    probes: dict[str, tuple[Tensor, Tensor]] = {}
    images: dict[str, list[Tensor]] = {}
    kinds: dict[str, str] = {}
    energy, like = torch.zeros(len(made), dtype=torch.float64), torch.zeros(())
    for rows, _, side in sides(x):
        chosen = made[rows].to(side.recording.outputs.device)
        energy[rows] = energies(side).double().cpu()
        if not energy[rows].isfinite().all():
            continue  # an error follows
        for name, factors in all_factors(side, orders):
            like = factors.outgoing
            if name not in probes:
                kinds[name] = factors.kind
                if max(factors.rows, factors.p) * 2 * RANK > 4 * buffer:
                    continue  # its basis would be larger than what is worked on
                pair = (("outgoing", factors.rows), ("inputs", factors.p))
                probes[name] = tuple(  # pyright: ignore
                    _probes(KEY.fold(name, which), length).to(like) for which, length in pair
                )
                images[name] = [
                    torch.zeros(p.shape, dtype=torch.float64, device=p.device) for p in probes[name]
                ]
            _add_images(images[name], factors, probes[name], chosen, buffer)
    found = {}
    for name, (of_g, of_a) in images.items():
        spectra = [
            _leading(probe.double(), image) for probe, image in zip(probes[name], (of_g, of_a), strict=True)
        ]
        vectors = [_sufficient(*spectrum, NEGLIGIBLE * float(energy[made].sum())) for spectrum in spectra]
        if all(v.shape[1] for v in vectors):
            found[name] = Basis(kinds[name], vectors[0].to(like), vectors[1].to(like))
    return _fitting(found), energy


def _add_images(
    images: list[Tensor], factors: Factors, probes: tuple[Tensor, Tensor], chosen: Tensor, buffer: int
) -> None:
    """Adds Σ G Gᵀ Ω_g and Σ Gᵀ G Ω_a of the chosen samples."""
    rows = chosen.nonzero().flatten()
    for part in pieces(len(rows), buffer, factors.entries):
        for image, more in zip(images, factors.take(rows[part]).images(*probes), strict=True):
            image += more.double()


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
    return singular.square(), left * _sign(left)


def _sufficient(values: Tensor, vectors: Tensor, negligible: float) -> Tensor:
    """The fewest leading eigenvectors that leave out no more than a negligible energy, at most RANK."""
    left_out = values.flip(0).cumsum(0).flip(0)
    return vectors[:, : min(RANK, int((left_out > negligible).sum()))]


def _fitting(bases: dict[str, Basis]) -> dict[str, Basis]:
    """The bases, with fewer vectors each if their cores would be too many coordinates."""
    rank = RANK
    while sum(basis.size for basis in bases.values()) > CORES and rank > 1:
        rank //= 2
        bases = {
            name: Basis(basis.kind, basis.outgoing[:, :rank], basis.inputs[:, :rank])
            for name, basis in bases.items()
        }
    return bases


def _components(cores: Tensor) -> Tensor:
    """Principal components of cores (n, k), as (k, at most n), strongest first."""
    values, vectors = torch.linalg.eigh(cores @ cores.T)
    # Orthonormal to within rounding over the smallest share that is kept.
    kept = (values > 1e-8 * values[-1]).nonzero().flatten().flip(0)
    found = cores.T @ (vectors[:, kept] / values[kept].sqrt())
    return found * _sign(found)


def _sign(vectors: Tensor) -> Tensor:
    # Eigenvectors have no sign of their own: the largest entry is positive.
    return vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()


def _best_rank(cores: Tensor, energy: Tensor, made: Tensor, dim: int) -> tuple[int, float]:
    """The rank that makes the error smallest, and the share of the energy that it captures."""
    told = ~made if len(made) > 1 else made
    components = _components(cores[made])
    captured = (cores[told] @ components).square().sum(0).cumsum(0) / energy[told].sum()
    most = min(len(captured), int((1 - LEAST_RESIDUAL) * dim))
    captured = torch.cat([captured.new_zeros(1), captured[:most]]).clamp(max=1.0)
    left = dim - torch.arange(len(captured))
    rank = int(((1 - captured).clamp_min(1e-3).square() / left).argmin())
    return rank, float(captured[rank])
