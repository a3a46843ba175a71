"""The trainer: one key, one run, to the last bit."""

import copy
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import ChainDataset, Dataset, TensorDataset

from linearized.runs import SETTINGS, N, X, Y, network, same
from tangentkit.core.errors import InputError, NumericalError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.linearized import (
    ConstantRate,
    LinearDecay,
    StepDecay,
    Stop,
    Training,
    linearize,
    mini_batches,
    train,
)
from tangentkit.linearized.losses import LOSSES

# -- determinism -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kind", [lambda m: m, linearize], ids=["network", "linearization"])
def test_a_run_follows_from_its_key_alone(settings, kind):
    runs = []
    for key, noise in ((Key(0), 1), (Key(0), 2), (Key(1), 1)):
        model = kind(network())
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        runs.append((model, train(model, X, Y, settings, key=key)))
        assert torch.equal(torch.get_rng_state(), before)
        assert not model.training
    (first, history), (again, same_history), (other, _) = runs
    assert same(first, again)
    assert history == same_history
    chance = settings.batch is not None or isinstance(
        first, nn.Sequential
    )  # full batches, no dropout: no chance
    assert same(first, other) is not chance


def test_network_and_linearization_share_start_and_order_bitwise():
    net = network()
    model = linearize(net)
    start = copy.deepcopy(net.state_dict())
    for name, value in start.items():
        assert torch.equal(model.state_dict()[f"origin.{name}"], value)
    seen: dict[str, list] = {"network": [], "linearization": []}
    hooks = [
        m.register_forward_pre_hook(lambda _, args, name=name: seen[name].append(args[0].clone()))
        for name, m in (("network", net), ("linearization", model))
    ]
    for module in (net, model):
        train(module, X, Y, SETTINGS["sgd"], key=Key(3))
    for hook in hooks:
        hook.remove()
    assert len(seen["network"]) == 4 * 4
    assert all(torch.equal(a, b) for a, b in zip(seen["network"], seen["linearization"], strict=True))
    # The linearization still stands on the weights at which the network began.
    assert all(torch.equal(model.state_dict()[f"origin.{name}"], value) for name, value in start.items())


def test_the_first_step_is_the_same_step():
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    start, model = copy.deepcopy(net), linearize(net)
    for module in (net, model):
        train(module, X, Y, Training(epochs=1, learning_rate=0.1, batch=None), key=Key(0))
    for p, p0, u in zip(net.parameters(), start.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p - p0, u, rtol=1e-12, atol=1e-14)


def test_mini_batches_are_permutations_that_change_with_the_epoch():
    settings = Training(epochs=1, learning_rate=1, batch=8)
    first, second = (mini_batches(N, settings, Key(0), epoch) for epoch in (0, 1))
    for pieces in (first, second):
        assert [len(p) for p in pieces] == [8, 8, 8, 2]
        assert sorted(torch.cat(list(pieces)).tolist()) == list(range(N))
    assert not torch.equal(torch.cat(list(first)), torch.cat(list(second)))
    whole = mini_batches(N, replace(settings, drop_last=True), Key(0), 0)
    assert [p.tolist() for p in whole] == [p.tolist() for p in first[:3]]


