"""What has no infinite-width limit is named."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from infinite.other_words import SCALES, Net, X, gap
from tangentkit.core.errors import InputError, ModelError, UnknownNameError
from tangentkit.infinite import InfiniteKernel, Pointwise


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)

    def forward(self, x):
        return self.a(x) if x.sum() > 0 else self.a(-x)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)

    def forward(self, x, y):
        return self.a(x) + y


def test_modules_that_cannot_be_traced_are_refused_at_once():
    with pytest.raises(ModelError, match=r"torch.fx cannot trace.*MonteCarloKernel"):
        InfiniteKernel(Branching())
    with pytest.raises(ModelError, match=r"one tensor.*x, y"):
        InfiniteKernel(TwoInputs())
    with pytest.raises(ModelError, match="training mode"):
        InfiniteKernel(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)))
    hooked = nn.Sequential(nn.Linear(3, 3))
    hooked[0].register_forward_hook(lambda *args: args[-1] * 2)
    with pytest.raises(ModelError, match="'0' has forward hooks"):
        InfiniteKernel(hooked)
    normed = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))
    with pytest.raises(ModelError, match="parametrization"):
        InfiniteKernel(normed)
    with pytest.raises(InputError, match="a torch module"):
        InfiniteKernel(torch.relu)  # pyright: ignore


def mixed(m, x):
    h = m.c1(x).relu()
    return m.head((h + m.c2(h).relu()).mean((2, 3)))


def gated(m, x):
    return m.head((m.c1(x) * torch.sigmoid(m.other(x))).mean((2, 3)))


def shortcut(m, x):
    h = m.c1(x).relu()
    return m.head((h + m.c2(h)).relu().mean((2, 3)))


def squeezed(m, x):
    h = m.c1(x).relu()
    return m.head((h * h.mean((2, 3), keepdim=True)).mean((2, 3)))


def correlated(m, x):
    h = m.c1(x)
    return m.head((h + F.avg_pool2d(h, 3, stride=1, padding=1)).relu().mean((2, 3)))


REFUSED = {
    "MaxPool2d 'pool'.*maximum": (
        lambda m, x: m.head(m.pool(m.c1(x)).mean((2, 3))),
        {"pool": nn.MaxPool2d(2)},
    ),
    "max_pool2d.*maximum": (lambda m, x: m.head(F.max_pool2d(m.c1(x), 6).flatten(1)), {}),
    "InstanceNorm2d 'norm'.*single channels": (
        lambda m, x: m.head(m.norm(m.c1(x)).mean((2, 3))),
        {"norm": nn.InstanceNorm2d(8)},
    ),
    "Conv2d 'part'.*groups": (
        lambda m, x: m.head(m.part(m.c1(x)).mean((2, 3))),
        {"part": nn.Conv2d(8, 8, 3, groups=2)},
    ),
    "Conv2d 'c2'.*used twice": (lambda m, x: m.head(m.c2(m.c2(m.c1(x)).relu()).mean((2, 3))), {}),
    "add.*nonlinear functions": (mixed, {}),
    "mul.*products": (gated, {"other": nn.Conv2d(3, 8, 3, padding=1)}),
    "relu.*a nonlinear function itself.*shortcut": (shortcut, {}),
    "mul.*products of branches": (squeezed, {}),
    "add.*'c1'.*correlated": (correlated, {}),
    "relu.*not Gaussian": (lambda m, x: m.head(m.c1(x).relu().mean((2, 3)).relu()), {}),
    "softmax.*mixes": (lambda m, x: torch.softmax(gap(m, x), 1), {}),
    "add.*shifts its mean": (lambda m, x: m.head(m.c1(x).relu().mean((2, 3)) + 1.0), {}),
    "sum.*over channels": (lambda m, x: m.head(m.c1(x).sum(1).flatten(1)), {"features": 36}),
    "mean.*channels": (lambda m, x: m.head(m.c1(x).mean(1).flatten(1)), {"features": 36}),
    "'mix'.*not the channels": (
        lambda m, x: m.head(m.mix(m.c1(x).relu()).mean((2, 3))),
        {"mix": nn.Linear(6, 6)},
    ),
    "ConvTranspose2d 'up'": (
        lambda m, x: m.head(m.up(m.c1(x)).mean((2, 3))),
        {"up": nn.ConvTranspose2d(8, 8, 2)},
    ),
    "parameter 'gain'.*trained": (
        lambda m, x: m.head((m.gain * m.c1(x)).mean((2, 3))),
        {"gain": nn.Parameter(torch.ones(()))},
    ),
    "view.*pieces": (lambda m, x: m.head(m.c1(x).view(-1, 2, 4, 36).mean(3).flatten(1)), {}),
    "reshape.*samples": (lambda m, x: m.head(m.c1(x).reshape(-1, 8, 36).transpose(1, 2).reshape(-1, 8)), {}),
    "cumsum": (lambda m, x: m.head(m.c1(x).cumsum(2).mean((2, 3))), {}),
    "Embedding 'look'.*lookups": (
        lambda m, x: m.head(m.look((x[:, 0, 0, 0] > 0).long())),
        {"look": nn.Embedding(4, 8)},
    ),
    "truediv.*number of samples": (lambda m, x: gap(m, x) / x.shape[0], {}),
    "LSTM 'lstm'": (
        lambda m, x: m.head(m.lstm(m.c1(x).flatten(2))[0].mean(1)),
        {"lstm": nn.LSTM(36, 8, batch_first=True)},
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_has_no_limit_is_named(words):
    forward, options = REFUSED[words]
    with pytest.raises(ModelError, match=words) as caught:
        InfiniteKernel(Net(forward, **options), **SCALES)(X)
    assert "MonteCarloKernel" in str(caught.value)


def test_a_product_can_be_declared_a_scalar_function():
    class Swish(nn.Module):
        dual = Pointwise(F.silu)

        def forward(self, x):
            return x * torch.sigmoid(x)

    x = torch.randn(4, 5, dtype=torch.float64)
    declared, known = (
        InfiniteKernel(nn.Sequential(nn.Linear(5, 8), act, nn.Linear(8, 1)))(x)
        for act in (Swish(), nn.SiLU())
    )
    torch.testing.assert_close(declared, known)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda m, x: m.c1(x), "bad output shape.*n, 8, 6, 6.*head"),
        (lambda m, x: (gap(m, x), gap(m, x)), "used twice|one tensor"),
        (lambda m, x: (m.c1(x), m.c2(m.c1(x))), "used twice|one tensor"),
        (lambda _, x: x.mean((2, 3)), "no linear or convolutional layer"),
    ],
)
def test_outputs_that_are_not_vectors(forward, words):
    with pytest.raises(ModelError, match=words):
        InfiniteKernel(Net(forward))(X)


def test_samples_that_see_each_other_are_refused():
    with pytest.raises(ModelError, match="other samples"):
        InfiniteKernel(Net(lambda m, x: gap(m, x - x.mean(0))))(X)
    with pytest.raises(ModelError, match="one output for each sample"):
        InfiniteKernel(Net(lambda m, x: gap(m, x)[:2]))(X)


def test_an_output_of_one_number_may_have_no_axis():
    model = Net(lambda m, x: m.one(m.c1(x).relu().flatten(1)).squeeze(-1), one=nn.Linear(8 * 36, 1))
    flat = Net(lambda m, x: m.one(m.c1(x).relu().flatten(1)), one=nn.Linear(8 * 36, 1))
    torch.testing.assert_close(InfiniteKernel(model)(X), InfiniteKernel(flat)(X))


def test_tied_layers_are_refused():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    with pytest.raises(ModelError, match=r"Linear '2'.*used twice.*'0'"):
        InfiniteKernel(model)(torch.randn(2, 4))


def test_bad_inputs_are_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))
    kernel = InfiniteKernel(model)
    x = torch.randn(3, 3, 4)
    with pytest.raises(InputError, match=r"'1' does not.*got float32 \(n, 15\), made of float32 \(3, 3, 5\)"):
        kernel(torch.randn(3, 3, 5))
    with pytest.raises(InputError, match="do not match"):
        kernel(x, torch.randn(3, 4, 3))
    with pytest.raises(InputError, match="do not match"):
        kernel(x, x.double())
    with pytest.raises(InputError, match="empty"):
        kernel(x[:0])
    with pytest.raises(InputError, match="empty"):
        kernel(x, x[:0])
    with pytest.raises(InputError, match=r"not finite.*samples \[1\]"):
        kernel(torch.where(torch.arange(3)[:, None, None] == 1, torch.nan, x))
    with pytest.raises(InputError, match="float32 or float64"):
        kernel(x.half())
    with pytest.raises(InputError, match="one tensor"):
        kernel({"x": x})
    with pytest.raises(
        InputError, match=r"expected float32 .*made of int64 \(3, 3, 4\). Try: x.to\(torch.float32\)"
    ):
        kernel(torch.ones(3, 3, 4, dtype=torch.int64))
    images = InfiniteKernel(Net(gap))
    with pytest.raises(
        InputError, match=r"'c1' does not.*expected \(n, 3, height, width\), got float32 \(2, 4, 6, 6\)"
    ):
        images(torch.randn(2, 4, 6, 6))
    with pytest.raises(InputError, match=r"expected \(n, 3, height, width\), got float32 \(2, 3, 6\)"):
        images(torch.randn(2, 3, 6))
    with pytest.raises(InputError, match="do not match"):
        images(torch.randn(2, 3, 6, 6), torch.randn(2, 3, 8, 8))


@pytest.mark.parametrize(
    "options",
    [
        {"w_std": -1.0},
        {"b_std": float("nan")},
        {"w_std": {"0": -0.1}},
        {"kind": "ntk!"},
        {"parameterization": "mup"},
    ],
)
def test_bad_options_are_refused(options):
    with pytest.raises(InputError):
        InfiniteKernel(nn.Sequential(nn.Linear(3, 1)), **options)


def test_unknown_layer_names():
    with pytest.raises(UnknownNameError, match="'head'"):
        InfiniteKernel(nn.Sequential(nn.Linear(3, 1)), w_std={"head": 1.0})


def test_a_module_that_is_a_layer_itself():
    x = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(InfiniteKernel(nn.Linear(3, 2), w_std={"": 2.0})(x), 4 * x @ x.T / 3)


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.attention, self.b = nn.Linear(4, 8), nn.MultiheadAttention(8, 2), nn.Linear(8, 1)

    def forward(self, x):
        h = self.a(x)
        return self.b(self.attention(h, h, h)[0].mean(1))


class Counting(nn.Module):
    def forward(self, x):
        return x.view(len(x), -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_modules_that_hold_layers_of_their_own_are_named(dtype):
    with pytest.raises(
        ModelError, match=r"MultiheadAttention 'attention' has no infinite-width limit.*softmax"
    ):
        InfiniteKernel(Attending())(torch.ones(2, 5, 4, dtype=dtype))
    encoder = nn.Sequential(
        nn.Linear(4, 8),
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 1),
        nn.Linear(8, 1),
    )
    for p in encoder[1].parameters():
        p.requires_grad_(False)
    with pytest.raises(ModelError, match=r"TransformerEncoder '1' has no infinite-width limit"):
        InfiniteKernel(encoder.eval())(torch.ones(2, 5, 4, dtype=dtype))


def test_the_length_of_a_tensor_is_its_shape():
    with pytest.raises(
        ModelError, match=r"torch.fx cannot trace.*'len' is not.*Try: x.shape\[0\] for len\(x\)"
    ):
        InfiniteKernel(Counting())


def test_images_too_small_are_refused_for_their_size_and_not_for_their_precision():
    net = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 5), nn.Flatten(), nn.Linear(8, 1))
    with pytest.raises(
        InputError, match=r"Conv2d '2' does not take.*expected at least 5 x 5.*float64 \(n, 8, 4, 4\)"
    ):
        InfiniteKernel(net)(torch.ones(3, 2, 6, 6).double())
