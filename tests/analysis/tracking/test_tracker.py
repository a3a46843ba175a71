"""What a tracker records is what one would compute by hand, and it disturbs nothing."""

import copy
import json
import math
import time

import numpy as np
import pytest
import torch
from torch import nn

import tangentkit as tk
from analysis.tracking.runs import MEASURES, descend, problem
from tangentkit.analysis import Moment, Tracker, TrackerWarning, measure
from tangentkit.analysis.tracking import MEASURES as REGISTRY
from tangentkit.analysis.tracking import Course, Probe, Record
from tangentkit.analysis.tracking import moment as moments
from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.linearized import Training, train
from tangentkit.report import drawn


@pytest.fixture(scope="module")
def tracked():
    """A tracked training, and the networks at its start, its last but one and its last measurement."""
    model, x, y = problem()
    tracker, seen = Tracker(MEASURES, every=3, probe=(x, y), test=(x[:7], y[:7]), top=4), []

    def keep(moment):
        seen.append(copy.deepcopy(moment.model))
        return 0.0

    tracker.measures["keep"] = keep
    descend(model, x, y, 9, tracker)
    return tracker, seen, x, y


def test_measures_every_so_many_steps(tracked):
    assert tracked[0].course.steps == [0, 3, 6, 9]


def test_spectra_are_those_of_the_kernels(tracked):
    tracker, seen, x, _ = tracked
    for name, kernel in {"ntk": tk.TangentKernel, "ck": tk.ConjugateKernel}.items():
        K = kernel(seen[-1])(x).double()
        values = torch.linalg.eigvalsh(K).flip(0)
        p = values.clamp(min=0) / values.clamp(min=0).sum()
        rank = math.exp(float(torch.special.entr(p).sum()))
        assert tracker[f"{name}/values"][-1] == pytest.approx(values[:4].tolist(), rel=1e-4)
        assert tracker[f"{name}/trace"][-1] == pytest.approx(float(K.trace()), rel=1e-5)
        assert tracker[f"{name}/effective rank"][-1] == pytest.approx(rank, rel=1e-3)
        assert tracker[f"{name}/participation ratio"][-1] == pytest.approx(
            float(values.sum() ** 2 / values.square().sum()), rel=1e-4
        )
        edge = tk.analysis.initial_bulk(torch.linalg.eigvalsh(kernel(seen[0])(x).double())).threshold()
        assert tracker[f"{name}/spikes"][-1] == int((values > edge).sum())


