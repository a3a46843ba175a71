"""One measurement in a process of its own: `python -m benchmarks.tangent.contender NAME WORKLOAD N OUTPUTS REPEATS`.

Prints one line of JSON: the best time, the peak resident memory, and a checksum of the kernel.
"""

import json
import sys
import time

import torch
from torch.func import functional_call, grad, vmap

import tangentkit as tk
from benchmarks.memory import peak_memory
from benchmarks.tangent.workloads import C, workload


def ours(name: str, n: int, outputs: str):
    """tangentkit."""
    model, x = workload(name, n)
    kernel = tk.TangentKernel(model, outputs)
    return lambda: kernel(x)


def recipe(name: str, n: int, outputs: str):
    """What people write by hand: vmap(grad) in chunks of samples, then one matrix product for each output."""
    model, x = workload(name, n)
    parameters = {key: p.detach() for key, p in model.named_parameters()}
    c, total = C[name], sum(p.numel() for p in parameters.values())
    chunk = max(4, min(64, 2**25 // total))  # for ResNet-18, 4 was faster than 8 and 16

    def jacobian(direction: torch.Tensor) -> torch.Tensor:
        def output(params, sample):
            return functional_call(model, params, (sample[None],))[0] @ direction

        rows = torch.empty(n, total)
        for start in range(0, n, chunk):
            gradients = vmap(grad(output), (None, 0))(parameters, x[start : start + chunk])
            rows[start : start + chunk] = torch.cat([g.flatten(1) for g in gradients.values()], 1)
        return rows

    def run() -> torch.Tensor:
        eye = torch.eye(c)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            if outputs == "pseudo":
                j = jacobian(eye.sum(0))
                return j @ j.T / c
            if outputs == "trace":
                total = torch.zeros(n, n)
                for v in eye:
                    j = jacobian(v)
                    total += j @ j.T
                    del j  # two Jacobians at once would make the recipe look worse than it is
                return total
            j = torch.stack([jacobian(v) for v in eye], 1).flatten(0, 1)
            return (j @ j.T).view(n, c, n, c)

    return run


def nngeometry(name: str, n: int, outputs: str):
    """nngeometry's Gram matrix."""
    from nngeometry.gram import GramMatrix
    from torch.utils.data import DataLoader, TensorDataset

    model, x = workload(name, n)
    data = DataLoader(TensorDataset(x, torch.zeros(n)), batch_size=n)
    pseudo = outputs == "pseudo"

    def function(*batch):
        return model(batch[0]).sum(1, keepdim=True) if pseudo else model(batch[0])

    def run() -> torch.Tensor:
        full = GramMatrix(model, data, function=function).data
        return full if outputs == "full" else torch.einsum("cicj->ij", full) / (C[name] if pseudo else 1)

    return run


def main(contender: str, name: str, n: str, outputs: str, repeats: str) -> None:
    """Measures one contender."""
    run = {"ours": ours, "recipe": recipe, "nngeometry": nngeometry}[contender](name, int(n), outputs)
    seconds, kernel = [], None
    for _ in range(int(repeats)):
        kernel = None
        start = time.perf_counter()
        kernel = run()
        seconds.append(time.perf_counter() - start)
    assert kernel is not None
    # The first call of ours learns and verifies the structure: it is reported on its own.
    print(
        json.dumps(
            {
                "seconds": min(seconds),
                "first": seconds[0],
                "peak": peak_memory(),
                "checksum": float(kernel.double().sum()),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
