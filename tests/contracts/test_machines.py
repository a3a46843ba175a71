"""What all machines share: kinds of inputs, clones, pickles, and what they refuse."""

import copy
import pickle

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn
from torch.utils.data import TensorDataset

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.linalg import DenseOperator
from tangentkit.machines import KernelGLM, KernelLogistic, KernelRegression, NystromRegression

MACHINES = [
    KernelRegression(ridge=0.1),
    NystromRegression(ridge=0.1, landmarks=5),
    KernelLogistic(ridge=0.1),
    KernelGLM(ridge=0.1),
]


def name(machine):
    return type(machine).__name__


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3)).double()


def images(n, *, seed=0):
    return torch.randn(n, 1, 6, 6, dtype=torch.float64, generator=Key(seed).fold(n).torch())


def labels(n):
    return torch.arange(n) % 3


def with_kernel(machine, kernel):
    return clone(machine).set_params(kernel=kernel)


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_images_as_tensors_and_as_arrays_give_the_same(machine):
    x, z, y = images(12), images(5, seed=1), labels(12)
    kernel = TangentKernel(network())
    tensors = with_kernel(machine, kernel).fit(x, y).predict(z)
    arrays = with_kernel(machine, kernel).fit(x.numpy(), y.numpy()).predict(z.numpy())
    given = clone(machine).fit(kernel(x), y).predict(kernel(z, x))
    assert isinstance(tensors, torch.Tensor)
    assert isinstance(arrays, np.ndarray)
    np.testing.assert_allclose(tensors.numpy(), arrays)
    np.testing.assert_allclose(given.numpy(), arrays)


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_answers_are_of_the_kind_of_the_question_and_coefficients_of_the_kind_of_the_data(machine):
    K, y = images(12).flatten(1) @ images(12).flatten(1).T, labels(12)
    fitted = clone(machine).fit(K, y)
    assert isinstance(fitted.predict(K.numpy()), np.ndarray)
    assert isinstance(fitted.predict(K), torch.Tensor)
    fitted.predict(K.numpy())
    assert isinstance(fitted.dual_coef_, torch.Tensor)


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_samples_may_be_a_dict(machine):
    x, z, y = images(12), images(5, seed=1), labels(12)
    model = network()
    kernel = TangentKernel(model, forward=lambda model, batch: model(batch["image"]))
    found = with_kernel(machine, kernel).fit({"image": x}, y).predict({"image": z})
    plain = with_kernel(machine, TangentKernel(model)).fit(x, y).predict(z)
    torch.testing.assert_close(found, plain)


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_operators_are_kernel_matrices(machine):
    x, z, y = images(12), images(5, seed=1), labels(12)
    kernel = ConjugateKernel(network())
    dense = clone(machine).fit(kernel(x), y).predict(kernel(z, x))
    found = clone(machine).fit(DenseOperator(kernel(x)), y).predict(DenseOperator(kernel(z, x)))
    torch.testing.assert_close(found, dense)


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_predictions_do_not_depend_on_the_memory_budget(machine):
    x, z, y = images(12), images(40, seed=1), labels(12)
    fitted = with_kernel(machine, TangentKernel(network())).fit(x, y)
    whole = fitted.predict(z)
    torch.testing.assert_close(fitted.set_params(memory=2000).predict(z), whole)


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_clones_share_the_kernel_and_nothing_that_was_fitted(machine):
    kernel = TangentKernel(network())
    fitted = with_kernel(machine, kernel).fit(images(12), labels(12))
    fresh = clone(fitted)
    assert fresh.kernel is kernel
    assert not any(key.endswith("_") and not key.startswith("__") for key in vars(fresh))


