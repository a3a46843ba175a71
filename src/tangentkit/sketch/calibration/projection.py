"""Exact coordinates from a calibration batch: what most gradients have in common is not left to chance.

Every parameter has two `bases`, U_g of its outgoing gradients and U_a of its inputs. In all of the cores U_gᵀ G U_a
together, V: the leading principal components of the calibration samples. The columns of W = (⊕ U_g ⊗ U_a) V are
orthonormal in the space of gradients, so P = W Wᵀ is an orthogonal projector, and

    <x, y> = <P x, P y> + <x - P x, y - P y>,

where the first term is exact in rank(P) coordinates, and the second is sketched: S(x - P x) = S x - (Wᵀ x) S(W), by
linearity. P does not depend on the random numbers of S, so the kernel is unbiased whatever the calibration batch;
a good batch makes the second term small.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tangentkit.core.batches import Batch, batch_size
from tangentkit.empirical.passes.layer_gradients import LayerGradients
from tangentkit.empirical.passes.parameter_gradients import Orders
from tangentkit.sketch.calibration.bases import Basis, Sides, check_budget, find_bases, sign
from tangentkit.sketch.methods.factors import TABLES, all_factors
from tangentkit.sketch.methods.model_sketch import ModelSketch, pieces

LEAST_RESIDUAL = 0.25
"""Share of the coordinates that the sketch of the residual has at least."""


@dataclass(frozen=True, eq=False)
class Projection:
    """An orthogonal projector in the space of gradients, of all parameters and directions."""

    bases: dict[str, Basis]
    mixing: dict[str, Tensor]
    """Parameter -> its rows of V (k l, rank)."""
    rank: int
    directions: int
    captured: float
    """Share of the energy of calibration samples that it holds, estimated by samples that it was not made from."""

    def coordinates(self, side: LayerGradients, orders: Orders, first: int) -> Tensor:
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
                explicit = sketch.orders.restore(name, torch.einsum(formula, core[some], b, u).flatten(2))
                sketch.add_explicit([half.rows(some) for half in out], name, explicit, 0)
        return [half.sums() for half in out]


def calibrate(
    sides: Sides, x: Batch, orders: Orders, *, dim: int, buffer: int, budget: int
) -> Projection | None:
    """The projector that makes the error smallest, or None if no projector is worth its coordinates.

    Bases come from every other sample; the others tell what is captured, and so how many coordinates pay: with a
    share ρ of the energy left to a sketch of dim - rank coordinates, the error is about ρ / sqrt(dim - rank).

    Args:
        sides: runs a batch, all directions at once.
        x: the calibration batch.
        orders: of the parameters.
        dim: coordinates in all.
        buffer: entries of factors that are worked on at a time.
        budget: bytes that bases may take, and cores.

    Raises:
        BudgetError: they take more.
        NumericalError: gradients of the calibration batch are not finite.
    """
    n = batch_size(x)
    made = torch.arange(n) % 2 == 0
    bases, energy = find_bases(sides, x, made, orders, buffer=buffer, budget=budget)
    if not bases:
        return None
    sizes = [basis.size for basis in bases.values()]
    # Cores, their principal components, and both for half of the samples.
    check_budget(24 * n * sum(sizes), budget)
    cores = torch.zeros(n, sum(sizes), dtype=torch.float64, device=next(iter(bases.values())).inputs.device)
    columns = dict(zip(bases, cores.split(sizes, 1), strict=True))
    directions = 0
    for rows, _, side in sides(x):
        directions = side.r
        for name, factors in all_factors(side, orders):
            if name in bases:
                columns[name][rows] = factors.core(bases[name].outgoing, bases[name].inputs).detach().double()
    rank, captured = _best_rank(cores.cpu(), energy, made, dim)
    if rank == 0:
        return None
    like = next(iter(bases.values())).outgoing
    mixing = _components(cores)[:, :rank].to(like)
    parts = dict(zip(bases, mixing.split(sizes), strict=True))
    return Projection(bases, parts, mixing.shape[1], directions, captured)


def _components(cores: Tensor) -> Tensor:
    """Principal components of cores (n, k), as (k, at most n), strongest first."""
    values, vectors = torch.linalg.eigh(cores @ cores.T)
    # Orthonormal to within rounding over the smallest share that is kept.
    kept = (values > 1e-8 * values[-1]).nonzero().flatten().flip(0)
    found = cores.T @ (vectors[:, kept] / values[kept].sqrt())
    return found * sign(found)


def _best_rank(cores: Tensor, energy: Tensor, made: Tensor, dim: int) -> tuple[int, float]:
    """The rank that makes the error smallest, and the share of the energy that it captures."""
    held_out = ~made if len(made) > 1 else made
    components = _components(cores[made])
    # Gradients that are all zero have nothing to capture.
    whole = energy[held_out].sum().clamp_min(torch.finfo(energy.dtype).tiny)
    captured = (cores[held_out] @ components).square().sum(0).cumsum(0) / whole
    most = min(len(captured), int((1 - LEAST_RESIDUAL) * dim))
    captured = torch.cat([captured.new_zeros(1), captured[:most]]).clamp(max=1.0)
    left = dim - torch.arange(len(captured))
    rank = int(((1 - captured).clamp_min(1e-3).square() / left).argmin())
    return rank, float(captured[rank])
