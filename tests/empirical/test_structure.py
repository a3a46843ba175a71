"""Never silently wrong: graphs that change with the data."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from cases import CASES, Formula, expected, gap
from tangentkit import reference
from tangentkit.empirical import TangentKernel
from tangentkit.empirical.reading.graph import walk

pytestmark = pytest.mark.filterwarnings("ignore:.*do not reach the output")


def truth(model, x, y=None, **keywords):
    jx = reference.jacobian(model, x, **keywords)
    return reference.trace_kernel(jx, jx if y is None else reference.jacobian(model, y, **keywords))


def test_rows_by_mask_that_happen_to_be_one_for_each_sample():
    """A layer on selected tokens: one of each sample at first, then none and two, so the count of rows fits still."""

    def formula(m, x):
        chosen = x[:, :, 0] > 0
        rows = torch.tanh(m.a(x[chosen]))
        return x.new_zeros(*x.shape[:2], 2).index_put((chosen,), rows).sum(1)

    model = Formula(formula, a=nn.Linear(3, 2)).double()
    x = torch.randn(8, 2, 3).double()
    x[:, :, 0] = x[:, :, 0].abs() * torch.tensor([1.0, -1.0])
    x[5, :, 0] = -1  # no token
    x[6, :, 0] = 1  # both tokens
    assert gap(TangentKernel(model)(x), truth(model, x)) <= 1e-10
    assert gap(TangentKernel(model)(x[:5], x), truth(model, x[:5], x)) <= 1e-10


def test_counts_of_rows_that_change():
    def formula(m, x):
        chosen = x[:, 0] > 0
        return x.new_zeros(len(x), 2).index_put((chosen,), torch.tanh(m.a(x[chosen])))

    model = Formula(formula, a=nn.Linear(3, 2)).double()
    x = torch.randn(8, 3).double()
    x[:, 0] = x[:, 0].abs()
    x[6:, 0] *= -1
    assert gap(TangentKernel(model)(x), truth(model, x)) <= 1e-10
    kernel = TangentKernel(model)
    kernel(x[:6])
    assert gap(kernel(x[:6], x), truth(model, x[:6], x)) <= 1e-10
    assert gap(kernel.diag(x), truth(model, x).diagonal()) <= 1e-10


def test_a_gate_that_is_closed_for_the_first_samples():
    """No gradient reaches the layer at first: the order of its rows cannot be seen, and must not be guessed."""

    def formula(m, x):
        gate = F.relu(x[:, 0, :1])
        return m.b(x[:, 0]) + gate * torch.tanh(m.a(x.transpose(0, 1).contiguous())).mean(0)

    model = Formula(formula, a=nn.Linear(3, 2), b=nn.Linear(3, 2)).double()
    x = torch.randn(8, 4, 3).double()
    x[:, 0, 0] = x[:, 0, 0].abs() * torch.tensor([-1, -1, -1, -1, -1, 1, 1, 1])
    assert gap(TangentKernel(model)(x), truth(model, x)) <= 1e-10


def test_dead_units_that_hide_the_order_of_rows():
    """Rows in sample-minor order; a sample without gradient among the first lets another order fit, too.

    Seen first with samples that tell the orders apart: the verdict on that layout says nothing of a later guess.
    """
    model = Formula(
        lambda m, x: m.b(F.relu(m.a(x.transpose(0, 1).contiguous()))[-1]),
        a=nn.Linear(3, 4),
        b=nn.Linear(4, 2),
    ).double()
    with torch.no_grad():
        model.a.weight[:, 0] = 5
    alive, dead = torch.tensor([True] * 6), torch.tensor([False, False, True, True, True, True])
    x = torch.randn(6, 3, 3).double()
    for living in (alive, dead):
        x[:, :, 0] = torch.where(living, 1.0, -9.0)[:, None].double()
        assert gap(TangentKernel(model)(x), truth(model, x)) <= 1e-10


def test_a_parameter_that_only_other_data_reaches_beside_generic_ones():
    """With no structured layer left, a change of the graph must be seen all the same."""

    def formula(m, x):
        out = (1 + x.square()) ** m.p
        left = x[:, :1] > 0
        return torch.where(left, out * m.w, out) if left.any() else out

    model = Formula(formula, p=(3,), w=(3,)).double()
    x = torch.randn(8, 3).double()
    x[:, 0] = x[:, 0].abs() * torch.tensor([-1, -1, -1, -1, -1, 1, 1, 1])
    assert gap(TangentKernel(model)(x), truth(model, x)) <= 1e-10


def test_another_graph_in_the_second_batch_only():
    case = CASES["expert that is skipped at first"]
    model = case.model()
    x = torch.randn(6, 4).double()
    x[:, 0] = -x[:, 0].abs()
    y = torch.randn(4, 4).double()
    y[:2, 0], y[2:, 0] = 1.0, -1.0
    kernel = TangentKernel(model)
    assert gap(kernel(x), truth(model, x)) <= 1e-10
    assert gap(kernel(x, y), truth(model, x, y)) <= 1e-10
    assert gap(sum(kernel.by_parameter(x, y).values()), truth(model, x, y)) <= 1e-10


def test_checkpointed_blocks_after_training():
    """Recomputation happens in the backward pass; it must see the snapshot, not the module as it is by then."""
    model = Formula(
        lambda m, x: m.b(checkpoint(lambda h: torch.tanh(m.a(h)), x, use_reentrant=False)),
        a=nn.Linear(4, 5),
        b=nn.Linear(5, 2),
    ).double()
    x = torch.randn(6, 4).double()
    before, kernel = truth(model, x), TangentKernel(model)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    assert gap(kernel(x), before) <= 1e-10


@pytest.mark.parametrize("in_place", [True, False])
def test_checkpointed_blocks_that_change_buffers(in_place):
    """Every recomputation must find the buffers as the first pass found them."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 3)
            self.register_buffer("count", torch.zeros(()))

        def block(self, h):
            if in_place:
                self.count += 1
            else:
                self.count = self.count + 1
            return torch.tanh(self.count * self.a(h))

        def forward(self, x):
            return self.b(checkpoint(self.block, x, use_reentrant=False))

    model, x = Counting().double(), torch.randn(6, 4).double()
    clean = Formula(lambda m, x: m.b(torch.tanh(m.a(x))), a=model.a, b=model.b)
    assert gap(TangentKernel(model)(x), truth(clean, x)) <= 1e-10