def test_clones_share_the_initial_function():
    model = network()
    machine = KernelRegression(TangentKernel(model, outputs="full"), f0=model)
    assert clone(machine).f0 is model


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_a_pickled_machine_predicts_the_same(machine):
    x, z, y = images(12), images(5, seed=1), labels(12)
    kernel = ConjugateKernel(network())
    given = clone(machine).fit(kernel(x), y)
    torch.testing.assert_close(
        pickle.loads(pickle.dumps(given)).predict(kernel(z, x)), given.predict(kernel(z, x))
    )


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_portable_machines_pickle_without_the_network(machine):
    x, z, y = images(12), images(5, seed=1), labels(12)
    kernel = TangentKernel(network())
    fitted = with_kernel(machine, kernel).fit(x, y)
    portable = pickle.loads(pickle.dumps(fitted.portable()))
    centers = x[fitted.landmarks_] if isinstance(machine, NystromRegression) else x
    torch.testing.assert_close(portable.predict(kernel(z, centers)), fitted.predict(z))
    assert fitted.kernel is kernel  # the machine itself is left as it was
    assert not any(b"Conv2d" in part for part in [pickle.dumps(portable)])


def test_portable_machines_on_features_take_features():
    x, z, y = images(100), images(5, seed=1), torch.randn(100, dtype=torch.float64)
    model = network()
    kernel = ConjugateKernel(model)
    fitted = KernelRegression(kernel, f0=lambda x: model(x)[:, 0]).fit(x, y)
    assert fitted.solver_ == "features"
    portable = pickle.loads(pickle.dumps(fitted.portable()))
    torch.testing.assert_close(
        portable.predict(kernel.features(z), f0=model(z)[:, 0].detach()), fitted.predict(z)
    )
    with pytest.raises(InputError, match="portable machine kept no decomposition"):
        portable.predict(kernel.features(z), return_std=True, f0=model(z)[:, 0].detach())
    assert len(pickle.dumps(portable)) < 10_000


def test_scikit_learns_tools_work_with_kernels_of_networks():
    x, y = images(30).numpy(), labels(30).numpy()
    kernel = TangentKernel(network()).normalized()
    search = GridSearchCV(KernelLogistic(kernel), {"ridge": [0.1, 1.0]}, cv=3).fit(x, y)
    assert search.best_params_["ridge"] in (0.1, 1.0)
    pipeline = make_pipeline(FunctionTransformer(lambda x: 2 * x), KernelRegression(kernel, ridge=0.1))
    assert cross_val_score(pipeline, x, y, cv=3).shape == (3,)
    K = kernel(torch.from_numpy(x)).numpy()
    # scikit-learn cuts rows and columns of a precomputed kernel.
    np.testing.assert_allclose(
        cross_val_score(KernelRegression(ridge=0.1), K, y, cv=3),
        cross_val_score(KernelRegression(kernel, ridge=0.1), x, y, cv=3),
    )


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_a_machine_may_be_fitted_again_on_something_else(machine):
    x, y = images(12).flatten(1), labels(12)
    linear = with_kernel(machine, lambda x, y: x @ y.T).fit(x.numpy(), y.numpy())
    linear.feature_names_in_ = np.array([f"pixel {i}" for i in range(36)])  # as of a data frame
    expected = with_kernel(machine, linear.kernel).fit(x.numpy(), y.numpy()).predict(x.numpy())
    torch.testing.assert_close(linear.fit(x, y).predict(x).numpy(), expected)
    np.testing.assert_allclose(linear.predict(x.numpy()), expected)  # and says nothing of names
    fewer = linear.fit(x[:7, :5], y[:7]).predict(x[:2, :5])
    torch.testing.assert_close(
        fewer, with_kernel(machine, linear.kernel).fit(x[:7, :5], y[:7]).predict(x[:2, :5])
    )
    assert linear.n_features_in_ == 5


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_inputs_with_a_graph_leave_it_behind(machine):
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)
    x, y = images(12).flatten(1) * weight, labels(12)
    fitted = with_kernel(machine, lambda x, y: x @ y.T).fit(x, y)
    assert not fitted.predict(x).requires_grad
    assert not fitted.X_fit_.requires_grad
    torch.testing.assert_close(copy.deepcopy(fitted).predict(x), fitted.predict(x))


