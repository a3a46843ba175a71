"""Networks trained again: each on its subset with its own seed, kept in a file, and taken up where work stopped."""

import numpy as np
import pytest
import torch
from torch import nn

from tangentkit.core import InputError
from tangentkit.core.errors import DataError, NumericalError
from tangentkit.linearized import Training
from tangentkit.models import mlp
from tangentkit.surrogate.evaluation import Retrained, Retraining, random_subsets, retrain_on

MASKS = random_subsets(10, 4)
X = torch.randn(3, 5)


class Trainer:
    """Counts its networks; logits tell the subset and the seed."""

    def __init__(self, stop_after=None):
        self.seen, self.stop_after = [], stop_after

    def __call__(self, numbers, seed):
        if len(self.seen) == self.stop_after:
            raise KeyboardInterrupt
        self.seen.append((tuple(numbers.tolist()), seed))
        return torch.tensor([[float(numbers.sum()), seed % 1000]] * 3)


def test_every_network_sees_its_subset_and_a_seed_of_its_own():
    trainer = Trainer()
    found = retrain_on(MASKS, trainer, X)
    assert [numbers for numbers, _ in trainer.seen] == [tuple(m.nonzero()[:, 0].tolist()) for m in MASKS]
    assert len({seed for _, seed in trainer.seen}) == 4
    assert found.logits[:, 0, 0].tolist() == [float(m.nonzero().sum()) for m in MASKS]
    again, other = Trainer(), Trainer()
    assert torch.equal(retrain_on(MASKS, again, X).logits, found.logits)
    retrain_on(MASKS, other, X, seed=1)
    assert not {seed for _, seed in other.seen} & {seed for _, seed in trainer.seen}


def test_work_goes_on_where_it_was_interrupted(tmp_path):
    path = tmp_path / "networks.npz"
    with pytest.raises(KeyboardInterrupt):
        retrain_on(MASKS, Trainer(stop_after=3), X, path=path)
    assert len(Retrained.load(path).masks) == 3
    rest, told = Trainer(), []
    found = retrain_on(MASKS, rest, X, path=path, progress=lambda *at: told.append(at))
    assert len(rest.seen) == 1
    assert told[0] == ("retraining", 3, 4)
    assert torch.equal(found.logits, retrain_on(MASKS, Trainer(), X).logits)
    assert torch.equal(Retrained.load(path).logits, found.logits)


@pytest.mark.parametrize("other", ["subsets", "test samples", "seed", "fewer"])
def test_a_file_of_other_networks_is_refused(tmp_path, other):
    path = tmp_path / "networks.npz"
    retrain_on(MASKS, Trainer(), X, path=path)
    masks = {"subsets": random_subsets(10, 4, seed=1), "fewer": MASKS[:2]}.get(other, MASKS)
    x = X + 1 if other == "test samples" else X
    with pytest.raises(InputError, match="other networks"):
        retrain_on(masks, Trainer(), x, path=path, seed=int(other == "seed"))


def test_damaged_files_are_errors_and_nothing_is_unpickled(tmp_path):
    path = tmp_path / "networks.npz"
    with pytest.raises(DataError, match="missing"):
        Retrained.load(path)
    whole = retrain_on(MASKS, Trainer(), X).save(path).read_bytes()
    middle = whole[: len(whole) // 2]
    flipped = bytearray(whole)
    flipped[60] ^= 255
    for raw in (middle, bytes(flipped), b"", b"no zip at all"):
        path.write_bytes(raw)
        with pytest.raises(DataError, match="damaged"):
            Retrained.load(path)
    np.savez(path, masks=np.array([{}]), logits=np.zeros((1, 1, 2)), about=np.array(""))
    with pytest.raises(DataError, match="damaged"):
        Retrained.load(path)


def test_settings_train_networks_that_learn_their_subset_and_only_that():
    x = torch.cat([torch.randn(20, 2) + 3, torch.randn(20, 2) - 3])
    y = torch.arange(40) // 20
    settings = Training(30, 0.1, loss="cross-entropy")
    retrain = Retraining(lambda seed: mlp((2, 8, 2), seed=seed), x, y, settings)
    masks = torch.zeros(2, 40, dtype=torch.bool)
    masks[0, ::2], masks[1, :20] = True, True
    found = retrain_on(masks, retrain, x)
    assert (found.logits[0].argmax(1) == y).double().mean() > 0.95
    assert (found.logits[1].argmax(1) == 0).all()
    pairs = torch.utils.data.TensorDataset(x, y)
    same = retrain_on(masks, Retraining(retrain.make_model, pairs, None, settings), x)
    assert torch.equal(same.logits, found.logits)


def test_one_logit_is_two_classes():
    found = retrain_on(MASKS, lambda *_: nn.Linear(5, 1), X)
    assert found.logits.shape == (4, 3, 2)
    zeros = retrain_on(MASKS, lambda *_: torch.ones(3, 1), X)
    assert zeros.margins(torch.tensor([1, 0, 1])).tolist() == [[1.0, -1.0, 1.0]] * 4


def test_what_retrain_gives_is_checked():
    for wrong in (torch.zeros(2, 2), torch.zeros(3), "a network"):
        with pytest.raises(InputError, match="neither a network nor its logits"):
            retrain_on(MASKS, lambda *_, wrong=wrong: wrong, X)
    with pytest.raises(NumericalError, match="finite"):
        retrain_on(MASKS, lambda *_: torch.full((3, 2), torch.nan), X)
    with pytest.raises(InputError, match="masks"):
        Retrained(MASKS.double(), torch.zeros(4, 3, 2))
