"""The audit finds what was planted, says why, and leaves clean data alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import TensorDataset

import tangentkit as tk
from surrogate.networks import backdoored, trained
from tangentkit.core import InputError, NumericalError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.linearized import Training, train
from tangentkit.surrogate import Share
from tangentkit.surrogate.audit.kinds import KINDS
from tangentkit.surrogate.shares import precision_and_recall


def plain(inputs=8, outputs=5):
    """A network whose last layer sees the sample itself."""
    return nn.Linear(inputs, outputs)


def groups(n=300, classes=5, inputs=8, seed=0, spread=1.0):
    """Gaussian classes that overlap a little, labels from the true probabilities."""
    generator = torch.Generator().manual_seed(seed)
    centers = 2.5 * torch.randn(classes, inputs, generator=generator)
    y = torch.arange(n) % classes
    x = centers[y] + spread * torch.randn(n, inputs, generator=generator)
    scores = -0.5 * torch.cdist(x, centers).square() / spread**2
    return x, torch.multinomial(scores.softmax(1), 1, generator=generator)[:, 0]


def mislabeled(data, share, seed=0):
    """The data with a share of its labels replaced by others, and which ones."""
    rng = Key(seed).fold("wrong labels").numpy()
    wrong = np.zeros(len(data), bool)
    wrong[rng.choice(len(data), round(share * len(data)), replace=False)] = True
    shift = torch.from_numpy(rng.integers(1, len(data.classes), len(data)))
    new = torch.where(torch.from_numpy(wrong), (data.targets + shift) % len(data.classes), data.targets)
    return replace(data, targets=new), wrong


def shares_of(found, kind, truth):
    flagged = np.zeros(found.samples, bool)
    flagged[[flag.sample for flag in found.of(kind)]] = True
    return precision_and_recall(flagged, np.asarray(truth))


@pytest.mark.parametrize("seed", [0, 1])
def test_wrong_labels_that_are_not_told_from_rare_ones_are_in_doubt(seed, tmp_path):
    """Three far groups, whose samples the network puts equally far from every border: none is a sure flag."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(300) % 3
    x = (4 * torch.randn(3, 5, generator=generator))[y] + torch.randn(300, 5, generator=generator)
    wrong = torch.randperm(300, generator=generator)[:15]
    y[wrong] = (y[wrong] + 1) % 3
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    found = tk.audit(model, (x, y), progress=False)
    named = [flag.sample for flag in (*found.of("mislabeled"), *found.doubtful)]
    assert set(named) <= set(wrong.tolist())
    assert len(named) >= 12  # others are near to a border
    assert found.doubtful, "the case is easier than it was: take another"
    assert f"{len(found.doubtful)} labels in doubt" in repr(found)
    scores = [flag.score for flag in found.doubtful]
    assert scores == sorted(scores, reverse=True)
    page = found.report(tmp_path / "page.html").read_text()
    assert f"labels in doubt: {len(found.doubtful)}" in page
    assert len(found.to_dict()["doubtful"]) == len(found.doubtful)


def test_clean_data_are_flagged_no_more_often_than_the_level():
    repeats = 6
    counts = dict.fromkeys(("mislabeled", "near-duplicate", "outlying", "underrepresented", "poisoned"), 0)
    for seed in range(repeats):
        found = tk.audit(plain(), groups(seed=seed), progress=False)
        for kind in found.counts:
            counts[kind] += 1
    for kind, number in counts.items():
        assert stats.binomtest(number, repeats, 0.05, alternative="greater").pvalue > 1e-2, kind


def fitted(x, y):
    """A network of two hidden layers after 150 steps on all samples."""
    model = tk.models.mlp([x.shape[1], 32, 32, int(y.max()) + 1])
    train(model, x, y, Training(150, 1e-2, optimizer="adam", loss="cross-entropy", batch=len(x)), key=Key(0))
    return model.eval()


@pytest.mark.parametrize("inputs", [2, 4])
def test_clean_points_of_few_dimensions_are_no_near_duplicates_of_each_other(inputs):
    repeats, flags = 4, 0
    for seed in range(repeats):
        x = torch.randn(300, inputs, generator=torch.Generator().manual_seed(seed))
        y = (x[:, 0] > 0).long()
        flags += bool(tk.audit(fitted(x, y), (x, y), progress=False).of("near-duplicate"))
    assert stats.binomtest(flags, repeats, 0.05, alternative="greater").pvalue > 1e-2


@pytest.mark.parametrize("size", [2, 4])
def test_the_members_of_a_small_class_are_no_near_duplicates(size):
    x, y = groups(400, classes=3)
    x[:size] += 40 * torch.eye(8)[7]
    y[:size] = 3
    found = tk.audit(fitted(x, y), (x, y), progress=False)
    assert not found.of("near-duplicate")
    assert {flag.sample for flag in found.flags} <= set(range(size))


