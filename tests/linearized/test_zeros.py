"""Functions that are not smooth at zero, which a later batch is the first to reach."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cases import Formula, gap
from linearized.displaced import displace, flat_gradient
from tangentkit.linearized import linearize, taylorize

AT_ZERO = {
    "normalize": lambda h: F.normalize(h, dim=1),
    "norm": lambda h: h * h.norm(dim=1, keepdim=True),
    "norm of third order": lambda h: h * h.norm(3, dim=1, keepdim=True),
    "standard deviation": lambda h: h * h.std(1, keepdim=True),
    "product": lambda h: h.prod(1, keepdim=True) + h,
    "cumulative product": lambda h: h.cumprod(1),
    "cosine": lambda h: h * F.cosine_similarity(h, h + 1)[:, None],
    "angle": lambda h: torch.atan2(h, h.flip(1)),
}


def network(function) -> nn.Module:
    torch.manual_seed(0)
    net = Formula(lambda m, x: m.b(function(m.a(x))), a=nn.Linear(4, 6), b=nn.Linear(6, 2)).double()
    nn.init.zeros_(net.a.bias)
    return net


def batches() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)).double()
    blank = x.clone()
    blank[1:3] = 0
    return x, blank


@pytest.mark.parametrize("name", AT_ZERO)
def test_gradients_at_zeros_are_those_of_the_network(name):
    net, (x, blank) = network(AT_ZERO[name]), batches()
    model = linearize(net)
    displace(model)
    model(x).sum().backward()
    v = torch.randn(5, 2, generator=torch.Generator().manual_seed(2)).double()
    truth = torch.cat([g.flatten() for g in torch.autograd.grad(net(blank), list(net.parameters()), v)])
    for _ in range(2):  # a second backward pass through one graph, with another v, has nothing of the first
        model.zero_grad()
        out = model(blank)
        out.backward(torch.ones_like(out), retain_graph=True)
        model.zero_grad()
        out.backward(v)
        assert gap(flat_gradient(model), truth) <= 1e-12
    # J u is the adjoint: <v, J u> = <Jᵀ v, u>.
    with torch.no_grad():
        slope = ((model(blank) - net(blank)) * v).sum()
    u = torch.cat([p.detach().flatten() for p in model.parameters()])
    torch.testing.assert_close(slope, truth @ u)


def test_one_output_that_flows_through_another_counts_once():
    net = network(AT_ZERO["norm"])
    both = lambda m, x: (h := m(x), h.sin())  # noqa: E731
    model, (x, blank) = linearize(net, forward=both), batches()
    model(x)
    first, second = model(blank)
    (first.sum() + second.sum()).backward()
    truth = torch.autograd.grad(sum(h.sum() for h in both(net, blank)), list(net.parameters()))
    assert gap(flat_gradient(model), torch.cat([g.flatten() for g in truth])) <= 1e-12


def test_gradients_of_a_diverged_loss_stay_not_finite():
    model, (x, _) = linearize(network(torch.tanh)), batches()
    (model(x).sum() * float("nan")).backward()
    assert flat_gradient(model).isnan().any()


def test_taylor_polynomials_at_zeros_have_finite_values():
    net, (x, blank) = network(AT_ZERO["angle"]), batches()
    model = taylorize(net, 2)
    model(x)
    assert torch.equal(model(blank), net(blank))
