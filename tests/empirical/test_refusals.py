"""Bad input: each refusal says what was expected, what came and what to do next."""

import pytest
import torch
from torch import nn

from tangentkit.core import BudgetError, InputError, ModelError, NumericalError, UnknownNameError
from tangentkit.empirical import ConjugateKernel, EmbeddingKernel, MonteCarloKernel, TangentKernel
from tangentkit.linearized import linearize
from tangentkit.sketch import SketchedTangentKernel

X = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(6, 4)


def network(*extra):
    return nn.Sequential(nn.Linear(4, 5), *extra, nn.Tanh(), nn.Linear(5, 3)).double().eval()


def refused(error, text, act):
    with pytest.raises(error, match=text) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (
            nn.BatchNorm1d(5),
            "BatchNorm1d '1' is in training mode, where a sample's output depends on the others",
        ),
        (nn.Dropout(0.5), "Dropout '1' is in training mode, where outputs are random"),
        (nn.AlphaDropout(0.1), "AlphaDropout '1' is in training mode, where outputs are random"),
    ],
)
def test_layers_that_mix_samples_in_training_mode_are_refused(layer, text):
    model = network(layer).train()
    for make in (TangentKernel, ConjugateKernel, EmbeddingKernel):
        message = refused(ModelError, text, lambda make=make: make(model))
        assert message.endswith("Try: model.eval()")
    TangentKernel(model.eval())(X)


@pytest.mark.parametrize("layer", [nn.MultiheadAttention(4, 2, dropout=0.1), nn.LSTM(4, 4, 2, dropout=0.1)])
def test_dropout_inside_layers(layer):
    refused(ModelError, "is in training mode, where outputs are random", lambda: TangentKernel(layer.train()))


@pytest.mark.parametrize("layer", [nn.Dropout(0.0), nn.Identity()])
def test_harmless_training_mode_is_accepted(layer):
    model = network(layer).train()
    assert torch.equal(TangentKernel(model)(X), TangentKernel(model.eval())(X))


@pytest.mark.parametrize(
    ("forward", "text"),
    [
        (lambda m, x: m(x).mean(), "returns one number for the whole batch, a loss say: .*outputs='loss'"),
        (
            lambda m, x: m(x)[:, :, None],
            r"bad output shape: expected \(n, c\), .*, got \(n, 3, 1\). Try: .*flatten",
        ),
        (lambda m, x: m(x).sum(0, keepdim=True), r"bad output shape: expected \(n, c\), .*, got \(1, 3\)"),
        (lambda m, x: m(x)[:, :0], r"bad output shape: expected \(n, c\), .*, got \(n, 0\)"),
        (
            lambda m, x: (m(x), m(x)),
            "the model's output is not a tensor: expected .*, got tuple. Try: forward=",
        ),
        (
            lambda m, x: m(x).argmax(1, keepdim=True),
            "bad output dtype: expected a floating-point type, got torch.int64",
        ),
    ],
)
def test_outputs_that_are_not_n_by_c(forward, text):
    refused(ModelError, text, lambda: TangentKernel(network(), forward=forward)(X))


@pytest.mark.parametrize(
    ("forward", "text"),
    [
        (torch.no_grad()(lambda m, x: m(x)), r"runs under torch.no_grad, .detach\(\) or NumPy"),
        (lambda m, x: m(x).detach(), r"runs under torch.no_grad, .detach\(\) or NumPy"),
        (
            lambda m, x: torch.from_numpy(m(x).detach().numpy()),
            r"runs under torch.no_grad, .detach\(\) or NumPy",
        ),
        (torch.inference_mode()(lambda m, x: m(x)), "runs under inference mode"),
    ],
    ids=["no_grad", "detach", "numpy", "inference mode"],
)
def test_forward_passes_without_gradients(forward, text):
    kernel = TangentKernel(network(), forward=forward)
    for ask in (kernel, kernel.diag, kernel.plan, lambda x: kernel.product(x, torch.ones(6, 3).double())):
        refused(
            ModelError,
            f"no parameter reaches the output: the forward pass {text}.* Try: remove it",
            lambda a=ask: a(X),
        )
    refused(
        ModelError, "no parameter reaches", lambda: SketchedTangentKernel(network(), 64, forward=forward)(X)
    )
    refused(ModelError, "no parameter reaches", lambda: linearize(network(), forward=forward)(X))


