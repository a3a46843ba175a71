"""Networks trained again on subsets of the training samples: once for all methods, and kept in a file."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tangentkit.compute.sources import SampleSource, as_source
from tangentkit.core.errors import DataError, InputError, NumericalError
from tangentkit.core.files.fingerprints import fingerprint
from tangentkit.core.files.safe import as_path, open_file, written_whole
from tangentkit.core.model.functions import Forward, snapshot_to_call
from tangentkit.core.progress import Progress, counted_off
from tangentkit.core.seeds import Key
from tangentkit.linearized import Training, train
from tangentkit.linearized.labeled import labeled
from tangentkit.surrogate.faithfulness import log_odds_of
from tangentkit.surrogate.network import class_logits, network_logits

Retrain = Callable[[Int[Tensor, " k"], int], nn.Module | Tensor]
"""(numbers of training samples, a seed of its own) -> a network trained on them, or its logits on test samples.

Seeds are below 2⁶³, as `torch.manual_seed` takes them.
"""


@dataclass(frozen=True, eq=False, repr=False)
class Retrained:
    """What networks that were trained on s subsets of m training samples say of n test samples."""

    masks: Bool[Tensor, "s m"]
    """Which training samples each network has seen."""
    logits: Float[Tensor, "s n c"]
    """Of all classes: where a network has one logit z, of two classes, (0, z)."""
    about: str = ""
    """A fingerprint of the test samples and the seed."""

    def __post_init__(self) -> None:
        fits = self.masks.ndim == 2 and self.masks.dtype == torch.bool
        if not fits or self.logits.ndim != 3 or len(self.logits) != len(self.masks):
            raise InputError(
                "not what retrained networks say",
                expected="masks (s, m) of booleans and logits (s, n, c), a row for each network",
                got=f"{self.masks.dtype} {tuple(self.masks.shape)} and {tuple(self.logits.shape)}",
            )
        if not bool(self.logits.isfinite().all()):
            raise NumericalError("a retrained network has no finite logits", hint="a smaller learning rate")

    def __repr__(self) -> str:
        (s, m), n = self.masks.shape, self.logits.shape[1]
        return f"Retrained(networks={s}, training samples={m:,}, test samples={n:,})"

    def margins(self, classes: Int[Tensor, " n"]) -> Float[np.ndarray, "s n"]:
        """ln p/(1 - p) of one class of each test sample, by each network."""
        s, n, c = self.logits.shape
        if c < 2:
            raise InputError(
                "one logit says nothing of two classes", expected="logits (s, n, c), c at least 2"
            )
        if classes.shape != (n,):
            raise InputError(
                "classes do not match the test samples", expected=f"{n} classes", got=tuple(classes.shape)
            )
        return log_odds_of(self.logits.double().flatten(0, 1), classes.cpu().repeat(s)).reshape(s, n)

    def save(self, path: str | Path) -> Path:
        """Writes an npz file, whole or not at all, and returns its path."""
        path = as_path(path)
        arrays = {"masks": self.masks.numpy(), "logits": self.logits.numpy(), "about": np.array(self.about)}
        with written_whole(path, durable=True) as file:
            np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Retrained":
        """What `save` wrote.

        Raises:
            DataError: the file is missing, damaged, or something else.
        """
        path = as_path(path)
        try:
            with io.BufferedReader(open_file(path)) as raw, np.load(raw, allow_pickle=False) as arrays:
                masks, logits = (torch.from_numpy(arrays[name]) for name in ("masks", "logits"))
                return cls(masks, logits, str(arrays["about"]))
        except FileNotFoundError:
            raise DataError(f"{path} is missing") from None
        except (OSError, KeyError, ValueError, TypeError, EOFError, BadZipFile) as error:
            raise DataError(
                f"{path} is damaged, or no file of retrained networks",
                expected="what Retrained.save wrote",
                got=error,
                hint="remove it, and train again",
            ) from error


@dataclass(frozen=True, eq=False)
class Retraining:
    """Trains networks by `tangentkit.linearized.train`: a `Retrain` function.

    Example:
        >>> from tangentkit.models import mlp
        >>> x, y = torch.randn(12, 2), torch.arange(12) % 2
        >>> settings = Training(1, 0.1, loss="cross-entropy")
        >>> retrain = Retraining(lambda seed: mlp((2, 4, 2), seed=seed), x, y, settings)
        >>> retrain(torch.arange(6), 0)(x).shape
        torch.Size([12, 2])
    """

    make_model: Callable[[int], nn.Module]
    """A seed -> a network with random weights."""
    x: Any
    """Training inputs, or a data set of pairs (input, target)."""
    y: Tensor | None
    """Their targets; None where they come with x."""
    training: Training
    forward: Forward | None = None

    def __call__(self, numbers: Int[Tensor, " k"], seed: int) -> nn.Module:
        """A network trained on these samples."""
        model = self.make_model(seed)
        x, y = labeled(self.x, self.y).take(numbers)
        train(model, x, y, self.training, key=Key(seed).fold("training"), forward=self.forward)
        return model


def retrain_on(
    masks: Bool[Tensor, "s m"],
    retrain: Retrain,
    test: Any,
    *,
    seed: int = 0,
    forward: Forward | None = None,
    path: str | Path | None = None,
    progress: bool | Progress = True,
) -> Retrained:
    """Trains a network on each subset and asks it about the test samples.

    Args:
        masks: the subsets, of `random_subsets` or `random_absences` say.
        retrain: trains a network: (numbers of training samples, seed) -> the network, or its logits on the test
            samples. Every network has a seed of its own. `Retraining` is such a function.
        test: test samples.
        seed: of all networks.
        forward: how a network is called, (model, batch) -> (n, c).
        path: an npz file that is written after every network. Where it exists, the work goes on from there.
        progress: whether to show a bar on a terminal; or a function (stage, done, total).

    Raises:
        InputError: the file is of other subsets, test samples or another seed.
        DataError: the file is damaged.

    Example:
        >>> from tangentkit.surrogate.evaluation import random_subsets
        >>> retrain_on(random_subsets(10, 4), lambda numbers, seed: torch.zeros(3, 2), torch.randn(3, 5))
        Retrained(networks=4, training samples=10, test samples=3)
    """
    source = as_source(test)
    about = fingerprint([seed, *source.hashes()])
    done = _begun(path, masks, about)
    logits = [] if done is None else list(done.logits)
    with counted_off(progress, "retraining", len(masks), done=len(logits)) as advance:
        for i in range(len(logits), len(masks)):
            logits.append(retrained_logits(retrain, masks[i], source, Key(seed).fold("network", i), forward))
            if path is not None:
                Retrained(masks[: i + 1], torch.stack(logits), about).save(path)
            advance()
    return Retrained(masks, torch.stack(logits), about)


def retrained_logits(
    retrain: Retrain, mask: Bool[Tensor, " m"], test: SampleSource, key: Key, forward: Forward | None = None
) -> Float[Tensor, "n c"]:
    """What one network, trained on a subset, says of the test samples.

    Raises:
        InputError: the function gave neither a network nor logits of these samples.
    """
    found = retrain(mask.nonzero()[:, 0], key.entropy % 2**63)
    if isinstance(found, nn.Module):
        return network_logits(snapshot_to_call(found.eval(), forward=forward), test).cpu()
    if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != len(test):
        raise InputError(
            "retrain gave neither a network nor its logits",
            expected=f"an nn.Module, or logits ({len(test)}, c) of the test samples",
            got=tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__,
        )
    return class_logits(found.detach().cpu().double())


def _begun(path: str | Path | None, masks: Tensor, about: str) -> Retrained | None:
    """What is in the file already; None where there is none."""
    if path is None or not as_path(path).exists():
        return None
    done = Retrained.load(path)
    k = len(done.masks)
    if k > len(masks) or not torch.equal(done.masks, masks[:k]) or done.about != about:
        differs = "test samples or seed" if done.about != about else "subsets"
        raise InputError(
            f"{path} holds other networks",
            expected="the same subsets, test samples and seed, or the first of them",
            got=f"other {differs}",
            hint="another path, or remove the file",
        )
    return done
