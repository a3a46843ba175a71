"""Modules are called as their signatures say, and their outputs are found in what they return."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from tangentkit.core import InputError, ModelError
from tangentkit.core.model.calls import call, check_outputs

X, Y = torch.arange(6.0).reshape(3, 2), torch.ones(3, 2)


def taking(signature, result):
    """A module of some signature."""
    space: dict = {"nn": nn}
    exec(f"class Module(nn.Module):\n    def forward(self, {signature}):\n        return {result}", space)
    return space["Module"]()


@pytest.mark.parametrize(
    ("signature", "result", "batch", "expected"),
    [
        ("x", "x", X, X),
        ("x", "x", {"x": X}, X),
        ("x, y", "x - y", {"y": Y, "x": X}, X - Y),
        ("x, y=0", "x - y", {"x": X}, X),
        ("x, **more", "x - more['y']", {"x": X, "y": Y}, X - Y),
        ("batch", "batch['x']", {"x": X, "y": Y}, X),
        ("batch, scale=1", "batch['x'] * scale", {"x": X}, X),
        ("batch, **more", "batch['x']", {"x": X}, X),
        ("x, y", "x - y", (X, Y), X - Y),
        ("x, y=0", "x - y", [X], X),
        ("*parts", "parts[0] - parts[1]", [X, Y], X - Y),
        ("pair", "pair[0] - pair[1]", (X, Y), X - Y),
        ("pair", "pair", [X], X),
    ],
)
def test_batches_go_as_the_signature_takes_them(signature, result, batch, expected):
    assert torch.equal(call(taking(signature, result), batch), expected)


@pytest.mark.parametrize(
    ("signature", "batch", "message"),
    [
        ("x, y", {"x": X}, r"got {'x': float32 \(n, 2\)}"),
        ("x, mask=None", {"x": X, "label": Y}, "Try: leave out 'label'; or say which"),
        ("x, y, z", (X, Y), r"got \(float32 \(n, 2\), float32 \(n, 2\)\)"),
        ("*, x", (X, Y), "got"),
    ],
)
def test_the_error_for_an_ambiguous_batch_shows_the_three_ways(signature, batch, message):
    with pytest.raises(InputError, match=message) as caught:
        call(taking(signature, "x"), batch)
    for way in ("model(**batch)", "model(*batch)", "model(batch)"):
        assert way in str(caught.value)


def test_scripted_modules_are_called_by_the_kind_of_batch():
    with pytest.warns(DeprecationWarning, match="torch.jit.script"):
        scripted = torch.jit.script(nn.Linear(2, 1))
    assert call(scripted, (X,)).shape == (3, 1)
    assert call(scripted, {"input": X}).shape == (3, 1)


class Answer(OrderedDict):
    """What Hugging Face's models return: entries that are attributes too."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@pytest.mark.parametrize("answer", [Answer(loss=X.sum(), logits=X), {"logits": X}, X])
def test_logits_are_the_outputs(answer):
    assert check_outputs(answer, 3) is X


def test_one_number_a_sample_is_one_output():
    assert torch.equal(check_outputs(X[:, 0], 3), X[:, :1])
    with pytest.raises(ModelError, match=r"expected \(n, c\), a row for each sample, got \(3,\)"):
        check_outputs(X[:, 0], 4)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((X, Y), r"got tuple. Try: .*model\(batch\)\[0\], or another of the 2 parts"),
        ({"scores": X}, r"got dict. Try: .*model\(batch\)\['scores'\]"),
        (Answer(last_hidden_state=X), "got Answer. Try: .*last_hidden_state"),
        (None, "got NoneType"),
    ],
)
def test_the_error_for_answers_without_outputs_says_where_to_look(answer, message):
    with pytest.raises(ModelError, match=message):
        check_outputs(answer, 3)


class Conditioned(nn.Module):
    def forward(self, x, task, scale=1.0):
        return x * task * scale


@pytest.mark.parametrize(
    ("keys", "advice"),
    [("x", "add 'task'; or say"), (("x", "tsk"), "add 'task'; leave out 'tsk'; or say")],
)
def test_keys_that_are_missing_or_too_many_are_named(keys, advice):
    with pytest.raises(InputError, match=rf"got {{'x': float32 \(n, \d+\).*Try: {advice}"):
        call(Conditioned(), dict.fromkeys(keys, X))
