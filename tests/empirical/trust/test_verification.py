"""Never silently wrong: a wrong rule, and a vmap that fails, are not used."""

import pytest
import torch
from torch import nn

from cases import CASES, Formula, expected, gap
from tangentkit import reference
from tangentkit.core.batches import take
from tangentkit.empirical import TangentKernel
from tangentkit.empirical.rules import base, matmul
from tangentkit.empirical.rules.base import Matrix, Vector
from tangentkit.empirical.trust import verification

pytestmark = pytest.mark.filterwarnings("ignore:.*do not reach the output")


def truth(model, x, y=None, **keywords):
    jx = reference.jacobian(model, x, **keywords)
    return reference.trace_kernel(jx, jx if y is None else reference.jacobian(model, y, **keywords))


# -- wrong rules -------------------------------------------------------------------------------------------------


def scaled(site):
    right = matmul.addmm(site)
    if isinstance(right, Vector):
        return Vector(lambda g: 1.01 * right.gradient(g))
    return Matrix(lambda samples: 1.01 * right.inputs(samples), right.outgoing, right.transposed)


def shifted(site):
    """Gives each sample the inputs of its neighbor."""
    right = matmul.addmm(site)
    if isinstance(right, Vector):
        return right
    return Matrix(lambda s: right.inputs(slice(None)).roll(1, 0)[s], right.outgoing, right.transposed)


def raising(site):
    raise ValueError("a rule with a bug")


def raising_later(site):
    def gradient(g):
        raise ValueError("a rule with a bug")

    right = matmul.addmm(site)
    return (
        Vector(gradient) if isinstance(right, Vector) else Matrix(gradient, right.outgoing, right.transposed)
    )


def of_another_shape(site):
    return Vector(lambda g: g.sum(0, keepdim=True))


def wrong_in_parts(site):
    """Right as a whole, wrong where some columns are asked for."""
    right = matmul.addmm(site)
    if isinstance(right, Vector):
        return right
    return Matrix(
        right.inputs, right.outgoing, right.transposed, lambda s, columns: 2 * right.inputs(s)[..., columns]
    )


@pytest.mark.parametrize("wrong", [scaled, shifted, raising, raising_later, of_another_shape, wrong_in_parts])
@pytest.mark.parametrize("name", ["mlp", "linear over tokens", "tied weights"])
def test_a_wrong_rule_is_caught_and_replaced_by_the_generic_route(name, wrong, monkeypatch):
    monkeypatch.setitem(base.RULES, "AddmmBackward0", wrong)
    case = CASES[name]
    x, y = case.batches()
    kernel = case.kernel()
    assert gap(kernel(x, y), expected(name, "trace", symmetric=False)) <= 1e-10
    assert gap(kernel(x), expected(name, "trace", symmetric=True)) <= 1e-10
    weights = [row for row in kernel.plan(x).rows if row.parameter.endswith("weight")]
    assert all(row.route.startswith("fallback") for row in weights)
    assert all(row.note for row in weights)


