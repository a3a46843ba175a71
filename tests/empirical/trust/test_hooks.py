"""Never silently wrong: hooks, which no node of the graph shows, whatever ran before."""

import copy

import pytest
import torch
from torch import nn

from cases import CASES, Formula, gap
from tangentkit import reference
from tangentkit.core import ModelError
from tangentkit.empirical import TangentKernel
from tangentkit.linearized import linearize
from tangentkit.sketch import SketchedTangentKernel

X = torch.linspace(-1, 2, 36, dtype=torch.float64).sin().reshape(12, 3)


def truth(model):
    jacobian = reference.jacobian(model, X)
    return reference.trace_kernel(jacobian, jacobian)


def network():
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_models_that_differ_in_a_hook_alone(place):
    """Gradient reversal, once with the factor 1 and once with another."""
    for factor in (1, -3):

        def hooked(_module, _inputs, output, factor=factor):
            if output.requires_grad:
                output.register_hook(lambda g: factor * g)

        model = network()
        model[place].register_forward_hook(hooked)
        assert gap(TangentKernel(model)(X), truth(model)) <= 1e-10


def on_the_output(module, _inputs, output):
    if output.requires_grad:
        output.register_hook(lambda g: 3 * g)


def on_the_node(module, _inputs, output):
    if output.grad_fn is not None:
        output.grad_fn.register_hook(lambda gi, _: tuple(None if g is None else 3 * g for g in gi))


ADDED = {
    "tensor": lambda m: m.register_forward_hook(on_the_output),
    "node": lambda m: m.register_forward_hook(on_the_node),
    "module": lambda m: m.register_full_backward_hook(lambda _, gi, __: tuple(3 * g for g in gi)),
    "before the module": lambda m: m.register_full_backward_pre_hook(lambda _, go: (3 * go[0],)),
}


@pytest.mark.parametrize("kind", ADDED)
def test_a_hook_that_was_added_after_a_first_kernel(kind):
    model = network()
    before = TangentKernel(model)(X)
    handle = ADDED[kind](model[2])
    found = TangentKernel(model)(X)
    assert gap(found, truth(model)) <= 1e-10
    assert gap(found, before) > 0.1
    assert gap(SketchedTangentKernel(model)(X), truth(model)) <= 0.2
    handle.remove()
    assert gap(TangentKernel(model)(X), before) <= 1e-12


def test_a_hook_that_comes_with_a_later_batch():
    def formula(m, x):
        h = m.b(m.a(x).tanh())
        if h.requires_grad and (x > 5).any():
            h.register_hook(lambda g: 3 * g)
        return h

    model = Formula(formula, a=nn.Linear(3, 8), b=nn.Linear(8, 2)).double()
    kernel, later = TangentKernel(model), torch.cat([X, 6 * X])
    kernel(X)
    jacobian = reference.jacobian(model, later)
    assert gap(kernel(later), reference.trace_kernel(jacobian, jacobian)) <= 1e-10
    assert all(row.note == "hooks change its gradients" for row in kernel.plan(later).rows)


def test_functions_that_treat_a_batch_of_gradients_as_one():
    """Clips by the norm of the whole batch, which does nothing for the few samples that are looked at first."""

    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, most):
            ctx.most = most
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * (ctx.most / g.norm()).clamp(max=1), None

    model = Formula(
        lambda m, x: m.b(Clip.apply(m.a(x), 4.0).tanh()), a=nn.Linear(3, 8), b=nn.Linear(8, 2)
    ).double()
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).double()
    jacobian = reference.jacobian(model, x)
    assert gap(TangentKernel(model)(x), reference.trace_kernel(jacobian, jacobian)) <= 1e-10


@pytest.mark.parametrize(
    "ask",
    [
        lambda m: TangentKernel(m),
        lambda m: SketchedTangentKernel(m, 64),
        linearize,
        lambda m: reference.jacobian(m, X),
    ],
)
def test_hooks_on_parameters_are_refused(ask):
    model = network()
    handle = model[0].weight.register_hook(lambda g: 2 * g)
    with pytest.raises(
        ModelError, match=r"1 parameter\(s\) have hooks, which change their gradients: 0.weight"
    ):
        ask(model)
    ask(copy.deepcopy(model))
    TangentKernel(model, params=["2.weight"])(X)
    handle.remove()
    ask(model)


def test_clipping_has_no_linearization():
    case = CASES["gradient clipped by a hook"]
    with pytest.raises(ModelError, match="double reverse: disagrees with the backward pass"):
        linearize(case.model())(case.batches()[0])
