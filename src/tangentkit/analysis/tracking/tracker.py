"""A tracker follows a training: kernels, spectra, alignments and losses on a fixed probe, step by step."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tangentkit.analysis.half_precision import float32_twin
from tangentkit.analysis.tracking.board import Board
from tangentkit.analysis.tracking.course import Course, Record, Value
from tangentkit.analysis.tracking.folder import RunFolder
from tangentkit.analysis.tracking.measures import LOSS_NAMES, MEASURES, Measure
from tangentkit.analysis.tracking.moment import MakeKernel, Moment, as_probe, device_of
from tangentkit.core.errors import InputError, NumericalError, UnknownNameError
from tangentkit.core.files.fingerprints import fingerprint
from tangentkit.core.model.calls import call
from tangentkit.core.model.functions import Forward
from tangentkit.core.model.swaps import in_modes
from tangentkit.core.whole_numbers import as_count
from tangentkit.report import Page, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEFAULT = ("loss", "ntk", "lazy")
MARKED = 4096
"""Entries of each parameter that tell one network from another."""


class TrackerWarning(UserWarning):
    """Something that was measured is left out, or measured again."""


class Tracker:
    """Follows a training by measures on a probe, at a cost that the probe bounds.

    Call `step(model)` once before the training and then after every step (or every epoch): it counts the calls and
    measures at every `every`-th. The network is measured in evaluation mode and left as it was, mode, gradients and
    random numbers included: a training that is tracked ends with the very bits of one that is not. One of half
    precision is measured as its copy in float32.

    With a folder every measurement is on disk when `step` returns. A tracker of the same settings on the same folder
    goes on where it ended: steps that are there already are not measured again, as long as the network is the same.
    Where it is not, since a training went on from an older checkpoint by another course, the later records go.

    Args:
        what: names of measures (see `tangentkit.analysis.tracking.measures`), functions of a `Moment`, or both; or
            name -> function.
        every: steps from one measurement to the next.
        probe: inputs, or a pair (inputs, targets), labeled data, or a data set of pairs; or a batch or a data set of
            items {..., "labels": targets}, as those of Hugging Face.
        folder: where to keep the measurements; None keeps them in memory alone.
        test: a pair or data set like the probe, all of it evaluated for the test loss and error.
        top: eigenvalues and singular values that are kept.
        samples: the most of a probe; of more, so many are drawn.
        seed: of that choice.
        forward: (model, batch) -> outputs (n, c).
        ntk: model -> the kernel to follow as "ntk". None takes the exact trace kernel; where that is more than 2e12
            FLOPs a sketch with 2,048 features.
        tensorboard: whether scalars also go to `folder/tensorboard`; None for where it is installed.

    Raises:
        InputError: an option, or the folder, does not fit.
        UnknownNameError: there is no such measure.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> x, model = torch.randn(20, 3), nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        >>> tracker = Tracker(["loss", "lazy"], every=5, probe=(x, x[:, :1]))
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> tracker.step(model)
        >>> for _ in range(10):
        ...     sgd.zero_grad()
        ...     (model(x) - x[:, :1]).square().mean().backward()
        ...     sgd.step()
        ...     tracker.step(model)
        >>> tracker.course.steps, tracker["loss"][-1] < tracker["loss"][0]
        ([0, 5, 10], True)
    """

    def __init__(
        self,
        what: Sequence[str | Measure] | Mapping[str, Measure] = DEFAULT,
        *,
        every: int = 1,
        probe: Any,
        folder: str | Path | None = None,
        test: Any = None,
        top: int = 20,
        samples: int = 256,
        seed: int = 0,
        forward: Forward | None = None,
        ntk: MakeKernel | None = None,
        tensorboard: bool | None = None,
    ):
        top, samples = as_count(top, "top"), as_count(samples, "samples", least=2)
        self.measures, self.every = _measures(what), as_count(every, "every")
        options = {"forward": forward or call, "make_kernel": ntk, "top": top}
        self.probe = as_probe(probe, samples=samples, test=test, seed=seed, **options)
        settings = {
            "measures": list(self.measures),
            "every": self.every,
            "top": top,
            "samples": len(self.probe),
            "probe": self.probe.fingerprint,
        }
        self.folder = None if folder is None else RunFolder(folder, settings)
        self.records: list[Record] = self.folder.records() if self.folder else []
        self._start: Moment | None = None
        self._before: Moment | None = None
        self._restore()
        self._board = Board(self.folder.path if self.folder else None, tensorboard, after=self._last)
        self._calls, self._training, self._left = 0, 0.0, None
        self._missed: set[str] = set()

    def step(self, model: nn.Module, *, step: int | None = None, **numbers: float) -> None:
        """Counts a step of the training, and measures the network where it is one of every `every`.

        A measure that fails once the training has begun, of weights that are no longer finite say, does not end it:
        the record says why it is missing, and a warning does once for each measure. At the first step of all errors
        are raised, since it is the settings that do not fit then.

        Args:
            model: the network as it is now.
            step: its number; by default the count of calls, from 0. A loop that goes on from a checkpoint must say.
            numbers: others to be recorded beside the measures, such as train_loss=.... Where a measure has the name,
                the number is "given/NAME".
        """
        self._calls = self._calls if step is None else as_count(step, "step", least=0)
        if self._calls % self.every == 0:
            self.measure(model, step=self._calls, numbers=numbers)
        self._calls += 1

    def measure(
        self, model: nn.Module, *, step: int, label: str = "", numbers: Mapping[str, float] | None = None
    ) -> None:
        """Measures the network, whatever `every` says; a step that is recorded already is left as it is."""
        arrived, step = time.perf_counter(), as_count(step, "step", least=0)
        others = {name: _number(name, number) for name, number in (numbers or {}).items()}
        if self._left is not None:
            self._training += arrived - self._left
        mark = weight_mark(model)
        if not self._is_recorded(step, mark):
            missing: dict[str, str] = {}
            with _undisturbed(model):
                moment = Moment(step, float32_twin(model), self.probe, self._start, self._before)
                measured = self._measured(moment, missing)
            taken = {*self.measures, *(LOSS_NAMES if "loss" in self.measures else ()), *measured}
            given = {f"given/{name}" if name in taken else name: number for name, number in others.items()}
            values = {name: self._finite(name, number, missing) for name, number in given.items()} | measured
            held = moment.held()
            seconds = time.perf_counter() - arrived
            record = Record(step, values, seconds, self._training, mark, label, missing)
            first = self.records[0].step if self.records else step
            if self.folder:
                self.folder.save(record, held, first=first)
            self.records.append(record)
            self._remember(step, held)
            self._board.write(record)
            self._training = 0.0
        self._left = time.perf_counter()

    def pause(self) -> None:
        """What passes until the next measurement is no training, and has no part in its time."""
        self._left = None

    @property
    def course(self) -> Course:
        """All measurements so far."""
        notes = {
            "Probe": f"{len(self.probe)} samples",
            "Measures": ", ".join(self.measures),
            "Every": f"{self.every} steps",
        }
        return Course(tuple(self.records), notes)

    @property
    def share(self) -> float:
        """The time of all measurements over that of the training between them."""
        return self.course.share

    def __getitem__(self, name: str) -> list[Any]:
        """A measure over the steps."""
        return self.course[name]

    def table(self, names: Sequence[str] | None = None) -> Table:
        """One row a step; see `Course.table`."""
        return self.course.table(names)

    def plot(self, ax: "Axes | None" = None, names: Sequence[str] | str | None = None) -> "Axes":
        """Curves over the steps; see `Course.plot`."""
        return self.course.plot(ax, names)

    def page(self) -> Page:
        """All of it on one page."""
        return self.course.page()

    def report(self, path: str | Path | None = None) -> Path:
        """Writes the page to a file, by default report.html in the folder of the tracker."""
        if path is None and self.folder is None:
            raise InputError("no place for the page", expected="a path, since the tracker has no folder")
        return self.course.report(path if path is not None else self.folder.path)  # pyright: ignore[reportOptionalMemberAccess]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return self.course.to_dict()

    def watcher(self) -> Callable[[nn.Module, Mapping[str, float]], None]:
        """For `tangentkit.linearized.train(..., watcher=tracker.watcher())`: a step is an epoch."""

        def watch(model: nn.Module, row: Mapping[str, float]) -> None:
            others = {
                f"trainer/{name}": value for name, value in row.items() if name not in ("epoch", "step")
            }
            self.step(model, step=int(row["epoch"]), **others)

        return watch

    def hugging_face(self) -> Any:
        """A `TrainerCallback` for `transformers.Trainer(..., callbacks=[tracker.hugging_face()])`."""
        from tangentkit.analysis.tracking.callbacks import hugging_face_callback

        return hugging_face_callback(self)

    def lightning(self, network: Callable[[Any], nn.Module] | None = None) -> Any:
        """A Lightning `Callback` that measures as training goes.

        Args:
            network: LightningModule -> the network in it; by default the module itself.
        """
        from tangentkit.analysis.tracking.callbacks import lightning_callback

        return lightning_callback(self, network)

    @property
    def _last(self) -> int | None:
        return self.records[-1].step if self.records else None

    def _measured(self, moment: Moment, missing: dict[str, str]) -> dict[str, Value | None]:
        found: dict[str, Value | None] = {}
        for name, function in self.measures.items():
            try:
                given = function(moment)
            except Exception as error:
                # Before the training nothing is lost by an error of the settings, and later the training would be.
                if not self.records and not isinstance(error, NumericalError):
                    raise
                self._miss(name, f"{type(error).__name__}: {_first_line(error)}", missing)
                continue
            parts = given.items() if isinstance(given, Mapping) else [("", given)]
            for part, value in parts:
                full = "/".join(filter(None, (name, part))) if name != "loss" else part
                found[full] = self._finite(full, _plain(full, value), missing)
        return found

    def _finite(self, name: str, value: Value, missing: dict[str, str]) -> Value | None:
        """The number or numbers; None, and the reason among what is missing, where one is not finite."""
        odd = [one for one in (value if isinstance(value, list) else [value]) if not math.isfinite(one)]
        if odd:
            self._miss(name, f"{name} is not finite, {odd[0]}", missing)
        return None if odd else value

    def _miss(self, name: str, reason: str, missing: dict[str, str]) -> None:
        missing[name] = reason
        if name not in self._missed:
            self._missed.add(name)
            text = f"{reason}: {name!r} is left out of this step, and of later ones like it without a warning"
            warnings.warn(text, TrackerWarning, stacklevel=6)

    def _is_recorded(self, step: int, mark: str) -> bool:
        """Whether this step is recorded; what another course of the training has left from here on goes."""
        later = [record for record in self.records if record.step >= step]
        if not later or (later[0].step == step and later[0].mark == mark):
            return bool(later)
        if later[0] is self.records[0]:
            raise InputError(
                "another network than the one that was tracked",
                expected=f"the network of step {later[0].step} at its first step",
                got=f"another one, at step {step}",
                hint="tracker.step(model, step=...) after a checkpoint; or another folder",
            )
        warnings.warn(
            f"the training takes another course from step {step} on: {len(later)} later measurements are dropped",
            TrackerWarning,
            stacklevel=4,
        )
        for record in reversed(later):
            if self.folder:
                self.folder.drop(record.step)
            self.records.remove(record)
        self._restore()
        return False

    def _restore(self) -> None:
        """Takes up the first and the last moment of the records."""
        if not self.records:
            return
        first, last = self.records[0].step, self.records[-1].step
        if self._start is None and self.folder:
            self._start = Moment(first, None, self.probe, known=self.folder.tensors(first))
        held = self.folder.tensors(last) if self.folder else None
        self._before = Moment(last, None, self.probe, known=held) if held else None

    def _remember(self, step: int, held: Mapping[str, Any]) -> None:
        moment = Moment(step, None, self.probe, known=held)
        self._start = self._start or moment
        self._before = moment


def weight_mark(model: nn.Module) -> str:
    """A fingerprint of a network by up to 4,096 entries of each parameter."""
    return fingerprint(
        {
            name: p.detach().reshape(-1)[:: -(-max(1, p.numel()) // MARKED)]
            for name, p in model.named_parameters()
        }
    )


def _measures(what: Sequence[str | Measure] | Mapping[str, Measure]) -> dict[str, Measure]:
    if isinstance(what, Mapping):
        return dict(what)
    found: dict[str, Measure] = {}
    for one in [what] if isinstance(what, str) else what:
        if isinstance(one, str) and one not in MEASURES:
            raise UnknownNameError("measure", one, MEASURES)
        name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
        function = MEASURES[one] if isinstance(one, str) else one
        if found.setdefault(name, function) is not function:
            raise InputError(
                f"two measures of one name, {name!r}",
                expected="a name for each",
                hint="{'one': lambda moment: ..., 'other': ...}",
            )
    if not found:
        raise InputError("nothing to measure", expected=f"some of {', '.join(MEASURES)}")
    return found


def _number(name: str, value: Any) -> float:
    """A number that a training loop gives."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name!r} is no number", expected="a float", got=repr(value)[:60]) from error


def _plain(name: str, value: Any) -> Value:
    """A number or a list of numbers for a record."""
    if isinstance(value, Tensor):
        value = value.tolist()
    plain = [float(one) for one in value] if isinstance(value, (list, tuple)) else value
    if isinstance(plain, Real):
        plain = float(plain)
    if not isinstance(plain, (float, list)):
        raise InputError(f"measure {name!r} gives no number", got=type(value).__name__)
    return plain


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no reason given").partition("\n")[0][:200]


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while, and random numbers of one's own: the training goes on as if nothing had been."""
    device = device_of(model)
    modes = {name: False for name, _ in model.named_modules()}
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), in_modes(model, modes):
        yield
