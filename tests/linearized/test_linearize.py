"""The linearized model against the reference Jacobian, over the zoo, and as a module among modules."""

import copy
import pickle
import warnings
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from cases import CASES, Case, Formula, gap, jacobians
from tangentkit import reference
from tangentkit.core.errors import InputError, ModelError, NumericalError, UnknownNameError
from tangentkit.core.functions import call
from tangentkit.core.seeds import Key
from tangentkit.empirical import TangentKernel
from tangentkit.linearized import LinearizedModel, linearize
from tangentkit.linearized.derivatives import ROUTES

# What torch itself calls its gradient there is not a derivative: see test_what_has_no_linearization_is_refused.
NO_DERIVATIVE = {"embedding scaled by frequency"}
over_cases = pytest.mark.parametrize("name", [name for name in CASES if name not in NO_DERIVATIVE])
OTHER_ROUTES = [
    "custom function", "checkpoint in the middle", "embedding bag, max", "distances to prototypes",
    "weight norm", "glu", "embedding with padding_idx", "bidirectional lstm of two layers", "lstm",
    "transformer encoder", "scaled dot product attention", "embedding with max_norm", "gradient of an energy",
]  # fmt: skip


def on_batch(model, case: Case, batch):
    """A network, or its linearization, on a batch of its case."""
    if case.forward is None:
        return call(model, batch)
    return model(batch) if isinstance(model, LinearizedModel) else case.forward(model, batch)


