"""Never silently wrong: samples that see each other are refused."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cases import Formula, gap
from tangentkit import reference
from tangentkit.core import ModelError
from tangentkit.empirical import ConjugateKernel, EmbeddingKernel, TangentKernel

pytestmark = pytest.mark.usefixtures("forgetful")

MIXING = {
    "mean of the batch": lambda m, x: m.a(x - x.mean(0)),
    "own batch statistics": lambda m, x: F.batch_norm(m.a(x), None, None, training=True),
    "maximum of the batch": lambda m, x: m.a(x) - m.a(x).amax(0),
    "largest scalar of the batch": lambda m, x: m.a(x) * x[:, :1].max(),
    "rank in the batch": lambda m, x: m.a(x) * (1 + x[:, :1].argsort(0).argsort(0)),
    "sorting": lambda m, x: m.a(x).sort(0).values,
    "in-batch attention": lambda m, x: torch.softmax(m.a(x) @ m.a(x).T, 1) @ m.a(x),
    "nearest neighbor in the batch": lambda m, x: m.a(
        x[(torch.cdist(x, x) + 1e3 * torch.eye(len(x))).argmin(1)]
    ),
    "the first sample": lambda m, x: m.a(x) * x[0].norm(),
    "the last sample": lambda m, x: m.a(x) * x[-1].norm(),
    "the next sample": lambda m, x: m.a(x) + x.roll(-1, 0)[:, :2],
    "the size of the batch": lambda m, x: m.a(x) / len(x),
    "the norm of all outputs": lambda m, x: m.a(x) / m.a(x).norm(),
    "chance": lambda m, x: m.a(x) + torch.randn(len(x), 2, dtype=x.dtype),
    "dropout by function": lambda m, x: m.a(F.dropout(x, 0.5, training=True)),
}


@pytest.mark.parametrize("kind", MIXING)
@pytest.mark.parametrize("seed", range(4))
def test_models_that_mix_samples_are_refused(kind, seed):
    torch.manual_seed(seed)
    model = Formula(MIXING[kind], a=nn.Linear(3, 2)).double()
    kernel, x = TangentKernel(model), torch.randn(6, 3).double()
    with pytest.raises(ModelError, match="depends on the other samples of its batch"):
        kernel(x)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (5, 0, 1, 2, 3, 4)])
def test_mixing_is_seen_whichever_sample_leads(order):
    """The sample that the others depend on may stand anywhere in the batch."""
    model = Formula(lambda m, x: m.a(x) * x[:, :1].max(), a=nn.Linear(3, 2)).double()
    x = torch.randn(6, 3).double()
    x[:, 0] = torch.arange(6.0)
    with pytest.raises(ModelError, match="depends on the other samples"):
        TangentKernel(model)(x[list(order)])


@pytest.mark.parametrize("first", [1, 2, 6])
def test_mixing_that_copies_of_one_sample_do_not_show(first):
    """Among copies of itself a sample has its own mean; the next batch must be looked at all the same."""
    model = Formula(lambda m, x: m.a(x) * m.a(x).mean(0), a=nn.Linear(3, 2)).double()
    kernel, x = TangentKernel(model), torch.randn(6, 3).double()
    kernel(x[:1].repeat(first, 1))
    for later in (x, x[:2]):
        with pytest.raises(ModelError, match="depends on the other samples of its batch"):
            kernel(later)


LARGE_BATCHES = {
    "the mean of more than six": lambda m, x: m.a(x) - m.a(x).mean(0) * (len(x) > 6),
    "a look at the batch": lambda m, x: m.a(x) * (1 + torch.relu(x[:, :1].abs().max() - 9)),
}


@pytest.mark.parametrize("kind", LARGE_BATCHES)
def test_mixing_that_only_a_large_batch_shows(kind):
    model = Formula(LARGE_BATCHES[kind], a=nn.Linear(3, 2)).double()
    x = torch.randn(20, 3).double()
    x[7, 0] = 10
    for ask in (
        lambda k: k(x),
        lambda k: k(x[:2], x),
        lambda k: k.diag(x),
        lambda k: k.by_parameter(x),
        lambda k: k.product(x, torch.ones(20, 2).double()),
    ):
        with pytest.raises(ModelError, match="other outputs in a batch of 20 than in one of 4"):
            ask(TangentKernel(model))


def test_batch_norm_without_running_statistics_is_refused_in_evaluation_too():
    model = (
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2))
        .double()
        .eval()
    )
    with pytest.raises(ModelError, match="depends on the other samples of its batch"):
        TangentKernel(model)(torch.randn(6, 3).double())


def test_diag_plan_product_and_parameters_refuse_too():
    model = Formula(MIXING["mean of the batch"], a=nn.Linear(3, 2)).double()
    x = torch.randn(6, 3).double()
    for ask in (
        lambda k: k.diag(x),
        lambda k: k.plan(x),
        lambda k: k.by_parameter(x),
        lambda k: k.product(x, torch.ones(6, 2).double()),
    ):
        with pytest.raises(ModelError, match="depends on the other samples"):
            ask(TangentKernel(model))


def test_repeating_the_question_refuses_again():
    model = Formula(MIXING["mean of the batch"], a=nn.Linear(3, 2)).double()
    kernel, x = TangentKernel(model), torch.randn(6, 3).double()
    for _ in range(2):
        with pytest.raises(ModelError, match="depends on the other samples"):
            kernel(x)


# -- half precision, where rounding alone changes outputs by percents ---------------------------------------------

KINDS = [TangentKernel, ConjugateKernel, EmbeddingKernel]
halves = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])


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


MIXING_LITTLE = {
    "own batch statistics": lambda m, x: m.b(F.batch_norm(m.a(x), None, None, training=True)),
    "a little of the mean": lambda m, x: m.b(m.a(x) + 1e-3 * m.a(x).mean(0)),
    "the largest sample": lambda m, x: m.b(m.a(x) * (1 + 1e-3 * x.abs().amax())),
    "the next sample": lambda m, x: m.b(m.a(x) + 1e-3 * m.a(x).roll(1, 0)),
}


@halves
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mixing", MIXING_LITTLE)
def test_models_that_mix_samples_are_refused_in_half_precision(kind, mixing, dtype):
    """Some mix less than the rounding of their outputs."""
    model = Formula(MIXING_LITTLE[mixing], a=nn.Linear(4, 5), b=nn.Linear(5, 3)).to(dtype)
    with pytest.raises(ModelError, match="depends on the other samples of its batch"):
        kind(model)(torch.randn(6, 4).to(dtype))


@halves
def test_batch_norm_without_running_statistics_is_refused_in_half_precision(dtype):
    model = deep(nn.BatchNorm1d(16, track_running_stats=False)).eval().to(dtype)
    with pytest.raises(ModelError, match="depends on the other samples of its batch"):
        TangentKernel(model)(torch.randn(6, 4).to(dtype))


@halves
def test_mixing_that_only_a_large_batch_shows_in_half_precision(dtype):
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
