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
import json, re, sys
from pathlib import Path
import torch
import tangentkit as tk

def resident(what):
    return 1024 * int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

torch.manual_seed(0)
torch.set_num_threads(1)
outputs, memory = sys.argv[1:]
kernel = tk.SketchedTangentKernel(tk.models.resnet18(outputs=4).eval(), 1024, outputs, memory=memory)
x = torch.randn(8, 3, 32, 32)
kernel.plan(x[:2])  # what torch itself needs, and what is learned of the model
before = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
features = kernel.features(x)
print(json.dumps(resident("VmHWM") - before - features.nbytes))
"""


def working_memory(outputs: str, memory: str) -> int:
    """Bytes that features of ResNet-18 take beside themselves."""
    arguments = [sys.executable, "-c", SCRIPT, outputs, memory]
    return json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("outputs", ["pseudo", pytest.param("trace", marks=pytest.mark.slow)])
def test_features_of_a_large_model_stay_within_their_budget(outputs):
    assert working_memory(outputs, "200MB") <= 200e6


@pytest.mark.slow
def test_with_more_memory_more_is_taken():
    # So the test above can fail.
    assert working_memory("pseudo", "2GB") > 200e6
