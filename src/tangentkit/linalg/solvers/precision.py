"""The precision in which factors and likelihoods are computed."""

from torch import Tensor


def in_working_precision(matrix: Tensor) -> Tensor:
    """In float64, where the device has it: factors and likelihoods need the digits."""
    return matrix if matrix.device.type == "mps" else matrix.double()