def test_a_kernel_that_grows_tenfold_has_a_spike_and_one_that_only_jitters_has_none():
    X = torch.randn(60, 60, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    K = X @ X.T / 60
    start = Moment(0, None, Probe(X), known={"ntk": K})
    found = [
        REGISTRY["ntk"](Moment(1, None, start.probe, start, known={"ntk": c * K}))["spikes"]
        for c in (1.02, 10)
    ]
    assert found[0] == 0 < found[1]


@pytest.mark.parametrize("K", [torch.zeros(6, 6), torch.eye(6)], ids=["dead", "orthogonal"])
def test_a_kernel_without_an_edge_has_no_spikes_and_stops_no_training(K):
    start = Moment(0, None, Probe(torch.randn(6, 2), torch.arange(6) % 2), known={"ntk": K, "ck": K})
    assert "spikes" not in REGISTRY["ntk"](start)
    assert ("ntk/plain" in REGISTRY["kta"](start)) == bool(K.any())


def test_weights_are_measured_by_their_singular_values(tracked):
    tracker, seen, _, _ = tracked
    w = seen[-1][0].weight.detach()
    values = torch.linalg.svdvals(w)
    assert tracker["weights/0.weight/values"][-1] == pytest.approx(values[:4].tolist(), rel=1e-4)
    assert tracker["weights/0.weight/stable rank"][-1] == pytest.approx(
        float(values.square().sum() / values[0] ** 2), rel=1e-4
    )
    assert tracker["weights/0.weight/spikes"][-1] == tk.weight_spectra(seen[-1])["0.weight"].num_spikes


def test_alignments_follow_their_formulas(tracked):
    tracker, seen, x, y = tracked
    Y = nn.functional.one_hot(y).double()
    Y = Y - Y.mean(0)
    K = tk.TangentKernel(seen[-1])(x).double()
    T, H = Y @ Y.T, torch.eye(24).double() - 1 / 24
    V = torch.linalg.eigh(K).eigenvectors.flip(1)
    assert tracker["kta/ntk/plain"][-1] == pytest.approx(float((K * T).sum() / K.norm() / T.norm()), rel=1e-5)
    C = H @ K @ H
    assert tracker["kta/ntk/centered"][-1] == pytest.approx(
        float((C * T).sum() / C.norm() / T.norm()), rel=1e-5
    )
    assert tracker["alignment/ntk/target"][-1] == pytest.approx(
        float(torch.trace(Y.T @ K @ Y)) / 24**2, rel=1e-5
    )
    for name, top in {"first": 1, "top": 4}.items():
        energy = float((V[:, :top].T @ Y).norm() / Y.norm())
        assert tracker[f"alignment/ntk/energy in the {name}"][-1] == pytest.approx(energy, rel=1e-3)


def test_distances_velocities_and_changes_are_since_the_start(tracked):
    tracker, seen, x, _ = tracked
    for name, kernel in {"ntk": tk.TangentKernel, "ck": tk.ConjugateKernel}.items():
        K0, K1, K2 = (kernel(seen[i])(x).double().flatten() for i in (0, -2, -1))
        away = [1 - float(nn.functional.cosine_similarity(K2, K, dim=0)) for K in (K0, K1)]
        assert tracker[f"distance/{name}/to the start"][-1] == pytest.approx(away[0], rel=1e-4)
        assert tracker[f"distance/{name}/velocity"][-1] == pytest.approx(away[1] / 3, rel=1e-3)
    w0, w2 = (nn.utils.parameters_to_vector(seen[i].parameters()).detach() for i in (0, -1))
    K0, K2 = (tk.TangentKernel(seen[i])(x).double() for i in (0, -1))
    assert tracker["lazy/weight change"][-1] == pytest.approx(float((w2 - w0).norm() / w0.norm()), rel=1e-5)
    assert tracker["lazy/kernel change"][-1] == pytest.approx(float((K2 - K0).norm() / K0.norm()), rel=1e-5)
    assert tracker["lazy/weight change"][0] == 0
    assert tracker["distance/ntk/velocity"][0] is None


def test_frozen_parameters_do_not_count_as_weights_that_could_have_moved():
    net = nn.Linear(3, 2)
    x, plain, wrapped = torch.randn(8, 3), nn.Sequential(net), tk.models.Centered(net)
    trackers = [Tracker(["lazy", "weights"], probe=x) for _ in range(2)]
    for _ in range(2):
        for tracker, model in zip(trackers, (plain, wrapped), strict=True):
            tracker.step(model)
        with torch.no_grad():
            net.weight.mul_(1.5)
    assert trackers[0]["lazy/weight change"] == pytest.approx(trackers[1]["lazy/weight change"])
    assert not any("initial" in name for name in trackers[1].course.names)


def test_losses_and_errors_are_in_evaluation_mode(tracked):
    tracker, seen, x, y = tracked
    outputs = seen[-1].eval()(x).detach()
    assert tracker["loss"][-1] == pytest.approx(float(nn.functional.cross_entropy(outputs, y)), rel=1e-5)
    assert tracker["error"][-1] == pytest.approx(float((outputs.argmax(1) != y).double().mean()))
    assert tracker["test error"][-1] == pytest.approx(float((outputs.argmax(1) != y)[:7].double().mean()))


def test_a_tracked_training_ends_with_the_bits_of_one_that_is_not():
    ends = []
    for what in (None, MEASURES):
        model, x, y = problem()
        descend(model, x, y, 4, Tracker(what, probe=(x, y)) if what else None)
        assert all(child.training for child in model.modules())
        ends.append(nn.utils.parameters_to_vector(model.parameters()))
    assert torch.equal(*ends)


def test_the_trainer_of_this_library_is_followed_by_epochs(tmp_path):
    model, x, y = problem()
    plain, settings = copy.deepcopy(model), Training(4, 0.1, batch=8, loss="cross-entropy")
    train(plain, x, y, settings, key=Key(0))
    tracker = Tracker(["lazy"], every=2, probe=x)
    history = train(model, x, y, settings, key=Key(0), watcher=tracker.watcher())
    assert tracker.course.steps == [0, 2, 4]
    assert tracker["trainer/train loss"] == [None, history["train loss"][1], history["train loss"][3]]
    assert torch.equal(model[0].weight, plain[0].weight)


def test_measures_of_ones_own_by_function_name_or_registry():
    @measure("depth")
    def depth(moment):
        return len(moment.weights)

    try:
        model, x, _ = problem()

        def norms(moment):
            return {"now": moment.weights["0.weight"].norm(), "ever": moment.start.weights["0.weight"].norm()}

        tracker = Tracker(["depth", norms], probe=x)
        tracker.step(model)
        with torch.no_grad():
            model[0].weight.mul_(2)
        tracker.step(model)
        assert tracker["depth"] == [4, 4]
        assert tracker["norms/now"][1] == pytest.approx(2 * tracker["norms/ever"][1])
        assert tracker["norms/ever"][0] == tracker["norms/ever"][1]
    finally:
        REGISTRY.pop("depth")


def test_what_is_not_finite_is_left_out_with_a_warning():
    model, x, _ = problem()
    tracker = Tracker({"odd": lambda _: math.nan, "even": lambda _: 2}, probe=x)
    with pytest.warns(TrackerWarning, match="odd is not finite"):
        tracker.step(model)
    assert (tracker["odd"], tracker["even"]) == ([None], [2.0])
    assert "odd is missing at 1 of 1 steps" in tracker.table().note
    tracker.page().render()


def test_numbers_of_the_callers_stand_beside_measures_of_their_name():
    model, x, y = problem()
    tracker = Tracker(["loss"], probe=(x, y))
    tracker.step(model, loss=123.0, train_loss=5.0)
    expected = float(nn.functional.cross_entropy(model.eval()(x), y).detach())
    assert tracker["loss"] == [pytest.approx(expected, rel=1e-5)]
    assert (tracker["given/loss"], tracker["train_loss"]) == ([123.0], [5.0])


def test_numbers_that_are_not_finite_are_null_in_a_valid_record_with_one_warning(tmp_path):
    model, x, y = problem()
    tracker = Tracker(["loss"], probe=(x, y), folder=tmp_path / "run", tensorboard=False)
    with pytest.warns(TrackerWarning, match="train_loss is not finite"):
        tracker.step(model, train_loss=math.nan)
    tracker.step(model, train_loss=math.inf)  # warnings are errors: this one brings none

    def refused(constant):
        raise AssertionError(f"{constant} is no JSON")

    for path in (tmp_path / "run" / "steps").iterdir():
        assert json.loads(path.read_text(), parse_constant=refused)["values"]["train_loss"] is None
    again = Tracker(["loss"], probe=(x, y), folder=tmp_path / "run", tensorboard=False)
    assert again["train_loss"] == [None, None]
    assert "train_loss is missing at 2 of 2 steps, first at step 0" in again.table().note


def test_a_training_that_diverges_goes_on_and_the_record_says_what_is_missing(tmp_path):
    model, x, y = problem()
    tracker = Tracker(MEASURES, probe=(x, y), folder=tmp_path / "run", tensorboard=False)
    tracker.step(model)
    with torch.no_grad():
        model[0].weight.fill_(math.nan)
    with pytest.warns(TrackerWarning):
        tracker.step(model)
    tracker.step(model)  # warnings are errors: this one brings none
    assert tracker.course.steps == [0, 1, 2]
    last = tracker.records[-1]
    assert not any(isinstance(value, float) and math.isnan(value) for value in last.values.values())
    for name in ("loss", "ntk", "weights", "kta", "alignment", "distance"):
        assert name in last.missing, name
    assert "NumericalError" in last.missing["ntk"]
    assert tracker["ntk/trace"][1:] == [None, None]
    assert "ntk is missing at 2 of 3 steps, first at step 1" in tracker.page().render()


def test_columns_keep_the_order_of_the_measures_after_a_resume(tmp_path):
    model, x, y = problem()
    given = {
        "what": ["ntk", "loss", "lazy"],
        "probe": (x, y),
        "folder": tmp_path / "run",
        "tensorboard": False,
    }
    first = Tracker(**given)
    first.step(model)
    assert Tracker(**given).table().columns == first.table().columns


def test_large_kernels_are_sketched(monkeypatch):
    model, x, _ = problem()
    exact = tk.TangentKernel(model.eval())(x)
    monkeypatch.setattr(moments, "EXACT_FLOPS", 0.0)
    seen = []
    Tracker([lambda moment: seen.append(moment.ntk) or 0.0], probe=x).step(model)
    error = float((seen[0] - exact).norm() / exact.norm())
    assert 0 < error < 0.15


def test_a_large_probe_is_drawn_down():
    model, _, _ = problem()
    x = torch.randn(300, 5)
    tracker = Tracker(["ntk"], probe=x, samples=16, seed=1)
    tracker.step(model)
    assert len(tracker.probe) == 16
    assert (tracker.probe.x[:, None] == x).all(2).any(1).all()


def test_it_says_its_share_of_the_time():
    model, x, _ = problem()

    def slow(moment):
        time.sleep(0.02)
        return 1.0

    tracker = Tracker([slow], probe=x)
    tracker.step(model)
    for _ in range(3):
        time.sleep(0.08)
        with torch.no_grad():
            model[0].weight.add_(0.01)
        tracker.step(model)
    assert 0.2 < tracker.share < 0.8  # 4 times 20 ms and what it costs to write them down, over 3 times 80 ms
    assert f"{tracker.share:.1%}" in tracker.table().note


def test_results_show_themselves(tracked, tmp_path):
    tracker = tracked[0]
    assert len(tracker.table().rows) == 4
    assert json.loads(json.dumps(tracker.to_dict()))["values"]["loss"] == tracker["loss"]
    assert len(tracker.plot(names=["loss", "test loss"]).lines) == 2
    assert len(tracker.plot(names="ntk/values").lines) == 3  # numbers 1, 2 and 3 of 4
    few = Course(tuple(Record(r.step, {"loss": r.values["loss"]}, 1.0, 2.0) for r in tracker.records))
    page = few.report(tmp_path / "page.html").read_text()
    assert "The course of a training" in page
    assert "200.0%" not in page
    assert "50.0% of the time of the training" in page


def test_figures_of_a_page_hold_curves_of_one_kind(tracked):
    figures = tracked[0].page().figures
    assert list(figures["stable-rank"].series) == ["0.weight", "3.weight"]
    assert list(figures["loss"].series) == ["loss", "test loss"]
    assert list(figures["velocity"].series) == ["tangent kernel", "conjugate kernel"]
    assert list(figures["ntk-values"].series) == ["value 1", "value 2", "value 3"]
    assert list(figures["values"].series) == ["0.weight", "3.weight"]  # the largest of each
    assert figures["to-the-start"].series["tangent kernel"].y[0] == 0


def test_figures_of_a_page_have_titles_and_captions_in_words_and_no_legend_over_their_curves(tracked):
    figures = tracked[0].page().figures
    assert figures["plain"].title == "Kernel-target alignment"
    assert figures["ntk-values"].title == "Eigenvalues of the tangent kernel"
    assert all(figure.caption.endswith(".") and "/ntk" not in figure.caption for figure in figures.values())
    axes = drawn(figures["values"])
    axes.figure.draw_without_rendering()
    assert axes.get_legend().get_window_extent().x0 >= axes.get_window_extent().x1 - 1


def test_bad_input_is_refused():
    model, x, y = problem()
    with pytest.raises(UnknownNameError, match="'ntk'"):
        Tracker(["ntkk"], probe=x)
    with pytest.raises(InputError, match="every"):
        Tracker(["ntk"], every=0, probe=x)
    with pytest.raises(InputError, match="at least 2 samples"):
        Tracker(["ntk"], probe=x[:1])
    with pytest.raises(InputError, match="no targets"):
        Tracker(["kta"], probe=x).step(model)
    with pytest.raises(InputError, match="all alike"):
        Tracker(["kta"], probe=(x, torch.zeros_like(y))).step(model)
    with pytest.raises(InputError, match="nothing was measured"):
        Tracker(["ntk"], probe=x).table()
    with pytest.raises(InputError, match="differ in number"):
        Tracker(["ntk"], probe=(x, y[:3]))
    with pytest.raises(InputError, match="does not take this input"):
        Tracker(["loss"], probe=(x[:, 1:], y)).step(model)
    late = Tracker([lambda moment: 0.0 if moment.is_start else len(moment.start.weights)], probe=x)
    late.step(model)
    with pytest.warns(TrackerWarning, match="nothing of this kind was kept of step 0"):
        late.step(model, step=1)


@pytest.mark.parametrize("zero", [np.int64(0), torch.tensor(0)], ids=["numpy", "torch"])
def test_steps_are_plain_integers_whatever_they_came_as(zero, tmp_path):
    model, x, _ = problem()
    tracker = Tracker({"one": lambda _: 1.0}, probe=x, folder=tmp_path)
    tracker.step(model, step=zero)
    tracker.step(model)
    assert json.dumps(tracker.to_dict()["steps"]) == "[0, 1]"


@pytest.mark.parametrize("options", [{"top": 1.5}, {"every": 1.5}, {"samples": 2.5}, {"every": True}])
def test_counts_that_are_no_integers_are_refused(options):
    with pytest.raises(InputError, match=r"bad .*: expected an integer"):
        Tracker(["loss"], probe=problem()[1], **options)


def test_steps_that_are_no_integers_are_refused_before_they_are_counted():
    model, x, _ = problem()
    tracker = Tracker({"one": lambda _: 1.0}, probe=x)
    for call in (tracker.step, tracker.measure):
        with pytest.raises(InputError, match="bad step"):
            call(model, step=0.5)
    tracker.step(model)
    assert tracker.course.steps == [0]


def test_measures_of_one_name_are_refused():
    def loss(_moment):
        return 1.0

    for what in ([lambda _: 1.0, lambda _: 2.0], ["loss", loss]):
        with pytest.raises(InputError, match="two measures of one name"):
            Tracker(what, probe=problem()[1])
    assert list(Tracker([loss, loss], probe=problem()[1]).measures) == ["loss"]


def test_a_report_of_nothing_says_what_is_missing(tmp_path):
    with pytest.raises(InputError, match=r"nothing was measured yet: expected tracker\.step"):
        Tracker(["loss"], probe=problem()[1]).report(tmp_path / "page.html")
    assert not any(tmp_path.iterdir())
