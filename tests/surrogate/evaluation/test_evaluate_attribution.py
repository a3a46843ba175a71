"""Several methods, several tests, one table: networks are trained once for all methods."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.core import InputError
from tangentkit.core.errors import UnknownNameError
from tangentkit.surrogate.evaluation import (
    ChangesPredictions,
    DependsOnModel,
    FindsGroup,
    FindsMislabels,
    FindsSameClass,
    FindsSameSample,
    PredictsAbsences,
    PredictsSubsets,
    Retrained,
    linear_datamodeling_score,
    methods_of,
    mislabel_auroc,
    random_subsets,
    same_class,
)

M, N = 60, 8


class Linear:
    """Networks whose logit of class 1 is the sum of the planted scores of the samples they were trained on."""

    def __init__(self, planted):
        self.planted, self.trained = planted, 0

    def __call__(self, numbers, _seed):
        self.trained += 1
        margin = self.planted[:, numbers].sum(1)
        return torch.stack([torch.zeros_like(margin), margin], 1)


@pytest.fixture
def case():
    x, z = torch.randn(M, 4), torch.randn(N, 4)
    y, labels = torch.arange(M) % 2, torch.ones(N, dtype=torch.long)
    planted = torch.randn(N, M)
    return (x, y), (z, labels), planted


def test_the_planted_method_scores_one_the_random_one_zero_and_networks_are_trained_once(case):
    train, test, planted = case
    retrain = Linear(planted)
    methods = {"planted": lambda _: planted, "opposite": lambda _: -planted}
    found = tk.evaluate_attribution(
        methods, train, test, tests=[PredictsSubsets(40), PredictsAbsences(k=3, networks=30)], retrain=retrain
    )
    assert retrain.trained == 40 + 30
    assert found.methods == ["planted", "opposite", "random"]
    assert found.questions == ["LDS", "leave-3-out"]
    for question in found.questions:
        answers = found.of(question)
        assert answers["planted"].value == pytest.approx(1)
        assert answers["opposite"].value == pytest.approx(-1)
        assert abs(answers["random"].value) < 0.4
    gap = found.difference("LDS", "planted", "opposite")
    assert gap.mean == pytest.approx(2)


def test_networks_that_are_there_already_give_the_same_answer_as_the_function(case, tmp_path):
    train, test, planted = case
    noisy = planted + torch.randn(N, M)
    tests = [PredictsSubsets(20, path=tmp_path / "networks.npz")]
    first = tk.evaluate_attribution(lambda _: noisy, train, test, tests=tests, retrain=Linear(planted))
    kept = Retrained.load(tmp_path / "networks.npz")
    assert torch.equal(kept.masks, random_subsets(M, 20))
    again = tk.evaluate_attribution(lambda _: noisy, train, test, tests=[PredictsSubsets(retrained=kept)])
    alone = linear_datamodeling_score(noisy, kept, test[1])
    values = [answers["LDS"]["<lambda>"]["value"] for answers in (first.to_dict(), again.to_dict())]
    assert values == [alone.value, alone.value]


@pytest.fixture(scope="module")
def explained():
    """A network on two groups of points, five of whose labels are wrong, and its surrogate."""
    torch.manual_seed(0)
    y = torch.arange(M) % 2
    x = torch.randn(M, 4) + 4 * (2 * y - 1)[:, None] * torch.tensor([1.0, 0, 0, 0])
    wrong = torch.arange(M) < 5
    labels = torch.where(wrong, 1 - y, y)
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    z = torch.randn(N, 4) + 4 * (2 * (torch.arange(N) % 2) - 1)[:, None] * torch.tensor([1.0, 0, 0, 0])
    surrogate = tk.Surrogate(model, tk.TangentKernel(model).normalized()).fit(x, labels)
    return surrogate, model, (x, labels), (z, torch.arange(N) % 2), wrong


def test_a_surrogate_brings_its_methods_and_finds_what_it_should(explained):
    surrogate, model, train, test, wrong = explained
    tests = [FindsSameClass(), FindsSameSample(20), FindsMislabels(wrong)]
    found = tk.evaluate_attribution(surrogate, train, test, model=model, tests=tests, progress=False)
    assert found.methods == ["surrogate", "influence", "TRAK-style", "representer points", "random"]
    for name, method in methods_of(surrogate).items():
        predicted = model(test[0]).argmax(1)
        alone = same_class(method(test[0]), train[1], predicted)
        assert found.of("same class")[name].value == alone.value
    for method in found.methods[:-1]:
        assert found.of("mislabel AUROC")[method].interval.low > 0.5
    assert found.of("mislabel AUROC")["surrogate"].value == pytest.approx(
        mislabel_auroc(surrogate.self_attribution(), wrong).value
    )


def test_methods_of_a_surrogate_share_one_matrix_and_are_what_they_are_without(explained):
    surrogate, _, _, (z, labels), _ = explained
    shared = methods_of(surrogate)
    plain = surrogate.attribute(z)
    torch.testing.assert_close(shared["surrogate"](z).of(labels), plain.of(labels))
    a, b = shared["influence"](z), tk.surrogate.influence(surrogate, z)
    torch.testing.assert_close(a.of(labels), b.of(labels), rtol=1e-4, atol=1e-6)


def test_a_shortcut_is_looked_for_only_where_the_network_follows_it(explained):
    _, model, train, test, _ = explained
    predicted = model(test[0]).argmax(1)
    marked = torch.arange(M) % 7 == 0
    asked = []

    def method(x):
        asked.append(x)
        return marked.double().expand(len(x), M)

    tests = [FindsGroup(marked, test[0], label=1)]
    found = tk.evaluate_attribution(method, train, test, model=model, tests=tests)
    assert torch.equal(asked[0], test[0][predicted == 1])
    assert found.of("shortcut")["method"].value == 1
    with pytest.raises(InputError, match="nowhere"):
        tk.evaluate_attribution(
            method, train, test, model=model, tests=[FindsGroup(marked, test[0][predicted == 0], label=1)]
        )


def test_brittleness_and_the_randomized_model_are_asked_of_all_who_can_answer(explained):
    _, model, train, test, _ = explained
    planted = torch.randn(N, M)
    rebuilt = {"fixed": lambda _: lambda _: planted}
    tests = [ChangesPredictions(numbers=(3,), points=4), DependsOnModel(rebuilt)]
    retrain = Linear(planted)
    methods = {"fixed": lambda _: planted}
    found = tk.evaluate_attribution(methods, train, test, model=model, tests=tests, retrain=retrain)
    assert retrain.trained == 4 * 2
    assert found.of("brittleness")["fixed"].changed.shape == (4, 1)
    assert found.of("like a random model")["fixed"].value == pytest.approx(1)
    assert "random" not in found.of("like a random model")
    assert found.table().rows[1][-1] is None


def test_the_table_the_figure_and_the_plain_numbers_agree(case):
    train, test, planted = case
    noisy = {"noisy": lambda _: planted + 3 * torch.randn(N, M)}
    found = tk.evaluate_attribution(noisy, train, test, tests=[PredictsSubsets(30)], retrain=Linear(planted))
    one = found.of("LDS")["noisy"]
    assert found.table().rows[0][:2] == ("noisy", one.value)
    assert f"{one.value:.3f}" in str(found)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["LDS"]["noisy"]["value"] == one.value
    ax = found.plot("LDS")
    assert [text.get_text() for text in ax.get_yticklabels()] == ["noisy", "random"]
    dots = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"]
    assert dots[0] == pytest.approx(one.value)


def test_equal_seeds_give_equal_tables(case):
    train, test, planted = case

    def method(x):
        return planted if x is test[0] else x @ train[0].T

    def run(seed):
        tests = [PredictsSubsets(12), FindsSameSample(10)]
        found = tk.evaluate_attribution(
            method, train, test, tests=tests, retrain=Linear(2 * planted), seed=seed
        )
        return found.to_dict()

    assert run(3) == run(3)
    assert run(3)["LDS"]["random"] != run(4)["LDS"]["random"]


def test_the_default_asks_what_can_be_asked(explained):
    surrogate, model, train, test, _ = explained
    few = tk.evaluate_attribution(surrogate.attribute, train, test)
    assert few.questions == ["same sample"]
    more = tk.evaluate_attribution(surrogate.attribute, train, test, model=model)
    assert more.questions == ["same class", "same sample"]


def test_what_a_test_lacks_is_said(case):
    train, test, planted = case

    def run(method=lambda _: planted, **options):
        return tk.evaluate_attribution(method, train, test, **options)

    with pytest.raises(InputError, match="retrain="):
        run(tests=[PredictsSubsets(5)])
    with pytest.raises(InputError, match="model="):
        run(tests=[FindsSameClass()])
    with pytest.raises(InputError, match="one test or more"):
        run(tests=[])
    with pytest.raises(InputError, match="title of its own"):
        run(tests=[FindsSameSample(), FindsSameSample()])
    with pytest.raises(InputError, match="always there"):
        run({"random": lambda _: planted})
    with pytest.raises(InputError, match="nothing to evaluate"):
        run({})
    kept = Retrained(random_subsets(M, 5), torch.randn(5, N, 2))
    found = run(tests=[PredictsSubsets(retrained=kept)])
    with pytest.raises(UnknownNameError, match="LDS"):
        found.of("lds")
    with pytest.raises(UnknownNameError, match="method"):
        found.difference("LDS", "surrogate", "random")
    assert np.isfinite(found.of("LDS")["random"].value)


def test_words_as_labels_and_methods_without_scores_are_named():
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    with pytest.raises(InputError, match="are no numbers"):
        tk.evaluate_attribution(lambda z: torch.zeros(len(z), 20), (x, y), (x[:2], ["a", "b"]))
    with pytest.raises(InputError, match="gives no scores"):
        tk.evaluate_attribution({"mine": lambda _: None}, (x, y), (x, y))
