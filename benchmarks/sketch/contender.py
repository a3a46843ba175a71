"""One measurement in a process of its own: `python -m benchmarks.sketch.contender NAME WORKLOAD OUTPUTS REPEATS`.

Prints one line of JSON: CPU seconds (best of the repeats, one thread), wall seconds, and peak resident memory.
"""

import json
import sys
import time

import torch
from torch import Tensor

from benchmarks.memory import peak_memory
from benchmarks.sketch.workloads import MEMORY, timed
from tangentkit.sketch import SketchedTangentKernel

DIM = 4096


def tensor(name: str, outputs: str):
    """TensorSketch of the factors."""
    return ours(name, outputs, "tensor")


def auto(name: str, outputs: str):
    """The default."""
    return ours(name, outputs, "auto")


def ours(name: str, outputs: str, sketch: str):
    model, x = timed(name)
    kernel = SketchedTangentKernel(model, DIM, outputs, sketch, memory=MEMORY)
    kernel.features(x[:2])  # learns and verifies the structure, draws the hashes
    return lambda: kernel.features(x)


def dense(name: str, outputs: str):
    """What TRAK's projector does on a CPU, in our words: gradients, times a random sign matrix drawn in blocks."""
    assert (name, outputs) == ("linear", "pseudo")
    x = timed(name)[1]
    block = 2**14

    def run() -> Tensor:
        # Every output has the same gradient with respect to the row of its own weights.
        gradients = x[:, None, :].expand(-1, 1024, -1).flatten(1) / 1024**0.5
        rng, out = torch.Generator().manual_seed(0), torch.zeros(len(x), DIM)
        for start in range(0, gradients.shape[1], block):
            columns = gradients[:, start : start + block]
            signs = torch.randint(0, 2, (columns.shape[1], DIM), generator=rng, dtype=torch.int8)
            out += columns @ signs.float().mul_(2).sub_(1)
        return out / DIM**0.5

    return run


def passes(name: str, outputs: str):
    """One forward pass, and as many backward passes as there are output directions, as training does them."""
    model, x = timed(name)

    def run() -> Tensor:
        found = model(x)
        directions = torch.eye(found.shape[1]) if outputs == "trace" else torch.ones(1, found.shape[1])
        for i, v in enumerate(directions):
            keep = i + 1 < len(directions)
            torch.autograd.grad(found, list(model.parameters()), v.expand_as(found), retain_graph=keep)
        return found.detach()

    return run


def main(contender: str, name: str, outputs: str, repeats: str) -> None:
    """Measures one contender."""
    torch.set_num_threads(1)
    run = {"tensor": tensor, "auto": auto, "dense": dense, "passes": passes}[contender](name, outputs)
    before = peak_memory()
    cpu, wall, result = [], [], 0
    for _ in range(int(repeats)):
        start, begun = time.process_time(), time.perf_counter()
        result = run().nbytes
        cpu.append(time.process_time() - start)
        wall.append(time.perf_counter() - begun)
    memory = {"before": before, "peak": peak_memory(), "result": result}
    print(json.dumps({"cpu": min(cpu), "seconds": min(wall), **memory}))


if __name__ == "__main__":
    main(*sys.argv[1:])