def test_ordinary_samples_beside_a_rare_class_are_not_underrepresented():
    wrong = 0
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        x, y = torch.randn(1000, 6, generator=generator), (torch.arange(1000) < 10).long()
        x[y == 1, 0] += 3
        found = tk.audit(fitted(x, y), (x, y), progress=False)
        wrong += sum(int(y[flag.sample]) == 0 for flag in found.of("underrepresented"))
    assert wrong <= 2


def test_an_input_is_no_near_copy_of_its_multiple():
    x, y = groups()
    x[1], x[3] = 5 * x[0], x[2] + 1e-4
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 5))
    near = {flag.sample for flag in tk.audit(model, (x, y), progress=False).of("near-duplicate")}
    assert near == {2, 3}


@pytest.mark.slow
@pytest.mark.parametrize("n", [400, 1500])
def test_clean_data_are_flagged_no_more_often_than_the_level_over_many_repeats(n):
    repeats = 60
    flags = [tk.audit(plain(), groups(n, seed=seed), progress=False).counts for seed in range(repeats)]
    for kind in ("mislabeled", "near-duplicate", "outlying", "underrepresented", "poisoned"):
        number = sum(kind in counts for counts in flags)
        assert stats.binomtest(number, repeats, 0.05, alternative="greater").pvalue > 1e-3, kind


def test_planted_labels_are_found_on_real_pictures():
    dirty, wrong = mislabeled(tk.data.load("fashion-mini", "train"), 0.05)
    network = trained(tk.data.load("fashion-mini", "test"))
    found = tk.audit(network, dirty, progress=False)
    precision, recall = shares_of(found, "mislabeled", wrong)
    assert precision.interval[1] > 0.95
    assert precision.value > 0.85
    assert recall.value > 0.2
    assert found.label_noise == pytest.approx(0.05 * 10 / 9, abs=0.025)
    flag = found.of("mislabeled")[0]
    assert repr(dirty.classes[dirty.targets[flag.sample]]) in flag.reason
    assert "a probe that has not seen it" in flag.reason
    assert all(dirty.targets[other] != dirty.targets[flag.sample] for other in flag.evidence)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
@pytest.mark.usefixtures("real_data")
def test_planted_labels_are_found_at_every_share(share):
    data = tk.data.load("fashion-mnist", "train", limit=8000)
    network = trained(tk.data.load("fashion-mnist", "test", limit=4000), epochs=6)
    dirty, wrong = mislabeled(data, share)
    precision, recall = shares_of(tk.audit(network, dirty, progress=False), "mislabeled", wrong)
    assert precision.interval[1] > 0.8
    assert recall.value > 0.25


def test_copies_are_found_with_their_labels():
    data = tk.data.load("fashion-mini", "train", limit=600)
    generator = torch.Generator().manual_seed(0)
    noise = 0.01 * torch.randn(12, 1, 28, 28, generator=generator)
    x = torch.cat([data.inputs, data.inputs[:10], (data.inputs[20:32] + noise).clamp(0, 1)])
    y = torch.cat([data.targets, data.targets[:10], data.targets[20:32]])
    y[600] = (y[600] + 1) % 10
    y[611] = (y[611] + 1) % 10
    found = tk.audit(tk.models.lenet(seed=0).eval(), (x, y), progress=False)
    exact = {flag.sample: flag for flag in found.of("duplicate")}
    assert set(exact) == {*range(10), *range(600, 610)}
    assert exact[3].evidence == (603,)
    assert exact[603].reason == "the same as sample 3"
    planted = np.zeros(622, bool)
    planted[20:32] = planted[610:] = True
    precision, recall = shares_of(found, "near-duplicate", planted)
    assert recall.value > 0.9
    assert precision.value > 0.8
    conflicts = {flag.sample: flag.evidence for flag in found.of("conflicting")}
    assert conflicts[0] == (600,)
    assert conflicts[600] == (0,)
    assert 611 in conflicts


def with_strangers_and_a_rare_kind(spread, seed, n=300):
    """Groups, then two samples far from all others and from each other, then eight that are alike, apart from all."""
    x, _ = groups(n, inputs=12, seed=seed, spread=spread)
    axes = torch.eye(12)
    strangers = 30 * torch.stack([axes[7] - axes[8], axes[9] - axes[10]])
    noise = torch.randn(8, 12, generator=torch.Generator().manual_seed(1000 + seed))
    rare = 20 * (axes[11] + 0.3 * axes[0]) + spread * noise
    return torch.cat([x, strangers, rare]), {n, n + 1}, set(range(n + 2, n + 10))


