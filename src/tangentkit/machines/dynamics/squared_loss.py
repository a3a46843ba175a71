"""The squared loss under its many names: sums and means, with and without the half."""

from numbers import Real
from typing import Literal, get_args

from tangentkit.core.errors import InputError, UnknownNameError

Loss = Literal["half_sum", "sum", "half_mean", "mean", "half_sample_mean", "sample_mean"]
"""The squared loss of predictions f and targets y of n samples with c outputs each.

    half_sum          ½ Σ_ic (f_ic - y_ic)²           the gradient flow df/dt = -K (f - y)
    sum                 Σ_ic (f_ic - y_ic)²
    half_mean         ½ 1/(n c) Σ_ic (f_ic - y_ic)²   neural-tangents
    mean                1/(n c) Σ_ic (f_ic - y_ic)²   torch.nn.MSELoss()
    half_sample_mean  ½ 1/n Σ_ic (f_ic - y_ic)²
    sample_mean         1/n Σ_ic (f_ic - y_ic)²       mean over samples, sum over outputs
"""


def curvature(loss: Loss, *, samples: int, outputs: int = 1) -> float:
    """The number s in loss = s/2 Σ_ic (f_ic - y_ic)², which is its second derivative in every f_ic.

    Training follows df/dt = -s K (f - y), and a step of gradient descent is f - lr s K (f - y).

    Args:
        loss: one of the names of `Loss`.
        samples: n.
        outputs: c.

    Raises:
        UnknownNameError: another name.
        InputError: `outputs` is not a positive integer.

    Example:
        >>> curvature("half_sum", samples=10), curvature("mean", samples=10, outputs=2)
        (1.0, 0.1)
    """
    if loss not in get_args(Loss):
        raise UnknownNameError("loss", loss, get_args(Loss))
    if not isinstance(outputs, Real) or outputs < 1 or int(outputs) != outputs:
        raise InputError("bad number of outputs", expected="an integer >= 1", got=outputs)
    whole, shape = (1.0, loss.removeprefix("half_")) if loss.startswith("half_") else (2.0, loss)
    return whole / {"sum": 1, "mean": samples * outputs, "sample_mean": samples}[shape]
