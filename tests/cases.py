"""The zoo: modules x batches. A new layer adds one line here and every law of `tests/empirical` runs on it.

Weights and inputs are drawn in float32 and cast, so one float64 Jacobian is the oracle for both dtypes.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from tangentkit import reference
from tangentkit.core.batches import Batch, take
from tangentkit.core.functions import Forward
from tangentkit.core.parameters import Selection
from tangentkit.core.seeds import Key
from tangentkit.empirical import TangentKernel

N, M = 6, 4
"""Samples of the two batches of a case."""

Draw = Callable[[torch.Generator, int], Batch]


@dataclass(frozen=True)
class Case:
    """A module, how to draw samples for it, and how the kernel is to be asked for."""

    name: str
    make: Callable[[], nn.Module]
    draw: Draw
    forward: Forward | None = None
    params: Selection = None
    unused: bool = False
    """Whether some selected parameter does not reach the output, so that a warning is due."""
    order: tuple[int, ...] | None = None
    """Samples x in this order, for cases whose first samples must be of a kind."""

    def model(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        """A fresh copy of the module; all its parameters and statistics are random, none is at rest."""
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(Key(0).fold("model", self.name).entropy % 2**63)
            model = self.make()
            _stir(model)
        return model.to(dtype).eval()

    def batches(self, dtype: torch.dtype = torch.float64) -> tuple[Batch, Batch]:
        """x of N and y of M samples."""
        generator = Key(0).fold("batches", self.name).torch()
        x = self.draw(generator, N)
        if self.order is not None:
            x = take(x, list(self.order))
        return cast(x, dtype), cast(self.draw(generator, M), dtype)

    def kernel(
        self, outputs: str | int | Tensor = "trace", dtype: torch.dtype = torch.float64, **options: Any
    ) -> TangentKernel:
        """The tangent kernel of a fresh copy of the module."""
        return TangentKernel(self.model(dtype), outputs, **self.keywords, **options)

    @property
    def keywords(self) -> dict[str, Any]:
        """What TangentKernel and `reference.jacobian` take beside the model."""
        return {"params": self.params, "forward": self.forward}


def cast(batch: Batch, dtype: torch.dtype) -> Batch:
    """The batch with its floating-point tensors in a dtype."""
    return pytree.tree_map(
        lambda leaf: leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf, batch
    )


def _stir(model: nn.Module) -> None:
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
        for name, value in model.named_buffers():
            if name.endswith("running_mean"):
                value.normal_()
            if name.endswith("running_var"):
                value.uniform_(0.5, 1.5)


CASES: dict[str, Case] = {}


@cache
def jacobians(name: str) -> tuple[Tensor, Tensor]:
    """The oracle (n, c, p) and (m, c, p) of a case, in float64; slow, so it is made once."""
    case = CASES[name]
    model, (x, y) = case.model(), case.batches()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(reference.jacobian(model, batch, **case.keywords) for batch in (x, y))  # pyright: ignore


def expected(name: str, outputs: str | int | Tensor, *, symmetric: bool) -> Tensor:
    """What `reference` says the kernel of a case is."""
    jx, jy = jacobians(name)
    return kernel_of_jacobians(jx, jx if symmetric else jy, outputs)


def kernel_of_jacobians(jx: Tensor, jy: Tensor, outputs: str | int | Tensor) -> Tensor:
    """The kernel that a choice of outputs means."""
    if isinstance(outputs, Tensor):
        return reference.vector_kernel(jx, jy, outputs.to(jx))
    if isinstance(outputs, int):
        return reference.vector_kernel(jx, jy, torch.eye(jx.shape[1], dtype=jx.dtype)[outputs])
    kinds = {
        "trace": reference.trace_kernel,
        "full": reference.full_kernel,
        "pseudo": reference.pseudo_kernel,
    }
    return kinds[outputs](jx, jy)


TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
"""Of a kernel, relative to its largest entry."""


def gap(found: Tensor, truth: Tensor) -> float:
    """The largest error relative to the largest entry; infinite where shapes differ or numbers are not finite."""
    if found.shape != truth.shape or not found.isfinite().all():
        return math.inf
    scale = truth.abs().max().clamp_min(torch.finfo(torch.float64).tiny)
    return float((found.to(truth) - truth).abs().max() / scale)


def zoo(name: str, make: Callable[[], nn.Module], draw: Draw, **options: Any) -> None:
    """Adds a case."""
    assert name not in CASES
    CASES[name] = Case(name, make, draw, **options)


class Formula(nn.Module):
    """A module written as a formula; parts are shapes of parameters, or submodules."""

    def __init__(self, formula: Callable[..., Tensor], **parts: Any):
        super().__init__()
        self.formula = formula
        for name, part in parts.items():
            keep = isinstance(part, (nn.Module, nn.Parameter))
            setattr(self, name, part if keep else nn.Parameter(torch.randn(part) / 2))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The formula."""
        return self.formula(self, *args, **kwargs)


def floats(*shape: int) -> Draw:
    """Gaussian samples."""
    return lambda generator, n: torch.randn(n, *shape, generator=generator)


def tokens(vocabulary: int, *shape: int) -> Draw:
    """Integers below the size of a vocabulary."""
    return lambda generator, n: torch.randint(vocabulary, (n, *shape), generator=generator)


def joined(*draws: Draw) -> Draw:
    """Tuples of batches."""
    return lambda generator, n: tuple(draw(generator, n) for draw in draws)


def named(**draws: Draw | object) -> Draw:
    """Dicts of batches; what is not a rule for drawing is a constant."""
    return lambda generator, n: {
        key: draw(generator, n) if callable(draw) else draw for key, draw in draws.items()
    }


def lengths(longest: int) -> Draw:
    """Masks (n, longest): True where a position is padding, never at the first."""

    def draw(generator: torch.Generator, n: int) -> Tensor:
        length = torch.randint(1, longest + 1, (n,), generator=generator)
        return torch.arange(longest)[None, :] >= length[:, None]

    return draw


# -- perceptrons -------------------------------------------------------------------------------------------------

zoo("linear", lambda: nn.Linear(4, 3), floats(4))
zoo("linear without bias", lambda: nn.Linear(4, 3, bias=False), floats(4))
zoo(
    "mlp",
    lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 7), nn.Tanh(), nn.Linear(7, 3)),
    floats(4),
)
zoo(
    "mlp of many activations",
    lambda: nn.Sequential(
        nn.Linear(4, 6),
        nn.GELU(),
        nn.Linear(6, 6),
        nn.SiLU(),
        nn.Linear(6, 6),
        nn.Softplus(),
        nn.Linear(6, 6),
        nn.ELU(),
        nn.Linear(6, 6),
        nn.Hardtanh(),
        nn.Linear(6, 6),
        nn.Mish(),
        nn.Linear(6, 2),
    ),
    floats(4),
)
zoo("scalar output", lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), floats(4))
zoo("hundred outputs", lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 100)), floats(4))
zoo(
    "in-place relu",
    lambda: nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU(True), nn.Linear(8, 3)
    ),
    floats(4),
)
zoo("in-place relu first", lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3)), floats(4))
zoo(
    "dropout in evaluation",
    lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.ReLU(), nn.Linear(8, 3)),
    floats(4),
)
zoo(
    "flattened images",
    lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2)),
    floats(3, 2, 2),
)
zoo(
    "linear on non-contiguous input",
    lambda: Formula(lambda m, x: m.a(x.mT[:, ::2]).flatten(1), a=nn.Linear(3, 2)),
    floats(3, 5),
)
zoo(
    "non-contiguous parameter",
    lambda: Formula(lambda m, x: torch.tanh(x @ m.w), w=nn.Parameter(torch.randn(3, 4).T)),
    floats(4),
)
zoo(
    "frozen first layer",
    lambda: nn.Sequential(nn.Linear(4, 6).requires_grad_(False), nn.Tanh(), nn.Linear(6, 3)),
    floats(4),
)
zoo(
    "frozen middle layer",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6).requires_grad_(False), nn.Linear(6, 3)),
    floats(4),
)
zoo(
    "parameters by name",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)),
    floats(4),
    params=["2.bias", "0.weight"],
)
zoo(
    "parameters by predicate",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3).requires_grad_(False)),
    floats(4),
    params=lambda _, p: p.ndim == 2,
)
zoo(
    "biases only",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)),
    floats(4),
    params=["0.bias", "2.bias"],
)

# -- convolutions ------------------------------------------------------------------------------------------------


