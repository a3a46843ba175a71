"""Networks as tensor programs: the vectors of a feed-forward and of a recurrent network."""

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
