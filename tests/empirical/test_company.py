"""Samples that see each other in half precision, where rounding alone changes outputs by percents."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cases import Formula, gap
from tangentkit import reference
from tangentkit.core import ModelError
from tangentkit.empirical import ConjugateKernel, EmbeddingKernel, TangentKernel, verification

KINDS = [TangentKernel, ConjugateKernel, EmbeddingKernel]
halves = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    """A process that has seen no model yet."""
    monkeypatch.setattr(verification, "_verdicts", {})


def deep(*extra):
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), *extra, nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 3))


@halves
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "extra", [(), (nn.LayerNorm(16),), (nn.BatchNorm1d(16),)], ids=["plain", "layer", "batch"]
)
def test_models_that_keep_samples_apart_pass(kind, extra, dtype):
    model = deep(*extra).eval().to(dtype)
    x = torch.randn(40, 4).to(dtype)
    found = kind(model)(x)
    assert found.dtype == dtype
    if kind is TangentKernel:
        jacobian = reference.jacobian(model, x)
        assert gap(found, reference.trace_kernel(jacobian, jacobian)) <= 10 * torch.finfo(dtype).eps


MIXING = {
    "own batch statistics": lambda m, x: m.b(F.batch_norm(m.a(x), None, None, training=True)),
    "a little of the mean": lambda m, x: m.b(m.a(x) + 1e-3 * m.a(x).mean(0)),
    "the largest sample": lambda m, x: m.b(m.a(x) * (1 + 1e-3 * x.abs().amax())),
    "the next sample": lambda m, x: m.b(m.a(x) + 1e-3 * m.a(x).roll(1, 0)),
}


@halves
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mixing", MIXING)
def test_models_that_mix_samples_are_refused(kind, mixing, dtype):
    """Some mix less than the rounding of their outputs."""
    model = Formula(MIXING[mixing], a=nn.Linear(4, 5), b=nn.Linear(5, 3)).to(dtype)
    with pytest.raises(ModelError, match="depends on the other samples of its batch"):
        kind(model)(torch.randn(6, 4).to(dtype))


@halves
def test_batch_norm_without_running_statistics_is_refused(dtype):
    model = deep(nn.BatchNorm1d(16, track_running_stats=False)).eval().to(dtype)
    with pytest.raises(ModelError, match="depends on the other samples of its batch"):
        TangentKernel(model)(torch.randn(6, 4).to(dtype))


@halves
def test_mixing_that_only_a_large_batch_shows(dtype):
    model = Formula(lambda m, x: m.a(x) - 0.01 * m.a(x).mean(0) * (len(x) > 6), a=nn.Linear(4, 3)).to(dtype)
    x = torch.randn(20, 4).to(dtype)
    with pytest.raises(ModelError, match="other outputs in a batch of 20 than in one of 4"):
        TangentKernel(model)(x)


@halves
@pytest.mark.parametrize("kind", KINDS)
def test_code_that_insists_on_half_precision(kind, dtype):
    """No copy in single precision can be run: outputs are compared as they are."""
    x = torch.randn(6, 4).to(dtype)
    kind(deep().to(dtype), forward=lambda m, x: m(x.to(dtype)))(x)
    with pytest.raises(ModelError, match="depends on the other samples of its batch"):
        kind(deep().to(dtype), forward=lambda m, x: m((x - x.mean(0)).to(dtype)))(x)
