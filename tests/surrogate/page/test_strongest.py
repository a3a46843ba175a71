"""What is kept of a kernel that is not in the page whole: the strongest of all scores, and class means."""

import numpy as np
import pytest

from tangentkit.surrogate.page import Explanation, KernelView, Samples
from tangentkit.surrogate.page.strongest import OUTPUTS, kept_outputs, strongest

N, M = 6, 15


def explanation(rng, outputs: int) -> Explanation:
    view = KernelView("any", rng.normal(size=(N, M)), rng.normal(size=(M, outputs)), rng.normal(size=outputs))
    return Explanation(
        test=Samples(rng.integers(0, outputs, N)),
        train=Samples(np.arange(M) % (outputs - 1)),  # the last class has no training sample
        classes=tuple(map(str, range(outputs))),
        network=rng.normal(size=(N, outputs)),
        kernels=(view,),
    )


@pytest.mark.parametrize("k", [1, 4, 99])
@pytest.mark.parametrize("outputs", [3, 20])
def test_the_strongest_are_those_of_all_scores_sorted(rng, outputs, k):
    given = explanation(rng, outputs)
    view, labels = given.kernels[0], given.train_labels
    found = strongest(view, given, k)
    scores = np.einsum("ij,jc->icj", view.matrix, view.coefficients) + view.offsets[:, None] / M
    for i in range(N):
        for slot, o in enumerate(found.outputs[i]):
            order = np.argsort(scores[i, o])
            assert found.indices[i, slot, 0].tolist() == order[::-1][:k].tolist()
            assert found.indices[i, slot, 1].tolist() == order[:k].tolist()
            assert np.allclose(found.scores[i, slot, 1], scores[i, o][order[:k]], rtol=1e-6)
            means = [scores[i, o][labels == c].mean() if (labels == c).any() else 0.0 for c in range(outputs)]
            assert np.allclose(found.means[i, slot], means, rtol=1e-5, atol=1e-7)


def test_class_means_weighted_by_class_sizes_give_the_logits(rng):
    given = explanation(rng, 3)
    means = strongest(given.kernels[0], given, 1).means
    sizes = np.bincount(given.train_labels, minlength=3)
    assert np.allclose(means @ sizes, given.kernels[0].logits, atol=1e-5)


def test_of_many_outputs_the_answers_and_the_largest_are_kept(rng):
    given = explanation(rng, 20)
    kept = kept_outputs(given.kernels[0], given)
    assert kept.shape == (N, OUTPUTS)
    for i in range(N):
        assert given.test_labels is not None
        answers = {int(given.test_labels[i]), int(given.logits[i].argmax())}
        largest = np.argsort(-given.kernels[0].logits[i])[: OUTPUTS - 2].tolist()
        assert answers | set(largest) <= set(kept[i].tolist())