def test_a_selection_that_does_not_reach_the_output():
    model = network()
    model.idle = nn.Parameter(torch.ones(3).double())
    text = r"none of the selected parameters reaches the output: .* one of those that do \(.*0.weight.*\), got idle"
    refused(ModelError, text, lambda: TangentKernel(model, params=["idle"], forward=lambda m, x: m[:3](x))(X))


def test_non_finite_parameters_and_buffers():
    model = network(nn.BatchNorm1d(5))
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    refused(NumericalError, "0.weight is not finite. Try: ", lambda: TangentKernel(model))
    model = network(nn.BatchNorm1d(5))
    model[1].running_var[0] = torch.inf
    refused(NumericalError, "1.running_var is not finite", lambda: TangentKernel(model))


def test_non_finite_inputs():
    bad = X.clone()
    bad[2, 1], bad[4, 0] = torch.nan, torch.inf
    kernel = TangentKernel(network())
    text = r"inputs are not finite: got nan or inf in samples \[2, 4\] \(2 in all\)"
    refused(InputError, text, lambda: kernel(bad))
    refused(InputError, text, lambda: kernel(X, bad))
    refused(InputError, text, lambda: kernel.diag(bad))
    refused(InputError, text, lambda: kernel.plan(bad))
    refused(InputError, text, lambda: ConjugateKernel(network())(bad))


def test_non_finite_results():
    model = network()
    infinite = TangentKernel(model, forward=lambda m, x: (m(x) * 0).abs().sqrt())
    message = refused(
        NumericalError, "the kernel is not finite: expected finite gradients", lambda: infinite(X)
    )
    assert "Try: " in message
    refused(NumericalError, "not finite", lambda: infinite.diag(X))
    refused(NumericalError, "not finite", lambda: infinite.product(X, torch.ones(6, 3).double()))
    huge = nn.Linear(4, 3)
    with torch.no_grad():
        huge.weight.fill_(1e30)
    overflow = TangentKernel(nn.Sequential(huge, nn.Linear(3, 1)))
    refused(NumericalError, "not finite", lambda: overflow(X.float() * 1e8))


@pytest.mark.parametrize("make", [TangentKernel, ConjugateKernel, EmbeddingKernel])
def test_batches_that_are_none(make):
    kernel = make(network())
    refused(InputError, "empty batch: expected at least one sample, got none", lambda: kernel(X[:0]))
    refused(InputError, "empty batch", lambda: kernel(X, X[:0]))
    refused(InputError, "not a batch: expected tensors with the samples first", lambda: kernel(X[0, 0]))
    refused(
        InputError, "not a batch: expected a tensor or a pytree of tensors, got str", lambda: kernel("images")
    )


@pytest.mark.parametrize("make", [TangentKernel, ConjugateKernel, EmbeddingKernel])
def test_batches_that_do_not_match(make):
    kernel = make(network(), forward=lambda m, b: m(b["x"]))
    refused(InputError, "one length of the first axis, got lengths", lambda: kernel({"x": X, "y": X[:2]}))
    message = refused(InputError, "batches do not match", lambda: kernel({"x": X}, {"x": X, "y": X}))
    assert "expected {'x': float64 (n, 4)}, got {'x': float64 (n, 4), 'y': float64 (n, 4)}" in message
    refused(InputError, "batches do not match", lambda: make(network())(X, X[:, :3]))
    refused(InputError, "batches do not match", lambda: make(network())(X, (X,)))


@pytest.mark.parametrize("make", [TangentKernel, ConjugateKernel, EmbeddingKernel])
def test_dtype_and_device_mixes(make):
    text = "inputs and model differ in dtype: expected torch.float64, got torch.float32. Try: "
    refused(InputError, text, lambda: make(network())(X.float()))
    refused(InputError, "differ in dtype|batches do not match", lambda: make(network())(X, X.float()))
    text = "inputs and model differ in device: expected cpu, got meta. Try: "
    refused(InputError, text, lambda: make(network())(X.to("meta")))
    model = network()
    model[0].float()
    refused(
        ModelError,
        "parameters are mixed: expected one dtype and device, got torch.float32 .*torch.float64",
        lambda: make(model),
    )


def test_names_of_parameters():
    message = refused(
        UnknownNameError,
        "unknown parameter '0.wieght'",
        lambda: TangentKernel(network(), params=["0.wieght"]),
    )
    assert "'0.weight'" in message
    refused(
        InputError,
        "params is one string: expected a list of names",
        lambda: TangentKernel(network(), params="0.weight"),
    )
    refused(InputError, "no parameter is selected", lambda: TangentKernel(network(), params=lambda *_: False))
    refused(InputError, "no parameter is selected", lambda: TangentKernel(network(), params=[]))
    refused(
        InputError,
        "no parameter is selected: .* Try: requires_grad_",
        lambda: TangentKernel(network().requires_grad_(False)),
    )


