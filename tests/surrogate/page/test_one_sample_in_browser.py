"""What the page says of one sample: answers, logits, scores, and the training samples for and against."""

import numpy as np
import pytest
from matplotlib.cbook import boxplot_stats

from surrogate.page.expected_numbers import number, scores, softmax
from surrogate.page.sample_explanation import CLASSES, M
from tangentkit.surrogate.page.rounded import rounded

pytestmark = pytest.mark.browser


def test_a_click_shows_what_network_and_surrogate_say(page, explanation):
    shown = page()
    for i in (7, 19):
        shown.click(f".row[data-sample='{i}']")
        shown.sample(i)
        truth, network, surrogate = shown.texts(".verdicts dd")
        answers = explanation.logits[i].argmax(), explanation.kernels[0].logits[i].argmax()
        assert truth == CLASSES[explanation.test_labels[i]]
        assert network.startswith(CLASSES[answers[0]])
        assert network.endswith("right" if answers[0] == explanation.test_labels[i] else "wrong")
        assert surrogate.startswith(CLASSES[answers[1]])
        assert surrogate.endswith("disagrees" if answers[0] != answers[1] else "agrees")


def test_logits_are_exact_and_scores_sum_to_them_within_the_bound(page, explanation):
    shown, view = page(fragment="#sample=5"), explanation.kernels[0]
    rows = shown.table(".logits")
    assert [row[0] for row in rows] == list(CLASSES)
    numbers = np.array([[number(cell) for cell in row[1:]] for row in rows])
    assert np.allclose(numbers[:, 0], explanation.logits[5], rtol=1e-3, atol=1e-3)
    assert np.allclose(numbers[:, 2], view.logits[5], rtol=1e-3, atol=1e-3)
    assert np.allclose(numbers[:, 1], 100 * softmax(explanation.logits[5]), atol=0.51)
    bound = rounded(block for _, block in view.rows()).bound[5] * np.abs(view.coefficients).sum(axis=0)
    assert np.allclose(numbers[:, 6], bound, rtol=0.06)
    assert (np.abs(numbers[:, 5]) <= bound).all()
    assert np.allclose(numbers[:, 4] - numbers[:, 5], numbers[:, 2], rtol=1e-3, atol=0.01)


def test_bars_are_mean_scores_of_training_classes_for_every_output(page, explanation):
    shown = page(fragment="#sample=5")
    rows, labels = shown.table(".bars"), explanation.train_labels
    for output, row in enumerate(rows):
        mine = scores(explanation.kernels[0], 5, output)
        assert np.allclose(
            [number(cell) for cell in row[1:]],
            [mine[labels == label].mean() for label in range(4)],
            rtol=0.01,
        )
    # Heights on the screen are in the ratio of the numbers.
    heights = shown.script(
        "[...document.querySelectorAll('.bars g rect')].map(r => Number(r.getAttribute('height')))"
    )
    sizes = np.abs([[number(cell) for cell in row[1:]] for row in rows]).ravel()
    assert len(heights) == 16
    assert np.allclose(np.array(heights) / max(heights), sizes / sizes.max(), atol=0.02)


def test_boxes_are_those_of_the_chosen_output_with_the_mean_as_line(page, explanation):
    shown = page(fragment="#sample=5&output=2")
    mine, labels = scores(explanation.kernels[0], 5, 2), explanation.train_labels
    fliers = shown.script("[...document.querySelectorAll('.one')].map(g => Number(g.dataset.fliers))")
    rows = shown.table(".boxes")
    assert len(rows) == len(fliers) == 4
    assert sum(fliers) > 0
    for label, row in enumerate(rows):
        expected = boxplot_stats(mine[labels == label])[0]
        found = [number(cell) for cell in (*row[1:6], *row[6].split(" to "), row[7])]
        keys = ("mean", "q1", "med", "q3", "whislo", "whishi")
        assert np.allclose(found[1:7], [expected[key] for key in keys], rtol=0.02, atol=1e-3)
        assert found[0] == (labels == label).sum()
        assert found[7] == fliers[label] == len(expected["fliers"])
    means = "[...document.querySelectorAll('.one .mean')].map(l => Number(l.getAttribute('x1')))"
    assert np.argsort(shown.script(means)).tolist() == np.argsort([number(row[2]) for row in rows]).tolist()


