"""The surrogate study at toy size: same code, seconds."""

import re

import numpy as np
import pytest
import torch

from report.surrogate_sample import surrogate_page, surrogate_result
from tangentkit import reference
from tangentkit.core.errors import InputError
from tangentkit.models import lenet
from tangentkit.report import DARK, image
from tangentkit.studies.records import load_record, save_record
from tangentkit.studies.surrogate import KERNELS, Config, Grams, Result, kernels, run

TINY = Config(classes=(0, 1, 8), train=24, test=18, width=0.5, epochs=3, batch=8, steps=60, seeds=(0, 1))


@pytest.fixture(scope="module")
def result() -> Result:
    return run(TINY)


def test_the_kernels_are_the_reference_ones():
    model = lenet(0.25, outputs=3, seed=1).double()
    x, z = torch.rand(2, 4, 1, 28, 28, dtype=torch.float64)
    jx, jz = reference.jacobian(model, x), reference.jacobian(model, z)
    with torch.no_grad():
        hx, hz = model[:-1](x), model[:-1](z)
    trace, conjugate, pixels = (
        [kernel(p, q) for p, q in ((a, a), (b, a), (b, b))]
        for kernel, a, b in (
            (reference.trace_kernel, jx, jz),
            (reference.conjugate_kernel, hx, hz),
            (reference.conjugate_kernel, x.flatten(1), z.flatten(1)),
        )
    )
    found = kernels(model, x, z)
    for name, (xx, zx, zz) in {"trNTK": trace, "CK": conjugate, "pixels": pixels}.items():
        dx, dz = xx.diagonal(), zz.diagonal()
        torch.testing.assert_close(found[name].train, reference.normalize(xx, dx, dx))
        torch.testing.assert_close(found[name].test, reference.normalize(zx, dz, dx))
    torch.testing.assert_close(found["trNTK0"].train, trace[0] / trace[0].std())
    torch.testing.assert_close(found["trNTK0"].test, trace[1] / trace[0].std())


def test_a_cosine_ignores_the_scale_of_a_kernel():
    h, g = torch.randn(5, 3).double(), torch.randn(4, 3).double()
    plain = Grams(h @ h.T, g @ h.T, (g @ g.T).diagonal())
    torch.testing.assert_close(plain.scaled().cosine().test, plain.cosine().test)
    torch.testing.assert_close(plain.cosine().train.diagonal(), torch.ones(5).double())


def test_scores_are_in_their_ranges(result):
    assert set(result.scores) == set(KERNELS)
    assert result.classes == 3
    for scores in result.scores.values():
        assert len(scores.tau) == len(scores.difference) == len(TINY.seeds)
        assert all(-1 <= tau <= 1 for tau in scores.tau)
        assert all(0 <= share <= 100 for share in scores.agreement)
        assert all(r2 <= 1 for r2 in scores.r2)
        for difference, accuracy in zip(scores.difference, result.accuracy, strict=True):
            assert 0 <= accuracy + difference <= 100 + 1e-9
            # A difference cannot exceed the share of points on which the two differ.
        for difference, share in zip(scores.difference, scores.agreement, strict=True):
            assert abs(difference) <= 100 - share + 1e-9


def test_seeds_differ_and_repeat(result):
    assert len(set(result.scores["trNTK"].tau)) == 2
    again = run(TINY)
    assert again == result


def test_neighbors_are_the_nearest_and_the_gram_is_a_cosine(result):
    shown = result.examples
    np.testing.assert_allclose(shown.gram.diagonal(), 1)
    np.testing.assert_allclose(shown.gram, shown.gram.T)
    assert sum(shown.gram_classes.values()) == len(shown.gram) == TINY.train
    assert shown.images.shape == (3, 6, 28, 28)
    assert [row[0] for row in shown.labels] == ["T-shirt/top", "Trouser", "Bag"]


def test_the_result_round_trips_and_is_drawn_from_the_loaded_numbers(result, tmp_path):
    save_record(result, tmp_path)
    loaded = load_record(Result, tmp_path)
    assert loaded == result
    for name, figure in result.figures().items():
        assert image(loaded.figures()[name], DARK, format="png") == image(figure, DARK, format="png")
    assert [table.texts() for table in loaded.tables().values()] == [
        table.texts() for table in result.tables().values()
    ]