@pytest.mark.parametrize("spread", [0.1, 0.2, 0.4])
def test_strangers_and_rare_kinds_are_told_apart(spread):
    repeats = 20
    strangers_found = rare_found = false = flags = 0
    for seed in range(repeats):
        x, strangers, rare = with_strangers_and_a_rare_kind(spread, seed)
        found = tk.audit(plain(12), x, level=0.05, progress=False)
        outlying, few = (
            {flag.sample for flag in found.of(kind)} for kind in ("outlying", "underrepresented")
        )
        strangers_found += len(outlying & strangers)
        rare_found += len(few & rare)
        false += len((outlying | few) - strangers - rare)
        flags += len(outlying | few)
    assert strangers_found >= 0.8 * repeats * len(strangers)
    assert rare_found >= 0.9 * repeats * len(rare)
    assert false <= 0.05 * flags


def test_a_rare_kind_is_shown_by_its_own_samples():
    x, _, rare = with_strangers_and_a_rare_kind(spread=0.1, seed=0)
    y = torch.arange(len(x)) % 5
    flags = [
        flag
        for flag in tk.audit(plain(12), (x, y), progress=False).of("underrepresented")
        if flag.sample in rare
    ]
    assert flags
    for flag in flags:
        assert flag.reason.startswith("one of about")
        assert set(flag.evidence) <= rare


def test_known_poison_leads_to_more():
    model, dirty, mask = backdoored()
    poison = mask.nonzero().flatten()
    known = torch.zeros_like(mask)
    known[poison[::2]] = True
    found = tk.audit(model, dirty, poisoned=known, progress=False)
    truth = (mask & ~known).numpy()
    precision, recall = shares_of(found, "poisoned", truth)
    # Five such networks gave a precision of 0.92 to 1 and a recall of 0.36 to 0.47; which network a seed trains
    # depends on how the processor rounds. By chance one sample in nine would be poisoned.
    assert precision.value > 0.85
    assert recall.value > 0.3
    assert "nearest samples are known to be poisoned" in found.of("poisoned")[0].reason
    assert all(known[other] for other in found.of("poisoned")[0].evidence)


def test_every_form_of_data_gives_the_same_flags():
    x, y = groups(200)
    y[:6] = (y[:6] + 1) % 5
    model = plain()

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = model

        def forward(self, numbers):
            return self.head(numbers)

    forms = [
        (model, (x, y)),
        (model, (x.numpy(), y.tolist())),
        (model, TensorDataset(x, y)),
        (model, tk.data.Data(x, y, "toy", "train", tuple("01234"))),
        (Named(), ({"numbers": x}, y)),
        (model, (x, [f"{label}" for label in y.tolist()])),
    ]
    expected = tk.audit(*forms[0]).to_dict()
    assert expected["flags"]
    for network, data in forms[1:]:
        found = tk.audit(network, data).to_dict()
        assert found["flags"] == expected["flags"]
    double = tk.audit(plain().double(), (x.double(), y))
    assert double.chances["mislabeled"].shape == (200,)


def test_a_small_memory_changes_nothing():
    x, y = groups(200)
    whole, small = (tk.audit(plain(), (x, y), memory=memory) for memory in ("1GB", "100kB"))
    assert whole.flags == small.flags


def test_samples_without_labels_are_looked_at_without_them():
    x, _ = groups(200)
    found = tk.audit(plain(), torch.cat([x, x[:2]]))
    assert found.counts["duplicate"] == 4
    assert found.not_looked_for["mislabeled"] == "no labels"
    assert "conflicting" not in found.counts


def test_a_class_of_one_sample_is_left_out_of_the_probe():
    x, y = groups(200)
    y[17] = 77
    found = tk.audit(plain(), (x, y))
    assert found.chances["mislabeled"][17] == 1
    assert found.classes == ("0", "1", "2", "3", "4", "77")


def test_the_results_print_draw_and_become_json(tmp_path):
    import json

    x, y = groups(200)
    found = tk.audit(
        plain(), (torch.cat([x, x[:1]]), torch.cat([y, y[:1]])), names=[f"f{i}" for i in range(201)]
    )
    assert repr(found).startswith("Audit(")
    assert "duplicate" in str(found.table())
    assert "f200" in str(found.flag_table("duplicate"))
    assert found.plot().get_xlabel() == "flags"
    assert json.loads(json.dumps(found.to_dict()))["counts"]["duplicate"] == 2
    with pytest.raises(UnknownNameError, match="'duplicate'"):
        found.of("duplicates")


