"""Training that is interrupted goes on as if it had not been."""

import copy
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from linearized.runs import SETTINGS, X, Y, network, same
from tangentkit.core.errors import DataError, InputError
from tangentkit.core.seeds import Key
from tangentkit.linearized import (
    ConstantRate,
    Training,
    linearize,
    train,
)


class Interruption(Exception):
    pass


def interrupt_after(epochs):
    def progress(stage, done, total):
        if done == epochs:
            raise Interruption

    return progress


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kind", [lambda m: m, linearize], ids=["network", "linearization"])
@pytest.mark.parametrize(("after", "every"), [(1, 1), (3, 2)])
def test_a_resumed_run_is_bit_equal_to_one_that_was_never_interrupted(tmp_path, settings, kind, after, every):
    watch = {"test": (X[:5], Y[:5])}
    whole = kind(network())
    expected = train(whole, X, Y, settings, key=Key(0), watch=watch)
    path, options = tmp_path / "deep" / "run.pt", {"key": Key(0), "watch": watch, "every": every}
    with pytest.raises(Interruption):
        train(kind(network()), X, Y, settings, checkpoint=path, progress=interrupt_after(after), **options)
    resumed = kind(network())
    history = train(resumed, X, Y, settings, checkpoint=path, **options)
    assert history == expected
    assert same(resumed, whole)
    # A run that has ended is only read.
    stamp = path.stat().st_mtime_ns
    again = kind(network())
    assert train(again, X, Y, settings, checkpoint=path, **options) == expected
    assert same(again, whole)
    assert path.stat().st_mtime_ns == stamp
    assert list(path.parent.iterdir()) == [path]


def test_a_killed_process_leaves_a_whole_checkpoint(tmp_path):
    script = (
        "import os, sys, torch; from torch import nn; from tangentkit.core.seeds import Key;"
        "from tangentkit.linearized import Training, train; torch.manual_seed(0); net = nn.Linear(4, 3).double();"
        "x = torch.randn(20, 4, generator=Key(0).torch()).double();"
        "die = lambda stage, done, total: os.kill(os.getpid(), 9) if done == 3 else None;"
        "train(net, x, x[:, :3].clone(), Training(6, 0.1), key=Key(0), checkpoint=sys.argv[1], progress=die)"
    )
    path = tmp_path / "run.pt"
    killed = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert len(torch.load(path, weights_only=True)["rows"]) == 3
    x, runs = torch.randn(20, 4, generator=Key(0).torch()).double(), []
    for checkpoint in (path, None):
        torch.manual_seed(0)
        net = nn.Linear(4, 3).double()
        runs.append(
            (net, train(net, x, x[:, :3].clone(), Training(6, 0.1), key=Key(0), checkpoint=checkpoint))
        )
    assert runs[0][1] == runs[1][1]
    assert same(runs[0][0], runs[1][0])


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path, settings = tmp_path / "run.pt", SETTINGS["sgd"]
    train(network(), X, Y, settings, key=Key(0), checkpoint=path)
    content = path.read_bytes()
    others = {
        "epochs": (network(), X, Y, replace(settings, epochs=9), Key(0)),
        "schedule": (network(), X, Y, replace(settings, schedule=ConstantRate()), Key(0)),
        "key": (network(), X, Y, settings, Key(1)),
        "data": (network(), X.flip(0), Y, settings, Key(0)),
        "start of the model": (network(1), X, Y, settings, Key(0)),
    }
    for name, (model, x, y, changed, key) in others.items():
        state = copy.deepcopy(model.state_dict())
        with pytest.raises(InputError, match=f"belongs to another training run: expected {name} "):
            train(model, x, y, changed, key=key, checkpoint=path)
        assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
    assert path.read_bytes() == content


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda _: b"", lambda _: b"not a checkpoint"])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    path = tmp_path / "run.pt"
    train(network(), X, Y, SETTINGS["sgd"], key=Key(0), checkpoint=path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match="not a checkpoint"):
        train(network(), X, Y, SETTINGS["sgd"], key=Key(0), checkpoint=path)


def test_a_checkpoint_with_code_in_it_is_refused_without_advice_to_run_it(tmp_path):
    torch.save({"identity": {}, "model": nn.Linear(2, 2)}, tmp_path / "run.pt")
    with pytest.raises(DataError, match=r"not a checkpoint .*Linear, which is code") as raised:
        train(network(), X, Y, SETTINGS["sgd"], key=Key(0), checkpoint=tmp_path / "run.pt")
    assert "weights_only" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("content", [[1, 2], {"rows": []}, {"identity": 3}, torch.ones(3)])
def test_tensors_of_something_else_are_refused(tmp_path, content):
    torch.save(content, tmp_path / "run.pt")
    with pytest.raises(DataError, match="not a checkpoint of a training run"):
        train(network(), X, Y, SETTINGS["sgd"], key=Key(0), checkpoint=tmp_path / "run.pt")


def test_a_checkpoint_is_written_through_no_link(tmp_path):
    (tmp_path / "victim").write_text("mine")
    for name in (".run.pt.partial", "run.pt.partial"):
        (tmp_path / name).symlink_to(tmp_path / "victim")
    train(network(), X, Y, SETTINGS["sgd"], key=Key(0), checkpoint=tmp_path / "run.pt")
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / ".run.pt.partial").is_symlink()


@pytest.mark.parametrize("path", ["~nosuchuser/run.pt", "run\0.pt"])
def test_a_path_that_cannot_be_is_named(path):
    with pytest.raises(InputError, match="bad path"):
        train(network(), X, Y, SETTINGS["sgd"], key=Key(0), checkpoint=path)
