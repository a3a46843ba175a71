"""Convolutions and pooling of every shape against the dense recursion, in which torch itself says who sees whom."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from infinite.dense_route import dense_kernel
from tangentkit.infinite import InfiniteKernel, computation

SCALES = {"w_std": 1.3, "b_std": 0.4}


def agree(model: nn.Sequential, shape: tuple[int, ...], n: int = 3, m: int = 2, **options) -> None:
    x, y = torch.randn(n, *shape, dtype=torch.float64), torch.randn(m, *shape, dtype=torch.float64)
    for i, kind in enumerate(("nngp", "ntk")):
        kernel = InfiniteKernel(model, kind, **SCALES, **options)
        close = {"rtol": 1e-9, "atol": 1e-9}
        torch.testing.assert_close(kernel(x, y), dense_kernel(model, x, y, **SCALES)[i], **close)
        # arccos on the diagonal of the dense route is good to 1e-8 only.
        own = dense_kernel(model, x, x, **SCALES)[i]
        torch.testing.assert_close(kernel(x), own, rtol=1e-6, atol=1e-6)
        off = ~torch.eye(n, dtype=torch.bool)
        torch.testing.assert_close(kernel(x)[off], own[off], **close)
        torch.testing.assert_close(kernel(x).diagonal(), kernel.diag(x), rtol=1e-13, atol=0)
        assert torch.equal(kernel(x), kernel(x).T)


def conv(channels: int, **options) -> nn.Conv2d:
    return nn.Conv2d(channels, 4, options.pop("kernel", 3), **options)


STACKS = {
    "strided conv, flatten": (
        [conv(2, stride=2, padding=1), nn.ReLU(), conv(4), nn.ReLU(), nn.Flatten()],
        (2, 9, 7),
    ),
    "dilated conv, gap": ([conv(2, dilation=2, padding=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1)], (2, 6, 5)),
    "strided conv, gap": (
        [conv(2, stride=(2, 1), padding=1), nn.ReLU(), conv(4, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1)],
        (2, 9, 8),
    ),
    "circular, strided": (
        [conv(2, padding=1, padding_mode="circular", stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1)],
        (2, 6, 6),
    ),
    "reflect and replicate": (
        [
            conv(2, padding=2, padding_mode="reflect", kernel=5),
            nn.ReLU(),
            conv(4, padding=1, padding_mode="replicate"),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        ],
        (2, 5, 4),
    ),
    "padding same, even kernel": (
        [conv(2, padding="same", kernel=(2, 4)), nn.ReLU(), nn.Flatten()],
        (2, 5, 6),
    ),
    "windows, then conv, then flatten": (
        [conv(2, padding=1), nn.ReLU(), nn.AvgPool2d(2), conv(4, padding=1), nn.ReLU(), nn.Flatten()],
        (2, 6, 8),
    ),
    "overlapping windows, then gap": (
        [conv(2), nn.ReLU(), nn.AvgPool2d(3, stride=1), conv(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)],
        (2, 9, 8),
    ),
    "padded windows": (
        [conv(2), nn.ReLU(), nn.AvgPool2d(3, stride=2, padding=1), conv(4), nn.ReLU(), nn.Flatten()],
        (2, 9, 8),
    ),
    "padded windows that do not count the padding": (
        [
            conv(2),
            nn.ReLU(),
            nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
            conv(4),
            nn.ReLU(),
            nn.Flatten(),
        ],
        (2, 9, 8),
    ),
    "ceil mode": ([conv(2), nn.ReLU(), nn.AvgPool2d(3, stride=2, ceil_mode=True), nn.Flatten()], (2, 8, 10)),
    "adaptive windows that overlap": (
        [conv(2), nn.ReLU(), nn.AdaptiveAvgPool2d((3, 2)), conv(4, kernel=2), nn.ReLU(), nn.Flatten()],
        (2, 9, 7),
    ),
    "pool of the Gaussian field": (
        [conv(2), nn.AvgPool2d(2), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 2)), nn.Flatten()],
        (2, 8, 10),
    ),
    "sequences": (
        [
            nn.Conv1d(3, 4, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool1d(2),
            nn.Conv1d(4, 4, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
        ],
        (3, 16),
    ),
    "layers behind the pool": (
        [conv(2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), conv(4, kernel=1), nn.ReLU(), nn.Flatten()],
        (2, 5, 6),
    ),
    "windows in windows": (
        [
            conv(2, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(2),
            conv(4, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
        ],
        (2, 8, 8),
    ),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", STACKS)
def test_agrees_with_the_dense_recursion(name):
    layers, shape = STACKS[name]
    features = nn.Sequential(*layers, nn.Flatten())(torch.zeros(1, *shape)).shape[1]
    agree(nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3)), shape)


@pytest.mark.parametrize(
    "name", ["strided conv, gap", "windows in windows", "overlapping windows, then gap", "sequences"]
)
def test_small_tiles_give_the_same(name, monkeypatch):
    layers, shape = STACKS[name]
    features = nn.Sequential(*layers, nn.Flatten())(torch.zeros(1, *shape)).shape[1]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3))
    x = torch.randn(5, *shape, dtype=torch.float64)
    whole = InfiniteKernel(model, **SCALES)
    expected = whole(x), whole(x[:2], x[2:])
    for tile in (40, 1000):
        monkeypatch.setattr(computation, "TILE", tile)
        kernel = InfiniteKernel(model, **SCALES)
        torch.testing.assert_close(kernel(x), expected[0], rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(kernel(x[:2], x[2:]), expected[1], rtol=1e-13, atol=1e-13)


@settings(max_examples=25, deadline=None)
@given(
    size=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 2),
    pool=st.sampled_from(["flatten", "gap", "mean of rows", "windows"]),
    seed=st.integers(0, 2**16),
)
def test_convolutions_of_any_geometry_are_read_by_position(
    size, kernel, stride, dilation, padding, pool, seed
):
    torch.manual_seed(seed)
    layer = nn.Conv2d(2, 4, kernel, stride=stride, dilation=dilation, padding=padding)
    after = [
        (s + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for s, k in zip(size, kernel, strict=True)
    ]
    if min(after) < 1:
        return
    heads = {
        "flatten": [],
        "gap": [nn.AdaptiveAvgPool2d(1)],
        "mean of rows": [nn.AdaptiveAvgPool2d((None, 1))],
        "windows": [nn.AvgPool2d(2, ceil_mode=True, padding=1)],
    }
    head = [*heads[pool], nn.Conv2d(4, 4, 2, padding=1), nn.ReLU(), nn.Flatten()]
    features = nn.Sequential(layer, *head)(torch.zeros(1, 2, *size)).shape[1]
    agree(nn.Sequential(layer, nn.ReLU(), *head, nn.Linear(features, 1)), (2, *size), n=2, m=1)


def test_the_cost_of_a_flatten_head_grows_with_the_positions_and_of_gap_with_their_square():
    def numbers(side: int, head: list[nn.Module]) -> int:
        """Entries of all covariances that activations see for one pair of images."""
        layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), *head]
        features = nn.Sequential(*layers)(torch.zeros(1, 1, side, side)).shape[1]
        kernel = InfiniteKernel(nn.Sequential(*layers, nn.Linear(features, 1)))
        seen = []
        dual = kernel._work(torch.zeros(1, 1, side, side)).reading.network.nodes
        spy = next(node.dual for node in dual if hasattr(node, "dual"))
        original = type(spy).both
        try:
            type(spy).both = lambda self, xx, xy, yy: (seen.append(xy.numel()), original(self, xx, xy, yy))[1]
            kernel(torch.randn(1, 1, side, side), torch.randn(1, 1, side, side))
        finally:
            type(spy).both = original
        return sum(seen)

    for side in (4, 8):
        assert numbers(side, [nn.Flatten()]) == side**2
        assert numbers(side, [nn.AdaptiveAvgPool2d(1), nn.Flatten()]) == side**4
