"""Where the head of a model is found in its code, and where there is none."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cases import Formula, gap
from tangentkit.core import ModelError
from tangentkit.empirical import ConjugateKernel, TangentKernel

X, Y = (torch.randn(n, 4, generator=torch.Generator().manual_seed(n)).double() for n in (6, 3))


HEADS = {
    "linear": lambda m, h: F.linear(h, m.w, m.c),
    "product": lambda m, h: h @ m.w.T,
    "einsum": lambda m, h: torch.einsum("nd,cd->nc", h, m.w),
    "from the left": lambda m, h: (m.w @ h.T).T + m.c,
    "normalized weight": lambda m, h: h @ F.normalize(m.w, dim=1).T,
    "then a softmax": lambda m, h: F.linear(h, m.w).log_softmax(1),
    "then a mask": lambda m, h: F.linear(h, m.w).masked_fill(h[:, :1] > 0, 0.0),
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("body", [nn.Linear(4, 5), nn.Identity()], ids=["after a layer", "alone"])
def test_a_head_that_is_no_module_is_found(head, body):
    width = 5 if isinstance(body, nn.Linear) else 4
    model = Formula(
        lambda m, x: HEADS[head](m, torch.tanh(m.body(x))), body=body, w=(2, width), c=(2,)
    ).double()
    hx, hy = (torch.tanh(model.body(batch)).detach() for batch in (X, Y))
    kernel = ConjugateKernel(model)
    assert gap(kernel.features(X), hx) <= 1e-14
    assert gap(kernel(X, Y), hx @ hy.T) <= 1e-14
    assert gap(ConjugateKernel(model, bias=True)(X), hx @ hx.T + 1) <= 1e-14
    assert gap(kernel(X[:1]), hx[:1] @ hx[:1].T) <= 1e-14


MIXES = {
    "bmm": ("Bmm", (5, 2), lambda m, h: torch.bmm(h[:, None], m.w.expand(len(h), 5, 2))[:, 0]),
    "a sum of products": ("Mul", (5, 2), lambda m, h: (h[..., None] * m.w).sum(1)),
    "one sum of products": ("Mul", (5,), lambda m, h: (h * m.w).sum(1, keepdim=True)),
    "a mean of products": ("Mul", (5,), lambda m, h: (h * m.w).mean(-1, keepdim=True)),
    "a convolution": ("Convolution", (2, 5, 1), lambda m, h: F.conv1d(h[..., None], m.w)[..., 0]),
    "cosines": ("Mul", (2, 5), lambda m, h: F.cosine_similarity(h[:, None], m.w, dim=2)),
    "distances": ("Cdist", (2, 5), lambda m, h: torch.cdist(h, m.w)),
}


@pytest.mark.parametrize("mix", MIXES)
def test_a_head_of_another_kind_is_refused_and_no_earlier_layer_taken(mix):
    name, shape, head = MIXES[mix]
    model = Formula(lambda m, x: head(m, torch.tanh(m.body(x))), body=nn.Linear(4, 5), w=shape).double()
    with pytest.raises(ModelError, match=rf"got {name} with a weight, after layer 'body'. Try: layer="):
        ConjugateKernel(model)(X)
    assert torch.equal(ConjugateKernel(model, layer="body").features(X), X)


SCALES = {
    "temperature": ((1,), lambda m, h: h * m.w.exp()),
    "scale and shift": ((5,), lambda m, h: h * m.w + m.w),
    "norm": ((5,), lambda m, h: F.layer_norm(h, (5,), m.w)),
    "one more class": ((1,), lambda m, h: torch.cat([h, m.w.expand(len(h), 1)], 1)),
    "a mean over positions": ((5,), lambda m, h: (h[:, None] * m.w).expand(-1, 3, -1).mean(1)),
    "shift, summed": ((5,), lambda m, h: (h + m.w).sum(1, keepdim=True)),
    "activation": ((5,), lambda m, h: F.prelu(h, m.w)),
}


@pytest.mark.parametrize("scale", SCALES)
def test_weights_that_only_shift_or_scale_are_no_head(scale):
    shape, after = SCALES[scale]
    model = Formula(lambda m, x: after(m, m.head(torch.tanh(m.body(x)))), w=shape)
    model.body, model.head = nn.Linear(4, 3), nn.Linear(3, 5)
    model.double()
    assert ConjugateKernel(model).layer_of(X) == "head"
    assert gap(ConjugateKernel(model).features(X), torch.tanh(model.body(X)).detach()) <= 1e-14


def test_the_last_layer_of_two_inputs_is_the_product_of_both():
    model = Formula(lambda m, x: m.f(x.tanh(), x.square()), f=nn.Bilinear(4, 4, 1)).double()
    expected = (X.tanh()[:, :, None] * X.square()[:, None]).flatten(1)
    assert gap(ConjugateKernel(model)(X), expected @ expected.T) <= 1e-14
    assert gap(ConjugateKernel(model)(X), TangentKernel(model, params=["f.weight"])(X)) <= 1e-14


def test_a_head_on_tokens_with_the_sequence_first():
    model = Formula(
        lambda m, x: (torch.tanh(m.a(x.transpose(0, 1))) @ m.w).sum(0), a=nn.Linear(4, 5), w=(5, 2)
    ).double()
    x = torch.randn(6, 3, 4).double()
    h = torch.tanh(model.a(x)).flatten(1).detach()
    assert gap(ConjugateKernel(model)(x), h @ h.T) <= 1e-14


def test_the_output_projection_of_attention_is_a_head():
    """Its module is never called: attention multiplies by its weight."""
    model = Formula(
        lambda m, x: m.t(m.e(x), m.e(x), m.e(x))[0].sum(1),
        e=nn.Linear(4, 4),
        t=nn.MultiheadAttention(4, 1, batch_first=True),
    )
    model = model.double()
    x = torch.randn(6, 3, 4).double()
    q, k, v = F.linear(model.e(x), model.t.in_proj_weight, model.t.in_proj_bias).chunk(3, 2)
    h = (torch.softmax(q @ k.mT / 2, 2) @ v).flatten(1).detach()
    assert gap(ConjugateKernel(model)(x), h @ h.T) <= 1e-12
