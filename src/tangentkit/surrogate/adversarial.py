"""A limit of surrogates: does a surrogate follow its network where an attack on the network leads it?

An attack looks for inputs near to the given ones, at most ε away in every number, on which the network's loss is
large. A surrogate that was faithful on natural inputs may keep its answers there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tangentkit.core.batches import Batch, as_batch, batch_size, split, take
from tangentkit.core.errors import InputError, UnknownNameError, briefly
from tangentkit.core.model.calls import call, read_outputs
from tangentkit.core.model.functions import Forward, snapshot_to_call
from tangentkit.core.progress import Progress, counted_off
from tangentkit.core.seeds import Key
from tangentkit.report import Column, Figure, Lines, Series, Table, drawn
from tangentkit.surrogate.network import check_same, class_labels
from tangentkit.surrogate.shares import Share
from tangentkit.surrogate.surrogate import Surrogate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Attack = Literal["fgsm", "pgd"]
AT_ONCE = 256
EPSILONS = (0.0, 0.01, 0.02, 0.05, 0.1)


class Predictor(Protocol):
    """Anything that names the classes of samples: a surrogate, a kernel machine, a pipeline of scikit-learn."""

    def predict(self, x: Any) -> Any:
        """A class for each sample."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class AdversarialComparison:
    """What network and surrogate answer on inputs that were made against the network."""

    epsilons: tuple[float, ...]
    network: tuple[Share, ...]
    """Accuracy of the network at each ε."""
    surrogate: tuple[Share, ...]
    """Accuracy of the surrogate on the same inputs."""
    agreement: tuple[Share, ...]
    """Inputs on which both give one class."""
    followed: tuple[Share, ...]
    """Of the inputs at which the network left the class it gave before the attack, those where the surrogate's class
    is the network's new one."""
    attack: str

    def __repr__(self) -> str:
        return (
            f"AdversarialComparison({self.attack}, ε up to {self.epsilons[-1]:g}: "
            f"network {self.network[-1].value:.1%}, surrogate {self.surrogate[-1].value:.1%}, "
            f"agreement {self.agreement[-1].value:.1%})"
        )

    def table(self) -> Table:
        """A row for each ε: accuracies, agreement and the share followed, in percent with 95 % intervals."""
        parts = (self.network, self.surrogate, self.agreement, self.followed)
        rows = tuple(
            (epsilon, *map(_in_words, shares)) for epsilon, *shares in zip(self.epsilons, *parts, strict=True)
        )
        columns = (Column("ε", "g"), "network %", "surrogate %", "agreement %", "followed %")
        note = (
            f"{self.network[0].of} inputs; {self.attack} on the network, at most ε in every number. Followed: where "
            "the network changed its class, the surrogate gives the new one. Exact 95 % intervals."
        )
        return Table("Network and surrogate under an attack on the network", columns, rows, note)

    def figure(self) -> Figure:
        """Accuracies and agreement over ε."""
        named = {"network": self.network, "surrogate": self.surrogate, "agreement": self.agreement}
        return Lines(
            title="Under an attack on the network",
            caption="Accuracies, and how often both agree, on inputs that were made against the network.",
            series={
                name: Series(self.epsilons, [share.value for share in shares])
                for name, shares in named.items()
            },
            x_label=f"ε of {self.attack}",
            y_label="share of inputs",
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the shares on axes, its own where none are given."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        shares = {name: getattr(self, name) for name in ("network", "surrogate", "agreement", "followed")}
        plain = {name: [share.to_dict() for share in values] for name, values in shares.items()}
        return {"attack": self.attack, "epsilons": list(self.epsilons), **plain}


@briefly
def compare_under_attack(
    model: nn.Module,
    surrogate: Predictor,
    x: Batch,
    y: Any,
    epsilons: float | Sequence[float] = EPSILONS,
    *,
    attack: Attack = "pgd",
    steps: int = 10,
    bounds: tuple[float, float] | None = (0.0, 1.0),
    seed: int = 0,
    forward: Forward | None = None,
    progress: bool | Progress = True,
) -> AdversarialComparison:
    """Attacks a network by its gradients, and asks its surrogate about the same inputs.

    With the loss L, the cross-entropy of the true class,

        fgsm:  x' = x + ε sign ∇L(x)
        pgd:   x' = P(x' + (2.5 ε / steps) sign ∇L(x')), steps times, from a random point at most ε away,

    where P goes back to what is at most ε away, and inside the bounds (Goodfellow et al. 2015; Madry et al. 2018).

    Args:
        model: in evaluation mode where that matters; outputs (n, c), or (n, 1) for two classes.
        surrogate: anything with `predict(x)`, a surrogate or a machine that was fitted on samples.
        x: a tensor of floating-point inputs.
        y: the true classes (n,), 0, 1, ...
        epsilons: not negative, ascending; or one.
        attack: "fgsm" or "pgd".
        steps: of pgd.
        bounds: the least and the largest number that inputs may have; None for none.
        seed: of the random points.
        forward: (model, batch) -> outputs.
        progress: whether to show a bar on a terminal; or a function (stage, done, total).

    Raises:
        InputError: inputs, classes or options do not fit, inputs are outside of the bounds, or the surrogate is of
            another network.
        UnknownNameError: there is no such attack.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> class Twin:
        ...     def predict(self, x):
        ...         return model(x).argmax(1)
        >>> x = torch.rand(20, 2)
        >>> found = compare_under_attack(model, Twin(), x, model(x).argmax(1), [0.0, 0.5])
        >>> found.network[0].value, [share.value for share in found.agreement]
        (1.0, [1.0, 1.0])
    """
    if attack not in ("fgsm", "pgd"):
        raise UnknownNameError("attack", str(attack), ("fgsm", "pgd"))
    levels = _checked(epsilons, steps)
    attacked = snapshot_to_call(model, forward=forward)  # refuses modes in which an answer is random
    if isinstance(surrogate, Surrogate):
        check_same(attacked, surrogate.network, "the surrogate is of another network than the attacked")
    x = as_batch(x)
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise InputError(
            "inputs cannot be attacked", expected="one tensor of floating-point numbers", got=type(x).__name__
        )
    _check_bounds(x, bounds)
    network = _Network(model, forward)
    labels = class_labels(y, network.outputs(x), batch_size(x))
    before = network.classes(x)
    found: dict[str, list[Share]] = {"network": [], "surrogate": [], "agreement": [], "followed": []}
    with counted_off(progress, f"{attack} attacks", len(levels)) as advance:
        for number, epsilon in enumerate(levels):
            key = Key(seed).fold("attack", number)
            moved = _attacked(network, x, labels, epsilon, steps if attack == "pgd" else 0, bounds, key)
            of_network, of_surrogate = network.classes(moved), _classes(surrogate.predict(moved), len(labels))
            truth, left = labels.numpy(), of_network != before
            for name, hits in (
                ("network", of_network == truth),
                ("surrogate", of_surrogate == truth),
                ("agreement", of_network == of_surrogate),
            ):
                found[name].append(Share(int(hits.sum()), len(truth)))
            found["followed"].append(Share(int((left & (of_network == of_surrogate)).sum()), int(left.sum())))
            advance()
    return AdversarialComparison(levels, *(tuple(shares) for shares in found.values()), attack=attack)


class _Network:
    """A network as its attacker sees it."""

    def __init__(self, model: nn.Module, forward: Forward | None):
        self.model, self.rule = model, forward or call

    def logits(self, x: Tensor) -> Float[Tensor, "n c"]:
        out = read_outputs(self.rule(self.model, x))
        out = out if out.ndim > 1 else out[:, None]
        return torch.cat([torch.zeros_like(out), out], 1) if out.shape[1] == 1 else out

    def outputs(self, x: Tensor) -> int:
        """How many classes it tells apart."""
        with torch.no_grad():
            return self.logits(x[:1]).shape[1]

    def classes(self, x: Tensor) -> Int[np.ndarray, " n"]:
        with torch.no_grad():
            return torch.cat([self.logits(part).argmax(1) for part in split(x, AT_ONCE)]).cpu().numpy()

    def ascent(self, x: Tensor, labels: Tensor) -> Tensor:
        """The sign of the gradient of the loss; the gradients of parameters are left alone."""
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            loss = nn.functional.cross_entropy(self.logits(x), labels.to(x.device), reduction="sum")
            return torch.autograd.grad(loss, x)[0].sign()


def _attacked(
    network: _Network,
    x: Tensor,
    labels: Tensor,
    epsilon: float,
    steps: int,
    bounds: tuple[float, float] | None,
    key: Key,
) -> Tensor:
    """Inputs against the network: by one step where `steps` is 0."""
    if epsilon == 0:
        return x.detach()
    low, high = bounds or (-torch.inf, torch.inf)
    noise = 2 * torch.rand(x.shape, generator=key.torch(), dtype=torch.float64) - 1
    start = x + epsilon * noise.to(x) if steps else x
    pieces = []
    for rows in torch.arange(len(x)).split(AT_ONCE):
        natural, label = take(x, rows), labels[rows]
        moved = take(start, rows).clamp(low, high)
        step = 2.5 * epsilon / steps if steps else epsilon
        for _ in range(max(steps, 1)):
            moved = moved + step * network.ascent(moved, label)
            moved = torch.maximum(torch.minimum(moved, natural + epsilon), natural - epsilon).clamp(low, high)
        pieces.append(moved.detach())
    return torch.cat(pieces)


def _classes(predicted: Any, n: int) -> Int[np.ndarray, " n"]:
    found = predicted.detach().cpu().numpy() if isinstance(predicted, Tensor) else np.asarray(predicted)
    if found.shape != (n,):
        raise InputError("bad predictions of the surrogate", expected=f"shape ({n},)", got=found.shape)
    if found.dtype.kind not in "biuf":
        raise InputError(
            "the surrogate predicts no numbers",
            expected="numbers of the network's outputs",
            got=f"{found.dtype}, such as {found[0]!r}",
            hint="fit it on classes 0, 1, ... in the order of the outputs",
        )
    return found.astype(np.int64)


def _checked(epsilons: float | Sequence[float], steps: int) -> tuple[float, ...]:
    levels = tuple(float(epsilon) for epsilon in np.atleast_1d(np.asarray(epsilons, dtype=float)))
    if not levels or min(levels) < 0 or list(levels) != sorted(set(levels)) or not np.isfinite(levels).all():
        raise InputError("bad epsilons", expected="numbers from 0, ascending", got=epsilons)
    if steps < 1:
        raise InputError("bad number of steps", expected="at least 1", got=steps)
    return levels


def _check_bounds(x: Tensor, bounds: tuple[float, float] | None) -> None:
    """Refuses inputs that the attack would clip: their accuracy would fall by the clipping alone."""
    if bounds is None:
        return
    low, high = float(x.min()), float(x.max())
    if low < bounds[0] or high > bounds[1]:
        raise InputError(
            "inputs are outside of the bounds",
            expected=f"numbers from {bounds[0]:g} to {bounds[1]:g}",
            got=f"{low:.4g} to {high:.4g}",
            hint="bounds=(least, largest) as pixels have them after your transforms, or bounds=None for none",
        )


def _in_words(share: Share) -> str | None:
    if not share.of:
        return None
    low, high = share.interval
    return f"{100 * share.value:.1f} ({100 * low:.1f} to {100 * high:.1f})"
