import numpy as np
import pytest
import torch
from torch import nn

from tangentkit.core import fingerprint, module_fingerprint
from tangentkit.core.files import fingerprints

X = torch.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    "other",
    [X.double(), X.reshape(4, 3), X.flip(0), X + 1e-6, X.numpy(), [X], {"x": X}, X.bfloat16(), "x", 1, None],
    ids=str,
)
def test_other_content_has_another_fingerprint(other):
    assert fingerprint(X) != fingerprint(other)


def test_layout_and_chunks_do_not_count(monkeypatch):
    whole = fingerprint([X, X.numpy()])
    monkeypatch.setattr(fingerprints, "CHUNK", 5)
    assert fingerprint([X.T.contiguous().T, np.asfortranarray(X.numpy())]) == whole


def test_a_module_is_its_structure_parameters_and_buffers():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    before = module_fingerprint(model)
    assert module_fingerprint(model) == before
    model[1].running_mean[0] += 1
    moved = module_fingerprint(model)
    model[0].weight.data[0, 0] += 1
    assert len({before, moved, module_fingerprint(model)}) == 3


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_tensors_are_told_apart_by_places_and_values(layout):
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    others = [dense, dense.T, dense + dense, dense.double()]
    assert len({fingerprint(other.contiguous().to_sparse(layout=layout)) for other in others}) == 4
    assert fingerprint(dense.to_sparse(layout=layout)) == fingerprint(dense.clone().to_sparse(layout=layout))