def conv(layer: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A convolution, an activation and all its outputs summed to three."""
    return lambda: nn.Sequential(layer(), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))


def lazy(make: Callable[[], nn.Module], draw: Draw) -> Callable[[], nn.Module]:
    """A module with lazy layers, initialized by a batch."""

    def made() -> nn.Module:
        model = make()
        model(draw(torch.Generator().manual_seed(0), 2))
        return model

    return made


for _name, _layer, _shape in [
    ("conv1d", lambda: nn.Conv1d(3, 4, 3), (3, 7)),
    ("conv1d stride dilation padding", lambda: nn.Conv1d(3, 4, 3, stride=2, dilation=2, padding=3), (3, 9)),
    ("conv1d 1x1", lambda: nn.Conv1d(3, 4, 1), (3, 5)),
    ("conv2d", lambda: nn.Conv2d(3, 4, 3), (3, 5, 6)),
    ("conv2d without bias", lambda: nn.Conv2d(2, 3, 3, bias=False), (2, 5, 5)),
    ("conv2d stride padding", lambda: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 2)), (2, 5, 4)),
    ("conv2d dilation", lambda: nn.Conv2d(2, 3, 2, dilation=(2, 3)), (2, 5, 5)),
    ("conv2d groups", lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), (4, 4, 4)),
    ("conv2d depthwise", lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1), (4, 4, 4)),
    ("conv2d depthwise multiplier", lambda: nn.Conv2d(3, 6, 2, groups=3), (3, 4, 4)),
    ("conv2d same with even kernel", lambda: nn.Conv2d(2, 3, (2, 4), padding="same"), (2, 4, 5)),
    ("conv2d whole image", lambda: nn.Conv2d(2, 5, 4), (2, 4, 4)),
    ("conv3d", lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=1), (2, 3, 3, 2)),
    ("conv3d groups", lambda: nn.Conv3d(2, 4, (1, 2, 2), groups=2), (2, 2, 3, 3)),
    ("transposed conv1d", lambda: nn.ConvTranspose1d(3, 2, 3, stride=2, padding=1, output_padding=1), (3, 4)),
    ("transposed conv2d", lambda: nn.ConvTranspose2d(3, 2, 3, stride=2, dilation=2), (3, 3, 2)),
    ("transposed conv2d groups", lambda: nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), (4, 3, 3)),
    ("transposed conv3d", lambda: nn.ConvTranspose3d(2, 2, 2, stride=2, padding=1), (2, 2, 3, 2)),
    *[
        (f"conv2d {mode} padding", lambda mode=mode: nn.Conv2d(2, 3, 3, padding=1, padding_mode=mode), (2, 4, 4))  # pyright: ignore
        for mode in ("circular", "reflect", "replicate")
    ],
]:  # fmt: skip
    zoo(_name, lazy(conv(_layer), floats(*_shape)), floats(*_shape))

zoo(
    "small convolutional network",
    lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    ),
    floats(2, 6, 6),
)
zoo(
    "conv in channels-last memory",
    lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(36, 2)),
    lambda g, n: torch.randn(n, 3, 5, 5, generator=g).to(memory_format=torch.channels_last),
)
zoo(
    "conv at two resolutions",
    lambda: Formula(
        lambda m, x: torch.cat(
            [m.conv(x).tanh().mean((2, 3)), m.conv(F.avg_pool2d(x, 2)).tanh().mean((2, 3))], 1
        ),
        conv=nn.Conv2d(2, 3, 2),
    ),
    floats(2, 6, 6),
)
zoo(
    "conv over frames",
    lambda: Formula(
        lambda m, x: m.conv(x.flatten(0, 1)).tanh().unflatten(0, x.shape[:2]).mean((1, 3, 4)),
        conv=nn.Conv2d(2, 3, 2),
    ),
    floats(3, 2, 4, 4),
)
zoo(
    "conv on reshaped tokens",
    lambda: Formula(
        lambda m, x: m.head(m.conv(m.embed(x).mT.unflatten(2, (2, 3))).flatten(1)),
        embed=nn.Linear(3, 4),
        conv=nn.Conv2d(4, 2, 2),
        head=nn.Linear(4, 2),
    ),
    floats(6, 3),
)
zoo(
    "unet",
    lambda: Formula(
        lambda m, x: m.out(torch.cat([m.up(F.relu(m.down(x))), x], 1)).mean(3).flatten(1),
        down=nn.Conv2d(2, 3, 2, stride=2),
        up=nn.ConvTranspose2d(3, 2, 2, stride=2),
        out=nn.Conv2d(4, 1, 1),
    ),
    floats(2, 4, 4),
)
zoo(
    "pixel shuffle and interpolate",
    lambda: Formula(
        lambda m, x: F.interpolate(F.pixel_shuffle(m.conv(x), 2), scale_factor=0.5, mode="nearest").flatten(
            1
        )[:, ::3],
        conv=nn.Conv2d(2, 4, 3),
    ),
    floats(2, 5, 5),
)
zoo(
    "weights from a sample",
    lambda: Formula(
        lambda m, x: torch.einsum("ni,nio->no", x, m.hyper(x).unflatten(1, (4, 3))), hyper=nn.Linear(4, 12)
    ),
    floats(4),
)

# -- positions: tokens, orders of rows, sample axes --------------------------------------------------------------

for _t in (1, 2, 3, 4, 6, 7, 31):
    zoo(
        f"last of {_t} tokens",
        lambda: Formula(lambda m, x: m.b(torch.tanh(m.a(x)))[:, -1], a=nn.Linear(3, 4), b=nn.Linear(4, 2)),
        floats(_t, 3),
    )
    zoo(
        f"last of {_t} tokens, sequence first",
        lambda: Formula(
            lambda m, x: m.b(torch.tanh(m.a(x.transpose(0, 1).contiguous())))[-1],
            a=nn.Linear(3, 4),
            b=nn.Linear(4, 2),
        ),
        floats(_t, 3),
    )
zoo(
    "linear over tokens",
    lambda: Formula(lambda m, x: m.b(F.relu(m.a(x)).mean(1)), a=nn.Linear(3, 5), b=nn.Linear(5, 2)),
    floats(4, 3),
)
zoo(
    "linear over two extra axes",
    lambda: Formula(lambda m, x: m.b(F.relu(m.a(x)).sum((1, 2))), a=nn.Linear(3, 5), b=nn.Linear(5, 2)),
    floats(2, 3, 3),
)
zoo(
    "sequence first, mean",
    lambda: Formula(
        lambda m, x: m.b(F.relu(m.a(x.transpose(0, 1).contiguous()))).mean(0),
        a=nn.Linear(3, 5),
        b=nn.Linear(5, 2),
    ),
    floats(4, 3),
)
zoo(
    "sample axis in the middle",
    lambda: Formula(
        lambda m, x: m.b(F.relu(m.a(x.permute(1, 0, 2, 3).contiguous()))).mean((0, 2)),
        a=nn.Linear(3, 4),
        b=nn.Linear(4, 2),
    ),
    floats(3, 2, 3),
)
zoo(
    "sample axis in the middle, one position read",
    lambda: Formula(
        lambda m, x: m.b(F.relu(m.a(x.permute(1, 0, 2, 3).contiguous())))[1, :, 0],
        a=nn.Linear(3, 4),
        b=nn.Linear(4, 2),
    ),
    floats(3, 2, 3),
)
zoo(
    "sample axis last",
    lambda: Formula(lambda m, x: (m.b @ torch.tanh(m.a @ x.T + m.c)).T, a=(5, 4), c=(5, 1), b=(2, 5)),
    floats(4),
)
zoo(
    "samples flattened with heads",
    lambda: Formula(
        lambda m, x: m.b(
            torch.tanh(m.a(x.unflatten(1, (2, 3)).flatten(0, 1))).unflatten(0, (-1, 2)).flatten(1)
        ),
        a=nn.Linear(3, 4),
        b=nn.Linear(8, 2),
    ),
    floats(6),
)
zoo(
    "heads flattened with samples",
    lambda: Formula(
        lambda m, x: m.b(
            torch.tanh(m.a(x.unflatten(1, (2, 3)).transpose(0, 1).flatten(0, 1))).unflatten(0, (2, -1)).sum(0)
        ),
        a=nn.Linear(3, 4),
        b=nn.Linear(4, 2),
    ),
    floats(6),
)
zoo(
    "unfolded windows",
    lambda: Formula(lambda m, x: m.a(x.unfold(1, 3, 2)).amax(1), a=nn.Linear(3, 4)),
    floats(9),
)
zoo(
    "mixer",
    lambda: Formula(
        lambda m, x: m.head((x + m.tokens(x.mT).tanh().mT + m.channels(x).tanh()).mean(1)),
        tokens=nn.Linear(4, 4),
        channels=nn.Linear(3, 3),
        head=nn.Linear(3, 2),
    ),
    floats(4, 3),
)
zoo(
    "head per position",
    lambda: Formula(lambda m, x: torch.einsum("ntd,tde->ne", x, m.w).tanh(), w=(4, 3, 2)),
    floats(4, 3),
)
zoo(
    "only some positions",
    lambda: Formula(lambda m, x: m.b(m.a(x)[:, 1:3].tanh().flatten(1)), a=nn.Linear(3, 2), b=nn.Linear(4, 2)),
    floats(5, 3),
)

# -- one parameter, several uses ---------------------------------------------------------------------------------


class Tied(nn.Module):
    """Two layers of one weight; each has its own bias."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        """A, tanh, the same weight again."""
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


class LanguageModel(nn.Module):
    """Embedding and output head of one table."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the last token."""
        return self.head(torch.tanh(self.mix(self.embed(ids))).cumsum(1)[:, -1])


zoo("tied weights", Tied, floats(4))
zoo("tied embedding and head", LanguageModel, tokens(7, 3))
zoo(
    "tied embedding with padding_idx",
    lambda: Formula(
        # Logits of every token, of which the outputs take a few.
        lambda m, i: (torch.tanh(m.a(m.e(i))) @ m.e.weight.T)[:, :, 1:4].mean(1),
        e=nn.Embedding(9, 4, padding_idx=2),
        a=nn.Linear(4, 4),
    ),
    tokens(9, 5),
)
zoo(
    "tied embedding used twice",
    lambda: Formula(
        lambda m, i: nn.functional.linear(
            torch.tanh(nn.functional.linear(m.e(i), m.e.weight)[:, :, :4] + m.e(i.flip(1))).sum(1), m.e.weight
        ),
        e=nn.Embedding(6, 4),
    ),
    tokens(6, 3),
)
zoo(
    "layer applied twice",
    lambda: Formula(lambda m, x: m.b(m.a(torch.tanh(m.a(x)))), a=nn.Linear(4, 4), b=nn.Linear(4, 2)),
    floats(4),
)
zoo(
    "shared layer in a loop",
    lambda: Formula(
        lambda m, x: m.b(_repeat(lambda h: torch.tanh(m.a(h) + x), x, 5)),
        a=nn.Linear(4, 4),
        b=nn.Linear(4, 2),
    ),
    floats(4),
)
zoo(
    "shared layer on tokens and on their mean",
    lambda: Formula(lambda m, x: m.a(x).tanh().mean(1) + m.a(x.mean(1)), a=nn.Linear(4, 3)),
    floats(3, 4),
)
zoo(
    "weight and its transpose", lambda: Formula(lambda m, x: torch.tanh(x @ m.w.T) @ m.w, w=(5, 3)), floats(3)
)
zoo(
    "square weight on both sides",
    lambda: Formula(lambda m, x: torch.tanh(x @ m.w) + (m.w @ x.T).T, w=(3, 3)),
    floats(3),
)
zoo(
    "shared bias",
    lambda: Formula(lambda m, x: torch.tanh(x @ m.a + m.c) @ m.b + m.c, a=(3, 4), b=(4, 4), c=(4,)),
    floats(3),
)
zoo(
    "siamese",
    lambda: Formula(
        lambda m, a, b: m.head((m.net(a) - m.net(b)).abs()), net=nn.Linear(3, 5), head=nn.Linear(5, 2)
    ),
    joined(floats(3), floats(3)),
)
zoo(
    "weight as matrix and as scale",
    lambda: Formula(lambda m, x: torch.tanh(x @ m.w) * m.w.sum(0) + m.w[0], w=(4, 3)),
    floats(4),
)


def _repeat(step: Callable[[Tensor], Tensor], h: Tensor, times: int) -> Tensor:
    for _ in range(times):
        h = step(h)
    return h


# -- lookups -----------------------------------------------------------------------------------------------------

zoo(
    "embedding",
    lambda: Formula(lambda m, i: m.b(m.e(i).flatten(1)), e=nn.Embedding(6, 3), b=nn.Linear(12, 2)),
    tokens(6, 4),
)
zoo(
    "embedding with padding_idx",
    lambda: Formula(
        lambda m, i: m.b(m.e(i).tanh().mean(1)), e=nn.Embedding(6, 3, padding_idx=2), b=nn.Linear(3, 2)
    ),
    tokens(6, 4),
)
zoo(
    "embedding scaled by frequency",
    lambda: Formula(
        lambda m, i: m.b(m.e(i).tanh().mean(1)),
        e=nn.Embedding(4, 3, scale_grad_by_freq=True),
        b=nn.Linear(3, 2),
    ),
    tokens(4, 5),
)
zoo(
    "embedding with max_norm",
    lambda: Formula(
        lambda m, i: m.b(m.e(i).tanh().mean(1)), e=nn.Embedding(6, 3, max_norm=0.5), b=nn.Linear(3, 2)
    ),
    tokens(6, 4),
)
zoo(
    "embedding of one token",
    lambda: Formula(lambda m, i: m.b(m.e(i)), e=nn.Embedding(6, 3), b=nn.Linear(3, 2)),
    tokens(6),
)
zoo(
    "embedding, sequence first",
    lambda: Formula(
        lambda m, i: m.b(m.e(i.T.contiguous()).tanh()).mean(0), e=nn.Embedding(6, 3), b=nn.Linear(3, 2)
    ),
    tokens(6, 4),
)
zoo(
    "embedding of a large table",
    lambda: Formula(lambda m, i: m.b(m.e(i).tanh().mean(1)), e=nn.Embedding(200, 2), b=nn.Linear(2, 2)),
    tokens(200, 3),
)
for _mode in ("mean", "sum", "max"):
    zoo(
        f"embedding bag, {_mode}",
        lambda mode=_mode: Formula(
            lambda m, i: m.b(m.e(i).tanh()), e=nn.EmbeddingBag(6, 3, mode=mode), b=nn.Linear(3, 2)
        ),
        tokens(6, 4),
    )
zoo(
    "embedding bag with padding_idx",
    lambda: Formula(
        lambda m, i: m.b(m.e(i).tanh()),
        e=nn.EmbeddingBag(6, 3, mode="mean", padding_idx=2),
        b=nn.Linear(3, 2),
    ),
    tokens(6, 4),
)
zoo(
    "embedding bags of unequal size",
    lambda: Formula(
        # Two bags a sample: the first one of its tokens, and the rest.
        lambda m, i: m.b(
            m.e(i.flatten(), torch.arange(i.numel(), device=i.device).view_as(i)[:, :2].flatten())
            .unflatten(0, (len(i), 2))
            .flatten(1)
            .tanh()
        ),
        e=nn.EmbeddingBag(6, 3, mode="sum"),
        b=nn.Linear(6, 2),
    ),
    tokens(6, 4),
)
zoo(
    "embedding bag, weighted",
    lambda: Formula(
        lambda m, i, w: m.b(m.e(i, per_sample_weights=w).tanh()),
        e=nn.EmbeddingBag(6, 3, mode="sum"),
        b=nn.Linear(3, 2),
    ),
    joined(tokens(6, 4), floats(4)),
)
zoo(
    "positions and class token",
    lambda: Formula(
        lambda m, x: m.head(
            m.mix(torch.cat([m.cls.expand(len(x), -1, -1), x], 1) + m.positions).tanh()[:, 0]
            + m.mix(x).tanh().mean(1)
        ),
        cls=(1, 1, 3),
        positions=(1, 4, 3),
        mix=nn.Linear(3, 3),
        head=nn.Linear(3, 2),
    ),
    floats(3, 3),
)
zoo(
    "positional embedding by arange",
    lambda: Formula(
        lambda m, i: m.b((m.e(i) + m.p(torch.arange(i.shape[1]))).tanh().mean(1)),
        e=nn.Embedding(6, 3),
        p=nn.Embedding(4, 3),
        b=nn.Linear(3, 2),
    ),
    tokens(6, 4),
)
zoo(
    "parameter by index",
    lambda: Formula(lambda m, x, i: x * m.w[i] + m.b[i - 3], w=(5, 3), b=(5, 1)),
    joined(floats(3), tokens(3)),
)
zoo(
    "parameter by two indices",
    lambda: Formula(lambda m, i, j: m.w[i, j].tanh(), w=(4, 3, 2)),
    joined(tokens(4), tokens(3)),
)
zoo(
    "parameter by index_select",
    lambda: Formula(lambda m, x, i: x * torch.index_select(m.w, 0, i), w=(5, 3)),
    joined(floats(3), tokens(5)),
)
zoo(
    "parameter by gather",
    lambda: Formula(lambda m, i: m.w.expand(len(i), -1).gather(1, i).tanh(), w=(5,)),
    tokens(5, 3),
)
zoo(
    "one-hot times table",
    lambda: Formula(lambda m, i: (F.one_hot(i, 5).to(m.w) @ m.w).sum(1).tanh(), w=(5, 3)),
    tokens(5, 4),
)
zoo(
    "relative position bias",
    lambda: Formula(
        lambda m, x: (
            torch.softmax(x @ x.mT + m.t[(torch.arange(4)[:, None] - torch.arange(4)) + 3], 2) @ m.v(x)
        ).mean(1),
        t=(7,),
        v=nn.Linear(3, 2),
    ),
    floats(4, 3),
)

# -- norms -------------------------------------------------------------------------------------------------------

zoo(
    "layer norm",
    lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 2)),
    floats(4),
)
zoo(
    "layer norm over two axes of tokens",
    lambda: Formula(
        lambda m, x: m.b(m.n(m.a(x)).flatten(1)),
        a=nn.Linear(3, 4),
        n=nn.LayerNorm([3, 4], bias=False),
        b=nn.Linear(12, 2),
    ),
    floats(3, 3),
)
zoo(
    "layer norm on tokens, sequence first",
    lambda: Formula(
        lambda m, x: m.b(m.n(m.a(x.transpose(0, 1))).tanh()).sum(0),
        a=nn.Linear(3, 4),
        n=nn.LayerNorm(4),
        b=nn.Linear(4, 2),
    ),
    floats(3, 3),
)
zoo(
    "group norm",
    lambda: nn.Sequential(nn.Conv2d(2, 4, 2), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(16, 2)),
    floats(2, 3, 3),
)
zoo(
    "group norm of vectors",
    lambda: nn.Sequential(nn.Linear(3, 6), nn.GroupNorm(3, 6), nn.Tanh(), nn.Linear(6, 2)),
    floats(3),
)
zoo(
    "instance norm 1d",
    lambda: nn.Sequential(
        nn.Conv1d(2, 3, 2), nn.InstanceNorm1d(3, affine=True), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)
    ),
    floats(2, 5),
)
zoo(
    "instance norm 2d",
    lambda: nn.Sequential(
        nn.Conv2d(2, 3, 2),
        nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(12, 2),
    ),
    floats(2, 3, 3),
)
zoo(
    "instance norm 2d, own statistics",
    lambda: nn.Sequential(
        nn.Conv2d(2, 3, 2), nn.InstanceNorm2d(3, affine=True), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)
    ),
    floats(2, 3, 3),
)
zoo("rms norm", lambda: nn.Sequential(nn.Linear(4, 5), nn.RMSNorm(5), nn.Tanh(), nn.Linear(5, 2)), floats(4))
zoo(
    "rms norm by hand",
    lambda: Formula(
        lambda m, x: m.b(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * m.g).mean(1),
        g=(3,),
        b=nn.Linear(3, 2),
    ),
    floats(4, 3),
)
zoo(
    "batch norm 1d",
    lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2)),
    floats(4),
)
zoo(
    "batch norm 1d over positions",
    lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)),
    floats(2, 5),
)
zoo(
    "batch norm 2d",
    lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)),
    floats(2, 3, 3),
)
zoo(
    "local response norm",
    lambda: nn.Sequential(nn.Conv2d(2, 4, 2), nn.LocalResponseNorm(2), nn.Flatten(), nn.Linear(16, 2)),
    floats(2, 3, 3),
)