def test_the_page_shows_pictures_escapes_and_is_silent_about_what_was_not_found(tmp_path):
    data = tk.data.load("fashion-mini", "train", limit=200)
    x = torch.cat([data.inputs, data.inputs[:2]])
    labels = [
        "<script>alert(1)</script>" if t == 0 else f"class {t}" for t in [*data.targets, *data.targets[:2]]
    ]
    names = [f"../{i}<b>.png" for i in range(202)]
    found = tk.audit(tk.models.lenet(seed=0).eval(), (x, labels), names=names, progress=False)
    page = found.report(tmp_path / "page.html").read_text()
    assert "<script>" not in page
    assert "<b>" not in page
    assert page.count("data:image/webp") >= 2  # light and dark
    assert "occurs more than once" in page
    for kind in ("outlying", "poisoned", "underrepresented"):
        assert kind not in found.counts
        assert KINDS[kind] not in page


def test_clean_data_make_a_page_that_says_so(tmp_path):
    found = tk.audit(plain(), groups(100, seed=1))
    assert not found.flags, found
    page = found.report(tmp_path / "page.html").read_text()
    assert "Nothing was flagged" in page
    clean = replace(found, doubtful=()).report(tmp_path / "clean.html").read_text()
    assert "Nothing was flagged." in clean
    assert "in doubt" not in clean


def test_sentences_call_samples_by_their_names():
    x, y = groups(200)
    y[0] = (y[0] + 1) % 5
    x, y = torch.cat([x, x[:2]]), torch.cat([y, y[:2]])
    y[201] = (y[1] + 1) % 5
    found = tk.audit(plain(), (x, y), names=[f"row {i + 2}" for i in range(202)], progress=False)
    copies = {flag.sample: flag.reason for flag in found.of("duplicate")}
    assert copies[0] == "the same as row 202"
    conflict = next(flag for flag in found.of("conflicting") if flag.sample == 1)
    assert "the same sample, row 203, is labeled" in conflict.reason
    assert not any("sample 2" in flag.reason for flag in found.flags)
    numbered = tk.audit(plain(), (x, y), names=map(str, range(202)), progress=False)
    assert numbered.of("duplicate")[0].reason == "the same as sample 200"


def test_the_page_shows_sentences_with_their_evidence(tmp_path):
    x, y = groups(100, seed=1)
    texts = [f"<b>sentence</b> number {i} " + 300 * "x" for i in range(101)]
    found = tk.audit(plain(), (torch.cat([x, x[:1]]), torch.cat([y, y[:1]])), texts=texts, progress=False)
    page = found.report(tmp_path / "page.html").read_text()
    assert "&lt;b&gt;sentence&lt;/b&gt; number 0 xxx" in page
    assert "<b>" not in page
    assert 200 * "x" not in page
    row = found.flag_table("duplicate").rows[0]
    assert "number 100 " in row[-1]
    with pytest.raises(InputError, match="expected 101 texts, got 2"):
        tk.audit(plain(), (torch.cat([x, x[:1]]), torch.cat([y, y[:1]])), texts=["a", "b"])


def test_the_accuracy_of_the_network_is_told_where_labels_number_its_outputs():
    x, y = groups(200)
    model = plain()
    expected = float((model(x).argmax(1) == y).double().mean())
    assert tk.audit(model, (x, y), progress=False).network_accuracy == pytest.approx(expected)
    assert tk.audit(model, TensorDataset(x, y), progress=False).network_accuracy == pytest.approx(expected)
    assert tk.audit(model, (x, [f"class {c}" for c in y]), progress=False).network_accuracy is None
    assert tk.audit(plain(outputs=7), (x, y), progress=False).network_accuracy is None


def test_bad_kernels_and_labels_are_refused():
    x, y = groups(60)
    with pytest.raises(InputError, match="ConjugateKernel"):
        tk.audit(model := plain(), (x, y), tk.TangentKernel(model))
    with pytest.raises(InputError, match="the kernel is of another network"):
        tk.audit(plain(), (x, y), tk.ConjugateKernel(plain()))
    with pytest.raises(InputError, match=r"expected shape \(60,\), got \(59,\)"):
        tk.audit(plain(), (x, y[:-1]))
    with pytest.raises(InputError, match="labels are no classes"):
        tk.audit(plain(), (x, y.float()))
    with pytest.raises(InputError, match="expected 60 names, got 2"):
        tk.audit(plain(), (x, y), names=["a", "b"])
    with pytest.raises(InputError, match="bad level"):
        tk.audit(plain(), (x, y), level=1.0)
    with pytest.raises(InputError, match="expected 4 different ones or more, got 1"):
        tk.audit(plain(), (x[:1].expand(5, -1), y[:5]))
    with pytest.raises(InputError, match="sentences are no numbers"):
        tk.audit(plain(), tk.data.Data(["a", "b"], torch.tensor([0, 1]), "toy", "train", ("a", "b")))
    bad = x.clone()
    bad[7, 0] = torch.nan
    with pytest.raises((InputError, NumericalError), match="finite"):
        tk.audit(plain(), (bad, y))


def test_a_share_prints_its_interval():
    assert str(Share(1, 2)) == "50.0 % (1.3 to 98.7 %), 1 of 2"