@pytest.mark.parametrize(
    ("outputs", "error", "text"),
    [
        ("tracee", UnknownNameError, "unknown kind of outputs 'tracee'. Try: 'trace'"),
        (torch.ones(2, 3), InputError, r"bad outputs: expected a vector \(c,\), got shape \(2, 3\)"),
        (1.5, InputError, "bad outputs: expected .*an index or a vector"),
        (True, InputError, "bad outputs"),
        (None, InputError, "bad outputs"),
    ],
)
def test_kinds_of_outputs(outputs, error, text):
    refused(error, text, lambda: TangentKernel(network(), outputs))


def test_outputs_that_do_not_fit():
    refused(
        InputError, "bad outputs: expected an index below 3, got 3", lambda: TangentKernel(network(), 3)(X)
    )
    refused(
        InputError,
        "expected a vector of length 3, got length 2",
        lambda: TangentKernel(network(), torch.ones(2))(X),
    )
    assert torch.equal(TangentKernel(network().requires_grad_(), -1)(X).isfinite().all(), torch.tensor(True))


def test_bad_numbers_of_probes_are_refused():
    for probes, outputs in ((0, "trace"), (-1, "trace"), (4, "full"), (4, 0)):
        refused(
            InputError,
            "bad probes: expected a number >= 1",
            lambda p=probes, o=outputs: TangentKernel(network(), o, probes=p),
        )


def test_bad_memory_sizes_and_too_small_ones_are_refused():
    refused(InputError, "bad memory size", lambda: TangentKernel(network(), memory="lots"))
    refused(InputError, "bad memory size", lambda: TangentKernel(network(), memory=0))
    message = refused(
        BudgetError, "does not fit the memory budget", lambda: TangentKernel(network(), memory=10)(X)
    )
    assert "got 10 B" in message
    assert "Try: memory=" in message


def test_vectors_of_products():
    kernel = TangentKernel(network())
    for v in (torch.ones(6), torch.ones(5, 3), torch.ones(6, 2)):
        refused(InputError, r"bad vector: expected shape \(6, 3\)", lambda v=v: kernel.product(X, v.double()))


def test_zero_diagonal_cannot_be_normalized():
    model = nn.Linear(4, 1, bias=False).double()
    x = X.clone()
    x[3] = 0
    message = refused(NumericalError, "cannot be normalized", lambda: TangentKernel(model).normalized()(x))
    assert "zero for samples [3] (1 in all)" in message


def test_factors_of_kernels():
    kernel = TangentKernel(network())
    for factor in (-1.0, float("nan"), float("inf")):
        refused(InputError, "bad factor of a kernel", lambda f=factor: f * kernel)


def test_layers_by_name():
    refused(UnknownNameError, "unknown layer '3'", lambda: ConjugateKernel(network(), "3"))
    refused(UnknownNameError, "unknown layer 'tanh'", lambda: EmbeddingKernel(network(), ["tanh"]))
    refused(InputError, "layers is one string", lambda: EmbeddingKernel(network(), "0"))
    message = refused(InputError, "layer is no name", lambda: ConjugateKernel(network(), ["0", "2"]))
    assert "Try: EmbeddingKernel" in message


def test_number_of_initializations():
    refused(
        InputError,
        "bad number of samples: expected a whole number, at least 1, got 0",
        lambda: MonteCarloKernel(network, 0),
    )
    refused(InputError, "bad number of samples", lambda: MonteCarloKernel(network, 2.5))
    refused(InputError, "no standard error", lambda: MonteCarloKernel(network, 1).with_error(X))


def test_what_makes_models():
    refused(InputError, "make_model is a module: expected a function", lambda: MonteCarloKernel(network()))
    refused(InputError, "made no module: expected a module, got int", lambda: MonteCarloKernel(lambda: 3)(X))


def test_nothing_is_left_behind_by_a_refusal():
    model = network()
    kernel = TangentKernel(model, forward=lambda m, x: (m(x) * 0).abs().sqrt())
    refused(NumericalError, "not finite", lambda: kernel(X))
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(child._forward_hooks or child._forward_pre_hooks for child in model.modules())
    assert torch.is_grad_enabled()
