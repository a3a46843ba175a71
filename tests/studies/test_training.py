"""Training follows the key alone."""

import pytest
import torch
from torch import nn

from tangentkit.core.errors import NumericalError
from tangentkit.core.seeds import Key
from tangentkit.models import mlp
from tangentkit.studies.training import torch_threads, train_classifier

X = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
Y = (X[:, 0] > 0).long()


def trained(key: Key) -> nn.Module:
    model = mlp((1, 8, 2), seed=0).double()
    train_classifier(model, X, Y, epochs=40, batch=8, learning_rate=0.02, key=key)
    return model


def test_it_learns_and_depends_on_its_key_and_on_no_global_seed():
    first = trained(Key(0))
    torch.manual_seed(123)
    again, other = trained(Key(0)), trained(Key(1))
    assert not first.training
    assert (first(X).argmax(1) == Y).double().mean() > 0.9
    torch.testing.assert_close(first(X), again(X), rtol=0, atol=0)
    assert not torch.equal(first(X), other(X))


def test_divergence_is_an_error():
    with pytest.raises(NumericalError, match="diverged in epoch 1"):
        train_classifier(
            mlp((1, 8, 2)).double(), X * float("inf"), Y, epochs=2, batch=8, learning_rate=1, key=Key(0)
        )


def test_threads_are_put_back_even_after_an_error():
    before = torch.get_num_threads()

    def troubled(count):
        with torch_threads(count):
            assert torch.get_num_threads() == (count or before)
            raise ZeroDivisionError

    for count in (3, None):
        with pytest.raises(ZeroDivisionError):
            troubled(count)
        assert torch.get_num_threads() == before