# -- attention ---------------------------------------------------------------------------------------------------

zoo(
    "multi-head attention",
    lambda: Formula(
        lambda m, x: m.head(m.a(x, x, x)[0].mean(1)),
        a=nn.MultiheadAttention(4, 2, batch_first=True),
        head=nn.Linear(4, 2),
    ),
    floats(3, 4),
)
zoo(
    "multi-head attention without weights",
    lambda: Formula(
        lambda m, x: m.head(m.a(x, x, x, need_weights=False)[0][:, 0]),
        a=nn.MultiheadAttention(4, 2, batch_first=True),
        head=nn.Linear(4, 2),
    ),
    floats(3, 4),
)
zoo(
    "multi-head attention, sequence first",
    lambda: Formula(
        lambda m, x: m.head(_attend(m.a, x.transpose(0, 1))[-1]),
        a=nn.MultiheadAttention(4, 2),
        head=nn.Linear(4, 2),
    ),
    floats(3, 4),
)
zoo(
    "cross attention, other widths",
    lambda: Formula(
        lambda m, q, k: m.head(m.a(q, k, k)[0].flatten(1)),
        a=nn.MultiheadAttention(4, 2, kdim=3, vdim=3, batch_first=True),
        head=nn.Linear(8, 2),
    ),
    joined(floats(2, 4), floats(5, 3)),
)
zoo(
    "attention with bias_kv",
    lambda: Formula(
        lambda m, x: m.head(m.a(x, x, x)[0].mean(1)),
        a=nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True),
        head=nn.Linear(4, 2),
    ),
    floats(3, 4),
)
zoo(
    "attention with padding mask",
    lambda: Formula(
        lambda m, x, pad: m.head(m.a(x, x, x, key_padding_mask=pad)[0][:, 0]),
        a=nn.MultiheadAttention(4, 2, batch_first=True),
        head=nn.Linear(4, 2),
    ),
    joined(floats(4, 4), lengths(4)),
)


