"""Everything that the page lets a person do, done in a browser."""

import csv
import time

import numpy as np
import pytest
from matplotlib.cbook import boxplot_stats
from selenium.common.exceptions import JavascriptException
from selenium.webdriver import ActionChains, Keys
from sklearn.metrics import confusion_matrix

from surrogate.page.sample_explanation import CLASSES, FORMULA, HOSTILE, M, N, many_explanation
from tangentkit.surrogate.page.rounded import rounded
from tangentkit.surrogate.page.strongest import kept_outputs

pytestmark = pytest.mark.browser


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("±", "").replace("+", "").rstrip(" %"))


def softmax(logits: np.ndarray) -> np.ndarray:
    sizes = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return sizes / sizes.sum(axis=-1, keepdims=True)


def margins(explanation) -> np.ndarray:
    ordered = np.sort(softmax(explanation.logits), axis=1)
    return ordered[:, -1] - ordered[:, -2]


def scores(view, i: int, output: int) -> np.ndarray:
    """Scores as the page has them, from the rounded kernel."""
    kappa = rounded(block for _, block in view.rows()).values()[i]
    return view.coefficients[:, output].astype(np.float32) * kappa + view.offsets[output] / M


# --- choosing ---------------------------------------------------------------------------------------------------


def test_filters_leave_the_samples_that_they_name(page, explanation):
    shown, network = page(), explanation.logits.argmax(axis=1)
    surrogate, truth = explanation.kernels[0].logits.argmax(axis=1), explanation.test_labels
    expected = {
        "wrong": network != truth,
        "differ": network != surrogate,
        "low": margins(explanation) < 0.2,
    }
    for name, mask in expected.items():
        assert 0 < mask.sum() < N  # the filter has something to do
        shown.browser.execute_script("document.getElementById(arguments[0]).click()", name)
        assert shown.listed() == np.flatnonzero(mask).tolist()
        assert shown.texts("#found") == [f"{mask.sum()} of {N} samples"]
        shown.click("#clear")
        assert len(shown.listed()) == N
    for select, labels in (("truth", truth), ("network", network), ("surrogate", surrogate)):
        shown.choose(f"#{select}", 2)
        assert shown.listed() == np.flatnonzero(labels == 2).tolist()
        shown.choose(f"#{select}", "")
    margin = "const e = document.getElementById('margin'); e.value = 0.5; e.dispatchEvent(new Event('input'))"
    shown.browser.execute_script(f"document.getElementById('low').click(); {margin}")
    assert shown.listed() == np.flatnonzero(margins(explanation) < 0.5).tolist()


def test_a_regular_expression_searches_names_and_classes(page, explanation):
    shown = page()
    field = shown.browser.find_element("id", "pattern")
    field.send_keys(r"image-1[0-4]\.png$")
    assert shown.listed() == [10, 11, 12, 13, 14]
    field.clear()
    field.send_keys("FISH")
    assert shown.listed() == np.flatnonzero(explanation.test_labels == 3).tolist()
    field.clear()
    field.send_keys("(")
    assert "Not a regular expression" in shown.texts("#pattern-trouble")[0]
    assert shown.script("document.getElementById('pattern-trouble').checkVisibility()")
    field.send_keys(Keys.BACKSPACE)
    assert not shown.script("document.getElementById('pattern-trouble').checkVisibility()")
    assert len(shown.listed()) == N


def test_samples_are_sorted(page, explanation):
    shown = page()
    p, q = softmax(explanation.logits), softmax(explanation.kernels[0].logits)
    keys = {
        "margin": margins(explanation),
        "truth": p[np.arange(N), explanation.test_labels],
        "distance": np.abs(p - q).sum(axis=1) / 2,
    }
    for name, values in keys.items():
        shown.choose("#sort", name)
        assert np.allclose(values[shown.listed()], np.sort(values), atol=1e-6)
    shown.click("#down")
    assert np.allclose(values[shown.listed()], np.sort(values)[::-1], atol=1e-6)


def test_the_list_obeys_the_keyboard(page):
    shown = page(height=900)
    shown.browser.execute_script("document.getElementById('list').focus()")
    for key, sample in ((Keys.DOWN, 1), (Keys.DOWN, 2), (Keys.UP, 1), (Keys.END, N - 1), (Keys.HOME, 0)):
        shown.keys(key)
        assert shown.sample(sample) == sample
        active = shown.script("document.getElementById('list').getAttribute('aria-activedescendant')")
        assert active == f"row-{sample}"
        seen = "const r = document.querySelector('.row[aria-selected=true]').getBoundingClientRect();"
        seen += "const l = document.getElementById('list').getBoundingClientRect();"
        assert shown.browser.execute_script(seen + "return r.top >= l.top - 1 && r.bottom <= l.bottom + 1")
    shown.keys(Keys.PAGE_DOWN)
    assert shown.sample() > 3