# -- what is computed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_it_is_the_loop_that_one_writes_by_hand(settings):
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    by_hand = copy.deepcopy(net)
    history = train(net, X, Y, settings, key=Key(0), watch={"half": (X[:13], Y[:13])})
    optimizer = settings.make_optimizer(by_hand.parameters())
    scheduler = {
        LinearDecay: lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 - step / (4 * 4)),
        StepDecay: lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.5 ** (step // 4 // 2)),
        ConstantRate: lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda _: 1.0),
    }[type(settings.schedule)](optimizer)
    one_hot = F.one_hot(Y, 3).double()
    for epoch in range(4):
        losses = []
        for rows in mini_batches(N, settings, Key(0), epoch):
            outputs = by_hand(X[rows])
            loss = {
                "l2": lambda f, r: (f - one_hot[r]).square().sum(1).mean(),
                "l2-mean": lambda f, r: (f - one_hot[r]).square().mean(),
                "cross-entropy": lambda f, r: F.cross_entropy(f, Y[r]),
            }[settings.loss](outputs, rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append((loss.item(), len(outputs)))
        mean = sum(a * n for a, n in losses) / N
        assert abs(history["train loss"][epoch] - mean) < 1e-12
    assert same(net, by_hand)
    assert history["half accuracy"][-1] == (net(X[:13]).argmax(1) == Y[:13]).double().mean()
    assert history["step"] == [(e + 1) * settings.steps_per_epoch(N) for e in range(4)]


def test_the_linear_schedule_ends_at_zero_and_the_steps_fall():
    history = train(nn.Linear(4, 3).double(), X, Y, replace(SETTINGS["sgd"], epochs=5), key=Key(0))
    rates = history["learning rate"]
    assert all(abs((a - b) - 0.05 / 5) < 1e-12 for a, b in pairwise(rates))
    assert abs(rates[-1] - 0.05 / 20) < 1e-12
    steps = train(nn.Linear(4, 3).double(), X, Y, replace(SETTINGS["adagrad"], epochs=5), key=Key(0))
    assert steps["learning rate"] == [0.1, 0.1, 0.05, 0.05, 0.025]


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_accuracies(name):
    f = torch.tensor([[2.0, -1.0, 0.0], [0.1, 0.2, 0.3], [5.0, 5.5, -9.0]]).double()
    y = torch.tensor([0, 0, 1])
    one_hot = F.one_hot(y, 3).double()
    targets = one_hot if name == "bce" else y
    expected = {
        "l2": (f - one_hot).square().sum(1).mean(),
        "l2-mean": (f - one_hot).square().mean(),
        "cross-entropy": -(f.log_softmax(1)[torch.arange(3), y]).mean(),
        "bce": -(one_hot * f.sigmoid().log() + (1 - one_hot) * (1 - f.sigmoid()).log()).mean(),
    }[name]
    torch.testing.assert_close(LOSSES[name].value(f, targets), expected)
    hits = LOSSES[name].hits(f, targets, 0.5)
    assert torch.allclose(hits, torch.tensor([1, 1 / 3, 2 / 3] if name == "bce" else [1.0, 0, 1]))


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "bce"])
@pytest.mark.parametrize(
    "kind", [torch.int32, torch.uint8, "one-hot in float64", "one-hot integers"], ids=str
)
def test_classes_are_classes_in_any_type(name, kind):
    f = torch.randn(4, 3, generator=Key(0).torch())
    y = torch.tensor([0, 2, 1, 2])
    if isinstance(kind, str):
        given = F.one_hot(y, 3).to(torch.float64 if "float" in kind else torch.int64)
    else:
        given = y.to(kind)
    if name == "cross-entropy" and kind == "one-hot integers":
        with pytest.raises(
            InputError, match=r"targets do not fit the outputs: expected classes of shape \(4,\)"
        ):
            LOSSES[name].value(f, given)
        return
    torch.testing.assert_close(LOSSES[name].value(f, given), LOSSES[name].value(f, y))
    torch.testing.assert_close(LOSSES[name].hits(f, given, 0.5), LOSSES[name].hits(f, y, 0.5))


@pytest.mark.parametrize("name", ["l2", "l2-mean", "cross-entropy", "bce"])
@pytest.mark.parametrize("wrong", [3, -1])
def test_classes_that_the_outputs_do_not_have_are_refused(name, wrong):
    with pytest.raises(InputError, match=rf"integers from 0 to 2, got from .*{wrong}"):
        train(
            nn.Linear(4, 3).double(), X[:2], torch.tensor([1, wrong]), Training(1, 0.1, loss=name), key=Key(0)
        )


def test_targets_that_fit_no_cross_entropy_are_refused():
    settings = Training(1, 0.1, loss="cross-entropy")
    for y in (Y.double(), Y[:, None], F.one_hot(Y, 4).double()):
        with pytest.raises(
            InputError, match=r"targets do not fit the outputs: expected classes of shape \(26,\)"
        ):
            train(nn.Linear(4, 3).double(), X, y, replace(settings, batch=None), key=Key(0))
    with pytest.raises(InputError, match=r"expected outputs of shape \(n, c\)"):
        train(nn.Linear(4, 1).double(), X, Y, settings, key=Key(0), forward=lambda m, x: m(x)[:, 0])


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (-0.1, 0.9)])
def test_a_single_output_divides_at_the_middle_of_its_targets(low, high):
    y = torch.where(X[:, 0] > 0, high, low)
    for targets in (y, y[:, None]):
        history = train(nn.Linear(4, 1).double(), X, targets, Training(200, 0.05, batch=None), key=Key(0))
        assert history["train accuracy"][-1] > 0.85
        assert history["train accuracy"][-1] > history["train accuracy"][0]