def test_training_samples_for_and_against_come_with_scores_and_pictures(page, explanation):
    shown = page(fragment="#sample=5&output=1")
    for length in (10, 20):
        for side, sign in (("for", 1), ("against", -1)):
            mine = scores(explanation.kernels[0], 5, 1)
            order = np.argsort(-sign * mine)[:length]
            listed = shown.script(
                f"[...document.querySelectorAll('.side.{side} .voice')].map(v => v.dataset.train)"
            )
            assert [int(j) for j in listed] == order.tolist()
            found = [number(text) for text in shown.texts(f".side.{side} .score")]
            assert np.allclose(found, mine[order], rtol=0.01)
        drawn = "[...document.querySelectorAll('.voice .picture')].every(c => 'drawn' in c.dataset)"
        assert shown.until(drawn)
        shown.click(".more")
        shown.until("document.querySelectorAll('.voice').length > arguments[0]", 2 * length)


def test_pictures_are_those_of_their_samples(page, explanation):
    shown = page(fragment="#sample=5")
    shown.until("'drawn' in document.querySelector('.who .picture').dataset")
    pixels = "document.querySelector('.who .picture').getContext('2d').getImageData(0, 0, 8, 8).data"
    seen = np.array(shown.script(f"[...{pixels}]")).reshape(8, 8, 4)[..., :3] / 255
    mine = np.asarray(explanation.test.pictures)
    # WebP halves the colors' resolution: the picture is the nearest of all by its brightness.
    distances = np.abs(mine.mean(axis=3) - seen.mean(axis=2)).mean(axis=(1, 2))
    assert distances.argmin() == 5


def test_the_target_class_can_be_chosen(page, explanation):
    shown = page()
    i = int(np.flatnonzero(explanation.logits.argmax(axis=1) != explanation.test_labels)[0])
    shown.click(f".row[data-sample='{i}']")
    shown.sample(i)
    outputs = {
        "network": explanation.logits[i].argmax(),
        "truth": explanation.test_labels[i],
        "3": 3,
        "surrogate": explanation.kernels[0].logits[i].argmax(),
    }
    for choice, output in outputs.items():
        shown.choose("#output", choice)
        name = CLASSES[output]
        shown.until("document.querySelector('.voices-card h2').textContent.endsWith(arguments[0])", name)
        assert shown.texts(".logits tr.chosen th") == [name]


def test_a_click_on_a_group_of_bars_chooses_its_output(page):
    shown = page()
    shown.browser.execute_script(
        "document.querySelector('[data-output=\"3\"]').dispatchEvent(new MouseEvent('click'))"
    )
    shown.until("document.querySelector('.voices-card h2').textContent.endsWith('fish')")
    assert shown.script("document.getElementById('output').value") == "3"


def test_another_kernel_shows_its_own_strongest_samples(page, explanation):
    shown, view = page(fragment="#sample=5&output=1"), explanation.kernels[2]
    shown.choose("#kernel", 2)
    shown.until("document.querySelector('.boxes .note').textContent.includes('last layer')")
    exact = view.coefficients[:, 1] * np.asarray(view.matrix)[5] + view.offsets[1] / M
    listed = shown.script(
        "[...document.querySelectorAll('.side.for .voice')].map(v => Number(v.dataset.train))"
    )
    assert listed == np.argsort(-exact)[:10].tolist()
    means = [exact[explanation.train_labels == label].mean() for label in range(4)]
    assert np.allclose([number(cell) for cell in shown.table(".bars")[1][1:]], means, rtol=0.01)
    assert shown.texts(".verdicts dd")[2].startswith(CLASSES[view.logits[5].argmax()])


def test_a_pinned_sample_stands_beside_the_chosen_one(page, explanation):
    shown = page(fragment="#sample=5&output=1")
    shown.click(".pin")
    shown.until("document.querySelector('.badge')")
    shown.click(".row[data-sample='8']")
    shown.sample(8)
    columns = "[...document.querySelectorAll('.column')].map(c => [Number(c.dataset.sample), c.className])"
    assert shown.script(columns) == [[5, "column pinned"], [8, "column"]]
    best = [set(np.argsort(-scores(explanation.kernels[0], i, 1))[:10].tolist()) for i in (5, 8)]
    assert shown.texts(".shared")[0].startswith(
        f"Both samples share {len(best[0] & best[1])} of the 10 strongest for"
    )
    shown.click(".pinned .pin")
    shown.until("document.querySelectorAll('.column').length === 1")
