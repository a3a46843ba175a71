"""Studies at their default size run where only the data are that come with tangentkit."""

import pytest

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data import SETS
from tangentkit.data.dataset import Data
from tangentkit.studies.registry import STUDIES, find
from tangentkit.studies.trials import data
from tangentkit.studies.trials.data import drawn

NEED_MORE = ("pretrained-surrogate", "finetune-spectra", "layer-pca", "foundation-probe")
"""Studies of networks that were trained on other data."""


class Enough(Exception):
    """Training and test samples were drawn: a trial need not go on."""


@pytest.fixture
def only_embedded(monkeypatch):
    """A machine without other data, and trials that end once they have theirs."""
    monkeypatch.setattr(data, "is_here", lambda name: name == "fashion-mini" or bool(SETS[name].origin))
    draws = []
    real = Data.some

    def some(self: Data, n: int, *, key: Key) -> Data:
        draws.append(real(self, n, key=key))
        if len(draws) == 2:
            draws.clear()
            raise Enough
        return draws[-1]

    monkeypatch.setattr(Data, "some", some)


@pytest.mark.parametrize("name", [name for name in STUDIES if name not in NEED_MORE])
def test_no_trial_of_the_default_size_asks_for_more_samples_than_come_with_tangentkit(name, only_embedded):
    code = find(name).load()
    for trial in code.trials(code.SCALES["quick"]):
        if "data" in trial.settings:
            with pytest.raises(Enough):
                trial.function(**trial.settings)


@pytest.mark.parametrize("name", NEED_MORE)
def test_a_study_that_needs_other_data_says_so_before_any_trial(name, only_embedded):
    code = find(name).load()
    with pytest.raises(InputError, match=r"no data for this study.*tangentkit data list"):
        code.trials(code.SCALES["quick"])


def test_too_few_samples_are_refused_with_what_to_do():
    words = (
        "too few .* fashion-mini, test, of the classes T-shirt/top, Trouser: expected 300.*got 200.*--test"
    )
    with pytest.raises(InputError, match=words):
        drawn("fashion-mini", 20, 300, key=Key(0), classes=(0, 1))