class Casting(nn.Module):
    """Normalizes in single precision, as language models in half precision do."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.first(x).float()
        return self.last((h / (1 + h.square().mean(1, keepdim=True))).to(x.dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "make", [lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), Casting]
)
def test_half_precision_does_not_hide_a_wrong_rule_behind_its_rounding(make, dtype, monkeypatch):
    torch.manual_seed(0)
    model, x = make().to(dtype), torch.randn(6, 4).to(dtype)
    assert not any(row.route.startswith("fallback") for row in TangentKernel(model).plan(x).rows)
    monkeypatch.setitem(base.RULES, "AddmmBackward0", scaled)
    rows = TangentKernel(model).plan(x).rows
    assert all(row.route.startswith("fallback") for row in rows)
    assert all("disagrees" in row.note for row in rows)


def test_vmap_is_tried_where_only_single_precision_shows_a_wrong_rule(monkeypatch):
    model, x = nn.Linear(4, 3).bfloat16(), torch.randn(6, 4).bfloat16()
    monkeypatch.setitem(base.RULES, "AddmmBackward0", scaled)
    assert {row.route for row in TangentKernel(model).plan(x).rows} == {"fallback (vmap)"}
    right = verification.vmap_gradients
    wrong = lambda *args: {name: 2 * g for name, g in right(*args).items()}  # noqa: E731
    monkeypatch.setattr(verification, "vmap_gradients", wrong)
    assert {row.route for row in TangentKernel(model).plan(x).rows} == {"fallback (loop)"}


def test_a_wrong_rule_is_caught_although_the_model_was_right_before(monkeypatch):
    case = CASES["mlp"]
    x, _ = case.batches()
    case.kernel()(x)
    monkeypatch.setitem(base.RULES, "AddmmBackward0", scaled)
    assert gap(case.kernel()(x), expected("mlp", "trace", symmetric=True)) <= 1e-10


def test_a_rule_that_mixes_samples_is_caught_when_the_model_was_first_seen_with_one_sample(monkeypatch):
    monkeypatch.setitem(base.RULES, "AddmmBackward0", shifted)
    case = CASES["mlp"]
    x, _ = case.batches()
    kernel = case.kernel()
    kernel(take(x, slice(0, 1)))
    assert gap(kernel(x), expected("mlp", "trace", symmetric=True)) <= 1e-10
    assert gap(case.kernel()(x), expected("mlp", "trace", symmetric=True)) <= 1e-10


def test_equal_samples_first(monkeypatch):
    """A batch that repeats one sample says nothing of the order of samples; its verdict must not stand for others."""
    monkeypatch.setitem(base.RULES, "AddmmBackward0", shifted)
    case = CASES["mlp"]
    x, _ = case.batches()
    kernel = case.kernel()
    kernel(x[:1].expand(6, -1))
    assert gap(kernel(x), expected("mlp", "trace", symmetric=True)) <= 1e-10


def test_a_rule_of_ones_own_is_used(monkeypatch):
    case = CASES["custom function of a parameter"]
    x, _ = case.batches()
    assert next(r for r in case.kernel().plan(x).rows if r.parameter == "w").route.startswith("fallback")
    monkeypatch.setitem(
        base.RULES,
        "ScaleBackward",
        lambda site: Vector(lambda g: base.broadcast_gradient(g * site.node.saved_tensors[0], site)),
    )
    kernel = case.kernel()
    assert next(r for r in kernel.plan(x).rows if r.parameter == "w").route == "elementwise"
    assert gap(kernel(x), expected(case.name, "trace", symmetric=True)) <= 1e-10


def test_a_verdict_is_of_one_kernel_and_shape_of_samples(monkeypatch):
    runs, real = [], verification._verify
    monkeypatch.setattr(verification, "_verify", lambda *args: runs.append(1) or real(*args))
    case = CASES["mlp"]
    x, y = case.batches()
    kernel = case.kernel()
    for _ in range(3):
        kernel(x, y)
    assert len(runs) == 1
    case.kernel()(x)
    assert len(runs) == 2


def test_one_verdict_does_not_stand_for_another_layout(monkeypatch):
    """Equal node names, other order of rows: what was verified for one says nothing of the other."""

    def reader(order):
        def formula(m, x):
            return m.b(torch.tanh(m.a(x.permute(order).contiguous())).permute(order)[:, 1].contiguous())

        torch.manual_seed(1)
        return Formula(formula, a=nn.Linear(3, 4), b=nn.Linear(4, 2)).double()

    wrongs, real = [], matmul.addmm

    def wrong_for_minor(site):
        right = real(site)
        if site.axis.before > 1 and isinstance(right, Matrix):
            wrongs.append(1)
            return Matrix(lambda s: right.inputs(slice(None)).roll(1, 0)[s], right.outgoing, right.transposed)
        return right

    monkeypatch.setitem(base.RULES, "AddmmBackward0", wrong_for_minor)
    x = torch.randn(6, 4, 3).double()
    for order in ((0, 1, 2), (1, 0, 2)):
        model = reader(order)
        assert gap(TangentKernel(model)(x), truth(model, x)) <= 1e-10
    assert wrongs


def test_one_verdict_does_not_stand_for_another_function_of_the_same_name(monkeypatch):
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
        return Vector(lambda g: base.broadcast_gradient(g * site.node.saved_tensors[0], site))

    monkeypatch.setitem(base.RULES, "ScaleBackward", right_for_one)
    x = torch.randn(6, 3).double()
    for power, route in ((1, "elementwise"), (2, "fallback")):
        function = scale(power)
        model = Formula(lambda m, x, f=function: f.apply(m.a(x), m.w), a=nn.Linear(3, 2), w=(2,)).double()
        kernel = TangentKernel(model)
        assert gap(kernel(x), truth(model, x)) <= 1e-10
        assert next(row for row in kernel.plan(x).rows if row.parameter == "w").route.startswith(route)


def test_one_verdict_does_not_stand_for_a_class_with_hooks_on_its_tensors():
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


def test_one_verdict_does_not_stand_for_other_settings_of_a_node(monkeypatch):
    """The graphs are equal but for a factor that the autograd node keeps."""

    def careless(site):
        return matmul._matmul(site, site.node._saved_mat1[None], right=True)

    monkeypatch.setitem(base.RULES, "AddmmBackward0", careless)
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