def _attend(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x, x, x, need_weights=False)[0]


def _encoder(
    *, batch_first: bool = True, norm_first: bool = False, layers: int = 2, nested: bool = True
) -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.1, batch_first=batch_first, norm_first=norm_first)
    return nn.TransformerEncoder(
        layer, layers, enable_nested_tensor=nested and batch_first and not norm_first
    )


zoo(
    "transformer encoder",
    lambda: Formula(lambda m, x: m.head(m.e(x).mean(1)), e=_encoder(), head=nn.Linear(4, 2)),
    floats(3, 4),
)
zoo(
    "transformer encoder, norm first",
    lambda: Formula(lambda m, x: m.head(m.e(x)[:, 0]), e=_encoder(norm_first=True), head=nn.Linear(4, 2)),
    floats(3, 4),
)
zoo(
    "transformer encoder, sequence first",
    lambda: Formula(lambda m, x: m.head(m.e(x)), e=_encoder(batch_first=False), head=nn.Linear(4, 2)),
    floats(3, 4),
    forward=lambda m, x: m(x.transpose(0, 1))[-1],
)
zoo(
    "transformer encoder with padding mask",
    lambda: Formula(
        lambda m, x, pad: m.head(m.e(x, src_key_padding_mask=pad)[:, 0]), e=_encoder(), head=nn.Linear(4, 2)
    ),
    joined(floats(4, 4), lengths(4)),
)
zoo(
    "transformer encoder, causal",
    lambda: Formula(
        lambda m, x: m.head(
            m.e(x, mask=torch.full((3, 3), -torch.inf, dtype=x.dtype).triu(1), is_causal=True)[:, -1]
        ),
        e=_encoder(layers=1),
        head=nn.Linear(4, 2),
    ),
    floats(3, 4),
)
zoo(
    "transformer decoder",
    lambda: Formula(
        lambda m, x, y: m.head(m.d(x, y).mean(1)),
        d=nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 6, batch_first=True), 1),
        head=nn.Linear(4, 2),
    ),
    joined(floats(3, 4), floats(2, 4)),
)
zoo(
    "scaled dot product attention",
    lambda: Formula(
        lambda m, x: m.o(
            F.scaled_dot_product_attention(*m.qkv(x).unflatten(2, (3, 2, 2)).permute(2, 0, 3, 1, 4))
            .transpose(1, 2)
            .flatten(2)
        )[:, -1],
        qkv=nn.Linear(3, 12),
        o=nn.Linear(4, 2),
    ),
    floats(4, 3),
)
zoo(
    "causal attention, heads first",
    lambda: Formula(
        lambda m, x: m.o(
            F.scaled_dot_product_attention(
                *m.qkv(x).unflatten(2, (3, 2, 2)).permute(2, 0, 3, 1, 4), is_causal=True
            )
            .transpose(1, 2)
            .flatten(2)
        ).mean(1),
        qkv=nn.Linear(3, 12),
        o=nn.Linear(4, 2),
    ),
    floats(4, 3),
)
zoo(
    "linear attention by einsum",
    lambda: Formula(
        lambda m, x: torch.einsum(
            "nth,nhe->nte", F.elu(x @ m.q) + 1, torch.einsum("nth,nte->nhe", F.elu(x @ m.k) + 1, x @ m.v)
        ).mean(1),
        q=(3, 4),
        k=(3, 4),
        v=(3, 2),
    ),
    floats(4, 3),
)
zoo(
    "learned queries",
    lambda: Formula(
        lambda m, x: (torch.softmax(m.q @ m.k(x).mT, 2) @ m.v(x)).flatten(1),
        q=(2, 3),
        k=nn.Linear(4, 3),
        v=nn.Linear(4, 2),
    ),
    floats(5, 4),
)

