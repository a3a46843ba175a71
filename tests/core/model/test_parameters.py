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


def test_patterns_select_all_names_that_fit_in_the_order_of_the_module():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    assert list(select_parameters(model, ["[12].weight", "0.*"])) == [
        "0.weight",
        "0.bias",
        "1.weight",
        "2.weight",
    ]
    assert list(select_parameters(Tied(), ["dec*"])) == ["encoder.weight", "decoder.bias"]
    with pytest.raises(UnknownNameError, match=r"unknown parameter '3\.\*'"):
        select_parameters(model, ["0.*", "3.*"])


@pytest.mark.parametrize("given", [lambda m: list(m.parameters()), lambda m: m.parameters()])
def test_the_error_for_parameters_in_the_place_of_names_gives_their_names(given):
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    with pytest.raises(
        InputError, match=r"a list of Parameter. Try: params=\['0.weight', '0.bias', '1.weight', ...\]"
    ):
        select_parameters(model, given(model))
    with pytest.raises(InputError, match=r"params are no names.*a list of tuple"):
        select_parameters(model, model.named_parameters())