def test_published_numbers_stand_beside_ours(result):
    networks, kernels = result.tables().values()
    assert networks.ours == (0,)
    assert "this run" in networks.texts()[0][0]
    assert ["ResNet18 (CIFAR-10)", "1", "93.07", "-0.28", "0.776"] in networks.texts()
    assert [row[0] for row in kernels.rows] == [
        "trNTK",
        "trNTK0",
        "Em",
        "CK",
        "pixels",
        "proj-trNTK",
        "proj-pNTK",
    ]
    by_name = {
        row[0]: dict(zip([c.name for c in kernels.headings], row, strict=True)) for row in kernels.rows
    }
    assert by_name["CK"]["tau: ResNet18"] == 0.630
    assert by_name["pixels"]["tau: ResNet18"] is None
    assert by_name["proj-pNTK"]["tau: ours"] is None


def test_claims_carry_one_value_for_each_seed(result):
    claims = result.claims()
    assert len(claims) == 4
    assert all(len(claim.values) == 2 for claim in claims)
    means = {name: np.mean(scores.tau) for name, scores in result.scores.items()}
    best_other = max(mean for name, mean in means.items() if name != "trNTK")
    assert claims[2].interval.mean == pytest.approx(means["trNTK"] - best_other)
    assert claims[3].interval.mean == pytest.approx(means["trNTK"] - means["trNTK0"])


def test_the_report_names_what_stood_in(result):
    told = " ".join(f"{part.what} {part.published} {part.here}" for part in result.stand_ins())
    for text in (
        "CIFAR-10",
        "fashion-mini",
        "ResNet18",
        "LeNet×0.5",
        "24 training and 18 test",
        "SGDClassifier",
    ):
        assert text in told
    assert {card.split for card in result.data} == {"train", "test"}
    assert all(len(card.fingerprint) == 64 for card in result.data)


@pytest.mark.parametrize(
    "fields", [{"epochs": 0}, {"seeds": ()}, {"seeds": (1, 1)}, {"ridge": -1.0}, {"test": 0}, {"threads": 0}]
)
def test_bad_settings_are_refused_before_any_work(fields):
    with pytest.raises(InputError, match=f"bad {next(iter(fields))}"):
        Config(**fields)


def test_too_few_points_are_refused():
    with pytest.raises(InputError, match="number of classes"):
        run(Config(test=5))


@pytest.mark.parametrize(("rows", "words"), [(5, "each of 5 of the 10 classes"), (10, "each class")])
def test_the_caption_says_of_which_classes_images_are_shown(rows, words):
    caption = surrogate_result(rows=rows).figures()["neighbors"].caption
    assert f"The first test image of {words} and" in caption


def test_abbreviations_are_explained_before_they_are_used():
    """By the list of terms, which stands before claims and tables, or in the answer itself."""
    result = surrogate_result()
    page = surrogate_page(result).render()
    assert page.index('<h2 id="asked"') < page.index('<h2 id="terms"') < page.index('<h2 id="claims"')
    answer, terms = result.answer(), result.terms()
    assert {word for word in re.findall(r"[\w-]+", answer) if word in terms} == {"trNTK", "tau"}
    assert "neural tangent kernel (trNTK)" in answer
    assert "Kendall's tau (rank correlation)" in answer
    tables = result.tables()
    used = [text for claim in result.claims() for text in (claim.statement, claim.quantity)]
    used += [str(row[0]) for row in tables["kernels"].rows]
    used += [column.name for table in tables.values() for column in table.headings]
    short = re.findall(r"(?<![\w-])(?:\w+-)?(?:[a-z]*[A-Z]{2,}\d?|tau|R²)(?![\w-])", " ".join(used))
    assert {"trNTK", "trNTK0", "CK", "TAD", "tau", "R²", "proj-pNTK"} <= set(short) <= set(terms)


def test_one_seed_and_one_class_are_not_many():
    result = surrogate_result(seeds=1)
    assert "Over 1 seed the network" in result.answer()
    assert "1 seeds" not in surrogate_page(result).render()
