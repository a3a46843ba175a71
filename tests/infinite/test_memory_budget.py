"""One convolution on many images stays within memory=: the resident memory of a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is read from /proc, which is not here"
)

SCRIPT = """
import json, re, sys
from pathlib import Path
import torch
from torch import nn
import tangentkit as tk

def peak():  # getrusage would count the parent's memory at the fork too
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

torch.set_num_threads(1)
head, memory, n, m, side = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
pool = [nn.AdaptiveAvgPool2d(1)] if head == "pooled" else []
width = 8 if head == "pooled" else 8 * side * side
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), *pool, nn.Flatten(), nn.Linear(width, 1))
kernel = tk.InfiniteKernel(model, memory=memory)
x = torch.randn(m, 3, side, side)
kernel(x[:2])  # what torch itself needs, and what is learned of the model
before = peak()
result = kernel(x[:n], x)
print(json.dumps(peak() - before - result.numel() * result.element_size()))
"""


def working_memory(head: str, memory: str, n: int, m: int, side: int) -> float:
    arguments = [sys.executable, "-c", SCRIPT, head, memory, str(n), str(m), str(side)]
    return json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


# One field of all pairs of samples takes 4 n m P bytes, and with all pairs of pixels 4 n m P². The last two are rows
# of the matrix of 10,000 CIFAR images, which the others' users ask terabytes for.
@pytest.mark.parametrize(
    ("head", "n", "m", "side"),
    [("flat", 60, 1000, 16), ("pooled", 4, 50, 16), ("flat", 2, 10_000, 32), ("pooled", 1, 24, 32)],
)
def test_a_convolution_on_many_images_stays_within_its_budget(head, n, m, side):
    budget, pixels = 16, side**2
    assert 4 * n * m * (pixels if head == "flat" else pixels**2) > 3 * budget * 1e6
    assert working_memory(head, f"{budget}MB", n, m, side) <= budget * 1e6
