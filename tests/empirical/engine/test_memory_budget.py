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
kind, memory = sys.argv[1], json.loads(sys.argv[2])
if kind == "embedding":
    model = torch.nn.Sequential(*(torch.nn.Linear(1000, 1000) for _ in range(4)))
    kernel, x = tk.EmbeddingKernel(model, memory=memory), torch.randn(int(sys.argv[3]), 1000)
else:
    kernel = tk.TangentKernel(tk.models.lenet(), outputs=kind, memory=memory)
    x = torch.randn(int(sys.argv[3]), 1, 28, 28)
kernel(x[:8])  # what torch itself needs, and what is learned of the model
before = peak()
result = kernel(x)
print(json.dumps(peak() - before - result.numel() * result.element_size()))
"""


def working_memory(kind: str, memory: str | None, n: int) -> float:
    arguments = [sys.executable, "-c", SCRIPT, kind, json.dumps(memory), str(n)]
    return json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("kind", "n", "budget"), [("trace", 900, 128), ("full", 400, 64), ("embedding", 1000, 16)]
)
def test_a_run_stays_within_its_budget(kind, n, budget):
    assert working_memory(kind, f"{budget}MB", n) <= budget * 1e6
    # Without a budget the same run takes more: the test can fail.
    assert working_memory(kind, "2GB", n) > budget * 1e6
