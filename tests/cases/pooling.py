"""Convolutions before poolings of all kinds."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from cases.case import Zoo
from cases.convolutions import lazy
from cases.draws import floats
from cases.formula import Formula

zoo = Zoo()
SEEN_FROM_BEHIND: list[str] = []
"""Cases whose first convolution is seen from behind its pooling."""
SEEN_AS_IT_IS: list[str] = []
"""Cases that look like it, where it is not or need not be possible."""


def network(first: Callable[[], tuple[nn.Module, ...]]) -> Callable[[], nn.Module]:
    """A beginning, all of its outputs summed to three."""
    return lambda: nn.Sequential(*first(), nn.Flatten(), nn.LazyLinear(3))


for _name, _first, _shape in [
    ("conv, relu, max pool", lambda: (nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)), (2, 6, 8)),
    ("conv, max pool", lambda: (nn.Conv2d(2, 3, 3), nn.MaxPool2d(2)), (2, 6, 6)),
    ("conv, max pool, relu", lambda: (nn.Conv2d(2, 3, 3), nn.MaxPool2d(2), nn.ReLU()), (2, 6, 6)),
    ("conv, relu in place, max pool", lambda: (nn.Conv2d(1, 4, 3), nn.ReLU(True), nn.MaxPool2d(2)), (1, 7, 7)),
    ("conv, gelu, average pool", lambda: (nn.Conv2d(2, 3, 2), nn.GELU(), nn.AvgPool2d(2)), (2, 5, 5)),
    ("conv, two activations, pool", lambda: (nn.Conv2d(2, 3, 2), nn.Tanh(), nn.SiLU(), nn.AvgPool2d(2)), (2, 5, 5)),
    ("conv, pool with a border left over", lambda: (nn.Conv2d(2, 3, 2), nn.ReLU(), nn.MaxPool2d((2, 3))), (2, 6, 6)),
    ("conv, pool of the whole image", lambda: (nn.Conv2d(2, 3, 2), nn.ELU(), nn.MaxPool2d((4, 3))), (2, 5, 4)),
    ("conv of groups, pool", lambda: (nn.Conv2d(4, 6, 3, groups=2), nn.LeakyReLU(), nn.MaxPool2d(2)), (4, 6, 6)),
    ("depthwise conv, pool", lambda: (nn.Conv2d(3, 6, 2, groups=3), nn.Sigmoid(), nn.AvgPool2d(2)), (3, 5, 5)),
    ("strided and dilated conv, pool", lambda: (
        nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)), nn.ReLU(), nn.MaxPool2d((1, 2)),
    ), (2, 6, 5)),
    ("conv without bias, pool", lambda: (nn.Conv2d(2, 3, 3, bias=False), nn.Softplus(), nn.MaxPool2d(2)), (2, 6, 6)),
    ("conv3d, pool", lambda: (nn.Conv3d(2, 3, 2), nn.Hardtanh(), nn.MaxPool3d((1, 2, 2))), (2, 3, 5, 5)),
    ("conv3d, average pool", lambda: (nn.Conv3d(2, 3, 2), nn.Mish(), nn.AvgPool3d(2)), (2, 3, 5, 5)),
    ("conv with circular padding, pool", lambda: (
        nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), nn.Hardswish(), nn.MaxPool2d(2),
    ), (2, 4, 4)),
]:  # fmt: skip
    zoo(_name, lazy(network(_first), floats(*_shape)), floats(*_shape))
    SEEN_FROM_BEHIND.append(_name)

for _name, _first, _shape in [
    ("conv, overlapping pool", lambda: (nn.Conv2d(2, 3, 2), nn.ReLU(), nn.MaxPool2d(3, stride=2)), (2, 6, 6)),
    ("conv, pool with gaps", lambda: (nn.Conv2d(2, 3, 2), nn.ReLU(), nn.AvgPool2d(2, stride=3)), (2, 7, 7)),
    ("conv, padded pool", lambda: (nn.Conv2d(2, 3, 2), nn.ReLU(), nn.MaxPool2d(2, padding=1)), (2, 5, 5)),
    ("conv, dilated pool", lambda: (nn.Conv2d(2, 3, 2), nn.MaxPool2d(2, stride=2, dilation=2)), (2, 6, 6)),
    ("conv, pool beyond the border", lambda: (nn.Conv2d(2, 3, 2), nn.MaxPool2d(2, ceil_mode=True)), (2, 6, 6)),
    ("conv1d, pool", lambda: (nn.Conv1d(2, 3, 2), nn.ReLU(), nn.MaxPool1d(2)), (2, 7)),
    ("conv, prelu, pool", lambda: (nn.Conv2d(2, 3, 2), nn.PReLU(), nn.MaxPool2d(2)), (2, 5, 5)),
    ("conv, softmax, pool", lambda: (nn.Conv2d(2, 3, 2), nn.Softmax(1), nn.MaxPool2d(2)), (2, 5, 5)),
    ("transposed conv, pool", lambda: (nn.ConvTranspose2d(2, 3, 2), nn.ReLU(), nn.MaxPool2d(2)), (2, 4, 4)),
]:  # fmt: skip
    zoo(_name, lazy(network(_first), floats(*_shape)), floats(*_shape))
    SEEN_AS_IT_IS.append(_name)


def _flat(m: nn.Module, *parts: Tensor) -> Tensor:
    return m.head(torch.cat([part.flatten(1) for part in parts], 1))


for _name, _forward, _head in [
    ("conv with two users", lambda m, x: _flat(m, F.max_pool2d(y := m.conv(x), 2), y.mean((2, 3))), 15),
    ("activation with two users", lambda m, x: _flat(m, F.max_pool2d(y := m.conv(x).relu(), 2), y.mean(2)), 24),
    ("conv that pools twice", lambda m, x: _flat(m, F.max_pool2d(y := m.conv(x), 2), F.avg_pool2d(y, 2)), 24),
    ("conv before two pools", lambda m, x: _flat(m, *(F.max_pool2d(m.conv(v).relu(), 2) for v in (x, 2 * x))), 24),
    ("pooled conv over frames", lambda m, x: _flat(m, F.max_pool2d(m.conv(
        torch.stack([x, x.flip(2)], 1).flatten(0, 1)).relu(), 2).unflatten(0, (-1, 2))), 24),
]:  # fmt: skip
    zoo(
        _name,
        lambda forward=_forward, head=_head: Formula(
            forward, conv=nn.Conv2d(2, 3, 2), head=nn.Linear(head, 2)
        ),
        floats(2, 5, 5),
    )
    SEEN_AS_IT_IS.append(_name)
zoo(
    "two convs, each with its pool",
    lambda: nn.Sequential(
        *(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(4, 5)),
    ),
    floats(1, 8, 8),
)
zoo(
    "two branches of pooled convs",
    lambda: Formula(
        lambda m, x: _flat(
            m, F.max_pool2d(m.one(x).relu(), 2) * F.avg_pool2d(m.two(x).tanh(), 2), m.two.bias.mean() + x[:, :, 0, 0]
        ),
        one=nn.Conv2d(2, 3, 2),
        two=nn.Conv2d(2, 3, 2),
        head=nn.Linear(14, 2),
    ),
    floats(2, 5, 5),
)  # fmt: skip
zoo(
    "frozen conv before a pooled conv",
    lambda: nn.Sequential(
        nn.Conv2d(2, 3, 2).requires_grad_(False),
        *(nn.Conv2d(3, 4, 2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(16, 2)),
    ),
    floats(2, 6, 6),
)
zoo(
    "pooled conv with a frozen bias",
    lazy(network(lambda: (nn.Conv2d(2, 3, 2), nn.ReLU(), nn.MaxPool2d(2))), floats(2, 5, 5)),
    floats(2, 5, 5),
    params=lambda name, _: name != "0.bias",
)
zoo(
    "weight-normalized conv, pool",
    lambda: nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 3, 2)),
        *(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 2)),
    ),
    floats(2, 5, 5),
)
zoo(
    "checkpointed conv and pool",
    lambda: Formula(
        lambda m, x: _flat(
            m, checkpoint(lambda v: F.max_pool2d(m.conv(v).relu(), 2), x, use_reentrant=False)
        ),
        conv=nn.Conv2d(2, 3, 2),
        head=nn.Linear(12, 2),
    ),
    floats(2, 5, 5),
)
zoo(
    "pooled images of equal pixels",
    lazy(network(lambda: (nn.Conv2d(1, 3, 2), nn.ReLU(), nn.MaxPool2d(2))), floats(1, 5, 5)),
    lambda g, n: torch.randn(n, 1, 1, 1, generator=g).expand(n, 1, 5, 5).contiguous(),
)
SEEN_FROM_BEHIND += [
    "two convs, each with its pool",
    "two branches of pooled convs",
    "frozen conv before a pooled conv",
    "pooled conv with a frozen bias",
    "checkpointed conv and pool",
    "pooled images of equal pixels",
]
SEEN_AS_IT_IS += ["weight-normalized conv, pool"]
