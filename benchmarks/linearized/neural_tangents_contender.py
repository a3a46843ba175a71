"""neural-tangents, in an environment of its own: `python neural_tangents_contender.py WORKLOAD N REPEATS`.

Only jax and neural-tangents are needed. Steps of the network and of `nt.linearize`, compiled and taken in turn.
"""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import neural_tangents as nt

# The peer's environment has no benchmarks package: its networks are found beside.
sys.path[:0] = [
    str(Path(__file__).resolve().parents[1] / "tangent"),
    str(Path(__file__).resolve().parents[1]),
]
from neural_tangents_contender import network  # noqa: E402  # pyright: ignore


def stepper(function, params, x, y):
    """A compiled step of SGD with momentum on the mean cross-entropy."""

    def loss(params, x, y):
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(function(params, x)) * y, axis=1))

    # The batch is an argument, as it is in training: XLA would compute with a constant one when it compiles.
    @jax.jit
    def step(params, velocity, x, y):
        gradient = jax.grad(loss)(params, x, y)
        velocity = jax.tree_util.tree_map(lambda v, g: 0.9 * v + g, velocity, gradient)
        return jax.tree_util.tree_map(lambda p, v: p - 1e-3 * v, params, velocity), velocity

    state = [params, jax.tree_util.tree_map(jnp.zeros_like, params)]

    def run():
        state[:] = step(*state, x, y)
        jax.block_until_ready(state)

    return run


def main(name, n, repeats):
    (init, apply), shape = network(name)
    _, params = init(jax.random.PRNGKey(0), (int(n), *shape))
    x = jax.random.normal(jax.random.PRNGKey(1), (int(n), *shape))
    y = jax.nn.one_hot(jnp.arange(int(n)) % 10, 10)
    runs = {
        "network": stepper(apply, params, x, y),
        "linearized": stepper(nt.linearize(apply, params), params, x, y),
    }
    best = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        run()
    for _ in range(int(repeats)):
        for kind, run in runs.items():
            start = time.perf_counter()
            run()
            best[kind] = min(best[kind], time.perf_counter() - start)
    print(json.dumps(best))


if __name__ == "__main__":
    main(*sys.argv[1:])