def test_binary_cross_entropy_of_one_logit():
    y = (X[:, 0] > 0).long()
    history = train(
        nn.Linear(4, 1).double(), X, y, Training(60, 0.5, batch=13, loss="bce", drop_last=True), key=Key(0)
    )
    assert history["train accuracy"][-1] > 0.9
    assert history["step"][-1] == 60 * 2


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 1.1), (0.0, float("nan"))])
def test_binary_cross_entropy_refuses_targets_that_are_no_probabilities_and_takes_no_step(low, high):
    model, y = nn.Linear(4, 1).double(), torch.where(X[:, 0] > 0, high, low)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(InputError, match=r"no probabilities: expected numbers from 0 to 1, got from .*y > 0"):
        train(model, X, y, Training(3, 0.5, batch=None, loss="bce"), key=Key(0))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    between = torch.where(X[:, 0] > 0, 0.9, 0.1)
    train(model, X, between, Training(3, 0.5, batch=None, loss="bce"), key=Key(0))


def test_inputs_may_be_trees_and_the_call_a_rule():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(2, 3)

        def forward(self, left, right):
            return self.a(left) + self.b(right)

    batch = {"left": X, "right": X[:, :2]}
    for module in (Two().double(), linearize(Two().double())):
        before = module(**batch).detach()
        train(module, batch, Y, SETTINGS["adam"], key=Key(0))
        assert not torch.equal(module(**batch), before)
    ruled = linearize(Two().double(), forward=lambda m, b: m(b["left"], b["right"]))
    history = train(ruled, batch, Y, SETTINGS["adam"], key=Key(0), forward=lambda m, b: m(b))
    assert history["train loss"][-1] < history["train loss"][0]


# -- the end -----------------------------------------------------------------------------------------------------


def test_training_stops_at_the_first_epoch_that_reaches_the_bound():
    settings = Training(epochs=300, learning_rate=0.05, batch=8, loss="cross-entropy", optimizer="adam")
    by_loss = train(network(), X, Y, replace(settings, stop=Stop(loss=0.5)), key=Key(0))
    assert by_loss.ended == "train loss <= 0.5"
    assert by_loss["train loss"][-1] <= 0.5 < min(by_loss["train loss"][:-1])
    watched = replace(settings, stop=Stop(accuracy=0.9, on="all"))
    by_accuracy = train(network(), X, Y, watched, key=Key(0), watch={"all": (X, Y)})
    assert by_accuracy.ended == "all accuracy >= 0.9"
    assert by_accuracy["all accuracy"][-1] >= 0.9 > max(by_accuracy["all accuracy"][:-1])
    assert train(network(), X, Y, SETTINGS["sgd"], key=Key(0)).ended == "epochs"


def test_divergence_is_an_error_and_the_last_checkpoint_stays(tmp_path):
    path = tmp_path / "run.pt"
    settings = Training(epochs=400, learning_rate=5.0, batch=None)
    with pytest.raises(NumericalError, match="diverged in epoch"):
        train(nn.Linear(4, 3).double(), X, Y, settings, key=Key(0), checkpoint=path)
    content = torch.load(path, weights_only=True)
    assert all(torch.isfinite(value).all() for value in content["model"].values())
    with pytest.raises(NumericalError, match="diverged in epoch 1:"):
        train(nn.Linear(4, 3).double(), X * float("inf"), Y, settings, key=Key(0))


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("epochs", 0, "bad epochs"), ("batch", 0, "bad batch"), ("learning_rate", 0.0, "bad learning_rate"),
        ("learning_rate", float("nan"), "bad learning_rate"), ("momentum", 1.0, "bad momentum"),
        ("weight_decay", -1.0, "bad weight_decay"), ("optimizer", "sdg", "unknown optimizer"),
        ("loss", "l1", "unknown loss"), ("optimizer", "adam", "momentum is for sgd"),
    ],
)  # fmt: skip
def test_settings_are_checked(field, value, error):
    with pytest.raises((InputError, UnknownNameError), match=error):
        replace(SETTINGS["sgd"], **{field: value})
    with pytest.raises(InputError):
        Stop()
    with pytest.raises(InputError, match="bad every"):
        StepDecay(every=0)


