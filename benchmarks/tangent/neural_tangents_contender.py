"""neural-tangents, in an environment of its own: `python neural_tangents_contender.py WORKLOAD N OUTPUTS REPEATS`.

Only jax and neural-tangents are needed. The networks are the same shapes with other random weights.
"""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import neural_tangents as nt
from jax import lax
from jax.example_libraries import stax

# The peer's environment has no benchmarks package: the module is found by its folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from memory import peak_memory

C = {"mlp": 10, "lenet": 10, "resnet18": 10}


def network(name):
    if name == "mlp":
        hidden = [stax.Dense(512), stax.Relu, stax.Dense(512), stax.Relu]
        return stax.serial(*hidden, stax.Dense(10)), (784,)
    if name == "lenet":
        layers = [
            stax.GeneralConv(("NHWC", "HWIO", "NHWC"), 6, (5, 5), padding="SAME"),
            stax.Relu,
            stax.MaxPool((2, 2), (2, 2)),
            stax.GeneralConv(("NHWC", "HWIO", "NHWC"), 16, (5, 5), padding="VALID"),
            stax.Relu,
            stax.MaxPool((2, 2), (2, 2)),
            stax.Flatten,
            stax.Dense(120),
            stax.Relu,
            stax.Dense(84),
            stax.Relu,
            stax.Dense(10),
        ]
        return stax.serial(*layers), (28, 28, 1)
    if name == "resnet18":
        return resnet18(), (32, 32, 3)
    raise KeyError(name)


def resnet18():
    """Convolutions of a CIFAR ResNet-18; batch normalization in evaluation is a scale and shift of each channel."""
    affine = (
        lambda rng, shape: (shape, (jnp.ones(shape[-1]), jnp.zeros(shape[-1]))),
        lambda params, x, **_: x * params[0] + params[1],
    )

    def block(channels, stride, project):
        main = stax.serial(conv(channels, 3, stride), affine, stax.Relu, conv(channels, 3, 1), affine)
        skip = stax.serial(conv(channels, 1, stride), affine) if project else stax.Identity
        return stax.serial(stax.FanOut(2), stax.parallel(main, skip), stax.FanInSum, stax.Relu)

    layers = [conv(64, 3, 1), affine, stax.Relu]
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [block(channels, stride, stride == 2), block(channels, 1, False)]
    mean = (lambda rng, shape: ((shape[0], shape[-1]), ()), lambda params, x, **_: x.mean((1, 2)))
    return stax.serial(*layers, mean, stax.Dense(10))


def conv(channels, size, stride):
    def init(rng, shape):
        weight = jax.random.normal(rng, (size, size, shape[-1], channels)) / jnp.sqrt(size * size * shape[-1])
        out = -(-shape[1] // stride)
        return (shape[0], out, out, channels), weight

    def apply(weight, x, **_):
        return lax.conv_general_dilated(
            x, weight, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    return init, apply


def main(name, n, outputs, repeats):
    n = int(n)
    (init, apply), shape = network(name)
    _, params = init(jax.random.PRNGKey(0), (n, *shape))
    x = jax.random.normal(jax.random.PRNGKey(1), (n, *shape))
    function = apply if outputs != "pseudo" else (lambda p, x: apply(p, x).sum(-1, keepdims=True))
    axes = (-1,) if outputs != "full" else ()
    structured = nt.NtkImplementation.STRUCTURED_DERIVATIVES
    kernel = jax.jit(nt.empirical_ntk_fn(function, trace_axes=axes, vmap_axes=0, implementation=structured))
    kernel(x, None, params).block_until_ready()
    seconds = []
    for _ in range(int(repeats)):
        start = time.perf_counter()
        kernel(x, None, params).block_until_ready()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": min(seconds), "first": seconds[0], "peak": peak_memory()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
