"""The memory budget is kept: measured as the resident memory of a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is read from /proc, which is not here"
)

LARGE = 2000
CASES = [("trace", 160, 24), ("full", 80, 16), ("embedding", 500, 8)]
"""The kernel, the number of samples, and the budget in megabytes."""
SCRIPT = """
import json, os, re, sys
from pathlib import Path
import torch
import tangentkit as tk

def peak():  # getrusage would count the parent's memory at the fork too
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

def working_memory(kind, n, *budgets):
    if kind == "embedding":
        model, x = torch.nn.Sequential(*(torch.nn.Linear(1000, 1000) for _ in range(4))), torch.randn(n, 1000)
        kernels = [tk.EmbeddingKernel(model, memory=f"{budget}MB") for budget in budgets]
    else:
        model, x = tk.models.lenet(), torch.randn(n, 1, 28, 28)
        kernels = [tk.TangentKernel(model, outputs=kind, memory=f"{budget}MB") for budget in budgets]
    for kernel in kernels:
        kernel(x[:8])  # what torch itself needs, and what is learned of the model
    before, taken = peak(), []
    for kernel in kernels:
        result = kernel(x)
        taken.append(peak() - before - result.numel() * result.element_size())
        del result
    return taken

torch.manual_seed(0)
large, cases = json.loads(sys.argv[1])
for case in cases:
    if not os.fork():  # each in a process of its own, which has imported everything
        print(json.dumps([case, working_memory(*case, large)]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def taken() -> dict[tuple, list[int]]:
    """For each case, the most bytes taken beside the result: within the budget, then with a large one."""
    arguments = [sys.executable, "-c", SCRIPT, json.dumps([LARGE, CASES])]
    lines = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.splitlines()
    return {tuple(case): sizes for case, sizes in map(json.loads, lines)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_a_run_stays_within_its_budget(taken, case):
    assert taken[case][0] <= case[2] * 1e6


def test_without_a_budget_more_is_taken(taken):
    # What the allocator has free shows in neither: of the large run alone it is little.
    assert taken[CASES[0]][1] > CASES[0][2] * 1e6
