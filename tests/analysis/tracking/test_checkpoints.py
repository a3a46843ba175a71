"""One tracker over checkpoints on disk."""

import json

import numpy as np
import pytest
import torch

from analysis.tracking.runs import problem
from tangentkit.analysis import Tracker, track_checkpoints
from tangentkit.core.errors import DataError, InputError


@pytest.fixture
def saved(tmp_path):
    model, x, y = problem()
    paths, tracker = [], Tracker(["ntk", "lazy", "loss"], probe=(x, y))
    for i in range(3):
        with torch.no_grad():
            model[0].weight.add_(0.1 * i)
        tracker.measure(model, step=10 * i)
        paths.append(tmp_path / f"{i}.pt")
        torch.save(model.state_dict() if i else {"model": model.state_dict(), "epoch": 0}, paths[-1])
    return paths, tracker, (x, y)


def test_checkpoints_give_the_course_of_the_training(saved):
    paths, tracker, probe = saved
    course = track_checkpoints(lambda: problem()[0], paths, probe, ["ntk", "lazy", "loss"], steps=[0, 10, 20])
    assert course.to_dict()["values"] == tracker.to_dict()["values"]
    assert course.table().headings[1].name == "checkpoint"
    assert [row[1] for row in course.table().rows] == ["0.pt", "1.pt", "2.pt"]


def test_files_that_are_no_checkpoints_are_refused(saved, tmp_path):
    paths, _, probe = saved

    def make():
        return problem()[0]

    with pytest.raises(DataError, match="architecture"):
        track_checkpoints(lambda: torch.nn.Linear(5, 3), paths, probe)
    with pytest.raises(InputError, match="ascending"):
        track_checkpoints(make, paths, probe, steps=[2, 1, 0])
    with pytest.raises(DataError, match="cannot read"):
        track_checkpoints(make, [tmp_path / "none.pt"], probe)
    torch.save({"model": 3}, tmp_path / "three.pt")
    with pytest.raises(DataError, match="no weights"):
        track_checkpoints(make, [tmp_path / "three.pt"], probe)
    torch.save(problem()[0], tmp_path / "code.pt")
    with pytest.raises(DataError, match="code"):
        track_checkpoints(make, [tmp_path / "code.pt"], probe)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "module._orig_mod.", "net."])
def test_prefixes_of_wrappers_are_taken_off(saved, tmp_path, prefix):
    paths, _, (x, _) = saved
    state = torch.load(paths[1], weights_only=True)
    wrapped = tmp_path / "wrapped.pt"
    torch.save({"state_dict": {prefix + name: value for name, value in state.items()}, "epoch": 3}, wrapped)
    course = track_checkpoints(lambda: problem()[0], [paths[1], wrapped], x, ["lazy"])
    assert course["lazy/weight change"] == [0.0, 0.0]
    with pytest.raises(DataError, match=f"begin with '{prefix}'"):
        track_checkpoints(lambda: torch.nn.Linear(5, 3), [wrapped], x, ["lazy"])


def test_safetensors_are_read_and_damaged_ones_refused(saved, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    paths, _, (x, _) = saved
    path = tmp_path / "weights.safetensors"
    safetensors.save_file(torch.load(paths[1], weights_only=True), path)
    course = track_checkpoints(lambda: problem()[0], [paths[1], path], x, ["lazy"])
    assert course["lazy/weight change"] == [0.0, 0.0]
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match=r"whole \.safetensors file"):
        track_checkpoints(lambda: problem()[0], [path], x, ["lazy"])


def test_the_time_between_checkpoints_is_no_training(saved):
    paths, _, (x, _) = saved
    course = track_checkpoints(lambda: problem()[0], paths, x, ["lazy"])
    assert all(record.training_seconds == 0 for record in course.records)
    assert "time of the training" not in course.table().note
    assert "The tracker took" in course.table().note


def test_paths_and_steps_come_from_anything_that_gives_them_one_by_one(saved, tmp_path):
    paths, _, probe = saved
    for name, steps in {"numpy": np.array([0, 5, 9]), "torch": torch.tensor([0, 5, 9])}.items():
        folder = tmp_path / name
        course = track_checkpoints(
            lambda: problem()[0], (str(path) for path in paths), probe, ["loss"], steps=steps, folder=folder
        )
        assert json.loads(json.dumps(course.to_dict()))["steps"] == [0, 5, 9]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"paths": "ck/0.pt"}, "one path where several belong"),
        ({"steps": [0, 0.5, 1]}, r"bad step: expected an integer >= 0, got 0\.5"),
        ({"steps": iter([2, 1, 0])}, "ascending"),
    ],
)
def test_paths_and_steps_that_do_not_fit_are_refused(saved, change, message):
    given = {"paths": saved[0], "probe": saved[2]} | change
    with pytest.raises(InputError, match=message):
        track_checkpoints(lambda: problem()[0], **given)
