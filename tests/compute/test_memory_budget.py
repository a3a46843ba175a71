"""The Gram matrix of a kernel with features keeps to the kernel's memory, beside the result."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import tangentkit as tk
from compute.toy_kernels import CountedFeatures, Linear

MEMORY = 8_000_000
MEASURED = """
import json, re, sys
from pathlib import Path
import torch
from torch import nn
import tangentkit as tk

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

n, m, width = 12_000, 300, 1024
model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))
kernel = tk.ConjugateKernel(model, memory=int(sys.argv[1]))
x, y = torch.randn(n, 8), torch.randn(m, 8)
grown = {}
for where, store in (("disk", sys.argv[2]), ("memory", None)):
    tk.gram(kernel, x[:64], y[:32], store=store and store + "-small")  # what is loaded on the way
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    idle = peak()
    G = tk.gram(kernel, x, y, store=store, progress=False)
    grown[where] = peak() - idle - (0 if store else 4 * n * m)
print(json.dumps(grown))
"""


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak memory of a process"
)
def test_memory_bounds_the_gram_of_features_on_disk_and_in_memory(tmp_path):
    words = [sys.executable, "-c", MEASURED, str(MEMORY), str(tmp_path / "k")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    # The features alone have 49 MB. Beside the budget: one hash for each sample, tiles on their way to the disk (all
    # tiles have 14 MB), and what the allocator keeps.
    assert {where: size for where, size in json.loads(done.stdout).items() if size > 4 * MEMORY} == {}


def test_features_that_do_not_fit_are_computed_again_for_few_columns_at_a_time():
    kernel, x = CountedFeatures(Linear()), torch.randn(40, 64)
    kernel.memory = 2 * x[:8].nbytes * 8  # type: ignore[attr-defined]
    G = tk.gram(kernel, x)
    torch.testing.assert_close(G.dense(), Linear()(x))
    calls = [n for what, n, _ in kernel._calls if what == "features"]
    tile = max(calls)
    assert tile < 40
    assert sum(calls) < 40 * 40 / tile / 2, "as often as if nothing were cached"


def test_the_least_memory_of_the_parts_counts():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    small, large = tk.ConjugateKernel(model, memory="2MB"), tk.TangentKernel(model, memory=10**9)
    assert (2.0 * small.normalized() + large).working_memory() == 2_000_000
    assert tk.EmbeddingKernel(model).working_memory() is None
    assert (tk.EmbeddingKernel(model) + large).working_memory() == 10**9
