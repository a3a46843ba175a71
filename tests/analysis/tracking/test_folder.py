"""The folder of a tracker: whole after any kill, and gone on from."""

import signal

import pytest
import torch

from analysis.tracking.runs import die_at_step_4, problem, run
from tangentkit.analysis import Tracker, TrackerWarning
from tangentkit.core.errors import DataError, InputError


def test_a_run_that_was_killed_goes_on_to_the_same_numbers(warm, tmp_path):
    tracked = warm.Process(target=die_at_step_4, args=(tmp_path,))
    tracked.start()
    tracked.join()
    assert tracked.exitcode == -signal.SIGKILL
    assert sorted(path.name for path in (tmp_path / "steps").glob("*.json")) == [
        "000000000000.json",
        "000000000002.json",
    ]
    tracker = run(tmp_path)
    fresh = run()
    assert tracker.course.steps == [0, 2, 4, 6]
    assert tracker.to_dict()["values"] == fresh.to_dict()["values"]
    assert not list(tmp_path.rglob("*.partial"))
    assert len(list((tmp_path / "held").iterdir())) == 2


def test_what_is_recorded_is_not_measured_again(tmp_path):
    calls = []

    def counted(moment):
        calls.append(moment.step)
        return 1.0

    run(tmp_path, what=[counted], steps=4)
    again = run(tmp_path, what=[counted], steps=6)
    assert calls == [0, 2, 4, 6]
    assert again.course.steps == [0, 2, 4, 6]


def test_another_course_drops_later_measurements(tmp_path):
    run(tmp_path, what=["distance"])
    model, x, y = problem()
    tracker = Tracker(["distance"], every=2, probe=(x, y), folder=tmp_path, tensorboard=False)
    tracker.step(model)
    with torch.no_grad():
        model[0].weight.add_(1)
    with pytest.warns(TrackerWarning, match="2 later measurements are dropped"):
        tracker.step(model, step=4)
    assert tracker.course.steps == [0, 2, 4]
    assert Tracker(["distance"], every=2, probe=(x, y), folder=tmp_path, tensorboard=False).course.steps == [
        0,
        2,
        4,
    ]


def test_another_run_is_refused(tmp_path):
    run(tmp_path, what=["lazy"], steps=2)
    model, x, y = problem()
    with pytest.raises(InputError, match=r"another run.*every"):
        run(tmp_path, what=["lazy"], every=1)
    with pytest.raises(InputError, match=r"another run.*probe"):
        Tracker(["lazy"], every=2, probe=(x + 1, y), folder=tmp_path)
    with torch.no_grad():
        model[0].weight.add_(1)
    with pytest.raises(InputError, match="another network"):
        Tracker(["lazy"], every=2, probe=(x, y), folder=tmp_path, tensorboard=False).step(model)
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "file").touch()
    with pytest.raises(InputError, match="something else"):
        run(tmp_path / "else")


@pytest.mark.parametrize("file", ["run.json", "steps/000000000002.json", "held/000000000002.pt"])
def test_a_flipped_bit_is_an_error(tmp_path, file):
    run(tmp_path, what=["lazy"], steps=2)
    content = bytearray((tmp_path / file).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        run(tmp_path, what=["lazy"], steps=2)