# -- recurrence --------------------------------------------------------------------------------------------------

for _name, _make in {
    "rnn": lambda **o: nn.RNN(3, 4, nonlinearity="relu", **o),
    "gru": lambda **o: nn.GRU(3, 4, **o),
    "lstm": lambda **o: nn.LSTM(3, 4, **o),
}.items():
    zoo(
        _name,
        lambda make=_make: Formula(
            lambda m, x: m.b(m.r(x)[0][:, -1]), r=make(batch_first=True), b=nn.Linear(4, 2)
        ),
        floats(4, 3),
    )
    zoo(
        f"{_name}, sequence first",
        lambda make=_make: Formula(
            lambda m, x: m.b(m.r(x.transpose(0, 1))[0].sum(0)), r=make(), b=nn.Linear(4, 2)
        ),
        floats(3, 3),
    )
zoo(
    "bidirectional lstm of two layers",
    lambda: Formula(
        lambda m, x: m.b(m.r(x)[0].mean(1)),
        r=nn.LSTM(2, 2, num_layers=2, bidirectional=True, batch_first=True),
        b=nn.Linear(4, 2),
    ),
    floats(3, 2),
)
zoo(
    "lstm with projection",
    lambda: Formula(
        lambda m, x: m.b(m.r(x)[1][0][0]), r=nn.LSTM(3, 4, proj_size=2, batch_first=True), b=nn.Linear(2, 2)
    ),
    floats(3, 3),
)
zoo(
    "cells in a loop",
    lambda: Formula(
        lambda m, x: m.b(_unroll(m, x)), g=nn.GRUCell(2, 3), l=nn.LSTMCell(3, 3), b=nn.Linear(3, 2)
    ),
    floats(4, 2),
)


def _unroll(m: Any, x: Tensor) -> Tensor:
    h, state = x.new_zeros(len(x), 3), (x.new_zeros(len(x), 3), x.new_zeros(len(x), 3))
    for step in x.unbind(1):
        h = m.g(step, h)
        state = m.l(h, state)
    return state[0]


# -- parameters in formulas --------------------------------------------------------------------------------------

zoo("prelu", lambda: nn.Sequential(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 2)), floats(4))
zoo(
    "prelu of channels",
    lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.PReLU(3), nn.Flatten(), nn.Linear(12, 2)),
    floats(2, 3, 3),
)
zoo(
    "bilinear",
    lambda: Formula(lambda m, a, b: m.f(a, b).tanh(), f=nn.Bilinear(3, 2, 3)),
    joined(floats(3), floats(2)),
)
zoo(
    "einsum",
    lambda: Formula(
        lambda m, x: torch.einsum("nij,jk,il->nkl", x, m.a, m.b).flatten(1).tanh(), a=(3, 2), b=(4, 2)
    ),
    floats(4, 3),
)
zoo("matmul", lambda: Formula(lambda m, x: torch.tanh(x @ m.a) @ m.b, a=(4, 5), b=(5, 3)), floats(4))
zoo(
    "batched matmul",
    lambda: Formula(
        lambda m, x: (x.unflatten(1, (2, 3)).transpose(0, 1) @ m.w).transpose(0, 1).flatten(1).tanh(),
        w=(2, 3, 2),
    ),
    floats(6),
)
zoo(
    "bmm",
    lambda: Formula(
        lambda m, x: torch.bmm(x.unflatten(1, (2, 3)).transpose(0, 1), m.w).transpose(0, 1).flatten(1).tanh(),
        w=(2, 3, 2),
    ),
    floats(6),
)
zoo(
    "baddbmm",
    lambda: Formula(
        lambda m, x: (
            torch.baddbmm(m.c, x.unflatten(1, (2, 3)).transpose(0, 1), m.w, alpha=0.5)
            .transpose(0, 1)
            .flatten(1)
        ),
        w=(2, 3, 2),
        c=(2, 1, 2),
    ),
    floats(6),
)
zoo(
    "addmm with factors",
    lambda: Formula(lambda m, x: torch.addmm(m.c, x, m.w, beta=0.3, alpha=2.0).tanh(), c=(3,), w=(4, 3)),
    floats(4),
)
zoo(
    "matrix times vector",
    lambda: Formula(lambda m, x: torch.stack([torch.tanh(x @ m.w), x @ m.v], 1), w=(4,), v=(4,)),
    floats(4),
)
zoo(
    "product with a parameter",
    lambda: Formula(lambda m, x: torch.tanh(x * m.w) + m.s * x - m.c, w=(4,), s=(), c=(1,)),
    floats(4),
)
zoo(
    "scale of tokens and channels",
    lambda: Formula(lambda m, x: (x * m.a[:, None] * m.b).tanh().sum(1), a=(3,), b=(4,)),
    floats(3, 4),
)
zoo(
    "division",
    lambda: Formula(lambda m, x: x / (1 + m.a.square()) + m.b / (2 + x.square()), a=(4,), b=(4,)),
    floats(4),
)
zoo(
    "powers",
    lambda: Formula(lambda m, x: (1 + x.square()) ** m.p + torch.lerp(x, x.square(), m.q), p=(4,), q=(4,)),
    floats(4),
)
zoo(
    "powers at the edges",
    lambda: Formula(
        lambda m, x: F.relu(x) ** (1 + m.p.abs()) + F.relu(m.q) ** x.round().abs() + torch.lerp(m.p, x, 0.3),
        p=(4,),
        q=(4,),
    ),
    floats(4),
)
zoo(
    "ties with a parameter",
    lambda: Formula(
        lambda m, x: torch.maximum(x.round(), m.t - m.t.detach()) + torch.minimum(m.t, m.t * x.round()),
        t=(4,),
    ),
    floats(4),
)
zoo("vector on tokens", lambda: Formula(lambda m, x: torch.tanh(x @ m.w), w=(4,)), floats(3, 4))
zoo(
    "bilinear on tokens, sequence first",
    lambda: Formula(
        lambda m, x: m.f(x.transpose(0, 1), x.transpose(0, 1).square()).tanh().mean(0), f=nn.Bilinear(3, 3, 2)
    ),
    floats(4, 3),
)
zoo(
    "baddbmm with factors, weights on the left",
    lambda: Formula(
        lambda m, x: (
            torch.baddbmm(m.b, m.w, x.permute(1, 2, 0), beta=0.5, alpha=2).permute(2, 0, 1).flatten(1).tanh()
        ),
        b=(3, 2, 1),
        w=(3, 2, 4),
    ),
    floats(3, 4),
)
zoo(
    "comparisons with a parameter",
    lambda: Formula(
        lambda m, x: torch.maximum(x, m.t) + torch.minimum(x, m.u) + torch.clamp(x, m.t, m.t.abs() + 3),
        t=(4,),
        u=(4,),
    ),
    floats(4),
)
zoo(
    "distances to prototypes",
    lambda: Formula(
        lambda m, x: torch.exp(-(x[:, None] - m.p).square().sum(2)) + torch.cdist(x, m.p), p=(3, 4)
    ),
    floats(4),
)
zoo(
    "cosine head",
    lambda: Formula(
        lambda m, x: F.normalize(m.a(x), dim=1) @ F.normalize(m.w, dim=1).T * m.s.exp(),
        a=nn.Linear(4, 3),
        w=(5, 3),
        s=(),
    ),
    floats(4),
)
zoo(
    "scalar parameters",
    lambda: Formula(lambda m, x: torch.stack([m.a * x[:, 0], torch.sin(m.b * x[:, 1])], 1), a=(), b=(1,)),
    floats(2),
)
zoo(
    "parameter in slices",
    lambda: Formula(lambda m, x: torch.tanh(x @ m.w[:3]) + x.square() @ m.w[3:] + m.w[0, 0], w=(6, 4)),
    floats(3),
)
zoo(
    "parameters joined",
    lambda: Formula(
        lambda m, x: torch.tanh(x @ torch.cat([m.a, m.b], 1)) @ torch.stack([m.c, m.d, m.c]),
        a=(4, 1),
        b=(4, 2),
        c=(2,),
        d=(2,),
    ),
    floats(4),
)
zoo(
    "parameter in chunks",
    lambda: Formula(
        lambda m, x: torch.tanh(x @ m.w.chunk(2, 1)[1]) * torch.tanh(x @ m.w.chunk(2, 1)[0]), w=(4, 6)
    ),
    floats(4),
)
zoo(
    "cumulative product of parameters",
    lambda: Formula(lambda m, x: x * torch.cumprod(1 + m.w / 4, 0), w=(4,)),
    floats(4),
)
zoo("softmax of a parameter", lambda: Formula(lambda m, x: x @ torch.softmax(m.w, 0), w=(4, 3)), floats(4))
zoo(
    "mixture of tokens by a softmax of a parameter",
    lambda: Formula(
        lambda m, x: torch.einsum("ntd,t->nd", m.a(x).tanh(), torch.softmax(m.w, 0)),
        w=(4,),
        a=nn.Linear(3, 2),
    ),
    floats(4, 3),
)
zoo(
    "product of parameters",
    lambda: Formula(lambda m, x: torch.tanh(x @ (m.a @ m.b)) * (m.a.sum() * m.b.sum()), a=(4, 2), b=(2, 3)),
    floats(4),
)
zoo(
    "kronecker product of parameters",
    lambda: Formula(lambda m, x: torch.tanh(x @ torch.kron(m.a, m.b)), a=(2, 2), b=(3, 2)),
    floats(6),
)
zoo(
    "triangular parameter",
    lambda: Formula(
        lambda m, x: torch.tanh(x @ m.w.tril()) @ torch.linalg.inv(torch.eye(4, dtype=x.dtype) * 5 + m.w),
        w=(4, 4),
    ),
    floats(4),
)
zoo(
    "outer product", lambda: Formula(lambda m, x: torch.tanh(x[:, :, None] * m.w).sum(1), w=(4, 3)), floats(4)
)
zoo("output is a parameter", lambda: Formula(lambda m, x: m.w.expand(len(x), -1) + 0 * x, w=(3,)), floats(3))
zoo("expanded parameter as output", lambda: Formula(lambda m, x: m.w.expand(len(x), -1), w=(3,)), floats(3))
zoo(
    "repeated parameter",
    lambda: Formula(lambda m, x: torch.cat([m.w.repeat(len(x), 2), x], 1).tanh(), w=(1, 2)),
    floats(2),
)

