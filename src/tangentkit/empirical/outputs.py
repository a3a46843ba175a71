"""Which kernel of the outputs: a set of directions in output space, summed over or separate."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.seeds import Key

Outputs = str | int | Tensor
"""What a user may ask for: "trace", "full", "pseudo", an index, or a vector (c,)."""


@dataclass(frozen=True)
class Directions:
    """K[i, j] = Σ_r <v_r · J_i, v_r · J_j>, or with `full` K[i, r, j, t] = <v_r · J_i, v_t · J_j>."""

    vectors: Tensor
    """(r, c)"""
    full: bool = False


def as_outputs(outputs: Outputs) -> Outputs:
    """A choice of outputs, NumPy's whole numbers being indices too; what is none is refused before any model is run.

    Raises:
        UnknownNameError: a text that is no kind of kernel.
        InputError: a value of another type, or a tensor that is no vector.
    """
    kinds = ("trace", "full", "pseudo")
    if isinstance(outputs, np.integer):
        return int(outputs)
    if isinstance(outputs, str):
        if outputs not in kinds:
            raise UnknownNameError("kind of outputs", outputs, kinds)
    elif isinstance(outputs, Tensor):
        if outputs.ndim != 1:
            raise InputError("bad outputs", expected="a vector (c,)", got=f"shape {tuple(outputs.shape)}")
    elif isinstance(outputs, bool) or not isinstance(outputs, int):
        raise InputError(
            "bad outputs", expected='"trace", "full", "pseudo", an index or a vector (c,)', got=repr(outputs)
        )
    return outputs


def directions(outputs: Outputs, c: int, *, like: Tensor) -> Directions:
    """The directions that a choice of outputs means for a model of c outputs.

    Raises:
        InputError: an index or a vector that does not fit c outputs.

    Example:
        >>> directions("pseudo", 4, like=torch.ones(1)).vectors
        tensor([[0.5000, 0.5000, 0.5000, 0.5000]])
    """
    eye = torch.eye(c, dtype=like.dtype, device=like.device)
    if isinstance(outputs, Tensor):
        if len(outputs) != c:
            raise InputError("bad outputs", expected=f"a vector of length {c}", got=f"length {len(outputs)}")
        return Directions(outputs.to(eye)[None])
    if isinstance(outputs, str):
        return {
            "trace": Directions(eye),
            "full": Directions(eye, full=True),
            "pseudo": Directions(eye.sum(0, keepdim=True) / math.sqrt(c)),
        }[outputs]
    if not -c <= outputs < c:
        raise InputError("bad outputs", expected=f"an index below {c}", got=outputs)
    return Directions(eye[outputs][None])


def random_signs(probes: int, c: int, *, seed: int, like: Tensor) -> Directions:
    """Directions ±1/sqrt(S) whose sum over S probes is the trace on average: E[Σ_s v_s v_sᵀ] = I.

    No two are equal or opposite: these have the same kernel, and would pass for agreement where there is none. With
    as many probes as outputs, the directions are the outputs, and the trace is exact.
    """
    if probes >= c:
        return directions("trace", c, like=like)
    generator, drawn = Key(seed).fold("output signs").torch(), {}
    while len(drawn) < probes:
        for row in torch.randint(0, 2, (probes - len(drawn), c), generator=generator):
            drawn.setdefault((row == row[0]).numpy().tobytes(), row)
    signs = torch.stack([*drawn.values()]).mul_(2).sub_(1)
    return Directions(signs.to(like) / math.sqrt(probes))


def left_to_draw(probes: int, c: int) -> float:
    """The share 1 - S / 2^(c-1) of all directions of signs that S probes leave: so much of the variance is left."""
    return 1 - probes * 2.0 ** (1 - c)


def words(outputs: Outputs) -> str:
    """A choice of outputs as one reads it; of a vector its length alone."""
    return f"vector ({len(outputs)},)" if isinstance(outputs, Tensor) else repr(outputs)
