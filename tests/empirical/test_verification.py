"""Never silently wrong: wrong rules, models that mix samples, structures that change with the data."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from cases import CASES, Formula, expected, gap
from tangentkit import reference
from tangentkit.core import ModelError
from tangentkit.core.batches import take
from tangentkit.empirical import TangentKernel, products, rules, verification
from tangentkit.empirical.graph import walk
from tangentkit.empirical.rules import Matrix, Vector

pytestmark = pytest.mark.filterwarnings("ignore:.*do not reach the output")


def truth(model, x, y=None, **keywords):
    jx = reference.jacobian(model, x, **keywords)
    return reference.trace_kernel(jx, jx if y is None else reference.jacobian(model, y, **keywords))


@pytest.fixture
def forgetful(monkeypatch):
    """A process that has seen no model yet."""
    monkeypatch.setattr(verification, "_verdicts", {})


# -- wrong rules -------------------------------------------------------------------------------------------------


def scaled(site):
    right = products.addmm(site)
    if isinstance(right, Vector):
        return Vector(lambda g: 1.01 * right.gradient(g))
    return Matrix(lambda samples: 1.01 * right.inputs(samples), right.outgoing, right.transposed)


def shifted(site):
    """Gives each sample the inputs of its neighbor."""
    right = products.addmm(site)
    if isinstance(right, Vector):
        return right
    return Matrix(lambda s: right.inputs(slice(None)).roll(1, 0)[s], right.outgoing, right.transposed)


def raising(site):
    raise ValueError("a rule with a bug")


def raising_later(site):
    def gradient(g):
        raise ValueError("a rule with a bug")

    right = products.addmm(site)
    return (
        Vector(gradient) if isinstance(right, Vector) else Matrix(gradient, right.outgoing, right.transposed)
    )


def of_another_shape(site):
    return Vector(lambda g: g.sum(0, keepdim=True))


def wrong_in_parts(site):
    """Right as a whole, wrong where some columns are asked for."""
    right = products.addmm(site)
    if isinstance(right, Vector):
        return right
    return Matrix(
        right.inputs, right.outgoing, right.transposed, lambda s, columns: 2 * right.inputs(s)[..., columns]
    )


@pytest.mark.parametrize("wrong", [scaled, shifted, raising, raising_later, of_another_shape, wrong_in_parts])
@pytest.mark.parametrize("name", ["mlp", "linear over tokens", "tied weights"])
def test_a_wrong_rule_is_caught_and_replaced_by_the_generic_route(name, wrong, monkeypatch, forgetful):
    monkeypatch.setitem(rules.RULES, "AddmmBackward0", wrong)
    case = CASES[name]
    x, y = case.batches()
    kernel = case.kernel()
    assert gap(kernel(x, y), expected(name, "trace", symmetric=False)) <= 1e-10
    assert gap(kernel(x), expected(name, "trace", symmetric=True)) <= 1e-10
    weights = [row for row in kernel.plan(x).rows if row.parameter.endswith("weight")]
    assert all(row.route.startswith("fallback") for row in weights)
    assert all(row.note for row in weights)


def test_a_wrong_rule_is_caught_although_the_model_was_right_before(monkeypatch):
    case = CASES["mlp"]
    x, _ = case.batches()
    case.kernel()(x)
    monkeypatch.setitem(rules.RULES, "AddmmBackward0", scaled)
    assert gap(case.kernel()(x), expected("mlp", "trace", symmetric=True)) <= 1e-10


def test_a_rule_that_mixes_samples_is_caught_when_the_model_was_first_seen_with_one_sample(
    monkeypatch, forgetful
):
    monkeypatch.setitem(rules.RULES, "AddmmBackward0", shifted)
    case = CASES["mlp"]
    x, _ = case.batches()
    kernel = case.kernel()
    kernel(take(x, slice(0, 1)))
    assert gap(kernel(x), expected("mlp", "trace", symmetric=True)) <= 1e-10
    assert gap(case.kernel()(x), expected("mlp", "trace", symmetric=True)) <= 1e-10


def test_equal_samples_first(monkeypatch, forgetful):
    """A batch that repeats one sample says nothing of the order of samples; its verdict must not stand for others."""
    monkeypatch.setitem(rules.RULES, "AddmmBackward0", shifted)
    case = CASES["mlp"]
    x, _ = case.batches()
    kernel = case.kernel()
    kernel(x[:1].expand(6, -1))
    assert gap(kernel(x), expected("mlp", "trace", symmetric=True)) <= 1e-10


def test_a_rule_of_ones_own_is_used(monkeypatch, forgetful):
    case = CASES["custom function of a parameter"]
    x, _ = case.batches()
    assert next(r for r in case.kernel().plan(x).rows if r.parameter == "w").route.startswith("fallback")
    monkeypatch.setitem(
        rules.RULES,
        "ScaleBackward",
        lambda site: Vector(lambda g: rules.broadcast_gradient(g * site.node.saved_tensors[0], site)),
    )
    kernel = case.kernel()
    assert next(r for r in kernel.plan(x).rows if r.parameter == "w").route == "elementwise"
    assert gap(kernel(x), expected(case.name, "trace", symmetric=True)) <= 1e-10


def test_verification_is_remembered_for_the_structure(monkeypatch, forgetful):
    runs, real = [], verification._verify
    monkeypatch.setattr(verification, "_verify", lambda *args: runs.append(1) or real(*args))
    case = CASES["mlp"]
    x, _ = case.batches()
    for _ in range(3):
        case.kernel()(x)
    assert len(runs) == 1
    CASES["conv2d"].kernel()(CASES["conv2d"].batches()[0])
    assert len(runs) == 2


def test_one_verdict_does_not_stand_for_another_layout(monkeypatch, forgetful):
    """Equal node names, other order of rows: what was verified for one says nothing of the other."""

    def reader(order):
        def formula(m, x):
            return m.b(torch.tanh(m.a(x.permute(order).contiguous())).permute(order)[:, 1].contiguous())

        torch.manual_seed(1)
        return Formula(formula, a=nn.Linear(3, 4), b=nn.Linear(4, 2)).double()

    wrongs, real = [], products.addmm

    def wrong_for_minor(site):
        right = real(site)
        if site.axis.before > 1 and isinstance(right, Matrix):
            wrongs.append(1)
            return Matrix(lambda s: right.inputs(slice(None)).roll(1, 0)[s], right.outgoing, right.transposed)
        return right

    monkeypatch.setitem(rules.RULES, "AddmmBackward0", wrong_for_minor)
    x = torch.randn(6, 4, 3).double()
    for order in ((0, 1, 2), (1, 0, 2)):
        model = reader(order)
        assert gap(TangentKernel(model)(x), truth(model, x)) <= 1e-10
    assert wrongs


def test_one_verdict_does_not_stand_for_another_function_of_the_same_name(monkeypatch, forgetful):
    """Autograd functions of the user's own are known by their name only, which says nothing of what they do."""

    def scale(power):
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x**power * w

            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                return g * power * x ** (power - 1) * w, (g * x**power).sum(0)

        return Scale

    def right_for_one(site):
        return Vector(lambda g: rules.broadcast_gradient(g * site.node.saved_tensors[0], site))

    monkeypatch.setitem(rules.RULES, "ScaleBackward", right_for_one)
    x = torch.randn(6, 3).double()
    for power, route in ((1, "elementwise"), (2, "fallback")):
        function = scale(power)
        model = Formula(lambda m, x, f=function: f.apply(m.a(x), m.w), a=nn.Linear(3, 2), w=(2,)).double()
        kernel = TangentKernel(model)
        assert gap(kernel(x), truth(model, x)) <= 1e-10
        assert next(row for row in kernel.plan(x).rows if row.parameter == "w").route.startswith(route)


