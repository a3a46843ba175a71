"""A surrogate is a kernel GLM on the network's own kernel, however that comes, and refuses what is not its own."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import tangentkit as tk
from tangentkit.core import InputError, NumericalError
from tangentkit.surrogate.faithfulness import kendall_tau


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3)).double()


@pytest.fixture(scope="module")
def data():
    torch.manual_seed(1)
    x = torch.randn(40, 4).double()
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0.3).long(), torch.randn(9, 4).double()


KERNELS = {
    "tangent": lambda m: tk.TangentKernel(m).normalized(),
    "conjugate": lambda m: tk.ConjugateKernel(m, bias=True),
    "conjugate cosine": lambda m: tk.ConjugateKernel(m).normalized(),
    "sketched": lambda m: tk.SketchedTangentKernel(m, dim=64),
    "sketched, few features": lambda m: tk.SketchedTangentKernel(m, dim=16).normalized(),
    "sum": lambda m: tk.TangentKernel(m).normalized() + tk.EmbeddingKernel(m).normalized(),
}


@pytest.mark.parametrize("name", KERNELS)
def test_logits_are_those_of_a_kernel_glm_on_the_gram_matrix(model, data, name):
    x, y, z = data
    kernel = KERNELS[name](model)
    surrogate = tk.Surrogate(model, kernel).fit(x, y)
    machine = tk.KernelGLM().fit(kernel(x).double(), y)
    expected = machine.decision_function(kernel(z, x).double())
    torch.testing.assert_close(surrogate.decision_function(z), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        surrogate.predict_proba(z), machine.predict_proba(kernel(z, x).double()), rtol=1e-4, atol=1e-5
    )
    assert torch.equal(surrogate.predict(z), expected.argmax(1))
    assert surrogate.score(x, y) == machine.score(kernel(x).double(), y)


def test_every_form_of_samples_gives_the_same_surrogate(model, data, tmp_path):
    x, y, z = data
    kernel = tk.TangentKernel(model).normalized()
    expected = tk.Surrogate(model, kernel).fit(x, y).decision_function(z)
    stored = tk.gram(kernel, x, store=tmp_path / "gram", tile=16)
    crossed = tk.gram(kernel, z, x, store=tmp_path / "cross", tile=16)
    pairs = TensorDataset(x, y)
    found = [
        tk.Surrogate(model, kernel).fit(pairs).decision_function(z),
        tk.Surrogate(model, kernel).fit(x, y.tolist()).decision_function(TensorDataset(z, torch.zeros(9))),
        tk.Surrogate(model, kernel).fit(x, y.numpy(), gram=stored).decision_function(z, cross=crossed),
        tk.Surrogate(model, kernel).fit(x, y, gram=kernel(x)).decision_function(z, cross=kernel(z, x)),
    ]
    for one in found:
        torch.testing.assert_close(one, expected, rtol=1e-6, atol=1e-8)


def test_the_published_machine_has_probabilities_of_one_class_against_the_rest(model, data):
    x, y, z = data
    kernel = tk.TangentKernel(model).normalized()
    machine = tk.KernelGLM(solver="sgd")
    surrogate = tk.Surrogate(model, kernel, machine=machine).fit(x, y)
    alone = surrogate.decision_function(z).sigmoid()
    torch.testing.assert_close(surrogate.predict_proba(z), alone / alone.sum(1, keepdim=True))
    assert surrogate.faithfulness(x, y, bootstrap=2).points == 40
    assert not hasattr(machine, "classes_"), "the machine that was given stays unfitted"


def test_a_network_with_one_logit_tells_two_classes_apart(data):
    x, y, z = data
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1)).double()
    surrogate = tk.Surrogate(model, tk.TangentKernel(model)).fit(x, (y > 0).long())
    assert surrogate.predict_proba(z).shape == (9, 2)
    a = surrogate.attribute(z)
    torch.testing.assert_close(a.network[:, 1] - a.network[:, 0], model(z)[:, 0].detach())
    published = tk.Surrogate(model, tk.TangentKernel(model), machine=tk.KernelGLM(solver="sgd"))
    assert published.fit(x, (y > 0).long()).attribute(z).scores.shape == (9, 2, 40)
    found = published.faithfulness(x, (y > 0).long(), bootstrap=2, tau="class-1").kendall_tau.value
    of_class_1 = published.decision_function(x)[:, 0]
    assert found == pytest.approx(kendall_tau(model(x)[:, 0].detach(), of_class_1))


def test_a_kernel_of_another_network_is_refused(model, data):
    x, y, _ = data
    torch.manual_seed(5)
    other = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3)).double()
    wider = nn.Sequential(nn.Linear(4, 13), nn.Tanh(), nn.Linear(13, 3)).double()
    deeper = nn.Sequential(*other, nn.ReLU(), nn.Linear(3, 3)).double()
    for wrong in (other, wider, deeper):
        for kernel in (tk.TangentKernel(wrong).normalized(), 2.0 * tk.ConjugateKernel(wrong)):
            with pytest.raises(InputError, match="of another network"):
                tk.Surrogate(model, kernel)
    moved = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3)).double()
    kernel = tk.TangentKernel(moved)
    with torch.no_grad():
        moved[0].weight += 1e-3
    with pytest.raises(InputError, match="snapshot"):
        tk.Surrogate(moved, kernel)
    tk.Surrogate(model, tk.InfiniteKernel(tk.ntk_parameterize(model)))  # has no network to compare
    del x, y


def test_a_matrix_of_another_kernel_network_or_data_is_refused(model, data, tmp_path):
    x, y, z = data
    kernel = tk.TangentKernel(model).normalized()
    torch.manual_seed(7)
    other = tk.TangentKernel(nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3)).double())
    stored = tk.gram(tk.ConjugateKernel(model), x, store=tmp_path / "k.zarr", progress=False)
    wrong = [tk.TangentKernel(model)(x), other.normalized()(x), kernel(x.flip(0)), stored]
    for matrix in wrong:
        with pytest.raises(InputError, match=r"Gram matrix is not that of this kernel.*in this order"):
            tk.Surrogate(model, kernel).fit(x, y, gram=matrix)
    fitted = tk.Surrogate(model, kernel).fit(x, y, gram=kernel(x).float())
    with pytest.raises(InputError, match="`cross` is not that of this kernel"):
        fitted.attribute(z, cross=kernel(z.flip(0), x))
    fitted.attribute(z, cross=kernel(z, x).float())


def test_words_are_no_labels_and_data_sets_bring_theirs(model, data):
    x, y, _ = data
    surrogate = tk.Surrogate(model, tk.TangentKernel(model))
    with pytest.raises(InputError, match=r"labels are no numbers.*'cat'.*classes\.index"):
        surrogate.fit(x, ["cat", "dog", "cow", "dog"] * 10)
    pairs = TensorDataset(x, y)
    surrogate.fit(pairs)
    assert surrogate.faithfulness(pairs, bootstrap=2) == surrogate.faithfulness(x, y, bootstrap=2)


def test_bad_input_is_named(model, data):
    x, y, z = data
    kernel = tk.TangentKernel(model)
    with pytest.raises(InputError, match="not a kernel"):
        tk.Surrogate(model, kernel(x))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not fitted"):
        tk.Surrogate(model, kernel).attribute(z)
    with pytest.raises(InputError, match="does not have"):
        tk.Surrogate(model, kernel).fit(x, y + 1)
    with pytest.raises(InputError, match="none of class 2"):
        tk.Surrogate(model, kernel).fit(x, y.clamp_max(1))
    with pytest.raises(InputError, match="40 labels"):
        tk.Surrogate(model, kernel).fit(x, y[:-1])
    with pytest.raises(InputError, match=r"argmax\(1\)"):
        tk.Surrogate(model, kernel).fit(x, nn.functional.one_hot(y, 3))
    with pytest.raises(InputError, match="integers"):
        tk.Surrogate(model, kernel).fit(x, y + 0.5)
    with pytest.raises(InputError, match="outputs"):
        tk.Surrogate(model, tk.TangentKernel(model, outputs="full")).fit(x, y)
    with pytest.raises(InputError, match="differ in dtype"):
        tk.Surrogate(model, kernel).fit(x.half(), y)
    with pytest.raises(InputError, match="does not take this input"):
        tk.Surrogate(model, kernel).fit(x[:, 1:], y)
    fitted = tk.Surrogate(model, kernel).fit(x, y)
    with pytest.raises(InputError, match=r"\(9, 40\)"):
        fitted.attribute(z, cross=kernel(z, x)[:, :-1])
    with pytest.raises(InputError, match="does not have"):
        fitted.score(z, np.full(9, 7))


def test_it_says_what_it_is(model, data):
    x, y, _ = data
    surrogate = tk.Surrogate(model, tk.ConjugateKernel(model))
    assert "fitted" not in repr(surrogate)
    assert repr(surrogate.fit(x, y)).endswith("fitted on 40 samples")


@pytest.mark.parametrize("name", ["tangent", "conjugate"])
def test_a_fit_that_is_refused_leaves_the_one_before_whole(model, data, name):
    x, y, z = data
    surrogate = tk.Surrogate(model, KERNELS[name](model)).fit(x, y)
    expected = surrogate.attribute(z).scores, surrogate.self_attribution(), tk.influence(surrogate, z).scores
    kernel = surrogate.kernel
    for samples, labels, gram in (
        (x, y, kernel(x.flip(0), x.flip(0))),
        (x, y, torch.eye(5)),
        (torch.full_like(x, torch.nan), y, None),
        (x, y[:-1], None),
    ):
        with pytest.raises((InputError, NumericalError)):
            surrogate.fit(samples, labels, gram=gram)
    found = surrogate.attribute(z).scores, surrogate.self_attribution(), tk.influence(surrogate, z).scores
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one, other)


def test_a_frozen_network_has_surrogates_audits_and_comparisons_on_kernels_that_need_no_gradient(data):
    x, y, z = data
    frozen = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3)).double().requires_grad_(False)
    kernel = tk.ConjugateKernel(frozen)
    assert tk.Surrogate(frozen, kernel).fit(x, y).attribute(z).scores.isfinite().all()
    assert tk.audit(frozen, (x, y), progress=False).samples == len(x)
    assert len(tk.compare_kernels(frozen, kernel, (x, y), (x, y), progress=False).faithfulness) == 1


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0.5] * 40, "such as 0.5"),
        ([float("nan")] * 40, "such as nan"),
        (["a"] * 40, "classes.index"),
    ],
)
def test_labels_that_are_no_classes_are_shown(model, data, labels, words):
    with pytest.raises(InputError, match=words):
        tk.Surrogate(model, tk.ConjugateKernel(model)).fit(data[0], labels)


def test_labels_of_data_frames_are_read_and_signs_are_told_apart(data):
    x, y, _ = data
    model = nn.Linear(4, 2).double()
    surrogate = tk.Surrogate(model, tk.ConjugateKernel(model))
    signs = 2 * (y > 0).long() - 1
    assert surrogate.fit(x, np.array((y > 0).tolist(), dtype=object)).labels_.tolist() == (y > 0).tolist()
    with pytest.raises(InputError, match=r"\(y \+ 1\) // 2"):
        surrogate.fit(x, signs)
    assert surrogate.attribute(x).top(np.int64(2)).indices.shape == (40, 2)
