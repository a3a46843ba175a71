"""Steps of training in one process: `python -m benchmarks.linearized.contender KINDS WORKLOAD N REPEATS`.

KINDS are names with commas between them, whose steps are taken in turn: a machine that is busy is busy for all.
Prints one line of JSON: the best time of each kind, and the peak resident memory.
"""

import json
import sys
import time

import torch
from torch import nn
from torch.func import functional_call, jacrev, vmap

from benchmarks.memory import peak_memory
from benchmarks.tangent.workloads import C, workload
from tangentkit.linearized import linearize


def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor):
    """A step of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def run() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return run


def recipe(model: nn.Module, x: torch.Tensor, y: torch.Tensor):
    """What one writes by hand without forward mode: the Jacobian of the batch, then a linear model on it."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    u = torch.zeros(sum(p.numel() for p in parameters.values()), requires_grad=True)
    optimizer = torch.optim.SGD([u], lr=1e-3, momentum=0.9)

    def outputs(params, sample):
        return functional_call(model, params, (sample[None],))[0]

    def run() -> None:
        rows = vmap(jacrev(outputs), (None, 0))(parameters, x)
        jacobian = torch.cat([part.flatten(2) for part in rows.values()], 2)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).detach() + jacobian @ u, y).backward()
        optimizer.step()

    return run


def main(kinds: str, name: str, n: str, repeats: str) -> None:
    """Measures the kinds."""
    make = {
        "network": step,
        "linearized": lambda model, x, y: step(linearize(model), x, y),
        "recipe": recipe,
    }
    runs = {}
    for kind in kinds.split(","):
        model, x = workload(name, int(n))
        runs[kind] = make[kind](model, x, torch.arange(int(n)) % C[name])
        runs[kind]()  # the first call of a linearization verifies its route
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(int(repeats)):
        for kind, run in runs.items():
            start = time.perf_counter()
            run()
            best[kind] = min(best[kind], time.perf_counter() - start)
    print(json.dumps(best | {"peak": peak_memory()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
