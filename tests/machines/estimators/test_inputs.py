"""What machines take: arrays, matrices that others made; and what they say where something else was meant."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import tangentkit as tk
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.linalg import DenseOperator

MACHINES = [
    tk.KernelRegression(ridge=0.1),
    tk.NystromRegression(ridge=0.1, landmarks=9),
    tk.KernelLogistic(ridge=0.1),
    tk.KernelGLM(ridge=0.1),
    tk.KernelRidgeClassifier(ridge=0.1),
]


def name(machine):
    return type(machine).__name__


every_machine = pytest.mark.parametrize("machine", MACHINES, ids=name)


def network(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 2)).to(dtype)


def samples(n=30):
    """float64 arrays, as scikit-learn has them, and labels."""
    x = np.random.default_rng(0).normal(size=(n, 4))
    return x, (x[:, 0] * x[:, 1] > 0).astype(int)


# Arrays and lists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.half, torch.bfloat16])
@pytest.mark.parametrize(
    "machine",
    [tk.KernelRegression(ridge=1e-6), tk.NystromRegression(landmarks=20, ridge=1e-6)],
    ids=name,
)
def test_weights_are_not_rounded_to_the_precision_of_the_targets(machine, kind):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 3, dtype=torch.float64, generator=generator)
    w = 1e-9 + 1e-6 * torch.rand(20, dtype=torch.float64, generator=generator)
    K, y = torch.exp(-(torch.cdist(x, x) ** 2)), x[:, 0].to(kind)
    found, expected = (clone(machine).fit(K, targets, w).predict(K) for targets in (y, y.double()))
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)


@every_machine
def test_scikit_learns_tools_run_on_float64_arrays_with_a_float32_model(machine):
    x, y = samples()
    kernel = tk.ConjugateKernel(network(), bias=True)
    pipeline = make_pipeline(StandardScaler(), clone(machine).set_params(kernel=kernel))
    assert pipeline.fit(x, y).predict(x).shape == (30,)
    assert np.isfinite(cross_val_score(pipeline, x, y, cv=2)).all()
    search = GridSearchCV(pipeline, {f"{machine.__class__.__name__.lower()}__ridge": [0.1, 1.0]}, cv=2)
    assert np.isfinite(search.fit(x, y).best_score_)


@pytest.mark.parametrize(
    "kernel",
    [
        tk.TangentKernel(network()),
        tk.EmbeddingKernel(network()),
        tk.SketchedTangentKernel(network(), dim=32),
        tk.MonteCarloKernel(network, samples=1),
        2.0 * tk.ConjugateKernel(network()).normalized() + tk.TangentKernel(network()),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_arrays_and_lists_are_cast_to_the_models_dtype(kernel):
    x, y = samples(12)
    machine = tk.KernelRegression(kernel, ridge=0.1)
    expected = (
        clone(machine)
        .fit(torch.from_numpy(x).float(), torch.from_numpy(y))
        .predict(torch.from_numpy(x).float())
    )
    for given in (x, x.tolist(), x[:, ::-1][:, ::-1], np.asfortranarray(x)):
        found = clone(machine).fit(given, y).predict(given)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-3)
    with pytest.raises(InputError, match=r"differ in dtype: expected torch.float32, got torch.float64"):
        clone(machine).fit(torch.from_numpy(x), y)
    with pytest.raises(InputError, match=r"differ in dtype|batches do not match"):
        clone(machine).fit(x, y).predict(torch.from_numpy(x))


@every_machine
@pytest.mark.parametrize("dtype", [">f8", ">f4", np.longdouble, np.float16])
def test_arrays_of_dtypes_that_torch_does_not_have_are_cast_too(machine, dtype):
    x, y = samples()
    x = x.astype(np.float16)
    machine = clone(machine).set_params(kernel=tk.ConjugateKernel(network()))
    expected = clone(machine).fit(x.astype(float), y).predict(x.astype(float))
    found = machine.fit(x.astype(dtype), y.astype(">i8")).predict(x.astype(dtype))
    np.testing.assert_array_equal(found, expected)


def test_labels_in_another_byte_order_come_back_as_tensors():
    x, y = samples()
    machine = tk.KernelRidgeClassifier("features").fit(torch.from_numpy(x), y.astype(">i4"))
    assert isinstance(machine.predict(torch.from_numpy(x)), torch.Tensor)


def test_the_initial_function_sees_samples_in_its_own_dtype():
    x, y = samples(12)
    model = network()
    expected = model(torch.from_numpy(x).float())[:, 0].detach().numpy()
    for kernel in (tk.TangentKernel(network(), outputs=0), lambda x, y: x @ y.T):
        machine = tk.KernelRegression(kernel, ridge=1e9, f0=lambda x: model(torch.as_tensor(x).float())[:, 0])
        np.testing.assert_allclose(machine.fit(x, y).predict(x), expected, atol=1e-5)
        machine.set_params(f0=nn.Sequential(model, nn.Linear(2, 1)))
        assert machine.fit(x, y).predict(x).shape == (12,)


def test_integers_stay_integers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 1))
    tokens = np.random.default_rng(0).integers(0, 9, size=(10, 3))
    machine = tk.KernelRegression(tk.TangentKernel(model), ridge=0.1)
    assert machine.fit(tokens, np.arange(10.0)).predict(tokens).shape == (10,)


# Matrices that others made ------------------------------------------------------------------------------


@every_machine
def test_a_float32_matrix_in_float64_is_symmetric_within_the_rounding_of_float32(machine):
    x, y = samples(12)
    Phi = torch.from_numpy(x).float()
    K = Phi @ Phi.T + torch.eye(12)
    K = K * (1 + 1e-6 * torch.rand(12, 12, generator=Key(0).torch()))
    found = clone(machine).fit(K.double(), y).predict(K.double())
    symmetric = (K.double() + K.double().T) / 2
    expected = clone(machine).fit(symmetric, y).predict(symmetric)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(NumericalError, match="not symmetric"):
        clone(machine).fit((K * (1 + 1e-2 * torch.rand(12, 12))).double(), y)
    with pytest.raises(NumericalError, match="not symmetric"):
        clone(machine).fit(
            K.double() * 1.1, y
        )  # made in float64, as its digits say, but not symmetric to them


@every_machine
def test_the_librarys_own_cosines_are_taken_in_float64(machine):
    x, y = samples(12)
    K = tk.TangentKernel(network()).normalized()(torch.from_numpy(x).float())
    assert clone(machine).fit(K.double(), y).predict(K.double()).shape == (12,)


# Targets ------------------------------------------------------------------------------------------------


@every_machine
def test_targets_in_one_row_are_refused(machine):
    x, y = samples(12)
    K = torch.from_numpy(x @ x.T) + torch.eye(12)
    for given, kernel in ((K, "precomputed"), (DenseOperator(K), "precomputed"), (x, lambda x, y: x @ y.T)):
        with pytest.raises(InputError, match=r"got \(1, 12\). Try: y\[0\]"):
            clone(machine).set_params(kernel=kernel).fit(given, y[None])


def test_dynamics_refuse_targets_in_one_row():
    K = torch.eye(6, dtype=torch.float64)
    with pytest.raises(InputError, match=r"got \(1, 6\). Try: y\[0\]"):
        tk.Dynamics(K, torch.ones(1, 6))
    with pytest.raises(InputError, match=r"got \(1, 6\). Try: y\[0\]"):
        tk.InfiniteEnsemble((K,), torch.ones(1, 6))
    assert tk.Dynamics(K.reshape(1, 6, 1, 6), torch.ones(1, 6)).predictions(1.0).shape == (1, 6)


def test_samples_are_not_read_as_samples_times_outputs():
    x, y = samples(12)
    kernel = tk.ConjugateKernel(network())
    with pytest.raises(InputError, match=r"expected shape \(12,\) or \(12, c\), got \(4, 3\)"):
        tk.KernelRegression(kernel, ridge=0.1).fit(x, y.reshape(4, 3))
    with pytest.raises(InputError, match=r"expected 12 labels, got 6"):
        tk.KernelLogistic(tk.TangentKernel(network()), ridge=0.1).fit(x, y[:6])
    full = tk.TangentKernel(network(), outputs="full")
    with pytest.raises(InputError, match=r"expected shape \(12, 2\), got \(12,\)$"):
        tk.KernelRegression(full, ridge=0.1).fit(x, y)


@pytest.mark.parametrize("solver", ["eigh", "features"])
def test_leave_one_out_errors_of_samples_without_weight_follow_the_ridge_path(solver):
    x, y = samples(12)
    weights = np.ones(12)
    weights[[2, 7]] = 0.0
    machine = tk.KernelRegression("features", ridge=0.1, solver=solver).fit(x, y, weights)
    for ridge, other in zip((1.0, 30.0), machine.ridge_path([1.0, 30.0]), strict=True):
        fresh = tk.KernelRegression("features", ridge=ridge, solver=solver).fit(x, y, weights)
        np.testing.assert_allclose(other.leave_one_out(), fresh.leave_one_out(), rtol=1e-8)
        np.testing.assert_allclose(other.leave_one_out()[[2, 7]], (y - other.predict(x))[[2, 7]], rtol=1e-8)


# Messages -----------------------------------------------------------------------------------------------


@every_machine
def test_what_is_no_kernel_is_refused_with_the_kernel_that_was_meant(machine):
    x, y = samples(12)
    for wrong, words in (
        (network(), r"not a kernel.*got Sequential. Try: .*tk.TangentKernel\(model\)"),
        (tk.ConjugateKernel, r"got the class ConjugateKernel. Try: ConjugateKernel\(model\)"),
        (nn.Linear, "not a kernel.*got the class Linear"),
        (torch.eye(3), r'got Tensor. Try: .*kernel="precomputed"'),
        ("rbf", "'rbf' is a name of scikit-learn's.*Try: sklearn.metrics.pairwise.rbf_kernel"),
        (
            "precomputed",
            r"not square: expected k\(X, X\).*got \(12, 4\). Try: kernel=\"features\" or a kernel",
        ),
    ):
        with pytest.raises(InputError, match=words):
            clone(machine).set_params(kernel=wrong).fit(x, y)


@every_machine
def test_the_error_for_too_few_targets_shows_the_shape_they_came_in(machine):
    x, y = samples(12)
    machine = clone(machine).set_params(kernel=tk.ConjugateKernel(network()))
    with pytest.raises(
        InputError,
        match=r"do not match the samples: expected (shape \(12,\) or .*|12 labels), got \(?11\b(,\))?$",
    ):
        machine.fit(x, y[:11])


@pytest.mark.parametrize("machine", MACHINES[2:], ids=name)
def test_a_class_alone_is_named_as_the_user_has_it(machine):
    with pytest.raises(InputError, match=r"got one class, 0$"):
        clone(machine).fit(np.eye(3), np.zeros(3, dtype=int))


@every_machine
def test_sparse_targets_and_weights_are_refused(machine):
    x, y = samples(12)
    K = torch.from_numpy(x @ x.T) + torch.eye(12)
    with pytest.raises(InputError, match=r"sparse (targets|labels).*to_dense"):
        clone(machine).fit(K, torch.from_numpy(y).to_sparse())
    with pytest.raises(InputError, match=r"sparse sample weights.*to_dense"):
        clone(machine).fit(K, y, torch.ones(12).to_sparse())


def test_sparse_matrices_are_refused_by_spectra_and_dynamics():
    K, y = torch.eye(4, dtype=torch.float64), torch.ones(4)
    for ask in (
        tk.spectrum,
        tk.max_learning_rate,
        lambda K: tk.Dynamics(K, y),
        lambda K: tk.linalg.solve(K, y),
    ):
        with pytest.raises(InputError, match=r"sparse .*to_dense"):
            ask(K.to_sparse())
        with pytest.raises(InputError, match=r"got csr_array. Try: .toarray\(\)"):
            ask(csr_array(K.numpy()))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (0.1, r"got 0.1. Try: GradientDescent\(lr=0.1\)"),
        (tk.GradientFlow, r"got the class GradientFlow. Try: GradientFlow\(\)"),
        (tk.HeavyBall, r"got the class HeavyBall. Try: HeavyBall\(lr=..., momentum=...\)"),
        ("sgd", "got 'sgd'"),
    ],
)
def test_what_is_no_descent_is_refused_with_the_descent_that_was_meant(wrong, words):
    K, y = torch.eye(4, dtype=torch.float64), torch.ones(4)
    for make in (
        lambda: tk.Dynamics(K, y, descent=wrong),
        lambda: tk.InfiniteEnsemble((K,), y, descent=wrong),
    ):
        with pytest.raises(InputError, match=f"not a descent: expected GradientFlow.*{words}"):
            make()


@pytest.mark.parametrize("descent", [tk.GradientFlow(), tk.GradientDescent(0.1), tk.HeavyBall(0.1, 0.5)])
def test_descents_have_public_names(descent):
    assert tk.Dynamics(torch.eye(3).double(), torch.ones(3), descent=descent).losses(2.0) < 1.5


def test_cosines_of_samples_without_a_kernel_are_refused_on_the_diagonal_too():
    model = nn.Sequential(nn.Linear(4, 9, bias=False), nn.ReLU(), nn.Linear(9, 2))
    cosine = tk.ConjugateKernel(model).normalized()
    zeros = np.concatenate([samples(12)[0], np.zeros((1, 4))])
    for ask in (cosine, cosine.diag):
        with pytest.raises(NumericalError, match=r"zero for samples \[12\]"):
            ask(torch.from_numpy(zeros).float())


# Words --------------------------------------------------------------------------------------------------


@every_machine
def test_a_machine_says_its_options_and_sizes_in_a_line(machine):
    x, y = samples(12)
    machine = clone(machine).set_params(kernel="features")
    assert repr(machine).startswith(f"{name(machine)}(kernel='features', ")
    assert "ridge=0.1" in repr(machine)
    fitted = repr(machine.fit(x, y))
    assert fitted.startswith(repr(clone(machine)) + ", fitted on 12 samples (n, 4)")
    assert "\n" not in fitted


def test_networks_and_functions_are_named_and_not_printed():
    text = repr(tk.KernelRegression(name, f0=network()))
    assert text == "KernelRegression(f0=Sequential, kernel=name)"


def test_dynamics_say_their_sizes():
    K, y = torch.eye(4, dtype=torch.float64), torch.ones(4)
    assert (
        repr(tk.Dynamics(K, y, ridge=0.5))
        == "Dynamics(4 samples, 1 output, 4 modes, GradientFlow(), ridge=0.5)"
    )
    ensemble = tk.InfiniteEnsemble((K, K[:2], K[:2, :2]), y)
    assert repr(ensemble) == "InfiniteEnsemble(4 training points, 2 test points, GradientFlow())"
