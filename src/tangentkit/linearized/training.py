"""A small trainer for networks and their expansions alike, in which every chance comes from a key."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils.data import Dataset

from tangentkit.core.batches import Batch, move
from tangentkit.core.errors import InputError, NumericalError, UnknownNameError
from tangentkit.core.files.safe import as_path
from tangentkit.core.model.calls import call, read_outputs
from tangentkit.core.model.functions import Forward
from tangentkit.core.progress import Progress, reported
from tangentkit.core.seeds import Key
from tangentkit.linearized.checkpoints import identity, load_checkpoint, save_checkpoint
from tangentkit.linearized.labeled import Labeled, labeled
from tangentkit.linearized.losses import LOSSES, Loss
from tangentkit.linearized.settings import Training

Row = dict[str, float]
"""Metrics of an epoch by name."""
Watcher = Callable[[nn.Module, Row], object]
"""Called with the model and the row of an epoch."""


@dataclass(frozen=True)
class History:
    """What a training run has seen.

    A row holds "epoch" and "step" (counted from 1, at its end), "learning rate" (of its last step), and "NAME
    loss" and "NAME accuracy" for "train" and each watched set. Those of "train" are means over the mini-batches as
    they were when the steps were taken; those of watched sets are taken after the epoch, in evaluation mode.
    """

    rows: tuple[Row, ...]
    """One for each epoch."""
    ended: str
    """Why it ended: "epochs", or the condition that was met."""

    def __getitem__(self, name: str) -> list[float]:
        """A metric over the epochs."""
        if name not in self.rows[0]:
            raise UnknownNameError("metric", name, self.rows[0])
        return [row[name] for row in self.rows]


def train(
    model: nn.Module,
    x: Batch | Dataset,
    y: Tensor | None,
    training: Training,
    *,
    key: Key,
    watch: Mapping[str, tuple[Batch, Tensor] | Dataset] | None = None,
    watcher: Watcher | None = None,
    forward: Forward | None = None,
    checkpoint: str | Path | None = None,
    every: int = 1,
    progress: Progress | bool = False,
    stage: str = "training",
) -> History:
    """Trains a module in place and leaves it in evaluation mode.

    The order of the samples, and dropout, follow from the key and the epoch alone: two modules trained with the
    same key see the same mini-batches, and a run that goes on from a checkpoint ends with the very bits of one that
    was never interrupted. torch's global generator is left as it was.

    Args:
        model: a network, or an expansion of one.
        x: the inputs, on any device; or, for data beyond memory, a map-style `Dataset` of pairs (input, target);
            or labeled data of `tangentkit.data`.
        y: the targets: classes, or numbers of the shape of the outputs; None where they come with x.
        training: the settings.
        key: of everything that is random.
        watch: name -> (inputs, targets), or a `Dataset` of pairs, of sets to be evaluated after each epoch.
        watcher: a function of the model and the row of its epoch, called before the first epoch (with a row that
            says "epoch" 0 and "step" 0) and after each: `Tracker.watcher()`, say. It must leave the model as it is.
        forward: (model, batch) -> outputs; by default the model is called with the batch.
        checkpoint: a file to which the state is saved after epochs. Where it exists, training goes on from there;
            the model must then be as it was before its first step.
        every: epochs between two checkpoints; the end always makes one.
        progress: True for a bar on the terminal, or a function (stage, done, total).
        stage: the name of this run for progress.

    Raises:
        InputError: data, targets and settings do not go together, or the checkpoint is another run's.
        NumericalError: the loss is not finite.
        DataError: the checkpoint is damaged.

    Example:
        >>> x = torch.linspace(-1, 1, 64)[:, None]
        >>> history = train(nn.Linear(1, 1), x, 3 * x, Training(20, 0.3, batch=8), key=Key(0))
        >>> history["train loss"][-1] < 1e-3, history.ended
        (True, 'epochs')
    """
    if every < 1:
        raise InputError("bad every", expected="at least 1", got=every)
    run = _Run(model, training, key, forward or call, labeled(x, y))
    sets = {
        name: labeled(*(given if isinstance(given, tuple) else (given, None)))
        for name, given in (watch or {}).items()
    }
    _check_names(training, sets)
    path = as_path(checkpoint) if checkpoint is not None else None
    known = identity(model, run.samples, sets, training, key) if path else {}
    rows: list[Row] = []
    ended = None
    if path and path.exists():
        content = load_checkpoint(path, known, run.device)
        run.restore(content)
        rows, ended = content["rows"], content["ended"]
    try:
        with reported(progress) as tell:
            tell(stage, len(rows), training.epochs)
            if watcher and not rows:
                watcher(model, {"epoch": 0, "step": 0})
            while ended is None:
                epoch = len(rows)
                row = run.epoch(epoch)
                for name, samples in sets.items():
                    row |= run.evaluate(name, samples)
                rows.append(row)
                # Before the checkpoint: what a kill takes away between the two is seen again.
                if watcher:
                    watcher(model, row)
                ended = _ending(training, row, len(rows))
                if path and (ended or len(rows) % every == 0):
                    save_checkpoint(path, run.state() | {"identity": known, "rows": rows, "ended": ended})
                tell(stage, training.epochs if ended else len(rows), training.epochs)
    finally:
        model.eval()
    return History(tuple(rows), ended)


def mini_batches(n: int, training: Training, key: Key, epoch: int) -> Sequence[Int[Tensor, " b"] | slice]:
    """The samples of each step of an epoch: a permutation that the key and the epoch decide, cut in pieces."""
    if training.batch is None:
        return [slice(None)]
    order = torch.randperm(n, generator=key.fold("order", epoch).torch())
    return order.split(training.batch)[: training.steps_per_epoch(n)]


class _Run:
    """A model on its way: its optimizer, its data, and the steps of an epoch."""

    def __init__(self, model: nn.Module, training: Training, key: Key, forward: Forward, samples: Labeled):
        if not training.steps_per_epoch(len(samples)):
            raise InputError(
                "an epoch has no step",
                expected=f"at least batch={training.batch} samples with drop_last",
                got=len(samples),
            )
        self.model, self.training, self.key, self.forward = model, training, key, forward
        self.samples = samples
        trained = [p for p in model.parameters() if p.requires_grad]
        if not trained:
            raise InputError("no parameter requires grad", expected="at least one", got="none")
        self.device = trained[0].device
        self.optimizer = training.make_optimizer(trained)
        self.loss: Loss = LOSSES[training.loss]
        # Where the targets of a single output divide into two classes: 0.5 for 0 and 1, 0 for -1 and 1.
        self.middle = samples.middle if training.loss.startswith("l2") else 0.0

    def epoch(self, epoch: int) -> Row:
        """Takes the steps of an epoch, counted from 0."""
        pieces = mini_batches(len(self.samples), self.training, self.key, epoch)
        total, hits, seen, rate = 0.0, 0.0, 0, 0.0
        self.model.train()
        with _seeded(self.key.fold("chance", epoch), self.device), torch.enable_grad():
            for i, piece in enumerate(pieces):
                step = epoch * len(pieces) + i
                rate = self.training.learning_rate * self.training.schedule.factor(
                    step, self.training.epochs * len(pieces), epoch
                )
                inputs, targets = move(self.samples.take(piece), self.device)
                loss, right = self._step(inputs, targets, rate, epoch)
                total, hits, seen = total + loss * len(targets), hits + right, seen + len(targets)
        return {
            "epoch": epoch + 1,
            "step": (epoch + 1) * len(pieces),
            "learning rate": rate,
            "train loss": total / seen,
            "train accuracy": hits / seen,
        }

    def _step(self, inputs: Batch, targets: Tensor, rate: float, epoch: int) -> tuple[float, float]:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        outputs = read_outputs(self.forward(self.model, inputs))
        loss = self.loss.value(outputs, targets)
        if not loss.isfinite():
            raise NumericalError(
                f"training diverged in epoch {epoch + 1}",
                got=f"loss {loss.item()}",
                hint="a smaller learning rate",
            )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item(), float(self.loss.hits(outputs.detach(), targets, self.middle).sum())

    @torch.no_grad()
    def evaluate(self, name: str, samples: Labeled) -> Row:
        """Loss and accuracy of a set, in evaluation mode."""
        self.model.eval()
        total, hits = 0.0, 0.0
        for piece in samples:
            inputs, targets = move(piece, self.device)
            outputs = read_outputs(self.forward(self.model, inputs))
            total += float(self.loss.value(outputs, targets)) * len(targets)
            hits += float(self.loss.hits(outputs, targets, self.middle).sum())
        return {f"{name} loss": total / len(samples), f"{name} accuracy": hits / len(samples)}

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes up the state of a checkpoint."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def _check_names(training: Training, sets: Mapping[str, object]) -> None:
    if "train" in sets:
        raise InputError("bad name of a watched set", expected="another name than 'train'", got="train")
    if training.stop and training.stop.on not in ("train", *sets):
        raise UnknownNameError("set", training.stop.on, ("train", *sets))


def _ending(training: Training, row: Row, epochs: int) -> str | None:
    stop = training.stop
    reason = stop.reason(row[f"{stop.on} loss"], row[f"{stop.on} accuracy"]) if stop else None
    return reason or ("epochs" if epochs == training.epochs else None)


@contextmanager
def _seeded(key: Key, device: torch.device) -> Iterator[None]:
    """Lets layers that draw from torch's global generators (dropout) draw from the key, and puts those back."""
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        # torch.manual_seed would also queue a seed for every device that is not there yet.
        torch.default_generator.manual_seed(key.entropy % 2**63)
        if cuda:
            torch.cuda.manual_seed(key.entropy % 2**63)
        yield
