"""What a snapshot shares with the user's module: nothing that either could change."""

import copy
import io
import pickle
import threading
import time
import types
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from tangentkit import reference
from tangentkit.core import ModelError, snapshot
from tangentkit.core.model.functions import BorrowedModuleWarning
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.linearized import linearize
from tangentkit.sketch import SketchedTangentKernel

X = torch.linspace(-1, 1, 15).view(5, 3)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def parameters_moved(f, by=1.0):
    return {name: p + by for name, p in f.params.items()}


def assert_runs_alone(f, model, x=X):
    """While the snapshot holds other parameters, another thread finds the user's module as it is."""
    expected = model(x)
    with ThreadPoolExecutor(1) as pool:
        seen = f.within(parameters_moved(f), lambda: pool.submit(model, x).result())
    assert torch.equal(seen, expected)


# -- other threads -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda model, rule: TangentKernel(model, forward=rule)(X),
        lambda model, rule: TangentKernel(model, forward=rule).product(X, torch.ones(5, 2)),
        lambda model, rule: SketchedTangentKernel(model, 32, forward=rule).features(X),
        lambda model, rule: ConjugateKernel(model, forward=rule)(X),
        lambda model, rule: linearize(model, forward=rule)(X),
        lambda model, rule: reference.jacobian(model.double(), X, forward=rule),
    ],
    ids=["kernel", "product", "sketch", "conjugate", "linearize", "reference"],
)
def test_another_thread_never_sees_the_snapshot(use):
    model = network()
    seen, own = [], {id(p) for p in model.parameters()}
    user = weakref.ref(model)  # not through the closure, which would be the snapshot's own
    with ThreadPoolExecutor(1) as pool:

        def rule(m, x):
            parameters = pool.submit(lambda: [id(p) for p in user().parameters()]).result()
            seen.append(set(parameters) == own and m is not user())
            return m(x)

        use(model, rule)
    assert seen
    assert all(seen)


def test_two_threads_at_once_get_their_own_numbers():
    model, stop, wrong = network().double(), threading.Event(), []
    x = X.double()
    kernel, expected = TangentKernel(model), model(x).detach()
    truth = kernel(x)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
    expected = model(x).detach()

    def user():
        while not stop.is_set():
            wrong.append(not torch.equal(model(x).detach(), expected))

    thread = threading.Thread(target=user)
    thread.start()
    gaps = [float((kernel(x) - truth).abs().max()) for _ in range(10)]
    stop.set()
    thread.join()
    assert max(gaps) < 1e-12
    assert wrong
    assert not any(wrong)


# -- what happens to the module later ------------------------------------------------------------------------------


class Options(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale, self.powers = nn.Linear(3, 2), 2.0, [1.0, 0.5]
        self.table = {"shift": torch.ones(2)}
        self.config = types.SimpleNamespace(flag=True)

    def forward(self, x):
        h = self.layer(x) * self.scale + self.table["shift"]
        return sum(h * p for p in self.powers) if self.config.flag else h


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "scale", 5.0),
        lambda m: m.powers.append(7.0),
        lambda m: m.table["shift"].zero_(),
        lambda m: setattr(m.config, "flag", False),
        lambda m: setattr(m, "layer", nn.Linear(3, 2)),
        lambda m: m.register_forward_hook(lambda *_: torch.zeros(5, 2)),
        lambda m: setattr(m, "forward", lambda x: x[:, :2]),
    ],
    ids=["number", "list", "tensor in a dict", "object", "layer", "hook", "method"],
)
def test_later_changes_of_the_module_change_nothing(change):
    model = Options()
    kernel, f, lin = TangentKernel(model), snapshot(model), linearize(model)
    outputs = model(X)
    before = TangentKernel(copy.deepcopy(model))(X)
    change(model)
    assert torch.equal(kernel(X), before)
    assert torch.equal(f(f.params, X), outputs)
    torch.testing.assert_close(lin(X), outputs)


# -- code that holds on to the module ------------------------------------------------------------------------------


def hook_on_a_layer():
    model = network()
    model[0].register_forward_hook(lambda _m, _args, out: out * model[2].weight.sum())
    return model, None


def hook_on_a_parameter():
    model = network()
    bias = model[2].bias
    model[0].register_forward_hook(lambda _m, _args, out: out + bias.sum())
    return model, None


def hook_that_is_a_method():
    model = network()
    model.shift = types.MethodType(lambda self, _m, _args, out: out + self[2].bias.sum(), model)
    model[0].register_forward_hook(model.shift)
    return model, None


def patched_layer():
    model = network()
    before, model.extra = model[0].forward, nn.Linear(3, 4)
    model[0].forward = lambda x: before(x) + model.extra(x)
    model.forward = lambda x: model[2](model[1](model[0](x)))
    return model, None


def rule_that_ignores_its_argument():
    model = network()
    return model, lambda _m, x: model(x) * 2


def rule_with_a_default():
    model = network()
    return model, lambda m, x, again=model: m(x) * again[2].bias.sum()


