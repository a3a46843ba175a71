"""The linearized model against the reference Jacobian, over the zoo."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from cases import CASES, Formula, gap, jacobians
from linearized.displaced import X, displace, flat_gradient, network, on_batch
from tangentkit import reference
from tangentkit.core.seeds import Key
from tangentkit.empirical import TangentKernel
from tangentkit.linearized import linearize
from tangentkit.linearized.derivatives import ROUTES

# What torch itself calls its gradient there is not a derivative: see test_what_has_no_linearization_is_refused.
NO_DERIVATIVE = {"embedding scaled by frequency", "gradient clipped by a hook"}
over_cases = pytest.mark.parametrize("name", [name for name in CASES if name not in NO_DERIVATIVE])
OTHER_ROUTES = [
    "custom function", "checkpoint in the middle", "embedding bag, max", "distances to prototypes",
    "weight norm", "glu", "embedding with padding_idx", "bidirectional lstm of two layers", "lstm",
    "transformer encoder", "scaled dot product attention", "embedding with max_norm", "gradient of an energy",
]  # fmt: skip


# -- laws, over the zoo ------------------------------------------------------------------------------------------


@over_cases
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_value_and_gradient_are_those_of_the_jacobian(name):
    case, j = CASES[name], jacobians(name)[0]
    network = case.model()
    model, differential = (linearize(network, constant=c, **case.keywords) for c in (True, False))
    before = on_batch(network, case, case.batches()[0]).detach()
    assert gap(on_batch(model, case, case.batches()[0]).detach(), before) <= 1e-14
    u = displace(model)
    displace(differential)
    outputs = on_batch(model, case, case.batches()[0])
    assert gap(outputs.detach(), before + j @ u) <= 1e-11
    assert gap(on_batch(differential, case, case.batches()[0]).detach(), j @ u) <= 1e-11
    v = torch.randn(outputs.shape, generator=Key(2).torch()).double()
    outputs.backward(v)
    assert gap(flat_gradient(model), torch.einsum("nc,ncp->p", v, j)) <= 1e-11


@pytest.mark.parametrize("name", [*OTHER_ROUTES, "small convolutional network", "gru", "rnn"])
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_single_precision_takes_the_kernels_of_single_precision(name):
    case, j = CASES[name], jacobians(name)[0]
    network = case.model(torch.float32)
    model = linearize(network, **case.keywords)
    u = displace(model, scale=0.1).double()
    outputs = on_batch(model, case, case.batches(torch.float32)[0])
    before = on_batch(network, case, case.batches(torch.float32)[0]).detach()
    assert gap((outputs.detach() - before).double(), j @ u) <= 1e-4
    v = torch.randn(outputs.shape, generator=Key(2).torch())
    outputs.backward(v)
    assert gap(flat_gradient(model).double(), torch.einsum("nc,ncp->p", v.double(), j)) <= 1e-4


@pytest.mark.parametrize("name", OTHER_ROUTES)
def test_every_route_that_works_gives_the_same(name):
    case, found = CASES[name], {}
    for route in ROUTES:
        model = linearize(case.model(), **case.keywords)
        displace(model)
        model._routes[False] = route
        try:
            outputs = on_batch(model, case, case.batches()[0])
            outputs.square().sum().backward()
        except (RuntimeError, NotImplementedError):
            continue
        # A route that was forced and failed has been replaced by one that works.
        found[model.route] = (outputs.detach(), flat_gradient(model))
    assert found
    for outputs, gradient in found.values():
        assert gap(outputs, next(iter(found.values()))[0]) <= 1e-11
        assert gap(gradient, next(iter(found.values()))[1]) <= 1e-11


def test_padding_that_the_first_batch_does_not_have_moves_nothing():
    torch.manual_seed(0)
    net = Formula(
        lambda m, i: m.b(m.e(i).tanh().mean(1)), e=nn.Embedding(6, 3, padding_idx=2), b=nn.Linear(3, 2)
    ).double()
    model = linearize(net)
    u = displace(model)
    model(torch.tensor([[0, 1], [4, 5]]))  # by which the route is chosen
    padded = torch.tensor([[0, 2], [2, 2], [2, 5]])
    j = reference.jacobian(net, padded)
    outputs = model(padded)
    assert gap(outputs.detach(), net(padded).detach() + j @ u) <= 1e-12
    outputs.sum().backward()
    assert gap(flat_gradient(model), j.sum((0, 1))) <= 1e-12
    assert not model.displacement.e.weight.grad[2].any()
    # Where nothing can be tried out, it is the same.
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    gradient = torch.func.grad(lambda u: torch.func.functional_call(model, u, (padded,)).sum())(parameters)
    assert gap(torch.cat([g.flatten() for g in gradient.values()]), j.sum((0, 1))) <= 1e-12


def test_the_error_is_of_second_order():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    model = linearize(network)
    displace(model)
    direction = [p.detach().clone() for p in model.parameters()]
    errors = []
    for t in (1e-2, 1e-3):
        with torch.no_grad():
            for p, d in zip(model.parameters(), direction, strict=True):
                p.copy_(t * d)
            moved = copy.deepcopy(network)
            moved.load_state_dict(model.weights())
            errors.append(float((moved(X) - model(X)).norm()))
    assert 80 < errors[0] / errors[1] < 125


# -- derivatives beside those of training ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["mlp", "transformer encoder", "custom function", "glu", "layer norm", "instance norm 1d"]
)
def test_gradients_in_the_inputs_and_of_second_order(name):
    case = CASES[name]
    model = linearize(case.model(), **case.keywords)
    displace(model, scale=0.3)
    x = case.batches()[0][:2].requires_grad_()
    assert torch.autograd.gradcheck(model, (x,), atol=1e-6, fast_mode=True)
    assert torch.autograd.gradgradcheck(model, (x,), atol=1e-6, fast_mode=True)


@pytest.mark.parametrize("name", ["mlp", "custom function", "checkpoint", "weight norm"])
def test_hessian_of_a_loss_in_u_is_the_gauss_newton_matrix(name):
    case, j = CASES[name], jacobians(name)[0].flatten(0, 1)
    model = linearize(case.model(), **case.keywords)
    displace(model)
    u = list(model.parameters())
    loss = on_batch(model, case, case.batches()[0]).square().sum()
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, u, create_graph=True)])
    w = torch.randn(len(gradient), generator=Key(3).torch()).double()
    product = torch.autograd.grad(gradient @ w, u)
    assert gap(torch.cat([g.flatten() for g in product]), 2 * j.T @ (j @ w)) <= 1e-10


@pytest.mark.parametrize("name", ["mlp", "custom function"])
def test_backward_twice_needs_a_retained_graph_as_ever(name):
    case = CASES[name]
    model = linearize(case.model(), **case.keywords)
    loss = on_batch(model, case, case.batches()[0]).square().sum()
    loss.backward(retain_graph=True)
    once = flat_gradient(model)
    loss.backward()
    torch.testing.assert_close(flat_gradient(model), 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_transforms_of_torch_func_apply():
    model = linearize(network().eval())
    displace(model)
    u = {name: p.detach() for name, p in model.named_parameters()}

    def output(u, x):
        return torch.func.functional_call(model, u, (x[None],))[0, 0]

    rows = torch.func.vmap(torch.func.grad(output), (None, 0))(u, X)
    found = torch.cat([rows[name].flatten(1) for name in u], 1)
    assert gap(found, reference.jacobian(network().eval(), X)[:, 0]) <= 1e-12


def test_its_tangent_kernel_is_the_networks_at_any_displacement():
    net = network().eval()
    model = linearize(net)
    displace(model)
    assert gap(TangentKernel(model)(X), TangentKernel(net)(X)) <= 1e-12


class Operations(TorchDispatchMode):
    """Counts the operations that torch executes."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_a_step_takes_the_same_operations_whatever_the_number_of_outputs():
    def operations(module, outputs):
        targets = torch.arange(7) % outputs
        F.cross_entropy(module(X), targets).backward()  # the first call of a linearization verifies its route
        with Operations() as seen:
            F.cross_entropy(module(X), targets).backward()
        return seen.count

    def network(outputs):
        return nn.Sequential(
            nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, outputs)
        ).double()

    few, many, plain = (
        operations(linearize(network(2)), 2), operations(linearize(network(40)), 40), operations(network(40), 40)
    )  # fmt: skip
    assert few == many
    # Of L backward passes there would be more than that for L = 40, and more than for L = 2.
    assert many < 20 * plain