def test_features_in_half_precision_are_taken_as_they_are():
    Phi, y = images(30).flatten(1)[:, :5], torch.randn(30, dtype=torch.float64, generator=Key(2).torch())
    for dtype in (torch.float16, torch.bfloat16):
        rounded = Phi.to(dtype)
        found = KernelRegression("features", ridge=0.1).fit(rounded, y).predict(rounded)
        exact = KernelRegression("features", ridge=0.1).fit(rounded.double(), y).predict(rounded.double())
        torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)
    with pytest.raises(
        InputError, match=r"bad dtype of an operator: expected float32 or float64, got bfloat16"
    ):
        KernelRegression(ridge=0.1).fit((Phi @ Phi.T).bfloat16(), y)


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_sparse_inputs_are_refused(machine):
    x, y = images(12).flatten(1), labels(12)
    with pytest.raises(InputError, match=r"sparse inputs: expected dense tensors.*to_dense"):
        with_kernel(machine, "features").fit(x.to_sparse(), y)
    with pytest.raises(TypeError, match="Sparse data was passed"):
        with_kernel(machine, "features").fit(csr_array(x.numpy()), y.numpy())


def test_data_sets_are_sent_to_where_they_belong():
    with pytest.raises(InputError, match=r"samples in memory.*got TensorDataset.*tk\.gram"):
        KernelRegression(TangentKernel(network())).fit(TensorDataset(images(12)), labels(12))


def test_labels_may_be_anything_that_can_be_told_apart():
    K = torch.eye(6, dtype=torch.float64)
    words = np.array(["cat", "dog", "cat", "dog", "cat", "dog"])
    assert KernelLogistic(ridge=0.1).fit(K, words).predict(K).tolist() == words.tolist()
    flags = torch.tensor([True, False] * 3)
    found = KernelGLM().fit(K, flags).predict(K)
    assert found.dtype == torch.bool
    assert found.tolist() == flags.tolist()


def test_nothing_touches_the_global_generator():
    x, y = images(12), labels(12)
    for machine in [*MACHINES, KernelGLM(solver="sgd", ridge=0.1)]:
        before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        clone(machine).fit(x.flatten(1) @ x.flatten(1).T, y)
        assert torch.equal(torch.get_rng_state(), before[0])
        np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


K3 = torch.tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]], dtype=torch.float64)
LABELS3 = torch.tensor([0, 1, 0])


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_bad_kernel_matrices_are_refused(machine):
    machine = clone(machine).set_params(**({"landmarks": 3} if "landmarks" in machine.get_params() else {}))
    skewed = K3.clone()
    skewed[0, 1] = 3.0
    with pytest.raises(NumericalError, match=r"not symmetric.*of it"):
        machine.fit(skewed, LABELS3)
    with pytest.raises((InputError, NumericalError), match=r"not square|targets do not match|not symmetric"):
        machine.fit(K3[:, :2], LABELS3)
    broken = K3.clone()
    broken[0, 0] = torch.nan
    with pytest.raises(InputError, match="not finite"):
        machine.fit(broken, LABELS3)
    with pytest.raises(ValueError, match="NaN"):
        machine.fit(broken.numpy(), LABELS3.numpy())
    with pytest.raises(
        InputError, match=r"not a kernel matrix: expected .n, m. or .n, c, m, c., got .3, 3, 3."
    ):
        machine.fit(K3[None].repeat(3, 1, 1), LABELS3)
    fitted = machine.fit(K3, LABELS3)
    with pytest.raises(
        InputError, match=r"does not match the training samples: expected k.Z, X. with 3 columns"
    ):
        fitted.predict(K3[:, :2])
    with pytest.raises(ValueError, match=r"2 features, but .* is expecting 3"):
        fitted.predict(K3[:, :2].numpy())


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_bad_kernels_and_samples_are_refused(machine):
    x, y = images(12), labels(12)
    with pytest.raises(KeyError, match=r"unknown kernel 'precomputd'.*'precomputed'"):
        with_kernel(machine, "precomputd").fit(K3, LABELS3)
    with pytest.raises(InputError, match=r"not a kernel.*got int"):
        with_kernel(machine, 3).fit(K3, LABELS3)
    with pytest.raises(InputError, match="the kernel gives a matrix of the wrong shape"):
        with_kernel(machine, lambda *_: torch.ones(5, 7)).fit(x, y)
    with pytest.raises(InputError, match="inputs are not finite"):
        with_kernel(machine, TangentKernel(network())).fit(x / 0, y)
    fitted = with_kernel(machine, TangentKernel(network())).fit(x, y)
    with pytest.raises(InputError, match=r"samples do not match those of training.*1, 6, 6.*1, 5, 5"):
        fitted.predict(x[:, :, 1:, 1:])


