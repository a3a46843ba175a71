"""What the page of an attribution shows is what the attribution says."""

import gzip
import json

import numpy as np
import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.core import InputError
from tangentkit.linalg import as_operator
from tangentkit.surrogate import influence, representer_points, trak
from tangentkit.surrogate.attribution import Attribution
from tangentkit.surrogate.cross_matrix import OfOperator
from tangentkit.surrogate.explanation import SCALED, explanation
from tangentkit.surrogate.page.contents import TABLES, contents


@pytest.fixture(scope="module")
def fitted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.Tanh(), nn.Linear(12, 3))
    x, z, y = torch.randn(30, 1, 6, 6), torch.randn(5, 1, 6, 6), torch.arange(30) % 3
    surrogate = tk.Surrogate(model, tk.TangentKernel(model).normalized()).fit(x, y)
    return surrogate, x, y, z


def test_the_logits_of_the_page_are_those_of_surrogate_and_network(fitted):
    surrogate, x, _, z = fitted
    a = surrogate.attribute(z)
    page = explanation(a, labels=[0, 1, 2, 0, 1], classes=["cat", "dog", "cow"])
    np.testing.assert_allclose(page.kernels[0].logits, a.logits, rtol=1e-6)
    np.testing.assert_allclose(page.logits, a.network)
    assert page.kernels[0].gram.shape == (30, 30)
    assert SCALED in page.notes
    pictures = page.train.pictures
    assert pictures.shape == x.shape
    assert float(pictures.min()) >= 0
    assert float(pictures.max()) <= 1


def test_pictures_within_the_range_stay_as_they_are(fitted):
    surrogate, x, _, z = fitted
    page = explanation(surrogate.attribute(z), test=z.sigmoid(), train=x.sigmoid())
    assert torch.equal(page.test.pictures, z.sigmoid())
    assert page.notes == []


def test_the_page_is_written_with_other_kernels_and_texts(fitted, tmp_path):
    surrogate, *_, z = fitted
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    table, labels = torch.randn(20, 4), torch.arange(20) % 2
    kernels = {"trNTK": tk.TangentKernel(model).normalized(), "CK": tk.ConjugateKernel(model)}
    found = {
        name: tk.Surrogate(model, k).fit(table, labels).attribute(table[:3]) for name, k in kernels.items()
    }
    path = found["trNTK"].report(
        tmp_path / "why.html", name="trNTK", others={"CK": found["CK"]}, test=["<b>a</b>", "b", "c"]
    )
    text = path.read_text()
    assert "Why did it say that?" in text
    assert "<b>a</b>" not in text
    surrogate.attribute(z).report(tmp_path / "pictures.html")


