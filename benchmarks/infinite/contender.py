"""Ours, in a process of its own: `python -m benchmarks.infinite.contender WORKLOAD N REPEATS`."""

import json
import sys
import time

import torch

import tangentkit.infinite as infinite
from benchmarks.infinite.networks import network
from benchmarks.infinite.resident import resident_memory
from benchmarks.memory import peak_memory


def inputs(name: str, n: int) -> torch.Tensor:
    """Numbers that both contenders can make: sines."""
    size = 784 if name.startswith("fc") else 3 * 32 * 32
    x = torch.sin(torch.arange(n * size, dtype=torch.float64) ** 2 * 1e-3 % 6.283185307179586).float()
    # Images are (n, 32, 32, 3) there.
    return (
        x.reshape(n, 784)
        if name.startswith("fc")
        else x.reshape(n, 32, 32, 3).permute(0, 3, 1, 2).contiguous()
    )


def main(name: str, n: str, repeats: str) -> None:
    """Measures one workload."""
    kernel = infinite.InfiniteKernel(network(name), w_std=2**0.5, b_std=0.1)
    x = inputs(name, int(n))
    kernel(x[:2])
    before, seconds, result = resident_memory(), [], None
    for _ in range(int(repeats)):
        result = None
        start = time.perf_counter()
        result = kernel(x)
        seconds.append(time.perf_counter() - start)
    assert result is not None
    found = {"seconds": min(seconds), "before": before, "peak": peak_memory()}
    print(json.dumps(found | {"checksum": float(result.double().sum())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