def test_one_verdict_does_not_stand_for_a_class_with_hooks_on_its_tensors(forgetful):
    """The graph does not show the hook, which divides gradients by their size in the whole batch."""

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.b(self.hidden(x).tanh())

        def hidden(self, x):
            return self.a(x)

    class Clipped(Plain):
        def hidden(self, x):
            h = self.a(x)
            if h.requires_grad:
                h.register_hook(lambda g: g / (1 + g.norm()))
            return h

    x = torch.randn(6, 3).double()
    for kind in (Plain, Clipped):
        model = kind().double()
        assert gap(TangentKernel(model)(x), truth(model, x)) <= 1e-10


def test_one_verdict_does_not_stand_for_other_settings_of_a_node(monkeypatch, forgetful):
    """The graphs are equal but for a factor that the autograd node keeps."""

    def careless(site):
        return products._matmul(site, site.node._saved_mat1[None], right=True)

    monkeypatch.setitem(rules.RULES, "AddmmBackward0", careless)
    x, zero = torch.randn(6, 4).double(), torch.zeros(2).double()
    for alpha in (1, 3):
        model = Formula(lambda m, x, a=alpha: torch.addmm(zero, x, m.w, alpha=a).tanh(), w=(4, 2)).double()
        assert gap(TangentKernel(model)(x), truth(model, x)) <= 1e-10


