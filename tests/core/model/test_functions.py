import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from tangentkit.core import InputError, ModelError, NumericalError, snapshot
from tangentkit.core.model.functions import check_inputs


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 3), nn.Linear(4, 3)

    def forward(self, a, b):
        return self.left(a) + self.right(b)


def test_a_snapshot_gives_the_outputs_of_its_module():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(5, 3)
    f = snapshot(model)
    assert torch.equal(f(f.params, x), model(x))
    torch.testing.assert_close(f({**f.params, "2.bias": f.params["2.bias"] + 1}, x), model(x) + 1)


def test_tuples_dicts_and_forward_rules():
    model, a, b = TwoInputs(), torch.randn(5, 2), torch.randn(5, 4)
    f = snapshot(model)
    expected = model(a, b)
    assert torch.equal(f(f.params, (a, b)), expected)
    assert torch.equal(f(f.params, {"b": b, "a": a}), expected)
    g = snapshot(model, forward=lambda m, batch: m(*batch["inputs"])[:, :1])
    assert torch.equal(g(g.params, {"inputs": [a, b]}), expected[:, :1])


def test_a_snapshot_outlives_training():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).eval()
    x = torch.randn(5, 3)
    f, before = snapshot(model), model(x)
    model.train()
    for p in model.parameters():
        p.data += 1
    model(torch.randn(8, 3))
    state = copy.deepcopy(model.state_dict())
    assert torch.equal(f(f.params, x), before)
    assert all(child.training for child in model.modules())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_modes_come_back_after_an_error():
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).eval()
    f = snapshot(model)
    model.train()
    with pytest.raises(RuntimeError):
        f(f.params, torch.randn(5, 7))
    assert model[1].training


def test_buffers_written_in_a_call_do_not_drift():
    class Counter(nn.Linear):
        def __init__(self):
            super().__init__(2, 1)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return super().forward(x) * self.calls

    model, x = Counter(), torch.ones(1, 2)
    f = snapshot(model)
    assert torch.equal(f(f.params, x), f(f.params, x))
    assert model.calls == 0


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            nn.BatchNorm1d(2),
            "BatchNorm1d '1' is in training mode, where a sample's output depends on the others",
        ),
        (nn.Dropout(0.1), "Dropout '1' is in training mode, where outputs are random"),
        (nn.MultiheadAttention(2, 1, dropout=0.1), "MultiheadAttention '1'"),
    ],
)
def test_training_modes_are_refused(layer, message):
    model = nn.Sequential(nn.Linear(2, 2), layer)
    with pytest.raises(ModelError, match=message):
        snapshot(model)
    snapshot(model.eval())


def test_dropout_of_probability_zero_is_no_chance():
    assert snapshot(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))).params


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda m, x: m(x).mean(), r"one number for the whole batch.*before the loss"),
        (lambda m, x: m(x)[:, :, None], r"flatten\(1\)"),
        (lambda m, x: m(x)[:2], r"expected \(n, c\), a row for each sample, got \(2, 2\)"),
        (lambda m, x: m(x)[:, :0], r"got \(n, 0\)"),
        (lambda m, x: [m(x)], "not a tensor: expected .*, got list"),
        (lambda m, x: m(x).argmax(1, keepdim=True), "bad output dtype"),
    ],
)
def test_outputs_that_are_not_n_by_c_are_refused(forward, message):
    f = snapshot(nn.Linear(3, 2), forward=forward)
    with pytest.raises(ModelError, match=message):
        f(f.params, torch.ones(4, 3))


def test_non_finite_and_mixed_parameters_are_refused():
    model = nn.Linear(3, 2)
    model.bias.data[0] = float("nan")
    with pytest.raises(NumericalError, match="bias is not finite"):
        snapshot(model)
    with pytest.raises(
        ModelError, match=r"expected one dtype and device, got torch.float32 on cpu, torch.float64"
    ):
        snapshot(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))