def test_keys_work_from_anywhere(page):
    shown = page()
    shown.keys("jjk")
    assert shown.sample(1) == 1
    shown.keys("s")
    assert shown.texts("#star-count") == ["1"]
    shown.keys("p")
    assert "pinned" in shown.until("document.querySelector('.badge')?.textContent")
    for key, tab in zip("2345", ("confusion", "map", "flags", "about"), strict=True):
        shown.keys(key)
        assert shown.script("document.getElementById('panel-' + arguments[0]).checkVisibility()", tab)
    shown.keys("?")
    assert shown.script("document.getElementById('keys').open")
    shown.keys(Keys.ESCAPE)
    shown.keys("/")
    assert shown.script("document.activeElement.id") == "pattern"
    shown.keys("j")  # in a field it is a letter
    assert shown.script("document.getElementById('pattern').value") == "j"


# --- one sample -------------------------------------------------------------------------------------------------


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


# --- tabs -------------------------------------------------------------------------------------------------------


def test_a_cell_of_the_confusion_matrix_leaves_its_samples_in_the_list(page, explanation):
    shown = page(fragment="#tab=confusion")
    truth, network = explanation.test_labels, explanation.logits.argmax(axis=1)
    counts = confusion_matrix(truth, network, labels=range(4))
    cells = shown.table(".confusion")
    assert [[int(cell.replace("·", "0")) for cell in row[1:]] for row in cells] == counts.tolist()
    a, b = np.argwhere(counts * (1 - np.eye(4)))[0]
    shown.click(f"[data-cell='{a}-{b}']")
    assert shown.listed() == np.flatnonzero((truth == a) & (network == b)).tolist()
    shown.click(f"[data-cell='{a}-{b}']")
    assert len(shown.listed()) == N
    shown.choose("#compare", "network-surrogate")
    surrogate = explanation.kernels[0].logits.argmax(axis=1)
    cells = shown.table(".confusion")
    expected = confusion_matrix(network, surrogate, labels=range(4))
    assert [[int(cell.replace("·", "0")) for cell in row[1:]] for row in cells] == expected.tolist()


def on_map(explanation, width: float, height: float) -> np.ndarray:
    """Where test samples are on the screen, from the upper left corner of the map."""
    from tangentkit.surrogate.page.positions import positions

    places = positions(explanation.kernels[0])
    both = np.concatenate([places.test, places.train])
    share = (places.test - both.min(axis=0)) / np.ptp(both, axis=0)
    return np.stack([16 + share[:, 0] * (width - 32), height - 16 - share[:, 1] * (height - 32)], axis=1)


def test_the_map_chooses_by_click_and_selects_by_drag(page, explanation):
    shown = page(fragment="#tab=map", height=900)
    canvas = shown.browser.find_element("id", "map")
    width, height = canvas.size["width"], canvas.size["height"]
    places = on_map(explanation, width, height)
    apart = [np.sort(np.linalg.norm(places - place, axis=1))[1] for place in places]
    alone = int(np.argmax(apart))

    def at(place):
        return ActionChains(shown.browser, duration=10).move_to_element_with_offset(
            canvas, *(int(part) for part in np.rint(place - [width / 2, height / 2]))
        )

    at(places[alone]).click().perform()
    assert shown.script("Number(document.querySelector('.row[aria-selected=true]').dataset.sample)") == alone
    middle, half = np.array([width / 2, height / 2]), np.array([150, 120])
    low, high = middle - half, middle + half
    at(low).click_and_hold().move_by_offset(100, 100).move_by_offset(200, 140).release().perform()
    inside = np.flatnonzero(((places > low) & (places < high)).all(axis=1))
    assert 0 < len(inside) < N
    assert shown.listed() == inside.tolist()
    assert "region=" in shown.browser.current_url
    shown.click("#region-off")
    assert shown.texts("#found") == [f"{N} samples"]
    before = shown.script("document.querySelector('.row[aria-selected=true]').dataset.sample")
    shown.browser.execute_script("document.getElementById('map').focus()")
    shown.keys(Keys.LEFT)
    now = shown.script("document.querySelector('.row[aria-selected=true]').dataset.sample")
    assert places[int(now), 0] <= places[int(before), 0]


