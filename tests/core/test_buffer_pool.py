"""Large and small tensors alike are what was asked for; their memory is used again, but never too early."""

import gc
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tangentkit.core import buffer_pool
from tangentkit.core.buffer_pool import LARGE, WAITING, empty, reused, zeros

LIKE = torch.ones(1)


@pytest.fixture(autouse=True)
def blocks(monkeypatch):
    """Blocks of a test's own."""
    found = buffer_pool._Blocks()
    monkeypatch.setattr(buffer_pool, "_BLOCKS", found)
    return found


def floats(size: int) -> int:
    return size // LIKE.element_size()


def waiting(blocks) -> int:
    return sum(block.nbytes for block in blocks._waiting)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
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


def test_memory_is_used_again():
    first = empty(LIKE, floats(LARGE))
    place = first.data_ptr()
    del first
    assert empty(LIKE, floats(LARGE)).data_ptr() == place


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[3:5],
        lambda t: t.numpy(),
        lambda t: t.detach().view(-1, 2).T,
        lambda t: torch.from_numpy(t.numpy()[7:]),
        lambda t: torch.from_dlpack(t),
        lambda t: t.untyped_storage(),
    ],
)
def test_not_while_anything_looks_at_it(view):
    first = empty(LIKE, floats(LARGE))
    place, kept = first.data_ptr(), view(first)
    del first
    gc.collect()
    second = empty(LIKE, floats(LARGE))
    assert second.data_ptr() != place
    del kept
    assert empty(LIKE, floats(LARGE)).data_ptr() == place


def test_zeros_are_zeros_where_something_else_was():
    with reused():
        used = empty(torch.ones(1), LARGE).fill_(7)
        place = used.data_ptr()
        del used
        found = zeros(torch.ones(1), LARGE)
        assert found.data_ptr() == place
        assert not found.any()


def test_a_block_serves_what_it_fits(blocks):
    first = empty(LIKE, floats(5 * LARGE))
    del first
    assert blocks.take(LARGE).nbytes == LARGE  # much smaller: one of its own
    first = empty(LIKE, floats(5 * LARGE))
    place = first.data_ptr()
    del first
    assert empty(LIKE, floats(9 * LARGE // 2)).data_ptr() == place


def test_what_waits_does_not_raise_the_peak(blocks):
    with reused():
        several = [empty(LIKE, floats(2 * LARGE)) for _ in range(4)]
        before = sum(tensor.nbytes for tensor in several)
        several.clear()
        assert waiting(blocks) >= before
        larger = empty(LIKE, floats(6 * LARGE))
        assert waiting(blocks) + larger.nbytes < before + LARGE


def test_little_waits_between_calls(blocks):
    size = WAITING // 3
    with reused():
        several = [empty(LIKE, floats(size)) for _ in range(5)]
        several.clear()
        assert waiting(blocks) > WAITING
    assert 0 < waiting(blocks) <= WAITING
    several = [empty(LIKE, floats(size)) for _ in range(5)]
    several.clear()
    assert 0 < waiting(blocks) <= WAITING


def test_an_error_ends_the_call(blocks):
    @reused()
    def fail():
        empty(LIKE, floats(2 * WAITING))
        assert waiting(blocks) > WAITING
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not waiting(blocks)


def test_threads_never_share_a_block():
    def work(k: int) -> bool:
        with reused():
            for i in range(60):
                mine = empty(LIKE, floats(LARGE + (k + i) % 3 * LARGE // 8)).fill_(k)
                if mine.amin() != k or mine.amax() != k:
                    return False
                del mine
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))


MAPPED = """
import ctypes, torch
from tangentkit.core.buffer_pool import reused

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Info
with reused():
    before = mallinfo().hblkhd
    tensor = torch.empty(31 * 2**20, dtype=torch.uint8)
    print(mallinfo().hblkhd - before)
"""


@pytest.mark.skipif(platform.libc_ver() < ("glibc", "2.33"), reason="asks glibc about its heap")
def test_memory_of_freed_tensors_of_torch_serves_the_next():
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    mapped = subprocess.check_output([sys.executable, "-c", MAPPED], env=clean, text=True)
    assert int(mapped) == 0  # not straight from the system, to go back to it when it is freed