def test_one_logit_of_two_classes_is_shown_as_one(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    x, y = torch.randn(20, 4), torch.arange(20) % 2
    surrogate = tk.Surrogate(model, tk.TangentKernel(model), machine=tk.KernelGLM(solver="sgd")).fit(x, y)
    page = explanation(surrogate.attribute(x[:3]), classes=["no", "yes"])
    assert page.outputs == ("yes against no",)
    np.testing.assert_allclose(page.logits, model(x[:3]).detach().double(), rtol=1e-6)
    surrogate.attribute(x[:3]).report(tmp_path / "why.html")


def test_an_audit_is_taken_for_its_flags(fitted):
    surrogate, x, y, z = fitted
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    found = tk.audit(model, (torch.cat([x[:-1], x[:1]]), y), progress=False)
    assert found.flags
    assert explanation(surrogate.attribute(z), flags=found).flags == found.flags


def test_faithfulness_is_a_line_of_every_view_and_a_table_of_the_notes(fitted):
    surrogate, x, y, z = fitted
    found = surrogate.faithfulness(x, y, bootstrap=2)
    page = explanation(surrogate.attribute(z), faithfulness=found)
    assert f"agrees with the network on {found.agreement.value:.0f} % of 30 samples" in page.summary
    assert str(found) in page.notes
    assert json.loads(gzip.decompress(contents(page, served=False).pieces[TABLES]))["summary"] == page.summary


def test_kernels_of_one_name_are_refused(fitted):
    surrogate, _, _, z = fitted
    a = surrogate.attribute(z)
    with pytest.raises(InputError, match="two kernels are named 'k'"):
        explanation(a, name="k", others={"k": influence(surrogate, z)})


def test_scores_that_add_up_to_no_prediction_are_shown_without_one(fitted):
    surrogate, _, _, z = fitted
    page = explanation(surrogate.attribute(z), name="k", others={"influence": influence(surrogate, z)})
    assert [view.predicts for view in page.kernels] == [True, False]
    tables = json.loads(gzip.decompress(contents(page, served=False).pieces[TABLES]))
    assert [kernel["predicts"] for kernel in tables["kernels"]] == [True, False]


def test_beside_one_logit_two_scores_are_shown_as_their_difference():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    x, y = torch.randn(20, 4), torch.arange(20) % 2
    surrogate = tk.Surrogate(model, tk.TangentKernel(model), machine=tk.KernelGLM(solver="sgd")).fit(x, y)
    of_classes = influence(surrogate, x[:3])
    page = explanation(surrogate.attribute(x[:3]), name="k", others={"influence": of_classes})
    np.testing.assert_allclose(page.kernels[0].logits, surrogate.decision_function(x[:3]), rtol=1e-6)
    expected = of_classes.logits[:, 1:] - of_classes.logits[:, :1]
    np.testing.assert_allclose(page.kernels[1].logits, expected, rtol=1e-6, atol=1e-9)


def page_probability(logits: np.ndarray) -> torch.Tensor:
    """Of the second class, as the page computes it."""
    z = torch.from_numpy(logits)
    return z[:, 0].sigmoid() if z.shape[1] == 1 else z.softmax(1)[:, 1]


def test_one_logit_gives_its_own_probability_alone_and_beside_two_outputs():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    x, y = torch.randn(20, 4), torch.arange(20) % 2
    surrogate = tk.Surrogate(model, tk.TangentKernel(model)).fit(x, y)
    one = representer_points(surrogate, x[:3])
    alone = explanation(one)
    beside = explanation(surrogate.attribute(x[:3]), others={"representer": one})
    assert len(alone.outputs) == 1
    expected = one.logits[:, 1].sigmoid()
    for page, k in ((alone, 0), (beside, 1)):
        torch.testing.assert_close(page_probability(page.kernels[k].logits), expected)
    assert [note for note in beside.notes if "The kernel representer has one logit z" in note]
    assert not any("one logit" in note for note in alone.notes)


def test_two_outputs_that_mirror_each_other_stay_two():
    torch.manual_seed(0)
    n, m = 3, 20
    w, b = torch.randn(m, 1).double(), torch.randn(1).double()
    a = Attribution(
        OfOperator(as_operator(torch.randn(n, m).double())),
        torch.cat([-w, w], 1),
        torch.cat([-b, b]),
        labels=torch.arange(m) % 2,
        network=torch.randn(n, 2).double(),
    )
    page = explanation(a)
    assert len(page.outputs) == 2
    torch.testing.assert_close(page_probability(page.kernels[0].logits), a.logits.softmax(1)[:, 1])


def test_samples_have_the_names_that_are_given(fitted, tmp_path):
    surrogate, *_, z = fitted
    names = {
        "test_names": ["<b>one</b>", "2", "3", "4", "5"],
        "train_names": [f"file {i}" for i in range(30)],
    }
    page = explanation(surrogate.attribute(z), **names)
    assert page.test.names == tuple(names["test_names"])
    tables = json.loads(gzip.decompress(contents(page, served=False).pieces[TABLES]))
    assert tables["train"]["names"] == names["train_names"]
    path = surrogate.attribute(z).report(tmp_path / "why.html", **names)
    assert "<b>one" not in path.read_text()
    with pytest.raises(InputError, match="bad names of the training samples: expected 30"):
        explanation(surrogate.attribute(z), train_names=["one"])


def test_true_and_false_are_labels_of_two_classes():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    x, y = torch.randn(20, 4), torch.arange(20) % 2 == 1
    a = tk.Surrogate(model, tk.ConjugateKernel(model)).fit(x, y).attribute(x[:3])
    for labels in (y[:3], y[:3].tolist()):
        assert explanation(a, labels=labels).test_labels.tolist() == [0, 1, 0]


def test_scores_that_are_not_of_classes_are_refused(fitted):
    surrogate, _, _, z = fitted
    with pytest.raises(InputError, match="every class"):
        explanation(trak(surrogate, z))