def test_models_that_change_their_input():
    class Doubling(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 2)

        def forward(self, x):
            return self.a(x.mul_(2))

    model, x = Doubling().double(), torch.randn(6, 4).double()
    kept, clean = x.clone(), Formula(lambda m, x: m.a(x * 2), a=model.a)
    assert gap(TangentKernel(model)(x), truth(clean, kept)) <= 1e-10
    assert torch.equal(x, kept)


def test_sparse_gradients_give_the_kernel_of_dense_ones():
    dense = Formula(lambda m, i: m.b(m.e(i).mean(1)), e=nn.Embedding(6, 3), b=nn.Linear(3, 2)).double()
    sparse = Formula(
        lambda m, i: m.b(m.e(i).mean(1)), e=nn.Embedding(6, 3, sparse=True), b=nn.Linear(3, 2)
    ).double()
    sparse.load_state_dict(dense.state_dict())
    i = torch.randint(6, (6, 4))
    assert gap(TangentKernel(sparse)(i), truth(dense, i)) <= 1e-10


@pytest.mark.parametrize("swapped", [(0, 1), (2, 5), (6, 3), (4, 7)])
def test_two_samples_that_change_places_are_seen(swapped):
    """Whichever two: weights ±1 of the samples in a proof would let half of all pairs pass."""
    i, j = swapped

    def formula(m, x):
        order = torch.arange(len(x))
        if len(x) == 8:
            order[[i, j]] = order[[j, i]]
        return x.new_zeros(len(x), 2).index_put((order,), m.a(x[order]).tanh())

    model = Formula(formula, a=nn.Linear(3, 2)).double()
    x = torch.randn(8, 3).double()
    assert gap(TangentKernel(model)(x), truth(model, x)) <= 1e-10


def test_samples_that_are_picked_by_other_numbers_in_a_larger_batch_are_seen():
    def formula(m, x):
        order = torch.arange(len(x)) if len(x) < 8 else torch.tensor([*range(1, len(x)), 0])
        return x.new_zeros(len(x), 2).index_put((order,), m.a(x[order]).tanh())

    model = Formula(formula, a=nn.Linear(3, 2)).double()
    x = torch.randn(8, 3).double()
    assert gap(TangentKernel(model)(x), truth(model, x)) <= 1e-10


@pytest.mark.parametrize(
    ("name", "routed"),
    [
        ("experts added by index", True),
        ("samples sorted by expert, but not at first", True),
        ("samples sent to experts by products, at first all to one", True),
        ("last token by length", False),
        ("gather", False),
        ("sorted within samples", False),
        ("embedding", False),
        ("parameter by index_select", False),
        ("multi-head attention", False),
        ("transformer encoder", False),
        ("lstm", False),
        ("small convolutional network", False),
        ("attention in shifted windows", False),
    ],
)
def test_models_that_move_samples_are_known(name, routed):
    """Only they are compared with autograd in every batch, which costs a backward pass."""
    case = CASES[name]
    kernel, (x, _) = case.kernel(), case.batches()
    kernel(x)
    assert kernel._profiles.of(x).structure.routed == routed


@pytest.mark.parametrize("first", [1, 6])
def test_gradients_that_are_but_rounding_are_not_judged(first):
    """Softmax does not feel a bias of the keys: its gradient is zero, and what comes out is noise."""

    def formula(m, x):
        weights = torch.softmax(m.q(x) @ m.k(x).mT, -1)
        return (weights @ x).mean(1)

    model = Formula(formula, q=nn.Linear(3, 3), k=nn.Linear(3, 3)).double()
    kernel, x = TangentKernel(model), torch.randn(6, 4, 3).double()
    kernel(x[:first])
    assert gap(kernel(x), truth(model, x)) <= 1e-10
    assert not any(row.route.startswith("fallback") for row in kernel.plan(x).rows)


def test_one_sample_takes_another_graph_and_keeps_its_routes():
    """einsum and reshape treat an axis of one entry differently; that says nothing of the model."""
    name = "attention by einsum, another graph for one sample"
    case = CASES[name]
    model, (x, y) = case.model(), case.batches()
    names = [
        [node.name() for node in walk(model(x[:n]), dict(model.named_parameters())).nodes] for n in (1, 2, 3)
    ]
    assert names[0] != names[1] == names[2]
    kernel = case.kernel()
    assert gap(kernel(x[:1]), expected(name, "trace", symmetric=True)[:1, :1]) <= 1e-10
    assert gap(kernel(x[:1], y), expected(name, "trace", symmetric=False)[:1]) <= 1e-10
    assert gap(kernel(x), expected(name, "trace", symmetric=True)) <= 1e-10
    assert gap(kernel.diag(x[:1]), expected(name, "trace", symmetric=True).diagonal()[:1]) <= 1e-10
    assert not any(row.route.startswith("fallback") for row in kernel.plan(x).rows)