@pytest.mark.parametrize("machine", MACHINES, ids=name)
def test_bad_targets_and_weights_are_refused(machine):
    with pytest.raises(InputError, match="requires y to be passed"):
        clone(machine).fit(K3, None)
    with pytest.raises(InputError, match="do not match"):
        clone(machine).fit(K3, torch.tensor([0, 1]))
    with pytest.raises(InputError, match=r"bad (targets|labels)"):
        clone(machine).fit(K3, torch.zeros(3, 2, 2))
    with pytest.raises(ValueError, match=r"NaN|not finite"):
        clone(machine).fit(K3, torch.tensor([0.0, torch.nan, 1.0]))
    with pytest.raises(InputError, match="bad sample weights: expected finite numbers >= 0"):
        clone(machine).fit(K3, LABELS3, [-1.0, 1.0, 1.0])
    with pytest.raises(InputError, match="sample weights are all zero"):
        clone(machine).fit(K3, LABELS3, [0.0, 0.0, 0.0])
    with pytest.raises(InputError, match=r"sample_weight.shape == \(2,\), expected \(3,\)"):
        clone(machine).fit(K3, LABELS3, [1.0, 1.0])
    with pytest.raises(InputError, match="bad ridge: expected a finite number"):
        clone(machine).set_params(ridge=-1.0).fit(K3, LABELS3)


@pytest.mark.parametrize("machine", MACHINES[2:], ids=name)
def test_empty_classes_are_refused(machine):
    with pytest.raises(InputError, match=r"nothing to tell apart.*one class"):
        clone(machine).fit(K3, torch.ones(3))
    with pytest.raises(InputError, match=r"a class is empty.*none in class 1"):
        clone(machine).fit(K3, LABELS3, [1.0, 0.0, 1.0])
    with pytest.raises(InputError, match=r"bad labels: expected shape \(n,\).*argmax"):
        clone(machine).fit(K3, torch.eye(3))
    block = torch.einsum("ij,ab->iajb", K3, torch.eye(4, dtype=torch.float64))
    with pytest.raises(InputError, match="every class of the kernel's outputs needs a sample"):
        clone(machine).fit(block, LABELS3)


def test_singular_kernels_are_refused_where_the_solver_needs_more():
    Phi = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    K, y = Phi @ Phi.T, torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    K[2, 2] -= 1e-3  # the smallest eigenvalue is now clearly negative
    with pytest.raises(
        NumericalError, match=r"not positive definite.*smallest eigenvalue.*Try: ridge="
    ) as failure:
        KernelRegression(solver="cholesky").fit(K, y)
    with pytest.raises(NumericalError, match=r'not positive definite.*solver="eigh"'):
        KernelRegression().fit(K, y)
    ridge = float(str(failure.value).split("ridge=")[-1].split(",")[0])
    assert KernelRegression(ridge=ridge).fit(K, y).solver_ == "cholesky"
    assert float(f"{torch.linalg.eigvalsh(K)[0]:.3g}") == float(
        str(failure.value).split("got ")[1].split(" ")[0]
    )
    for classes in (LABELS3, torch.arange(3)):
        with pytest.raises(NumericalError, match=r"not positive definite.*Try: the kernel K \+ \S+ I"):
            KernelLogistic(ridge=10.0).fit(K, classes)
        with pytest.raises(NumericalError, match="not positive definite"):
            KernelLogistic().fit(-K3, classes)
    with pytest.raises(NumericalError, match=r'not positive definite.*solver="features"'):
        KernelRegression("features", solver="normal").fit(torch.ones(3, 2, dtype=torch.float64), y)