def test_verification_costs_few_samples():
    sizes = []

    def forward(model, x):
        sizes.append(len(x))
        return model(x)

    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    kernel, x = TangentKernel(model, forward=forward), torch.randn(50, 4).double()
    kernel(x)
    learning = [n for n in sizes if n < 50]
    assert max(learning) <= 5
    assert sum(learning) <= 40
    assert len(sizes) - len(learning) == 1
    sizes.clear()
    kernel(x)
    assert sizes == [50]


# -- vmap that is wrong, or fails, is not used -------------------------------------------------------------------


def test_vmap_is_tried_with_several_directions():
    """torch's batching rule of cdist's gradient is wrong for several directions, and right for one."""
    name = "distances to prototypes"
    x, _ = CASES[name].batches()
    for outputs in ("trace", "full", "pseudo"):
        assert gap(CASES[name].kernel(outputs)(x), expected(name, outputs, symmetric=True)) <= 1e-10


def test_vmap_that_fails_on_another_batch_gives_way_to_the_loop():
    name = "embedding with max_norm"
    x, y = CASES[name].batches()
    assert gap(CASES[name].kernel()(x, y), expected(name, "trace", symmetric=False)) <= 1e-10


# -- structures that change with the data ------------------------------------------------------------------------


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


def test_dead_units_that_hide_the_order_of_rows(forgetful):
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


def test_sparse_gradients():
    dense = Formula(lambda m, i: m.b(m.e(i).mean(1)), e=nn.Embedding(6, 3), b=nn.Linear(3, 2)).double()
    sparse = Formula(
        lambda m, i: m.b(m.e(i).mean(1)), e=nn.Embedding(6, 3, sparse=True), b=nn.Linear(3, 2)
    ).double()
    sparse.load_state_dict(dense.state_dict())
    i = torch.randint(6, (6, 4))
    assert gap(TangentKernel(sparse)(i), truth(dense, i)) <= 1e-10


@pytest.mark.parametrize("swapped", [(0, 1), (2, 5), (6, 3), (4, 7)])
def test_two_samples_that_change_places_are_seen(swapped, forgetful):
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


@pytest.mark.parametrize(
    ("name", "routed"),
    [
        ("experts added by index", True),
        ("samples sorted by expert, but not at first", True),
        ("samples sent to experts by products, at first all to one", True),
        ("last token by length", True),
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
    assert kernel._knowledge.of(x).structure.routed == routed


@pytest.mark.parametrize("first", [1, 6])
def test_gradients_that_are_but_rounding_are_not_judged(first, forgetful):
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


# -- samples that see each other ---------------------------------------------------------------------------------

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
def test_models_that_mix_samples_are_refused(kind, seed, forgetful):
    torch.manual_seed(seed)
    model = Formula(MIXING[kind], a=nn.Linear(3, 2)).double()
    kernel, x = TangentKernel(model), torch.randn(6, 3).double()
    with pytest.raises(ModelError, match="depends on the other samples of its batch"):
        kernel(x)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (5, 0, 1, 2, 3, 4)])
def test_mixing_is_seen_whichever_sample_leads(order, forgetful):
    """The sample that the others depend on may stand anywhere in the batch."""
    model = Formula(lambda m, x: m.a(x) * x[:, :1].max(), a=nn.Linear(3, 2)).double()
    x = torch.randn(6, 3).double()
    x[:, 0] = torch.arange(6.0)
    with pytest.raises(ModelError, match="depends on the other samples"):
        TangentKernel(model)(x[list(order)])


@pytest.mark.parametrize("first", [1, 2, 6])
def test_mixing_that_copies_of_one_sample_do_not_show(first, forgetful):
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
def test_mixing_that_only_a_large_batch_shows(kind, forgetful):
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


def test_diag_plan_product_and_parameters_refuse_too(forgetful):
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
