"""neural-tangents, in an environment of its own: `python neural_tangents_contender.py WORKLOAD N REPEATS`."""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from neural_tangents import stax

# The peer's environment has no benchmarks package: what is shared is found beside.
sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from memory import peak_memory  # noqa: E402  # pyright: ignore
from resident import resident_memory  # noqa: E402  # pyright: ignore


def network(name):
    options = {"W_std": 2**0.5, "b_std": 0.1}
    if name.startswith("fc"):
        activation = stax.Relu if name == "fc-relu" else stax.Erf
        hidden = [layer for _ in range(5) for layer in (stax.Dense(8, **options), activation())]
        return stax.serial(*hidden, stax.Dense(1, **options))
    convs = [
        layer for _ in range(3) for layer in (stax.Conv(8, (3, 3), padding="SAME", **options), stax.Relu())
    ]
    head = stax.Flatten() if name == "flatten" else stax.GlobalAvgPool()
    return stax.serial(*convs, head, stax.Dense(1, **options))


def inputs(name, n):
    size = 784 if name.startswith("fc") else 3 * 32 * 32
    x = np.sin(np.arange(n * size, dtype=np.float64) ** 2 * 1e-3 % 6.283185307179586).astype(np.float32)
    return jnp.asarray(x.reshape((n, 784) if name.startswith("fc") else (n, 32, 32, 3)))


def main(name, n, repeats):
    _, _, kernel_fn = network(name)
    kernel = jax.jit(lambda x: kernel_fn(x, None, "ntk"))
    x = inputs(name, int(n))
    before = resident_memory()
    kernel(x).block_until_ready()
    seconds, result = [], None
    for _ in range(int(repeats)):
        result = None
        start = time.perf_counter()
        result = kernel(x).block_until_ready()
        seconds.append(time.perf_counter() - start)
    found = {"seconds": min(seconds), "before": before, "peak": peak_memory()}
    print(json.dumps(found | {"checksum": float(np.asarray(result, dtype=np.float64).sum())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