@pytest.mark.parametrize(
    "make",
    [
        hook_on_a_layer,
        hook_on_a_parameter,
        hook_that_is_a_method,
        patched_layer,
        rule_that_ignores_its_argument,
        rule_with_a_default,
    ],
)
def test_functions_that_close_over_the_module_close_over_the_copy(make):
    model, rule = make()
    call = (lambda x: rule(model, x)) if rule else model
    wanted = list(model.parameters())
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(f, wanted, retain_graph=True)])
        for x in X
        for f in call(x[None])[0]
    ]
    truth = torch.stack(rows).view(5, 2, -1)
    kernel = TangentKernel(model, forward=rule)
    expected = call(X).detach()
    with torch.no_grad():
        for p in wanted:
            p.mul_(2)  # a snapshot: later training changes nothing
    torch.testing.assert_close(kernel(X), torch.einsum("icp,jcp->ij", truth, truth))
    f = kernel.function
    torch.testing.assert_close(f(f.params, X), expected)
    assert_runs_alone(f, model)


NET = network()


def by_global_name(_model, x):
    return NET(x)


def test_a_rule_that_names_the_module_borrows_it_and_says_so():
    with pytest.warns(BorrowedModuleWarning, match="Sequential itself, by a global name"):
        kernel = TangentKernel(NET, forward=by_global_name)
    own = [id(p) for p in NET.parameters()]
    torch.testing.assert_close(kernel(X), TangentKernel(NET)(X))
    assert [id(p) for p in NET.parameters()] == own


BIAS = nn.Parameter(torch.ones(4))


def test_a_parameter_by_its_global_name_is_refused():
    model = network()
    model[0].bias = BIAS
    with pytest.raises(ModelError, match=r"0.bias is used by a global name"):
        TangentKernel(model, forward=lambda m, x: m(x) + BIAS.sum())


# -- modules that are hard to copy ---------------------------------------------------------------------------------


class Uncopyable(nn.Linear):
    def __deepcopy__(self, memo):
        raise NotImplementedError("not this one")


class CopyOfItself(nn.Linear):
    def __deepcopy__(self, memo):
        return self


@pytest.mark.parametrize("layer", [Uncopyable, CopyOfItself])
def test_what_cannot_be_copied_is_borrowed_with_a_warning(layer):
    model = nn.Sequential(layer(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with pytest.warns(
        BorrowedModuleWarning, match=r"Sequential cannot be copied .*no other thread may use it"
    ):
        f = snapshot(model)
    expected, own = model(X), [id(p) for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
    assert torch.equal(f(f.params, X), expected)
    assert [id(p) for p in model.parameters()] == own


def test_what_nothing_can_copy_is_shared():
    model = network()
    model.lock, model.file, model.numbers, model.clock = (
        threading.Lock(), io.BufferedReader(io.BytesIO()), (i for i in range(3)), time,
    )  # fmt: skip
    f = snapshot(model)
    assert f.module.lock is model.lock
    assert f.module.numbers is model.numbers
    assert torch.equal(f(f.params, X), model(X))
    assert_runs_alone(f, model)
    assert torch.equal(linearize(model)(X), model(X))


def scripted():
    return torch.jit.script(network())


def traced():
    return torch.jit.trace(network(), X)


def graph_module():
    return torch.fx.symbolic_trace(network())


def hung_on_a_graph():
    model = torch.nn.utils.weight_norm(nn.Linear(3, 2))
    model(X)
    model.cached = [model.weight * 2]
    return model


def parametrized():
    return torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))


def beside_its_parent():
    model = network()
    model[0].parent = [model]
    return model


@pytest.mark.parametrize(
    "make", [scripted, traced, graph_module, hung_on_a_graph, parametrized, beside_its_parent]
)
@pytest.mark.filterwarnings("ignore:.*is deprecated")
def test_all_kinds_of_modules_are_copied(make):
    model = make()
    f, expected = snapshot(model), model(X)
    assert f.module is not model
    assert torch.equal(f(f.params, X), expected)
    assert_runs_alone(f, model)


def test_a_snapshot_holds_the_values_once():
    model = network()
    f = snapshot(model)
    assert all(tensor.is_meta for tensor in (*f.module.parameters(), *f.module.buffers()))
    assert len(pickle.dumps(f)) < len(pickle.dumps((f.params, model)))
    again = pickle.loads(pickle.dumps(f))
    assert torch.equal(again(again.params, X), model(X))


def test_tied_weights_stay_tied():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    f = snapshot(model)
    assert f.module[2].weight is f.module[0].weight
    assert torch.equal(f(f.params, X), model(X))


# -- names that only look alike -------------------------------------------------------------------------------------

inner = network()
first_weight = inner[0].weight


class Around(nn.Module):
    """Its attributes are called as globals of this file are."""

    def __init__(self):
        super().__init__()
        self.inner, self.first_weight = inner, inner[0].weight

    def forward(self, x):
        return self.inner(x) + self.first_weight.sum()


def test_attributes_are_not_the_globals_of_the_same_name():
    model = Around()
    f = snapshot(model)
    assert_runs_alone(f, model)
    assert torch.equal(f(f.params, X), model(X))