def displace(model: nn.Module, seed: int = 1, scale: float = 1.0) -> torch.Tensor:
    """Random displacements, also as one vector."""
    generator = Key(seed).torch()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=generator))
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def flat_gradient(model: nn.Module) -> torch.Tensor:
    return torch.cat(
        [(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in model.parameters()]
    )


def network() -> nn.Sequential:
    """With everything that evaluation mode is about."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 2)
    ).double()
    model(torch.randn(20, 3).double())  # in training mode: statistics of its own
    return model


X = torch.randn(7, 3, generator=torch.Generator().manual_seed(1)).double()


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


# -- a module among modules --------------------------------------------------------------------------------------


def test_parameters_are_displacements_under_readable_names():
    net = network()
    model = linearize(net)
    names = [name for name, _ in net.named_parameters()]
    assert [name for name, _ in model.named_parameters()] == [f"displacement.{name}" for name in names]
    assert all((p == 0).all() and p.requires_grad for p in model.parameters())
    assert [p.shape for p in model.parameters()] == [p.shape for p in net.parameters()]
    assert {k.removeprefix("origin.") for k in model.state_dict() if k.startswith("origin.")} == set(
        net.state_dict()
    )


def test_unusual_names():
    inner = nn.ParameterDict({"a_b": torch.ones(2), "weight": torch.ones(2), "0": torch.ones(2)})
    net = Formula(lambda m, x: x * m.inner["a_b"] + m.inner["weight"] * m.outer["x-y"].t, inner=inner,
                  outer=nn.ModuleDict({"x-y": Formula(lambda m, x: m.t * x, t=(2,))}))  # fmt: skip
    model = linearize(net, params=["inner.a_b", "outer.x-y.t"])
    assert [n for n, _ in model.named_parameters()] == ["displacement.inner.a_b", "displacement.outer.x-y.t"]
    assert torch.equal(model(torch.ones(3, 2)), net(torch.ones(3, 2)))


def test_the_network_is_left_alone_and_may_change_later():
    net = network()
    net.requires_grad_(True)[0].weight.grad = torch.ones(6, 3).double()
    modes = [m.training for m in net.modules()]
    state = copy.deepcopy(net.state_dict())
    model = linearize(net)
    before = model(X).detach()
    assert torch.equal(before, copy.deepcopy(net).eval()(X))
    model(X).sum().backward()
    assert [m.training for m in net.modules()] == modes
    assert torch.equal(net[0].weight.grad, torch.ones(6, 3).double())
    assert all(torch.equal(state[k], v) for k, v in net.state_dict().items())
    with torch.no_grad():
        for tensor in (*net.parameters(), *net.buffers()):
            tensor.fill_(3)
    net.append(nn.ReLU())
    assert torch.equal(model(X), before)


def test_training_mode_has_no_effect():
    model = linearize(network())
    displace(model)
    one = model.train()(X)
    assert torch.equal(one, model.eval()(X))
    assert gap(model(X[:3]).detach(), one[:3].detach()) <= 1e-14


def test_state_dict_round_trip_between_different_networks():
    model = linearize(network())
    displace(model)
    torch.manual_seed(5)
    other = linearize(
        nn.Sequential(
            *[type(m)(*a) for m, a in zip(network(), ((3, 6), (6,), (), (), (6, 2)), strict=True)]
        ).double()
    )
    assert not torch.equal(other(X), model(X))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(X), model(X))


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
@pytest.mark.parametrize("called", [False, True])
def test_copies(copied, called):
    model = linearize(network(), constant=False)
    displace(model)
    if called:
        model(X)
    other = copied(model)
    assert torch.equal(other(X), model(X))
    displace(other, seed=9)
    assert not torch.equal(other(X), model(X))


def test_dtype_moves_weights_displacements_and_buffers():
    model = linearize(network())
    displace(model)
    double = model(X).detach()
    single = copy.deepcopy(model).float()
    assert single(X.float()).dtype == torch.float32
    assert gap(single(X.float()).detach().double(), double) <= 1e-5
    assert {t.dtype for t in single.state_dict().values()} == {torch.float32, torch.int64}
    half = copy.deepcopy(model).to(torch.bfloat16)
    assert gap(half(X.bfloat16()).detach().double(), double) <= 0.1


def test_tied_weights_are_one_displacement():
    case = CASES["tied embedding and head"]
    net = case.model()
    model = linearize(net)
    assert len(list(model.parameters())) == len(list(net.parameters()))
    assert len({n for n, _ in net.named_parameters(remove_duplicate=False)}) > len(list(model.parameters()))


def test_frozen_parameters_stay_and_a_displacement_can_be_frozen_too():
    net = nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, 2)).double()
    model = linearize(net)
    assert [n for n, _ in model.named_parameters()] == ["displacement.2.weight", "displacement.2.bias"]
    chosen = linearize(net, params=["0.weight"])
    assert [n for n, _ in chosen.named_parameters()] == ["displacement.0.weight"]
    for model in (linearize(network()), linearize(CASES["custom function"].model())):
        first, *others = model.parameters()
        first.requires_grad_(False)
        model(X if first.shape[1] == 3 else torch.ones(2, 4).double()).sum().backward()
        assert first.grad is None
        assert all(p.grad is not None for p in others)


def test_inference_mode_and_no_grad_give_the_same_numbers():
    model = linearize(network())
    displace(model)
    expected = model(X).detach()
    with torch.inference_mode():
        assert torch.equal(model(X), expected)
        assert torch.equal(model(X.clone()), expected)
        born = linearize(network())
    with torch.no_grad():
        assert torch.equal(model(X), expected)
        assert not model(X).requires_grad
    born(X).sum().backward()
    assert flat_gradient(born).abs().max() > 0


def test_mixed_precision():
    model = linearize(network().float())
    displace(model)
    expected = model(X.float()).detach()
    for candidate in (model, copy.deepcopy(model), linearize(network().float())):
        displace(candidate)
        candidate._routes.clear()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = candidate(X.float())
        assert found.dtype == torch.bfloat16
        assert gap(found.detach().float(), expected) <= 0.1
        found.sum().backward()
        assert all(p.grad.dtype == torch.float32 for p in candidate.parameters())


def test_inside_of_an_autograd_function():
    model = linearize(network())
    displace(model)

    class Around(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, x):
            return model(x)

    assert torch.equal(Around.apply(X), model(X))


def test_threads_take_their_turns():
    model = linearize(network())
    displace(model)
    expected = model(X).detach()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: model(X).detach(), range(40)))
    assert all(torch.equal(outputs, expected) for outputs in found)


@pytest.mark.slow
def test_compilation_is_harmless():
    model = linearize(network())
    displace(model)
    expected = model(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(torch.compile(model, backend="eager")(X), expected)
        compiled = torch.compile(network(), backend="eager")
        model = linearize(compiled)
    displace(model)
    assert torch.equal(model(X), expected)


# -- calls -------------------------------------------------------------------------------------------------------


def test_several_and_named_inputs_and_structured_outputs():
    net = Formula(
        lambda m, a, *, b, scale=1.0: OrderedDict(
            sum=m.a(a) + scale * m.b(b), both=(m.a(a), [m.b(b).argmax(1), None]), word="constant"
        ),
        a=nn.Linear(3, 2), b=nn.Linear(4, 2),
    )  # fmt: skip
    model = linearize(net)
    displace(model)
    a, b = torch.randn(5, 3), torch.randn(5, 4)
    found, plain = model(a, b=b, scale=2.0), net(a, b=b, scale=2.0)
    assert type(found) is OrderedDict
    assert found["word"] == "constant"
    assert found["both"][1][1] is None
    assert torch.equal(found["both"][1][0], plain["both"][1][0])  # integers are those of the network
    moved = copy.deepcopy(net)
    moved.load_state_dict(model.weights())  # the network is linear in its weights
    expected = moved(a, b=b, scale=2.0)
    torch.testing.assert_close(found["sum"], expected["sum"])
    torch.testing.assert_close(found["both"][0], expected["both"][0])
    (found["sum"].sum() + found["both"][0].sum()).backward()
    assert (flat_gradient(model) != 0).any()


def test_a_forward_rule_takes_the_batch_whole():
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    model = linearize(net, forward=lambda m, batch: m(batch["x"])[:, 0] * batch["scale"])
    found = model({"x": X, "scale": 2})
    assert torch.equal(found, 2 * net(X)[:, 0])
    with pytest.raises(InputError, match="one batch"):
        model(X, X)


@pytest.mark.parametrize("name", ["glu", "weight norm", "custom function"])
def test_constants_among_the_outputs_on_every_route(name):
    case = CASES[name]

    def both(model, x):
        found = model(x)
        return found, found.argmax(1)

    model, x = linearize(case.model(), forward=both), case.batches()[0]
    outputs, indices = model(x)
    assert torch.equal(indices, outputs.argmax(1))
    assert indices.sum().item() == sum(indices.tolist())


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 2)])
def test_outputs_of_any_shape(shape):
    net = nn.Linear(3, 24).double()
    model = linearize(
        net,
        forward=lambda m, x: m(x).sum() if not shape else m(x)[0, : torch.Size(shape).numel()].view(shape),
    )
    displace(model)
    assert model(X).shape == shape


def test_an_input_that_the_model_writes_to_is_safe():
    net = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2)).double()
    x = X.clone()
    linearize(net)(x)
    assert torch.equal(x, X)


# -- optimizers: as for the linear model on the features J -------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (torch.optim.SGD, {"lr": 0.05}),
        (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-2}),
        (torch.optim.Adam, {"lr": 0.01}),
        (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
        (torch.optim.Adagrad, {"lr": 0.05}),
        (torch.optim.RMSprop, {"lr": 0.01}),
        (torch.optim.NAdam, {"lr": 0.01}),
        (torch.optim.Rprop, {"lr": 0.01}),
        (torch.optim.LBFGS, {"lr": 0.5, "max_iter": 5}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_optimizer_walks_as_on_the_features(make, options):
    net = network().eval()
    j, f0 = reference.jacobian(net, X), net(X).detach()
    targets = torch.randn(7, 2, generator=Key(4).torch()).double()
    model = linearize(net)
    flat = torch.zeros(j.shape[2], dtype=torch.float64, requires_grad=True)

    def walk(parameters, predict):
        optimizer = make(parameters, **options)

        def loss():
            optimizer.zero_grad()
            value = (predict() - targets).square().mean()
            value.backward()
            return value

        for _ in range(12):
            optimizer.step(loss)
        return predict().detach()

    features = walk([flat], lambda: f0 + j @ flat)
    assert gap(walk(model.parameters(), lambda: model(X)), features) <= 1e-8
    assert (features - targets).norm() < (f0 - targets).norm()


def test_schedulers_and_loaders():
    net = network().eval()
    model = linearize(net)
    loader = DataLoader(TensorDataset(X, X[:, :2].clone()), batch_size=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=60)
    losses = []
    for _ in range(20):
        total = 0.0
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        losses.append(total)
    assert losses[-1] < losses[0] / 2


# -- refusals ----------------------------------------------------------------------------------------------------


class Opaque(torch.autograd.Function):
    """x², once differentiable and without forward mode."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


def test_what_has_no_linearization_is_refused():
    net = Formula(lambda m, x: Opaque.apply(m.a(x)), a=nn.Linear(3, 2))
    with pytest.raises(ModelError, match=r"dual numbers: .*jvp function.*double reverse: disagrees"):
        linearize(net)(torch.ones(2, 3))
    for layer in (nn.Embedding, nn.EmbeddingBag):
        net = nn.Sequential(layer(5, 3, scale_grad_by_freq=True), nn.Linear(3, 2))
        with pytest.raises(ModelError, match=rf"{layer.__name__} '0' has scale_grad_by_freq"):
            linearize(net)
        head = linearize(net, params=["1.weight", "1.bias"])
        assert head(torch.tensor([[1, 1, 2], [0, 1, 4]])).shape[-1] == 2


def test_errors_of_the_network_come_through_as_they_are():
    model = linearize(network())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            model(torch.ones(2, 5).double())
        model(X)
    assert model.route == "dual numbers"


def test_bad_models_and_selections():
    with pytest.raises(ModelError, match="not initialized"):
        linearize(nn.LazyLinear(3))
    with pytest.raises(InputError, match="no parameter is selected"):
        linearize(nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(UnknownNameError, match="wieght"):
        linearize(nn.Linear(2, 2), params=["wieght"])
    broken = nn.Linear(2, 2)
    nn.init.constant_(broken.weight, float("nan"))
    with pytest.raises(NumericalError, match="weight is not finite"):
        linearize(broken)
    stuck = nn.Linear(2, 2)
    stuck.generator = (i for i in range(3))
    with pytest.raises(ModelError, match="cannot be copied"):
        linearize(stuck)
    with pytest.raises(ModelError, match="no floating-point tensor"):
        linearize(Formula(lambda m, x: m.a(x).argmax(1), a=nn.Linear(3, 2)))(torch.ones(2, 3))
