"""Principal angles of subspaces that were turned by known angles."""

import math

import pytest
import torch

import tangentkit as tk
from tangentkit.core import InputError, NumericalError
from tangentkit.core.seeds import Key


def turned(angles, d=9, seed=0):
    """Two bases of subspaces at these angles, in general position and neither orthonormal."""
    k, generator = len(angles), Key(seed).fold("angles").torch()

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    frame = torch.linalg.qr(normal(d, d))[0]
    a, away = frame[:, :k], frame[:, k : 2 * k]
    theta = torch.tensor(angles, dtype=torch.float64)
    return a @ normal(k, k), (a * theta.cos() + away * theta.sin()) @ normal(k, k)


@pytest.mark.parametrize("angles", [[0.3], [0.0, 0.2, 1.0], [1e-7, 0.5, math.pi / 2], [math.pi / 2] * 2])
def test_planted_angles_come_back_in_order(angles):
    found = tk.principal_angles(*turned(angles))
    assert torch.allclose(found, torch.tensor(angles, dtype=torch.float64), rtol=1e-6, atol=1e-9)


def test_a_smaller_span_has_its_own_number_of_angles_and_dependent_columns_add_none():
    A, B = turned([0.1, 0.4])
    assert torch.allclose(tk.principal_angles(A, B[:, [0, 1, 0]]), tk.principal_angles(A, B))
    assert tk.principal_angles(A[:, 0], B).shape == (1,)


def test_bad_columns_are_refused():
    with pytest.raises(InputError, match=r"\(3, 1\) and \(4, 2\)"):
        tk.principal_angles(torch.ones(3), torch.ones(4, 2))
    with pytest.raises(InputError, match="nothing but zero"):
        tk.principal_angles(torch.zeros(3), torch.ones(3))
    with pytest.raises(NumericalError, match="B"):
        tk.principal_angles(torch.ones(3), torch.full((3,), torch.nan))


@pytest.mark.parametrize("place", [0, 1])
def test_complex_columns_are_refused(place):
    columns = [torch.eye(3), torch.eye(3)]
    columns[place] = columns[place].to(torch.complex64)
    with pytest.raises(InputError, match=r"complex [AB]: expected real numbers"):
        tk.principal_angles(*columns)
