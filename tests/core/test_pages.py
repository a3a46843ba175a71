"""Large and small tensors alike are what was asked for."""

import pytest
import torch

from tangentkit.core.pages import empty, zeros


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 4), (0, 5), (4096, 2048)])
def test_shape_dtype_and_values(dtype, shape):
    like = torch.ones(1, dtype=dtype)
    found = zeros(like, *shape)
    assert (found.shape, found.dtype, found.device) == (shape, dtype, like.device)
    assert found.is_contiguous()
    assert found.data_ptr() % 16 == 0
    assert not found.any()
    assert (empty(like, *shape).shape, empty(like, *shape).dtype) == (shape, dtype)
    assert torch.equal(found.add_(1), torch.ones(shape, dtype=dtype))