# -- parametrizations, adapters, blocks --------------------------------------------------------------------------

_p = nn.utils.parametrizations
zoo(
    "weight norm",
    lambda: nn.Sequential(_p.weight_norm(nn.Linear(4, 5)), nn.Tanh(), _p.weight_norm(nn.Linear(5, 2))),
    floats(4),
)
zoo(
    "weight norm of a convolution",
    lambda: nn.Sequential(_p.weight_norm(nn.Conv1d(2, 3, 2)), nn.Tanh(), nn.Flatten(), nn.Linear(9, 2)),
    floats(2, 4),
)
zoo(
    "spectral norm",
    lambda: nn.Sequential(_p.spectral_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 2)),
    floats(4),
)
zoo(
    "orthogonal", lambda: nn.Sequential(_p.orthogonal(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 2)), floats(4)
)
zoo(
    "old weight norm",
    lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 2)),
    floats(4),
)


class Adapter(nn.Module):
    """A frozen layer and a low-rank correction."""

    def __init__(self, base: nn.Linear, rank: int = 2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features))
        self.b = nn.Parameter(torch.randn(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """W x + B A x / 2."""
        return self.base(x) + x @ self.a.T @ self.b.T / 2


zoo("lora", lambda: nn.Sequential(Adapter(nn.Linear(4, 5)), nn.Tanh(), Adapter(nn.Linear(5, 2))), floats(4))
zoo(
    "lora merged",
    lambda: Formula(
        lambda m, x: F.linear(x, m.f.weight + m.b @ m.a, m.f.bias).tanh(),
        f=nn.Linear(4, 3).requires_grad_(False),
        a=(2, 4),
        b=(3, 2),
    ),
    floats(4),
)
zoo(
    "residual",
    lambda: Formula(
        lambda m, x: m.c(x + m.b(F.relu(m.a(x)))), a=nn.Linear(4, 6), b=nn.Linear(6, 4), c=nn.Linear(4, 2)
    ),
    floats(4),
)
zoo(
    "residual convolutions",
    lambda: Formula(
        lambda m, x: m.c((x + m.b(F.relu(m.n(m.a(x))))).mean((2, 3))),
        a=nn.Conv2d(2, 3, 3, padding=1),
        n=nn.BatchNorm2d(3),
        b=nn.Conv2d(3, 2, 3, padding=1),
        c=nn.Linear(2, 2),
    ),
    floats(2, 4, 4),
)
zoo(
    "dense",
    lambda: Formula(lambda m, x: m.c(_dense(m, x)), a=nn.Linear(4, 3), b=nn.Linear(7, 3), c=nn.Linear(10, 2)),
    floats(4),
)
zoo(
    "gated",
    lambda: Formula(
        lambda m, x: m.c(torch.sigmoid(m.a(x)) * m.b(x)),
        a=nn.Linear(4, 5),
        b=nn.Linear(4, 5),
        c=nn.Linear(5, 2),
    ),
    floats(4),
)
zoo("glu", lambda: nn.Sequential(nn.Linear(4, 10), nn.GLU(), nn.Linear(5, 2)), floats(4))
zoo(
    "squeeze and excitation",
    lambda: Formula(
        lambda m, x: m.c((m.a(x) * torch.sigmoid(m.b(m.a(x).mean((2, 3))))[:, :, None, None]).flatten(1)),
        a=nn.Conv2d(2, 3, 2),
        b=nn.Linear(3, 3),
        c=nn.Linear(12, 2),
    ),
    floats(2, 3, 3),
)
zoo(
    "soft mixture of experts",
    lambda: Formula(
        lambda m, x: (torch.softmax(m.g(x), 1)[:, :, None] * torch.einsum("ni,eio->neo", x, m.e)).sum(1),
        g=nn.Linear(4, 3),
        e=(3, 4, 2),
    ),
    floats(4),
)


def _dense(m: Any, x: Tensor) -> Tensor:
    h = torch.cat([x, F.relu(m.a(x))], 1)
    return torch.cat([h, F.relu(m.b(h))], 1)


# -- what depends on the data ------------------------------------------------------------------------------------


def _routed(m: Any, x: Tensor) -> Tensor:
    out = x.new_zeros(len(x), 2)
    left = x[:, 0] > 0
    out[left] = m.a(x[left])
    out[~left] = torch.tanh(m.b(x[~left]))
    return out


def _routed_tokens(m: Any, x: Tensor) -> Tensor:
    out = x.new_zeros(*x.shape[:2], 2)
    some = x[:, :, 0] > 0
    out[some] = torch.tanh(m.a(x[some]))
    return out.sum(1)


def _branching(m: Any, x: Tensor) -> Tensor:
    return torch.stack([m.a(row) if row.sum() > 0 else torch.tanh(m.b(row)) for row in x])


def _expert_if_any(m: Any, x: Tensor) -> Tensor:
    # Skips an expert that no sample asks for: the numbers are those of torch.where, the graph is not.
    left = x[:, :1] > 0
    out = m.a(x)
    return torch.where(left, torch.tanh(m.b(x)), out) if left.any() else out


def _signs(*signs: int, shape: tuple[int, ...] = (4,)) -> Draw:
    """Samples whose first entries have these signs (and then chance)."""

    def draw(generator: torch.Generator, n: int) -> Tensor:
        x = torch.randn(n, *shape, generator=generator)
        flat = x.view(n, -1)
        for i, sign in enumerate(signs[:n]):
            flat[i, 0] = sign * flat[i, 0].abs()
        return x

    return draw


zoo(
    "experts by where",
    lambda: Formula(
        lambda m, x: torch.where(x[:, :1] > 0, m.a(x), torch.tanh(m.b(x))),
        a=nn.Linear(4, 2),
        b=nn.Linear(4, 2),
    ),
    floats(4),
)
zoo(
    "experts by mask",
    lambda: Formula(_routed, a=nn.Linear(4, 2), b=nn.Linear(4, 2)),
    _signs(1, -1, 1, -1, 1, -1),
)
zoo(
    "experts by mask, the second one late",
    lambda: Formula(_routed, a=nn.Linear(4, 2), b=nn.Linear(4, 2)),
    _signs(1, 1, 1, 1, 1, -1),
)
zoo("tokens by mask", lambda: Formula(_routed_tokens, a=nn.Linear(3, 2)), floats(4, 3))
zoo(
    "expert that is skipped at first",
    lambda: Formula(_expert_if_any, a=nn.Linear(4, 2), b=nn.Linear(4, 2)),
    _signs(-1, -1, -1, -1, -1, 1),
)
zoo(
    "control flow of each sample",
    lambda: Formula(_branching, a=nn.Linear(4, 2), b=nn.Linear(4, 2)),
    floats(4),
)
zoo(
    "top experts",
    lambda: Formula(
        lambda m, x: (
            (m.e[m.g(x).topk(2, 1).indices] * x[:, None, :, None]).sum((1, 2)) * m.g(x).amax(1, keepdim=True)
        ),
        g=nn.Linear(4, 3),
        e=(3, 4, 2),
    ),
    floats(4),
)
zoo(
    "parameter that reaches the output for some inputs",
    lambda: Formula(lambda m, x: m.a(x) + F.relu(x[:, :1]) * m.w, a=nn.Linear(4, 3), w=(3,)),
    _signs(-1, 1, -1, -1, -1, 1),
)
zoo(
    "parameter that never reaches the output",
    lambda: Formula(lambda m, x: m.a(x).tanh(), a=nn.Linear(4, 3), idle=(3,)),
    floats(4),
    unused=True,
)
zoo(
    "cancelled parameter",
    lambda: Formula(lambda m, x: m.a(x) + 0 * m.w, a=nn.Linear(4, 3), w=(3,)),
    floats(4),
)
zoo(
    "max over positions",
    lambda: Formula(lambda m, x: m.b(m.a(x).amax(1)), a=nn.Linear(3, 4), b=nn.Linear(4, 2)),
    floats(5, 3),
)
zoo(
    "sorted within samples",
    lambda: Formula(lambda m, x: m.b(m.a(x).sort(1).values), a=nn.Linear(3, 4), b=nn.Linear(4, 2)),
    floats(3),
)
zoo(
    "scatter",
    lambda: Formula(
        lambda m, x, i: x.new_zeros(len(x), 4).scatter_add(1, i, m.a(x)).tanh(), a=nn.Linear(3, 5)
    ),
    joined(floats(3), tokens(4, 5)),
)
zoo(
    "gather",
    lambda: Formula(lambda m, x, i: m.a(x).gather(1, i).tanh(), a=nn.Linear(3, 5)),
    joined(floats(3), tokens(5, 3)),
)
zoo(
    "last token by length",
    lambda: Formula(
        lambda m, x, i: m.b(m.a(x).tanh().cumsum(1)[torch.arange(len(i)), i]),
        a=nn.Linear(3, 4),
        b=nn.Linear(4, 2),
    ),
    joined(floats(4, 3), tokens(4)),
)
zoo(
    "fourier",
    lambda: Formula(lambda m, x: torch.fft.rfft(m.a(x)).abs().square(), a=nn.Linear(4, 5)),
    floats(4),
)
zoo(
    "spectral filter",
    lambda: Formula(
        lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * torch.complex(m.re, m.im), n=6).tanh(),
        re=(4,),
        im=(4,),
    ),
    floats(6),
)


class Cube(torch.autograd.Function):
    """x³ in the old style, which vmap does not know."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # pyright: ignore
        """x³."""
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore
        """3 x² g."""
        return 3 * ctx.saved_tensors[0] ** 2 * g


class Scale(torch.autograd.Function):
    """x * w, as a function of its own that takes a parameter."""

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:  # pyright: ignore
        """x * w."""
        return x * w

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:  # noqa: ARG004
        """Keeps both."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore
        """Both products, the second summed over what was broadcast."""
        x, w = ctx.saved_tensors
        return g * w, (g * x).sum(0)


zoo(
    "custom function",
    lambda: Formula(lambda m, x: m.b(Cube.apply(m.a(x))), a=nn.Linear(4, 3), b=nn.Linear(3, 2)),
    floats(4),
)
zoo(
    "custom function of a parameter",
    lambda: Formula(lambda m, x: Scale.apply(m.a(x).tanh(), m.w), a=nn.Linear(4, 3), w=(3,)),
    floats(4),
)
zoo(
    "checkpoint",
    lambda: Formula(
        lambda m, x: m.b(checkpoint(lambda h: torch.tanh(m.a(h)), x, use_reentrant=False)),
        a=nn.Linear(4, 5),
        b=nn.Linear(5, 2),
    ),
    floats(4),
)
zoo(
    "checkpoint in the middle",
    lambda: Formula(
        lambda m, x: m.c(
            checkpoint(nn.Sequential(m.b, nn.Tanh(), m.b), torch.tanh(m.a(x)), use_reentrant=False)
        ),
        a=nn.Linear(4, 5),
        b=nn.Linear(5, 5),
        c=nn.Linear(5, 2),
    ),
    floats(4),
)


def _force(m: Any, x: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (force,) = torch.autograd.grad(m.e(x).sum(), x, create_graph=True)
    return force


zoo(
    "gradient of an energy",
    lambda: Formula(_force, e=nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))),
    floats(3),
    unused=True,
)
zoo(
    "rotary positions",
    lambda: Formula(
        lambda m, x: (
            torch.view_as_real(
                torch.view_as_complex(m.a(x).unflatten(2, (2, 2)).contiguous())
                * torch.polar(torch.ones(3, 1, dtype=x.dtype), torch.arange(3, dtype=x.dtype)[:, None])
            )
            .flatten(2)
            .tanh()
            .sum(1)
        ),
        a=nn.Linear(3, 4),
    ),
    floats(3, 3),
)
zoo(
    "in-place accumulation",
    lambda: Formula(lambda m, x: _accumulate(m, x), a=nn.Linear(4, 3), w=(3,)),
    floats(4),
)


