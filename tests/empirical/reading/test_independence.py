"""Never silently wrong: samples that see each other are refused."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cases import Formula, gap
from tangentkit import reference
from tangentkit.core import ModelError
from tangentkit.core.model.functions import snapshot
from tangentkit.empirical import ConjugateKernel, EmbeddingKernel, TangentKernel
from tangentkit.empirical.reading.sample_moves import watch_samples
from tangentkit.empirical.trust.profiles import UnusedParameterWarning
from tangentkit.sketch import SketchedTangentKernel

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
        with pytest.raises(ModelError, match=r"other outputs in a batch of 20 than (alone|in one of 4)"):
            ask(TangentKernel(model))


def with_capacity(room):
    """Each sample goes to one expert, which takes so many and drops those that come later."""

    def formula(m, x):
        weight, expert = m.gate(x).softmax(1).max(1)
        mine = F.one_hot(expert, 3)
        place = ((mine.cumsum(0) - 1) * mine).sum(1)
        each = torch.tanh(torch.einsum("nd,edo->neo", x, m.w))
        return (each * mine[:, :, None]).sum(1) * (weight * (place < room))[:, None]

    return formula


@pytest.mark.parametrize("room", [24])
def test_experts_that_drop_samples_are_refused_whichever_they_drop(room):
    """Those that are dropped may be any of 60; a batch of which none is dropped has its kernel."""
    outcomes = set()
    for seed in range(12):
        torch.manual_seed(seed)
        model, x = (
            Formula(with_capacity(room), gate=nn.Linear(4, 3), w=(3, 4, 2)).double(),
            torch.randn(60, 4).double(),
        )
        drops = bool(model.gate(x).argmax(1).bincount().max() > room)
        outcomes.add(drops)
        if drops:
            with pytest.raises(ModelError, match="depends on the other samples of its batch"):
                TangentKernel(model)(x)
        else:
            jacobian = reference.jacobian(model, x)
            assert gap(TangentKernel(model)(x), reference.trace_kernel(jacobian, jacobian)) <= 1e-10
    assert outcomes == {True, False}


def shifted(m, x, steps):
    return m.b(m.a(x.roll(steps, 0)).tanh()).roll(-steps, 0)


SHIFTS = {
    "a number": lambda x: int((x[:, 0] > 1.5).sum()),
    "a list": lambda x: (x[:, 0] > 1.5).sum(0, keepdim=True).tolist()[0],
    "an array": lambda x: int((x[:, 0] > 1.5).numpy().sum()),
    "yes or no": lambda x: 2 if (x[:, 0] > 1.5).any() else 0,
}


@pytest.mark.parametrize("kind", SHIFTS)
def test_samples_that_are_shifted_by_what_is_in_them(kind):
    """The first batch is not shifted at all, later ones are, and back again: the kernel is that of single samples."""
    model = Formula(
        lambda m, x: shifted(m, x, SHIFTS[kind](x)), a=nn.Linear(3, 4), b=nn.Linear(4, 2)
    ).double()
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)).double().clamp(max=1)
    kernel = TangentKernel(model)
    for large in ([], [3], [0, 7], [4]):
        batch = x.clone()
        batch[large, 0] = 2
        jacobian = reference.jacobian(model, batch)
        assert gap(kernel(batch), reference.trace_kernel(jacobian, jacobian)) <= 1e-10


ACROSS = {
    "sum": lambda x: x - x.sum(0),
    "softmax": lambda x: x.softmax(0),
    "order": lambda x: x[x[:, 0].argsort()],
    "largest": lambda x: x * (x >= x.topk(1, 0).values),
    "running sum": lambda x: x.cumsum(0),
    "reversed": lambda x: x.flip(0),
    "spectrum": lambda x: torch.fft.fft(x, dim=0).abs(),
    "picked": lambda x: x.gather(0, (x > 0).long()),
    "put": lambda x: torch.zeros_like(x).scatter_add(0, (x > 0).long(), x),
    "added by index": lambda x: torch.zeros_like(x).index_add(0, (x[:, 0] > 0).long(), x),
    "quantile": lambda x: x * (x <= x.quantile(0.9, 0)),
    "products of samples": lambda x: torch.einsum("id,jd->ij", x, x) @ x,
    "by mask": lambda x: torch.zeros_like(x).masked_scatter(x > 0, x),
    "neighbor": lambda x: torch.cat([x[1:], x[:1]]),
    "first": lambda x: x + x[0],
    "picked by numbers that were changed": lambda x: x[torch.arange(len(x)) % 8],
    "picked by numbers that were changed in place": lambda x: x[torch.arange(len(x)).clamp_(max=7)],
    "picked by numbers backwards": lambda x: x[torch.arange(len(x) - 1, -1, -1)],
    "multiplied by numbers": lambda x: x * torch.arange(len(x))[:, None],
    "added by place": lambda x: x + torch.linspace(0, 1, 50).double()[torch.arange(len(x)), None],
    "largest number": lambda x: x / float(x.max()),
}
APART = {
    "picked by place": lambda x: x[torch.arange(len(x)), (x[:, 0] > 0).long()][:, None],
    "a mask looked up by sample and token": lambda x: (
        x * (x > 0)[torch.arange(len(x))[:, None, None], torch.arange(4)[None, None, :]][:, 0]
    ),
    "sum of features": lambda x: x - x.sum(1, keepdim=True),
    "order of features": lambda x: x.sort(1).values,
    "transposed and back": lambda x: (x.T * 2).T.softmax(1),
    "written columns": lambda x: torch.zeros(len(x), 6).double().index_copy(1, torch.arange(4), x).roll(1, 1),
    "tokens and samples in one axis": lambda x: (x.reshape(-1, 2) @ torch.ones(2, 3).double()).view(
        len(x), -1
    ),
    "a slice that is written": lambda x: F.pad(x, (1, 1)).index_fill(1, torch.tensor([2]), 0),
    "gradients of an energy": lambda x: torch.autograd.grad(x.requires_grad_().pow(3).sum(), x)[0],
}


@pytest.mark.parametrize("kind", [*ACROSS, *APART])
def test_operations_are_known_by_what_they_do_to_samples(kind):
    function = snapshot(Formula(lambda m, x: (ACROSS | APART)[kind](x) * m.w, w=(1,)).double())
    batch = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).double()
    assert watch_samples(function, batch).mixes == (kind in ACROSS)


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
    with pytest.raises(ModelError, match=r"other outputs in a batch of 20 than (alone|in one of 4)"):
        TangentKernel(model)(x)


@halves
@pytest.mark.parametrize("kind", KINDS)
def test_code_that_insists_on_half_precision(kind, dtype):
    """No copy in single precision can be run: outputs are compared as they are."""
    x = torch.randn(6, 4).to(dtype)
    kind(deep().to(dtype), forward=lambda m, x: m(x.to(dtype)))(x)
    with pytest.raises(ModelError, match="depends on the other samples of its batch"):
        kind(deep().to(dtype), forward=lambda m, x: m((x - x.mean(0)).to(dtype)))(x)


def doubled(dtype):
    """Two equal halves of opposite signs, as theory starts its networks: outputs are rounding and nothing else."""
    torch.manual_seed(0)
    a, v = (torch.randn(64, size, dtype=dtype) for size in (50, 3))
    a, v = nn.Parameter(a.repeat(2, 1)), nn.Parameter(torch.cat([v, -v]))
    return Formula(lambda m, x: torch.relu(x @ m.a.T) @ m.v, a=a, v=v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_that_cancel_are_rounding_and_no_batch_dependence(dtype):
    model, x = doubled(dtype), torch.randn(30, 50, dtype=dtype)
    assert model(x).abs().max() < 1e3 * torch.finfo(dtype).eps * model.v.abs().max() * 50
    J = reference.jacobian(model, x)
    assert gap(TangentKernel(model)(x), reference.trace_kernel(J, J)) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_samples_see_of_each_other_is_seen_where_outputs_cancel(dtype):
    model, x = doubled(dtype), torch.randn(30, 50, dtype=dtype)
    mixing = Formula(lambda m, x: m.inner(x) + 1e-3 * m.inner.v[:1] * x.mean(), inner=model)
    with pytest.raises(ModelError, match="depends on the other samples"):
        TangentKernel(mixing)(x)


@pytest.mark.parametrize(
    "kernel", [TangentKernel, lambda model: SketchedTangentKernel(model, 64)], ids=["exact", "sketched"]
)
def test_experts_that_only_later_samples_call_are_not_said_to_be_unused(kernel):
    def routed(m, x):
        mine = (x[:, 0] > 0).nonzero()[:, 0]
        return m.a(x).index_add(0, mine, m.expert(x[mine])) if len(mine) else m.a(x)

    model = Formula(routed, a=nn.Linear(3, 2), expert=nn.Linear(3, 2)).double()
    x = torch.randn(9, 3).double()
    x[:, 0] = -1.0
    x[3, 0] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(model)(x)
    with pytest.warns(UnusedParameterWarning, match="2 parameter.*expert.weight"):
        kernel(model)(x[4:])
