"""One convolution on many images stays within memory=: the resident memory of a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is read from /proc, which is not here"
)

LARGE = 4000
COMPARED = ("flat", 2, 4000, 32, 8)
"""The case that is also run with a large budget: what it takes then shows that the test can fail."""
CASES = [
    ("flat", 40, 400, 16, 4),
    ("pooled", 4, 25, 16, 8),
    COMPARED,
    ("pooled", 1, 16, 32, 8),
]
"""The head, the images of both sides, the pixels of a side, and the budget in megabytes."""
# One field of all pairs of samples takes 4 n m P bytes, and with all pairs of pixels 4 n m P². The last two are parts
# of rows of the matrix of 10,000 CIFAR images, which takes terabytes at once.
SCRIPT = """
import json, os, re, sys
from pathlib import Path
import torch
from torch import nn
import tangentkit as tk

def peak():  # getrusage would count the parent's memory at the fork too
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

def working_memory(head, n, m, side, budget):
    pool = [nn.AdaptiveAvgPool2d(1)] if head == "pooled" else []
    width = 8 if head == "pooled" else 8 * side * side
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), *pool, nn.Flatten(), nn.Linear(width, 1))
    kernel = tk.InfiniteKernel(model, memory=f"{budget}MB")
    x = torch.randn(m, 3, side, side)
    kernel(x[:2])  # what torch itself needs, and what is learned of the model
    before = peak()
    result = kernel(x[:n], x)
    return peak() - before - result.numel() * result.element_size()

torch.set_num_threads(1)
tk.InfiniteKernel
large, compared, cases = json.loads(sys.argv[1])
for case in cases:
    for budget in (case[-1], large) if case == compared else (case[-1],):
        if not os.fork():  # each in a process of its own, which has imported everything
            print(json.dumps([case, working_memory(*case[:-1], budget)]), flush=True)
            os._exit(0)
        os.wait()
"""


@pytest.fixture(scope="module")
def taken() -> dict[tuple, list[int]]:
    """For each case, the bytes taken beside the result within the budget; for `COMPARED` also with a large one."""
    arguments = [sys.executable, "-c", SCRIPT, json.dumps([LARGE, COMPARED, CASES])]
    lines = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.splitlines()
    sizes: dict[tuple, list[int]] = {}
    for case, size in map(json.loads, lines):
        sizes.setdefault(tuple(case), []).append(size)
    return sizes


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_a_convolution_on_many_images_stays_within_its_budget(taken, case):
    head, n, m, side, budget = case
    assert 4 * n * m * side ** (2 if head == "flat" else 4) > 3 * budget * 1e6
    assert taken[case][0] <= budget * 1e6


def test_without_a_budget_rows_of_many_images_take_more(taken):
    assert taken[COMPARED][1] > 5 * 8e6
