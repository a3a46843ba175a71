import pytest
from torch import nn

from tangentkit.core import InputError, UnknownNameError, select_parameters


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(2, 2, bias=False), nn.Linear(2, 2)
        self.decoder.weight = self.encoder.weight
        self.decoder.bias.requires_grad_(False)


def test_all_that_require_grad_each_once():
    assert list(select_parameters(Tied())) == ["encoder.weight"]


@pytest.mark.parametrize("name", ["encoder.weight", "decoder.weight"])
def test_any_name_of_a_tied_weight_selects_it(name):
    assert list(select_parameters(Tied(), [name])) == ["encoder.weight"]


def test_names_and_predicates_may_select_frozen_parameters():
    assert list(select_parameters(Tied(), ["decoder.bias"])) == ["decoder.bias"]
    assert list(select_parameters(Tied(), lambda _, p: p.ndim == 1)) == ["decoder.bias"]


def test_unknown_names_show_near_matches():
    with pytest.raises(UnknownNameError, match=r"unknown parameter 'encoder.wait'. Try: 'encoder.weight'"):
        select_parameters(Tied(), ["encoder.wait"])


@pytest.mark.parametrize("params", [[], lambda *_: False])
def test_an_empty_selection_is_refused(params):
    with pytest.raises(InputError, match="no parameter is selected"):
        select_parameters(Tied(), params)


def test_one_string_is_refused():
    with pytest.raises(InputError, match=r"params=\['encoder.weight'\]"):
        select_parameters(Tied(), "encoder.weight")
