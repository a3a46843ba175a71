"""The tracker in other people's trainers; their packages are imported when a callback is made."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch import nn

from tangentkit.core.errors import InputError

if TYPE_CHECKING:
    from tangentkit.analysis.tracking.tracker import Tracker


def hugging_face_callback(tracker: "Tracker") -> Any:
    """A `TrainerCallback` that measures at the start, after every `every` optimizer steps, and at the end.

    Raises:
        InputError: transformers is not installed.
    """
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise InputError(
            "transformers is not installed", got=error, hint="pip install 'tangentkit[hf]'"
        ) from error

    class TrackerCallback(TrainerCallback):
        """Hands the model of a Trainer to the tracker."""

        def on_train_begin(self, _args: Any, state: Any, _control: Any, model: Any = None, **_: Any) -> None:
            tracker.step(model, step=state.global_step)

        def on_step_end(self, _args: Any, state: Any, _control: Any, model: Any = None, **_: Any) -> None:
            tracker.step(model, step=state.global_step)

        def on_train_end(self, _args: Any, state: Any, _control: Any, model: Any = None, **_: Any) -> None:
            tracker.measure(model, step=state.global_step)

    return TrackerCallback()


def lightning_callback(tracker: "Tracker", network: Callable[[Any], nn.Module] | None = None) -> Any:
    """A Lightning `Callback` that measures at the start, after every `every` optimizer steps, and at the end.

    Raises:
        InputError: Lightning is not installed.
    """
    Callback = _lightning().Callback
    seen = network or (lambda module: module)

    class TrackerCallback(Callback):
        """Hands the network of a LightningModule to the tracker."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            tracker.step(seen(pl_module), step=trainer.global_step)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            tracker.step(seen(pl_module), step=trainer.global_step)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            tracker.measure(seen(pl_module), step=trainer.global_step)

    return TrackerCallback()


def _lightning() -> Any:
    """Lightning under the name by which it is loaded already: the trainer of one knows no callback of the other."""
    names = sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: name not in sys.modules)
    missing = None
    for name in names:
        try:
            return import_module(name)
        except ImportError as error:
            missing = missing or error
    raise InputError("Lightning is not installed", got=missing, hint="pip install lightning") from missing
