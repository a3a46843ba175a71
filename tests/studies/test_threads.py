"""Threads are borrowed."""

import pytest
import torch

from tangentkit.studies.threads import torch_threads


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
