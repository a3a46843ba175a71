"""The memory budget of features is kept: measured as the resident memory of a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is read from /proc, which is not here"
)

SCRIPT = """
import json, os, re, sys
from pathlib import Path
import torch
from torch import nn
import tangentkit as tk

def resident(what):
    return 1024 * int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(4), nn.Flatten(), nn.Linear(2048, 1000), nn.ReLU(), nn.Linear(1000, 4),
    )

def working_memory(family, outputs, n, dim, memory):
    model = tk.models.resnet18(outputs=4) if family == "resnet18" else convolutions()
    kernel = tk.SketchedTangentKernel(model.eval(), dim, outputs, memory=memory)
    x = torch.randn(n, 3, 32, 32)
    kernel.plan(x[:2])  # what torch itself needs, and what is learned of the model
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    features = kernel.features(x)
    return resident("VmHWM") - before - features.nbytes

torch.manual_seed(0)
torch.set_num_threads(1)
*case, budgets = json.loads(sys.argv[1])
tk.SketchedTangentKernel
for budget in budgets:
    if not os.fork():  # each in a process of its own, which has imported everything
        print(working_memory(*case, budget), flush=True)
        os._exit(0)
    os.wait()
"""
LARGE = 8 * 10**9


@pytest.mark.parametrize(
    ("family", "outputs", "n", "dim", "budget"),
    [
        ("convolutions", "pseudo", 48, 256, 20_000_000),
        pytest.param("resnet18", "pseudo", 24, 1024, 200_000_000, marks=pytest.mark.slow),
        pytest.param("resnet18", "trace", 24, 1024, 200_000_000, marks=pytest.mark.slow),
    ],
)
def test_features_of_a_large_model_stay_within_their_budget(family, outputs, n, dim, budget):
    arguments = [sys.executable, "-c", SCRIPT, json.dumps([family, outputs, n, dim, [budget, LARGE]])]
    lines = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.splitlines()
    within, beyond = map(int, lines)
    assert within <= budget
    # With more memory the same run takes more: the test can fail.
    assert beyond > budget
