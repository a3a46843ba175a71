"""Which sketch each parameter takes, by counted cost."""

from dataclasses import dataclass

from tangentkit.empirical.passes.layer_gradients import Size
from tangentkit.empirical.trust.profile import Profile

TRANSFORM = 350.0
"""FLOPs of a matrix product in the time that a coordinate of one pair of placements takes: twice placing and
transforming, and the product."""
BLOCK = 8.0
"""Coordinates in the time that beginning a block takes, where two hundred samples share it: sketches of few
coordinates have many blocks."""
COUNT = 100.0
"""FLOPs of a matrix product in the time that making an entry of an explicit gradient and adding it twice takes. All
three decide what "auto" does, so they are part of the seed contract."""

EXPLICIT = ("count", "gaussian", "rademacher")
METHODS = ("auto", "tensor", "hybrid", *EXPLICIT)


def choose(sketch: str, profile: Profile, r: int, dim: int) -> dict[str, str]:
    """Parameter -> "tensor", "count", "gaussian" or "rademacher".

    Args:
        sketch: what the user asked for.
        profile: of the model.
        r: number of output directions.
        dim: coordinates of a half-sketch.
    """
    if sketch in EXPLICIT:
        return dict.fromkeys(profile.names, sketch)
    by_factors = {name for name, size in profile.factored.items() if _by_factors(sketch, size, r, dim)}
    return {name: "tensor" if name in by_factors else "count" for name in profile.names}


def _by_factors(sketch: str, size: Size, r: int, dim: int) -> bool:
    if size.p * size.q <= dim:
        return False  # an outer product that is shorter than its sketch
    return sketch in ("tensor", "hybrid") or tensor_cost(size, r, dim) < count_cost(size, r)


def tensor_cost(size: Size, r: int, dim: int) -> float:
    """Of the TensorSketch of a sample in r directions, in FLOPs of a matrix product."""
    blocks = -(-size.p // dim) * (r * -(-size.q // dim) if size.q > dim else -(-r // (dim // size.q)))
    return TRANSFORM * 2 * (dim * size.s + BLOCK) * size.h * blocks


def count_cost(size: Size, r: int) -> float:
    """Of explicit gradients of a sample and their count-sketch in r directions, in FLOPs of a matrix product."""
    return (2.0 * size.s + COUNT) * r * size.h * size.q * size.p


@dataclass(frozen=True)
class SketchPlan:
    """How a kernel sketches samples of some shape. Prints as a table."""

    methods: dict[str, str]
    """Parameter -> "tensor", "count", "gaussian" or "rademacher"."""
    coordinates: tuple[int, int, int]
    """Exact ones, and those of the two half-sketches."""
    directions: int
    """Output directions, each a backward pass."""
    captured: float
    """Share of the energy of gradients in exact coordinates, estimated by held-out calibration samples."""

    def __str__(self) -> str:
        exact, one, other = self.coordinates
        width = max(map(len, self.methods), default=0)
        lines = [f"{name:{width}}  {method}" for name, method in self.methods.items()]
        lines.append(f"{exact} exact coordinates hold {self.captured:.0%}, {one} + {other} sketch the rest")
        lines.append(f"{self.directions} output direction{'s' * (self.directions > 1)}")
        return "\n".join(lines)