def test_inputs_of_other_dtype_or_not_finite_are_refused():
    f = snapshot(nn.Linear(3, 2))
    with pytest.raises(InputError, match=r"expected torch.float32, got torch.float64"):
        check_inputs(f, torch.ones(2, 3).double())
    x = torch.ones(4, 3)
    x[2, 1] = float("inf")
    with pytest.raises(InputError, match=r"nan or inf in samples \[2\]"):
        check_inputs(f, x)
    check_inputs(f, {"ids": torch.ones(4, dtype=torch.long), "x": torch.ones(4)})


def test_what_is_no_model_or_has_no_values_is_refused():
    with pytest.raises(ModelError, match=r"expected an nn.Module, got function"):
        snapshot(lambda x: x)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ModelError, match=r"weight has no values yet.*load_state_dict"):
        snapshot(nn.Linear(3, 2, device="meta"))
    with pytest.raises(ModelError, match=r"weight has no values yet"):
        snapshot(nn.LazyLinear(2))


def test_outputs_come_in_the_dtype_of_the_parameters():
    f = snapshot(nn.Linear(3, 2), forward=lambda m, x: m(x).double())
    assert f(f.params, torch.ones(4, 3)).dtype == torch.float32


def test_what_the_module_holds_already_is_not_swapped_again():
    model = nn.Linear(3, 2)
    f, g = snapshot(model), snapshot(model)
    leaves = {name: p.detach().requires_grad_() for name, p in f.params.items()}
    others = {name: p + 1 for name, p in f.params.items()}

    def weight() -> torch.Tensor:
        return f.module.weight

    def values() -> list[torch.Tensor]:
        again = {name: p.detach().requires_grad_() for name, p in f.params.items()}
        with ThreadPoolExecutor(1) as threads:  # another thread holds nothing, and waits for its turn
            elsewhere = threads.submit(lambda: f._is_held(again))
            assert not elsewhere.result()
        foreign = g.held(g.params, lambda: g.module.weight)
        return [*(f.held(params, weight) for params in (again, f.params, others)), foreign]

    same, plain, other, foreign = f.within(leaves, values)
    assert same is leaves["weight"]
    assert plain is f.params["weight"]  # it does not wait for gradients
    assert other is others["weight"]
    assert foreign is g.params["weight"]
    assert f.held(leaves, weight) is leaves["weight"]  # nothing held: swapped for the time of the work


def written(model):
    model.running_mean += 1


def replaced(model):
    model.running_mean = model.running_mean + 1


@pytest.mark.parametrize("change", [written, replaced])
def test_after_a_change_of_buffers_the_snapshot_comes_back(change):
    model = nn.BatchNorm1d(2).eval()
    f = snapshot(model)

    def count() -> float:
        change(f.module)
        return f.module.running_mean[0].item()

    assert f.within(f.params, lambda: [f.held(f.params, count) for _ in range(3)]) == [1, 1, 1]
    assert not model.running_mean.any()


def test_threads_that_share_a_module_leave_it_as_it_was():
    model = nn.Sequential(nn.Linear(3, 50), nn.Tanh(), nn.Linear(50, 2))
    own = {id(p) for p in model.parameters()}
    functions = [snapshot(model) for _ in range(4)]
    for k, f in enumerate(functions):
        f.params["2.bias"] += k
    x = torch.randn(5, 3)
    expected = [model(x) + k for k in range(4)]

    def work(k: int) -> float:
        return max((functions[k](functions[k].params, x) - expected[k]).abs().max().item() for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(work, range(4))) < 1e-6
    assert {id(p) for p in model.parameters()} == own


def test_a_plain_lstm_gives_the_same_and_leaves_the_flag():
    model, x = nn.LSTM(3, 4, batch_first=True), torch.randn(5, 6, 3)
    f = snapshot(model, forward=lambda m, x: m(x)[0][:, -1])
    expected = model(x)[0][:, -1]
    torch.testing.assert_close(f(f.params, x), expected)
    assert torch._C._get_mkldnn_enabled()
    with pytest.raises(RuntimeError):
        f(f.params, torch.randn(5, 6, 7))
    assert torch._C._get_mkldnn_enabled()