def test_flags_are_a_tab_with_reasons_and_evidence(page):
    shown = page(fragment="#tab=flags")
    assert shown.texts("#tab-flags") == ["Flags (3)"]
    order = "[...document.querySelectorAll('.flagged')].map(f => Number(f.dataset.flag))"
    assert shown.script(order) == [8, 11, 5]  # the largest score first
    assert len(shown.browser.find_elements("css selector", "[data-flag='5'] .evidence li")) == 2
    assert "Its neighbors are birds. <script>" in shown.texts("[data-flag='5']")[0]
    shown.choose("#kind", "mislabeled")
    assert shown.script(order) == [11, 5]


def test_tabs_move_by_arrow_keys(page):
    shown = page()
    shown.browser.execute_script("document.getElementById('tab-sample').focus()")
    shown.keys(Keys.RIGHT)
    assert shown.script("document.activeElement.id") == "tab-confusion"
    assert shown.script("document.getElementById('panel-confusion').checkVisibility()")
    shown.keys(Keys.END)
    assert shown.script("document.getElementById('tab-about').getAttribute('aria-selected')") == "true"
    assert HOSTILE.replace("\u202e", "\\u202e") in shown.texts("#panel-about")[0]


# --- taking something away --------------------------------------------------------------------------------------


def test_stars_are_saved_as_csv_without_formulas(page, tmp_path):
    shown = page(fragment="#sample=4")
    shown.browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    assert shown.script("document.getElementById('save').disabled")
    shown.click(".who .star")
    train = int(shown.script("document.querySelector('.voice').dataset.train"))
    shown.browser.execute_script("document.querySelector('.voice .star').click()")
    shown.browser.execute_script("document.getElementById('starred').click()")
    assert shown.listed() == [4]
    shown.click("#save")
    end = time.monotonic() + 10
    while not (tmp_path / "stars.csv").exists() and time.monotonic() < end:
        time.sleep(0.02)
    with (tmp_path / "stars.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["set"], int(row["number"])) for row in rows] == [("test", 4), ("train", train)]
    assert rows[0]["name"] == f"'{FORMULA}"
    assert rows[0]["network"] in CLASSES
    shown.open("#sample=2")  # kept by the browser until they are taken away
    assert shown.texts("#star-count") == ["2"]


def test_a_link_restores_the_view(page):
    shown = page()
    shown.click(".row[data-sample='8']")
    shown.keys("p")
    shown.choose("#kernel", 2)
    shown.choose("#output", 3)
    shown.browser.execute_script("document.getElementById('low').click()")
    shown.browser.find_element("id", "pattern").send_keys("image|=")
    shown.choose("#sort", "margin")
    state = "[view('kernel'), view('output'), view('sort'), view('pattern'), document.getElementById('low').checked]"
    state = state.replace("view(", "(id => document.getElementById(id).value)(")
    shown.click("#share")
    link = shown.script("document.getElementById('link-text').value")
    before, listed, sample = shown.script(state), shown.listed(), shown.sample()
    assert before == ["2", "3", "margin", "image|=", True]
    shown.open("#" + link.partition("#")[2])
    assert (shown.script(state), shown.listed(), shown.sample()) == (before, listed, sample)
    assert "pin=8" in link


def test_what_a_link_says_that_cannot_be_is_left_out(page):
    shown = page(
        fragment="#sample=999&kernel=-1&output=77&tab=<b>&pin=x&sort=constructor&pattern=(&margin=nan"
        "&region=1&truth=__proto__&stars=test-999 train-1e9 <b>&kind=<b>"
    )
    assert shown.sample() == 0
    assert len(shown.listed()) == N
    assert shown.texts("#star-count") == ["0"]


# --- for everybody ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "scheme"), [(320, "dark"), (390, "light"), (1280, "dark")])
def test_every_tab_fits_the_screen(page, width, scheme):
    shown = page(fragment="#pin=3", width=width, height=844, scheme=scheme)
    tabs = ["sample", "confusion", "map", "flags", "about", *(["list"] if width < 500 else [])]
    for tab in tabs:
        shown.browser.execute_script("document.getElementById('tab-' + arguments[0]).click()", tab)
        assert shown.script("document.documentElement.scrollWidth") <= width, tab
    if width < 500:
        shown.click(".row[data-sample='1']")  # from the list to the sample
        assert shown.sample(1) == 1
        assert shown.script("document.getElementById('panel-sample').checkVisibility()")


def test_light_and_dark_follow_the_system_until_one_is_chosen(page):
    shown = page(scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = shown.script(paper)
    shown.click("#theme")
    light = shown.script(paper)
    assert light != dark
    shown.click("#theme")
    assert shown.script(paper) == dark
    shown.click("#theme")
    assert shown.script("document.documentElement.dataset.theme") == "auto"


def test_everything_that_acts_or_shows_has_a_name_for_screen_readers(page):
    shown = page(fragment="#low=true")
    named = {"button", "combobox", "checkbox", "searchbox", "textbox", "slider", "tab", "tablist", "listbox"}
    named |= {"option", "image", "img", "meter", "application", "dialog", "tabpanel"}
    for tab in ("sample", "confusion", "map", "flags"):
        shown.click(f"#tab-{tab}")
        nodes = shown.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        seen = [node for node in nodes if not node["ignored"] and node.get("role", {}).get("value") in named]
        assert len(seen) > 20
        assert [node["role"]["value"] for node in seen if not node.get("name", {}).get("value")] == []


def test_text_is_shown_as_text(page):
    shown = page(fragment="#sample=3")
    visible = HOSTILE.replace("\u202e", "\\u202e")
    assert shown.browser.title.startswith(visible.strip())  # a script that ran would say "owned"
    assert visible in shown.texts(".who h2")[0]
    assert visible in shown.texts("#kernel option")
    assert shown.script("document.querySelectorAll('main b, main img, main script').length") == 0


def test_the_policy_stops_what_the_page_did_not_bring(browser, page):
    shown = page()
    attempts = {
        "TrustedScript": "const s = document.createElement('script'); s.textContent = 'owned = 1'",
        "TrustedHTML": "document.body.innerHTML = '<b>owned</b>'",
    }
    for needed, attempt in attempts.items():
        with pytest.raises(JavascriptException, match=needed):
            shown.browser.execute_script(attempt)
    style = "const s = document.createElement('style'); s.textContent = 'body { color: red }'"
    shown.browser.execute_script(f"{style}; document.head.append(s)")
    assert shown.script("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"
    fetch = "fetch('http://127.0.0.1:9/').then(() => done('sent'), () => done('stopped'))"
    assert shown.browser.execute_async_script(f"const done = arguments[0]; {fetch}") == "stopped"
    seen = " ".join(entry["message"] for entry in browser.get_log("browser"))
    assert all(rule in seen for rule in ("TrustedScript", "TrustedHTML", "style-src", "connect-src"))
    assert shown.script("performance.getEntriesByType('resource').length") == 0


def test_texts_with_one_output_and_no_truth(page):
    shown = page("texts")
    assert shown.script("document.getElementById('wrong').disabled")
    assert shown.texts("#output option") == ["good against bad"]
    shown.browser.find_element("id", "pattern").send_keys("^Sentence 1[0-9]")
    assert shown.listed() == list(range(10, 20))
    assert shown.texts(".who .text")[0].startswith("Sentence 10")
    assert shown.texts(".voice small")[0].startswith("Training sentence")
    assert len(shown.table(".bars")) == 1
    assert shown.texts(".side h3") == ["For good", "For bad"]
    assert shown.texts(".verdicts dt") == ["Network", "Surrogate"]
    shown.keys(Keys.TAB)
    for tab in ("confusion", "map", "flags", "about"):
        shown.click(f"#tab-{tab}")
        assert shown.script("document.getElementById('panel-' + arguments[0]).checkVisibility()", tab)
    assert "no map" in shown.texts("#panel-map")[0]


def test_of_many_classes_the_largest_are_shown_and_it_is_said(page):
    given = many_explanation()
    shown = page("many", fragment="#sample=5")
    assert len(shown.table(".bars")) == len(shown.table(".boxes")) == len(shown.table(".logits")) == 12
    assert "12 outputs and 12 training classes of the largest means" in shown.texts(".bars")[0]
    kept = set(kept_outputs(given.kernels[1], given)[5].tolist())
    shown.choose("#kernel", 1)
    shown.choose("#output", min(set(range(20)) - kept))
    shown.until("document.querySelector('.side')?.textContent.includes('this is none of them')")
    assert len(shown.table(".bars")) == 12
    shown.choose("#output", min(kept))
    shown.until("document.querySelectorAll('.side .voice').length === 20")
