"""One tracker over checkpoints on disk."""

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
