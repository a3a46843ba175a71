import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tangentkit.core import InputError, Key

names = st.lists(st.one_of(st.text(max_size=8), st.integers(0, 10**6)), max_size=4)


@given(st.integers(0, 2**70), names, names)
def test_different_paths_have_different_entropy(seed, first, second):
    same = [(type(a), a) for a in first] == [(type(a), a) for a in second]
    assert (Key(seed).fold(*first).entropy == Key(seed).fold(*second).entropy) == same


def test_streams_of_ten_thousand_blocks_never_collide():
    keys = [Key(seed).fold("weight", block) for seed in range(3) for block in range(10_000)]
    assert len({key.entropy % 2**63 for key in keys}) == len(keys)


def test_generators_repeat_and_differ():
    key = Key(7).fold("a")
    assert np.array_equal(key.numpy().random(5), key.numpy().random(5))
    assert torch.equal(torch.rand(5, generator=key.torch()), torch.rand(5, generator=key.torch()))
    assert not np.array_equal(key.numpy().random(5), key.fold("b").numpy().random(5))


def test_the_stream_of_a_key_is_a_contract():
    # Stored values: features computed today must match features computed with a later version.
    assert Key(0).fold("layer", 1).entropy % 10**12 == 287985014875
    assert Key(0).fold("layer", 1).numpy().integers(0, 1000, 4).tolist() == [309, 332, 850, 979]


def test_global_state_is_left_alone():
    before = torch.get_rng_state()
    torch.rand(3, generator=Key(1).torch())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("seed", [-1, 1.5, "0", True, None])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(InputError, match="expected an integer >= 0"):
        Key(seed)