def test_conjugate_gradients_that_fail_tell_the_ends_of_the_spectrum():
    Phi = torch.randn(40, 5, dtype=torch.float64, generator=Key(0).torch())
    K, y = Phi @ Phi.T, torch.randn(40, dtype=torch.float64, generator=Key(1).torch())
    with pytest.warns(ConvergenceWarning, match=r"its eigenvalues go from.*ridge=\S+ would do") as caught:
        KernelRegression(solver="cg").fit(K, y)
    ridge = float(str(caught[0].message).split("ridge=")[1].split(" ")[0])
    assert KernelRegression(solver="cg", ridge=ridge).fit(K, y).converged_
    shifted = K - torch.eye(40)
    with pytest.raises(NumericalError, match=r"not positive definite.*got -1 .*Try: ridge=") as failure:
        KernelRegression(solver="cg", ridge=0.5).fit(DenseOperator(shifted), y)
    ridge = float(str(failure.value).split("ridge=")[1].split(",")[0])
    assert KernelRegression(solver="cg", ridge=ridge).fit(shifted, y).converged_


def test_requests_without_an_answer_are_refused():
    x, y = images(12), torch.randn(12, dtype=torch.float64)
    machine = KernelRegression(ridge=0.1, solver="cg").fit(K3, LABELS3)
    with pytest.raises(InputError, match="no leave-one-out errors"):
        machine.leave_one_out()
    with pytest.raises(InputError, match=r"a ridge path needs a decomposition.*got cg"):
        machine.ridge_path([0.1])
    with pytest.raises(InputError, match="does not hold the prior variances"):
        machine.predict(K3, return_std=True)
    with pytest.raises(InputError, match="bad prior"):
        machine.predict(K3, return_std=True, prior=torch.ones(2))
    with pytest.raises(InputError, match="return_std and return_cov"):
        machine.predict(K3, return_std=True, return_cov=True)
    with pytest.raises(InputError, match="needs features"):
        KernelRegression(solver="features").fit(K3, LABELS3)
    with pytest.raises(KeyError, match=r"unknown solver 'choleski'.*'cholesky'"):
        KernelRegression(solver="choleski").fit(K3, LABELS3)
    with pytest.raises(InputError, match="f0 as a function needs samples"):
        KernelRegression(f0=lambda x: x).fit(K3, LABELS3)
    with pytest.raises(InputError, match=r"bad values of f0: expected \(3, 1\), got \(3, 2\)"):
        KernelRegression().fit(K3, LABELS3, f0=torch.zeros(3, 2))
    lazy = KernelRegression().fit(K3, LABELS3, f0=torch.zeros(3))
    with pytest.raises(InputError, match="f0 does not match"):
        lazy.predict(K3)
    with pytest.raises(InputError, match=rf"targets do not match the samples.*got \({len(y)},\)"):
        KernelRegression(TangentKernel(network(), outputs="full"), ridge=0.1).fit(x, y)
    for cutoff in (-1e-3, 1.0, float("nan"), "small"):
        with pytest.raises(InputError, match=r"bad cutoff: expected a finite number >= 0 and < 1"):
            KernelRegression(cutoff=cutoff).fit(K3, LABELS3)
    with pytest.raises(InputError, match=r"complex targets.*y\.real"):
        KernelRegression().fit(K3, LABELS3 + 1j)
    one = KernelRegression(ridge=0.1).fit(K3.reshape(1, 3, 1, 3), torch.ones(1, 3, dtype=torch.float64))
    with pytest.raises(InputError, match=r"3 rows for every sample, as in training, got 2 rows"):
        one.predict(K3[:2])
