"""The memory budget is kept: measured as the resident memory of a process of its own."""

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
import tangentkit as tk

def peak():  # getrusage would count the parent's memory at the fork too
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

torch.manual_seed(0)
kind, n, budgets = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
if kind == "embedding":
    model, x = torch.nn.Sequential(*(torch.nn.Linear(1000, 1000) for _ in range(4))), torch.randn(n, 1000)
    kernels = [tk.EmbeddingKernel(model, memory=memory) for memory in budgets]
else:
    model, x = tk.models.lenet(), torch.randn(n, 1, 28, 28)
    kernels = [tk.TangentKernel(model, outputs=kind, memory=memory) for memory in budgets]
for kernel in kernels:
    kernel(x[:8])  # what torch itself needs, and what is learned of the model
before, taken = peak(), []
for kernel in kernels:
    result = kernel(x)
    taken.append(peak() - before - result.numel() * result.element_size())
    del result
print(json.dumps(taken))
"""


def working_memory(kind: str, n: int, budgets: list[int]) -> list[int]:
    """The most bytes taken so far beside the result, after a run with each of some budgets."""
    arguments = [sys.executable, "-c", SCRIPT, kind, str(n), json.dumps(budgets)]
    return json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("kind", "n", "budget"), [("trace", 900, 128), ("full", 400, 64), ("embedding", 1000, 16)]
)
def test_a_run_stays_within_its_budget(kind, n, budget):
    within, beyond = working_memory(kind, n, [budget * 10**6, 2 * 10**9])
    assert within <= budget * 1e6
    # Without a budget the same run takes more: the test can fail.
    assert beyond > budget * 1e6
