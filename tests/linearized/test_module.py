"""The linearized model as a module among modules: state, copies, calls, refusals."""

import copy
import pickle
import warnings
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from cases import CASES, Formula, gap
from linearized.displaced import X, displace, flat_gradient, network
from tangentkit.core.errors import InputError, ModelError, NumericalError, UnknownNameError
from tangentkit.empirical import TangentKernel
from tangentkit.linearized import linearize, taylorize

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


def test_parameters_keep_their_names_however_unusual():
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


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.Dropout(0.5)], ids=["batch norm", "dropout"])
@pytest.mark.parametrize("make", [linearize, lambda net: taylorize(net, 2), TangentKernel])
def test_expansions_and_kernels_refuse_training_mode_alike(layer, make):
    net = nn.Sequential(nn.Linear(3, 3), layer.train())
    with pytest.raises(ModelError, match=r"'1' is in training mode.*model.eval\(\)"):
        make(net)
    assert net.training
    make(net.eval())


def test_modes_are_those_of_the_snapshot():
    net = Formula(lambda m, x: m.a(x) if m.training else 2 * m.a(x), a=nn.Linear(3, 2))
    model = linearize(net.train())
    assert torch.equal(model.eval()(X.float()), net(X.float()))


def test_weights_load_strictly_into_the_network():
    tied = nn.Linear(3, 3)
    net = nn.Sequential(tied, nn.BatchNorm1d(3), tied, nn.Linear(3, 2).requires_grad_(False))
    net(torch.randn(9, 3))
    net.eval().register_buffer("scratch", torch.ones(2), persistent=False)
    model = linearize(net)
    displace(model)
    moved = copy.deepcopy(net)
    moved.load_state_dict(model.weights())
    u = dict(model.displacement.named_parameters())
    for name, w in net.named_parameters():
        assert torch.equal(moved.get_parameter(name), w + u[name] if name in u else w)
    assert torch.equal(moved[1].running_mean, net[1].running_mean)


def test_state_dict_round_trip_between_different_networks():
    model = linearize(network())
    displace(model)
    torch.manual_seed(5)
    other = linearize(
        nn.Sequential(*[type(m)(*a) for m, a in zip(network(), ((3, 6), (6,), (), (), (6, 2)), strict=True)])
        .double()
        .eval()
    )
    assert not torch.equal(other(X), model(X))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(X), model(X))


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
@pytest.mark.parametrize("called", [False, True])
def test_a_copy_is_the_same_model_and_moves_alone(copied, called):
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


def test_autocast_gives_bfloat16_near_the_full_precision():
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
    with pytest.raises(ModelError, match="no floating-point tensor"):
        linearize(Formula(lambda m, x: m.a(x).argmax(1), a=nn.Linear(3, 2)))(torch.ones(2, 3))