class OneByOne(Dataset):
    """Pairs that are read by their index."""

    def __init__(self, x=X, y=Y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Together(OneByOne):
    def __getitems__(self, numbers):
        return [self[i] for i in numbers]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("make", [OneByOne, Together, lambda: TensorDataset(X, Y)])
def test_a_data_set_that_is_read_trains_as_one_in_memory(settings, make, tmp_path):
    held, read = network(), network()
    watch = {"again": (X, Y)}
    expected = train(held, X, Y, settings, key=Key(0), watch=watch, checkpoint=tmp_path / "a")
    half = replace(settings, epochs=2, schedule=ConstantRate())
    found = train(read, make(), None, settings, key=Key(0), watch={"again": make()})
    assert same(held, read)
    assert found.rows == expected.rows
    # They are the same run: one goes on where the other ended.
    resumed = network()
    assert (
        train(resumed, make(), None, settings, key=Key(0), watch=watch, checkpoint=tmp_path / "a") == expected
    )
    assert same(resumed, held)
    with pytest.raises(InputError, match="another training run"):
        train(network(), make(), None, half, key=Key(0), watch=watch, checkpoint=tmp_path / "a")
    other = OneByOne(X, (Y + 1) % 3)
    with pytest.raises(InputError, match=r"another training run: expected data"):
        train(network(), other, None, settings, key=Key(0), watch=watch, checkpoint=tmp_path / "a")


def test_a_data_set_reads_no_more_than_a_mini_batch():
    class Counting(OneByOne):
        taken: list[int] = []  # noqa: RUF012

        def __getitems__(self, numbers):
            self.taken.append(len(numbers))
            return [self[i] for i in numbers]

    pairs = Counting()
    train(network(), pairs, None, SETTINGS["adam"], key=Key(0))
    assert max(pairs.taken) == SETTINGS["adam"].batch
    assert sum(pairs.taken) == 4 * N


def test_data_are_checked():
    model, settings = network(), SETTINGS["sgd"]
    with pytest.raises(InputError, match="differ in number"):
        train(model, X, Y[:-1], settings, key=Key(0))
    with pytest.raises(InputError, match="targets do not fit"):
        train(model, X, X, settings, key=Key(0))
    with pytest.raises(InputError, match=r"no targets: expected y, or a Dataset"):
        train(model, X, None, settings, key=Key(0))
    with pytest.raises(InputError, match="targets beside a data set"):
        train(model, OneByOne(), Y, settings, key=Key(0))
    with pytest.raises(InputError, match="empty data set"):
        train(model, OneByOne(X[:0], Y[:0]), None, settings, key=Key(0))
    with pytest.raises(InputError, match=r"not labeled samples: expected pairs"):
        train(model, TensorDataset(X), None, settings, key=Key(0))
    with pytest.raises(InputError, match="in any order"):
        train(model, ChainDataset([]), None, settings, key=Key(0))
    with pytest.raises(InputError, match="no step"):
        train(model, X[:4], Y[:4], replace(settings, drop_last=True), key=Key(0))
    with pytest.raises(InputError, match="no parameter requires grad"):
        train(network().requires_grad_(False), X, Y, settings, key=Key(0))
    with pytest.raises(UnknownNameError, match="unknown set"):
        train(
            model, X, Y, replace(settings, stop=Stop(loss=1.0, on="tset")), key=Key(0), watch={"test": (X, Y)}
        )
    with pytest.raises(InputError, match="watched set"):
        train(model, X, Y, settings, key=Key(0), watch={"train": (X, Y)})
    with pytest.raises(InputError, match="bad every"):
        train(model, X, Y, settings, key=Key(0), every=0)
    with pytest.raises(UnknownNameError, match="train accuracy"):
        train(network(), X, Y, settings, key=Key(0))["train acuracy"]


def test_progress_is_reported_and_can_be_shown(capsys):
    told = []
    train(network(), X, Y, SETTINGS["sgd"], key=Key(0), progress=lambda *a: told.append(a), stage="net")
    assert told == [("net", done, 4) for done in range(5)]
    train(network(), X, Y, SETTINGS["sgd"], key=Key(0), progress=True)
    assert capsys.readouterr().out == ""
