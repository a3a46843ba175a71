"""Functions without a closed form in networks over positions: tables must give what closed forms give."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tangentkit.infinite import InfiniteKernel, Pointwise


class Scalar(nn.Module):
    """A scalar function that the library is told to integrate, or knows in closed form."""

    def __init__(self, function, *, tabulated: bool):
        super().__init__()
        self.function = function
        if tabulated:
            self.dual = Pointwise(function)

    def forward(self, x):
        return self.function(x)


def conv2d(act, head, **options) -> nn.Sequential:
    padding = {"padding": 1} | options
    return nn.Sequential(nn.Conv2d(2, 8, 3, **padding), act(), nn.Conv2d(8, 8, 3, **padding), act(), *head)


GAP = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1))
NETWORKS = {
    "global pooling": (lambda act: conv2d(act, GAP), (2, 5, 4)),
    "circular": (lambda act: conv2d(act, GAP, padding_mode="circular"), (2, 5, 4)),
    "stride": (lambda act: conv2d(act, GAP, stride=2), (2, 9, 7)),
    "windows": (lambda act: conv2d(act, (nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 1))), (2, 5, 4)),
    "pooling between": (
        lambda act: nn.Sequential(
            nn.Conv2d(2, 8, 3), act(), nn.AvgPool2d(2), nn.Conv2d(8, 8, 3, padding=1), act(), *GAP
        ),
        (2, 6, 6),
    ),
    "sequences": (
        lambda act: nn.Sequential(
            nn.Conv1d(2, 8, 3, padding=1),
            act(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(8, 1),
        ),
        (2, 21),
    ),
    "flatten": (lambda act: conv2d(act, (nn.Flatten(), nn.Linear(160, 1))), (2, 5, 4)),
}


# An NTK is made of both tables, of the function and of its derivative: the NNGP of one network is enough.
@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "ntk") for name in NETWORKS), (next(iter(NETWORKS)), "nngp")]
)
def test_a_table_is_the_closed_form(name, kind):
    make, shape = NETWORKS[name]
    x, y = torch.randn(5, *shape, dtype=torch.float64), torch.randn(3, *shape, dtype=torch.float64)
    x[1], x[2], x[3] = x[0], -x[0], 0
    exact, table = (
        InfiniteKernel(
            make(lambda tabulated=tabulated: Scalar(torch.erf, tabulated=tabulated)),
            kind,
            w_std=1.3,
            b_std=0.3,
        )
        for tabulated in (False, True)
    )
    for arguments in ((x,), (x, y)):
        expected = exact(*arguments)
        torch.testing.assert_close(table(*arguments), expected, rtol=0, atol=1e-8 * float(expected.max()))
    torch.testing.assert_close(table.diag(x), exact.diag(x), rtol=1e-9, atol=0)


def test_a_table_in_float32_and_within_a_budget():
    make, shape = NETWORKS["global pooling"]
    x = torch.randn(6, *shape)
    exact = InfiniteKernel(make(lambda: Scalar(F.gelu, tabulated=False)), w_std=1.4)(x.double())
    for memory in (None, 100_000):
        kernel = InfiniteKernel(make(lambda: Scalar(F.gelu, tabulated=True)), w_std=1.4, memory=memory)
        found = kernel(x)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), exact, rtol=3e-6, atol=0)
