"""Networks as tensor programs: the vectors of a feed-forward, residual, convolutional and recurrent network."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.infinite.programs.program import Program, Scalar, Vector


def feedforward(
    program: Program,
    gram: Float[Tensor, "n n"],
    *,
    depth: int,
    activation: Scalar,
    weight_variance: float,
    bias_variance: float = 0.0,
) -> tuple[Vector, ...]:
    """The last pre-activations of an MLP, one vector for each of n samples.

        g^0(x) = U x + b^0,    g^{l+1}(x) = W^{l+1} φ(g^l(x)) + b^{l+1}

    Their covariance at infinite width is the NNGP kernel.

    Args:
        program: the program that gets these lines.
        gram: the inner products <x, y>/d of the samples.
        depth: the number of hidden layers.
        activation: φ, entry by entry.
        weight_variance: σ_w², of all layers.
        bias_variance: σ_b², of all layers.

    Example:
        >>> program = Program()
        >>> x, y = feedforward(program, torch.eye(2), depth=1, activation=torch.relu, weight_variance=2.0)
        >>> program.limit().matrix(x, y)           # a right angle becomes one of cosine 1/π
        tensor([[2.0000, 0.6366],
                [0.6366, 2.0000]], dtype=torch.float64)
    """
    vectors = program.inputs(weight_variance * torch.as_tensor(gram, dtype=torch.float64) + bias_variance)
    for _ in range(depth):
        W, (b,) = program.matrix(weight_variance), program.inputs([[bias_variance]])
        vectors = tuple(W @ program.apply(activation, vector) + b for vector in vectors)
    return vectors


def residual(
    program: Program,
    inputs: Sequence[Vector],
    *,
    blocks: int,
    activation: Scalar,
    weight_variance: float,
    branch: float = 1.0,
) -> tuple[Vector, ...]:
    """The vectors after residual blocks that all samples go through, one vector for each sample.

        g^{l+1}(x) = g^l(x) + branch · W^{l+1} φ(g^l(x))

    Args:
        program: the program that gets these lines.
        inputs: the vectors g^0 of the samples.
        blocks: the number of blocks.
        activation: φ, entry by entry.
        weight_variance: σ_w², of all blocks.
        branch: the factor of what a block adds.

    Example:
        >>> program = Program()
        >>> x, y = residual(
        ...     program, program.inputs(torch.eye(2)), blocks=1, activation=torch.relu, weight_variance=2.0
        ... )
        >>> program.limit().matrix(x, y)           # each block adds 2 E[relu(u) relu(v)]
        tensor([[2.0000, 0.3183],
                [0.3183, 2.0000]], dtype=torch.float64)
    """
    vectors = tuple(inputs)
    for _ in range(blocks):
        W = program.matrix(weight_variance)
        vectors = tuple(vector + branch * (W @ program.apply(activation, vector)) for vector in vectors)
    return vectors


def convolutional(
    program: Program,
    inputs: Sequence[Sequence[Vector]],
    *,
    depth: int,
    reach: int,
    activation: Scalar,
    weight_variance: float,
    bias_variance: float = 0.0,
) -> list[list[Vector]]:
    """The last pre-activations of a network of circular convolutions, one vector for each sample and position.

        g^{l+1}_p(x) = Σ_{o=-r}^{r} W^{l+1}_o φ(g^l_{p+o}(x)) + b^{l+1},    W_o of variance σ_w² / (2r + 1)

    The entries of a vector are the channels at one position; positions go round in a circle.

    Args:
        program: the program that gets these lines.
        inputs: the vectors g^0 of each sample, one for every position.
        depth: the number of convolutions.
        reach: r, the positions that a filter reaches to either side.
        activation: φ, entry by entry.
        weight_variance: σ_w², of a whole filter.
        bias_variance: σ_b², of all convolutions.

    Raises:
        InputError: there is no sample, or the samples differ in the number of positions.

    Example:
        >>> program = Program()
        >>> ((a, b, c),) = convolutional(
        ...     program, [program.inputs(torch.eye(3))], depth=1, reach=1, activation=torch.relu, weight_variance=2.0
        ... )
        >>> program.limit().matrix(a, b)           # every two of three positions see the same channels, turned
        tensor([[1.0000, 0.3183],
                [0.3183, 1.0000]], dtype=torch.float64)
    """
    positions = {len(sample) for sample in inputs}
    if len(positions) != 1 or 0 in positions:
        raise InputError(
            "nothing to convolve",
            expected="one or more samples with the same number of positions, at least 1",
            got=f"numbers of positions {[len(sample) for sample in inputs]}",
        )
    (length,) = positions
    samples = [list(sample) for sample in inputs]
    for _ in range(depth):
        images = [[program.apply(activation, vector) for vector in sample] for sample in samples]
        (b,) = program.inputs([[bias_variance]])
        samples = [[b] * length for _ in inputs]
        # One matrix after the other, so that a sampled program draws each of them once.
        for offset in range(-reach, reach + 1):
            W = program.matrix(weight_variance / (2 * reach + 1))
            samples = [
                [vector + W @ image[(p + offset) % length] for p, vector in enumerate(sample)]
                for sample, image in zip(samples, images, strict=True)
            ]
    return samples


def recurrent(
    program: Program,
    inputs: Sequence[Sequence[Vector]],
    *,
    activation: Scalar,
    weight_variance: float,
    bias_variance: float = 0.0,
) -> list[list[Vector]]:
    """The pre-activations of a recurrent network at every time, for several sequences with the same weights.

        h_1 = u_1 + b,    h_{t+1} = W φ(h_t) + u_{t+1} + b

    Args:
        program: the program that gets these lines.
        inputs: the vectors u_t = U x_t of each sequence; as one block of `program.inputs` they share U.
        activation: φ, entry by entry.
        weight_variance: σ_w² of W.
        bias_variance: σ_b² of b.

    Example:
        >>> program = Program()
        >>> u = program.inputs(torch.eye(3))
        >>> ((h1, h2, h3),) = recurrent(program, [u], activation=torch.relu, weight_variance=2.0)
        >>> program.limit().matrix(h1, h2, h3)
        tensor([[1.0000, 0.0000, 0.0000],
                [0.0000, 2.0000, 0.4502],
                [0.0000, 0.4502, 3.0000]], dtype=torch.float64)
    """
    if not inputs or not all(inputs):
        raise InputError(
            "nothing to run on", expected="one or more sequences of one or more vectors", got=inputs
        )
    W, (b,) = program.matrix(weight_variance), program.inputs([[bias_variance]])
    runs = []
    for sequence in inputs:
        states = [sequence[0] + b]
        for u in sequence[1:]:
            states.append(W @ program.apply(activation, states[-1]) + u + b)
        runs.append(states)
    return runs