def _accumulate(m: Any, x: Tensor) -> Tensor:
    out = x.new_zeros(len(x), 3)
    out += m.a(x)
    out[:, 1] *= m.w[1]
    out[:, 0] = m.w[0]
    return out.tanh()


# -- whole architectures ------------------------------------------------------------------------------------------


def _convnext(m: Any, x: Tensor) -> Tensor:
    h = m.stem(x)
    block = m.b(F.gelu(m.a(m.norm(m.depthwise(h).permute(0, 2, 3, 1))))) * m.scale
    return m.head((h + block.permute(0, 3, 1, 2)).mean((2, 3)))


zoo(
    "convnext",
    lambda: Formula(
        _convnext,
        stem=nn.Conv2d(2, 4, 2, stride=2),
        depthwise=nn.Conv2d(4, 4, 3, padding=1, groups=4),
        norm=nn.LayerNorm(4),
        a=nn.Linear(4, 8),
        b=nn.Linear(8, 4),
        scale=(4,),
        head=nn.Linear(4, 3),
    ),
    floats(2, 6, 6),
)


def _shifted_windows(m: Any, x: Tensor) -> Tensor:
    x = m.embed(x)
    for shift in (0, 1):
        h = torch.roll(m.norm(x), (-shift, -shift), (1, 2)).unflatten(2, (2, 2)).unflatten(1, (2, 2))
        h = h.transpose(2, 3).reshape(-1, 4, 4)  # windows of two by two, flattened with the samples
        q, k, v = m.qkv(h).unflatten(2, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        bias = m.table[torch.arange(4)[:, None] - torch.arange(4) + 3].permute(2, 0, 1)
        h = m.out(((q @ k.mT / 2 + bias).softmax(-1) @ v).transpose(1, 2).flatten(2))
        h = h.view(len(x), 2, 2, 2, 2, 4).transpose(2, 3).reshape(x.shape)
        x = x + torch.roll(h, (shift, shift), (1, 2))
    return m.head(x.mean((1, 2)))


zoo(
    "attention in shifted windows",
    lambda: Formula(
        _shifted_windows,
        embed=nn.Linear(3, 4),
        norm=nn.LayerNorm(4, eps=0.1),  # of few entries some have little variance, and float32 loses digits
        qkv=nn.Linear(4, 12),
        out=nn.Linear(4, 4),
        table=(7, 2),
        head=nn.Linear(4, 2),
    ),
    floats(4, 4, 3),
)
zoo(
    "hypernetwork of a learned code",
    lambda: Formula(
        lambda m, x: m.head(
            torch.tanh(F.linear(x, m.weights(m.code).reshape(4, 4), m.biases(m.code).flatten()))
        ),
        code=(2, 3),
        weights=nn.Linear(3, 8),
        biases=nn.Linear(3, 2),
        head=nn.Linear(4, 2),
    ),
    floats(4),
)
zoo(
    "convolution whose weights come from the sample",
    lambda: Formula(
        lambda m, x, z: m.head(
            F.conv2d(x.reshape(1, -1, 4, 4), m.weights(z).view(-1, 2, 3, 3), groups=len(x))
            .tanh()
            .view(len(x), -1)
        ),
        weights=nn.Linear(3, 36),
        head=nn.Linear(8, 2),
    ),
    joined(floats(2, 4, 4), floats(3)),
)


def _scan(m: Any, x: Tensor) -> Tensor:
    u, gate = m.inputs(x).chunk(2, -1)
    u = F.silu(m.conv(u.mT)[..., : x.shape[1]].mT)
    b, c = m.bc(u).chunk(2, -1)
    dt, decay = F.softplus(m.dt(u)), -m.log_decay.exp()
    state, seen = x.new_zeros(len(x), *decay.shape), []
    for t in range(x.shape[1]):
        state = (
            torch.exp(dt[:, t, :, None] * decay) * state + (dt[:, t] * u[:, t])[:, :, None] * b[:, t, None]
        )
        seen.append((state * c[:, t, None]).sum(-1))
    return m.head(((torch.stack(seen, 1) + m.skip * u) * F.silu(gate)).mean(1))


zoo(
    "selective state space",
    lambda: Formula(
        _scan,
        inputs=nn.Linear(2, 6),
        conv=nn.Conv1d(3, 3, 2, groups=3, padding=1),
        bc=nn.Linear(3, 4),
        dt=nn.Linear(3, 3),
        log_decay=(3, 2),
        skip=(3,),
        head=nn.Linear(3, 2),
    ),
    floats(4, 2),
)


def _attention_by_einsum(m: Any, x: Tensor) -> Tensor:
    q, k, v = m.qkv(x).unflatten(-1, (3, 2, -1)).unbind(2)
    weights = torch.einsum("nqhd,nkhd->nhqk", q, k).softmax(-1)
    return m.head(torch.einsum("nhqk,nkhd->nqhd", weights, v).flatten(2)).mean(1)


zoo(
    "attention by einsum, another graph for one sample",
    lambda: Formula(_attention_by_einsum, qkv=nn.Linear(3, 12), head=nn.Linear(4, 2)),
    floats(5, 3),
)
zoo(
    "standardized weights",
    lambda: Formula(
        lambda m, x: (
            F.conv2d(x, (m.w - m.w.mean((1, 2, 3), True)) / m.w.std((1, 2, 3), keepdim=True))
            .tanh()
            .sum((2, 3))
        ),
        w=(3, 2, 3, 3),
    ),
    floats(2, 4, 4),
)
zoo(
    "tied convolutional autoencoder",
    lambda: Formula(
        lambda m, x: F.conv_transpose2d(F.conv2d(x, m.w).tanh(), m.w).flatten(1)[:, ::4], w=(3, 2, 3, 3)
    ),
    floats(2, 5, 5),
)
zoo(
    "fourier operator",
    lambda: Formula(
        lambda m, x: (
            torch.fft.irfft(torch.einsum("nik,iok->nok", torch.fft.rfft(x), torch.complex(m.re, m.im)), n=6)
            .tanh()
            .mean(2)
        ),
        re=(2, 3, 4),
        im=(2, 3, 4),
    ),
    floats(2, 6),
)
zoo(
    "vector quantizer",
    lambda: Formula(
        lambda m, x: _quantized(m, m.a(x)), a=nn.Linear(4, 3), book=nn.Embedding(5, 3), b=nn.Linear(3, 2)
    ),
    floats(4),
)


def _quantized(m: Any, h: Tensor) -> Tensor:
    code = m.book(torch.cdist(h, m.book.weight).argmin(1))
    return m.b(h + (code - h).detach()) + code[:, :2]  # the gradient goes straight through


def _dispatched(m: Any, x: Tensor) -> Tensor:
    n, expert = len(x), (x[:, 0] > 0).long()
    place = (F.one_hot(expert, 2).cumsum(0).gather(1, expert[:, None]) - 1)[:, 0]
    sent = x.new_zeros(n, 2, n)
    sent[torch.arange(n), expert, place] = 1
    h = torch.tanh(torch.einsum("ecd,edo->eco", torch.einsum("nec,nd->ecd", sent, x), m.w))
    return torch.einsum("nec,eco->no", sent, h)


def _added_by_index(m: Any, x: Tensor) -> Tensor:
    gate, expert = m.gate(x).softmax(1).max(1)
    out = x.new_zeros(len(x), 2)
    for e in range(3):
        rows = (expert == e).nonzero()[:, 0]
        out = out.index_add(0, rows, torch.tanh(x[rows] @ m.w[e]) * gate[rows, None])
    return out


def _sorted_by_expert(m: Any, x: Tensor) -> Tensor:
    order = (x[:, 0] > 0).long().argsort(stable=True)
    out = x.new_zeros(len(x), 2)
    out[order] = m.b(torch.tanh(m.a(x[order])))
    return out


# The samples that are looked at first (0, 1, 2, 3 and 5) stand in the order of the experts; sample 4 does not.
zoo(
    "samples sorted by expert, but not at first",
    lambda: Formula(_sorted_by_expert, a=nn.Linear(4, 3), b=nn.Linear(3, 2)),
    _signs(-1, -1, -1, 1, -1, 1),
)
zoo(
    "samples sent to experts by products, at first all to one",
    lambda: Formula(_dispatched, w=(2, 4, 2)),
    _signs(-1, -1, -1, -1, 1, -1),
)
zoo("experts added by index", lambda: Formula(_added_by_index, gate=nn.Linear(4, 3), w=(3, 4, 2)), floats(4))

# -- other batches -----------------------------------------------------------------------------------------------

zoo(
    "tuple of inputs",
    lambda: Formula(lambda m, a, b: m.a(a) * m.b(b), a=nn.Linear(3, 2), b=nn.Linear(4, 2)),
    joined(floats(3), floats(4)),
)
zoo(
    "dict with constants",
    lambda: Formula(
        lambda m, x, scale, flag, none: m.a(x) * scale if flag and none is None else m.b(x),
        a=nn.Linear(3, 2),
        b=nn.Linear(3, 2),
    ),
    named(x=floats(3), scale=2.5, flag=True, none=None),
    unused=True,
)
zoo(
    "nested batch",
    lambda: Formula(lambda m, x: m.a(x["a"][0]).tanh() + m.a(x["a"][1]), a=nn.Linear(3, 2)),
    named(a=joined(floats(3), floats(3))),
    forward=lambda m, batch: m(batch),
)
zoo(
    "integer inputs to a float network",
    lambda: Formula(lambda m, i: m.a(i.to(m.a.weight.dtype)).tanh(), a=nn.Linear(3, 2)),
    tokens(9, 3),
)
zoo(
    "forward picks outputs",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 8)),
    floats(4),
    forward=lambda m, x: m(x).log_softmax(1)[:, 2:5],
)
zoo(
    "outputs of all tokens",
    lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
    floats(3, 3),
    forward=lambda m, x: m(x).flatten(1),
)
zoo(
    "scalar output by squeeze",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)),
    floats(4),
    forward=lambda m, x: m(x).squeeze(1)[:, None],
)
zoo(
    "normalized outputs",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)),
    floats(4),
    forward=lambda m, x: m(x).softmax(1) * torch.tensor([1.0, -2.0, 3.0]),
)
