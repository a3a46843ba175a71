"""One tracker over checkpoints on disk."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tangentkit.analysis.tracking.course import Course
from tangentkit.analysis.tracking.measures import Measure
from tangentkit.analysis.tracking.tracker import DEFAULT, Tracker
from tangentkit.core.errors import DataError, InputError
from tangentkit.core.files.safe import as_path
from tangentkit.core.files.weights import load_tensors
from tangentkit.core.progress import Progress, counted_off
from tangentkit.core.whole_numbers import as_count

INSIDE = ("model", "state_dict", "model_state_dict")
"""Under which names checkpoints keep the weights beside other things."""


def track_checkpoints(
    make_model: Callable[[], nn.Module],
    paths: Iterable[str | Path],
    probe: Any,
    what: Sequence[str | Measure] | Mapping[str, Measure] = DEFAULT,
    *,
    steps: Iterable[int] | None = None,
    progress: bool | Progress = False,
    **options: Any,
) -> Course:
    """The course of a training, from the checkpoints that it has left.

    Files are read without running code (`weights_only=True`).

    Args:
        make_model: a network of the architecture of the checkpoints; its values do not matter.
        paths: files of `torch.save(model.state_dict(), path)`, or of a dict that holds these under "model",
            "state_dict" or "model_state_dict"; or .safetensors files; in the order of the training. A prefix that a
            wrapper puts before all names is taken off, such as "module." of DistributedDataParallel, "_orig_mod." of
            torch.compile, or the attribute of a module of Lightning.
        probe: the samples on which networks are measured, as for `Tracker`.
        what: the measures.
        steps: the steps of the checkpoints, ascending; by default 0, 1, 2, ...
        progress: whether to show a bar on a terminal; or a function (stage, done, total).
        options: others of `Tracker`: test, folder, top, samples, forward, ...

    Raises:
        InputError: no checkpoints, steps that do not fit, or options that do not.
        DataError: a file is missing, damaged, not of tensors alone, or not of this architecture.

    Example:
        >>> import tempfile, torch
        >>> folder = Path(tempfile.mkdtemp())
        >>> for epoch in range(3):
        ...     torch.save(nn.Linear(2, 1).state_dict(), folder / f"{epoch}.pt")
        >>> course = track_checkpoints(lambda: nn.Linear(2, 1), sorted(folder.iterdir()), torch.randn(8, 2), ["lazy"])
        >>> [record.label for record in course.records], course["lazy/weight change"][0]
        (['0.pt', '1.pt', '2.pt'], 0.0)
    """
    if isinstance(paths, (str, Path)):
        raise InputError("one path where several belong", expected="a list of paths", got=repr(str(paths)))
    paths = list(paths)
    numbers = [as_count(n, "step", least=0) for n in (range(len(paths)) if steps is None else steps)]
    if not paths or len(numbers) != len(paths) or numbers != sorted(set(numbers)):
        raise InputError(
            "bad checkpoints",
            expected="paths, and as many ascending steps",
            got=f"{len(paths)} paths, {numbers}",
        )
    tracker = Tracker(what, probe=probe, **options)
    model = make_model()
    with counted_off(progress, "checkpoints", len(paths)) as advance:
        for step, path in zip(numbers, map(as_path, paths), strict=True):
            _load(model, path)
            tracker.measure(model, step=step, label=path.name)
            tracker.pause()
            advance()
    return tracker.course


def _load(model: nn.Module, path: Path) -> None:
    content = load_tensors(path)
    state = next((content[name] for name in INSIDE if isinstance(content, dict) and name in content), content)
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise DataError(
            f"{path} holds no weights", expected="a state dict", got=type(state).__name__,
            hint="torch.save(model.state_dict(), path) writes one",
        )  # fmt: skip
    wanted, prefixes = set(model.state_dict()), _prefixes(state)
    for prefix in prefixes:
        plain = {name.removeprefix(prefix): value for name, value in state.items()}
        if set(plain) == wanted:
            state = plain
            break
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise DataError(
            f"{path} is a checkpoint of another architecture",
            got=str(error)[:300],
            hint=f"the names of the file all begin with {prefixes[-1]!r}, and do not fit without it either"
            if prefixes
            else None,
        ) from error


def _prefixes(state: Mapping[str, Any]) -> list[str]:
    """What all names begin with, part by part: wrappers of networks put it there.

    Example:
        >>> _prefixes({"module._orig_mod.0.weight": 0, "module._orig_mod.0.bias": 0})
        ['module.', 'module._orig_mod.', 'module._orig_mod.0.']
        >>> _prefixes({"a.weight": 0, "b.weight": 0})
        []
    """
    above = [name.split(".")[:-1] for name in state]
    found: list[str] = []
    for parts in zip(*above, strict=False):
        if len(set(parts)) > 1:
            break
        found.append(f"{found[-1] if found else ''}{parts[0]}.")
    return found
