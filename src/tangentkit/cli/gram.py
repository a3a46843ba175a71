"""`tangentkit gram`: the Gram matrix of a network on a data set, into a store.

A model is one of `tangentkit.models`, by name, or what a function gives that the user names; weights come from a file
of tensors, data from the registry. No file can bring code along.
"""

import json
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tangentkit.cli.console import ended_like_ctrl_c, say
from tangentkit.cli.engines import parse_engine
from tangentkit.cli.options import only_for, width_of_mlp
from tangentkit.cli.own_model import own_model

if TYPE_CHECKING:
    from torch import nn

    from tangentkit.compute.kernel import Kernel

SECONDS = 10.0
"""Between two lines of progress where there is no terminal."""
Flag = Annotated[bool, Parameter(negative="")]


def gram(
    *,
    model: str,
    data: str,
    store: Path,
    kernel: Literal["tangent", "sketched", "conjugate", "embedding", "infinite", "nngp"] = "tangent",
    outputs: str | None = None,
    dim: int | None = None,
    normalized: Flag = False,
    weights: Path | None = None,
    width: int | None = None,
    seed: int = 0,
    split: str = "train",
    samples: Annotated[int | None, Parameter(name=("--samples", "--limit"))] = None,
    dtype: Literal["float32", "float64"] = "float32",
    engine: str = "serial",
    tile: int | None = None,
    memory: str | None = None,
    dry_run: Flag = False,
    repair: Flag = False,
    break_lock: Flag = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Compute a Gram matrix into a folder; run again, it goes on where it stopped.

    It ends well only if every tile is there and all checksums are right, of those that were there before too.

    Args:
        model: a network of tangentkit.models: mlp, lenet, lenet5, alexnet, resnet18, cifar_resnet, poisoning_cnn,
            mnist2_cnn, cifar2_cnn; or PACKAGE.MODULE:FUNCTION, one of yours that returns a torch.nn.Module, installed
            or in this folder.
        data: a data set, see `tangentkit data list`.
        store: the folder, new or of the same matrix.
        kernel: tangent, sketched (tangent, by random features), conjugate (last layer's input), embedding (all
            activations), or of the architecture at infinite width: infinite (tangent), nngp.
        outputs: of a tangent or sketched kernel: trace (default), full (not sketched), pseudo, or the number of one.
        dim: features of a sketched kernel; default: 4096.
        normalized: the cosine kernel.
        weights: a file of tensors (torch.save of a state dict); loaded without running code.
        width: of the hidden layers of mlp; default: 512.
        seed: of the network's weights, of the samples, and of a sketch.
        split: of the data set.
        samples: take so many; default: all.
        dtype: of weights, samples and matrix.
        engine: serial, threads://N, dask:// (processes here), dask://HOST:PORT, or dask:///PATH of a scheduler file.
        tile: samples along the side of a tile.
        memory: working memory of the kernel, such as 2GB.
        dry_run: only say what it would cost.
        repair: compute damaged tiles again.
        break_lock: remove the lock of a writer that is gone for certain.
        as_json: print one JSON object.
    """
    from tangentkit import data as data_sets
    from tangentkit.compute import break_lock as unlock
    from tangentkit.compute import gram as compute_gram
    from tangentkit.compute import gram_cost, open_gram

    who = parse_engine(engine)
    width = width_of_mlp(width, model)
    dim = only_for("--kernel sketched", "--dim", dim, 4096, applies=kernel == "sketched")
    outputs = only_for(
        "--kernel tangent or sketched",
        "--outputs",
        outputs,
        "trace",
        applies=kernel in ("tangent", "sketched"),
    )
    loaded = data_sets.load(data, split, limit=samples, seed=seed)
    network = build_model(model, loaded, width=width, seed=seed, weights=weights, dtype=dtype)
    x = loaded.inputs.to(next(network.parameters()).dtype)
    chosen = build_kernel(kernel, network, outputs=outputs, dim=dim, seed=seed, memory=memory)
    chosen = chosen.normalized() if normalized else chosen
    cost = gram_cost(chosen, x, store=store, tile=tile)
    say(f"{kernel} kernel of {model} on {data}/{split}, {cost}")
    record: dict[str, Any] = {
        "store": str(store),
        "shape": cost.shape,
        "tiles": cost.tiles,
        "tiles_there": cost.done,
        "bytes": cost.nbytes,
        "estimated_seconds": cost.seconds,
    }
    if not dry_run:
        if break_lock and unlock(store):
            say(f"broke the lock of {store}")
        start = time.monotonic()
        shown = True if sys.stderr.isatty() else ProgressLines()
        with ended_like_ctrl_c():
            compute_gram(chosen, x, store=store, engine=who, tile=cost.tiling, progress=shown, repair=repair)
            open_gram(store).verify(progress=shown)
        record["seconds"] = time.monotonic() - start
        say(f"done in {record['seconds']:.1f} s")
    if as_json:
        print(json.dumps(record))
    else:
        print(f"{store}: {cost}" if dry_run else f"{store}: {cost.shape[0]} x {cost.shape[1]}")


def build_model(
    name: str, data: Any, *, width: int, seed: int, weights: Path | None, dtype: str
) -> "nn.Module":
    """A network for the samples and classes of a data set, in evaluation mode: a reference one, or the user's own.

    Raises:
        UnknownNameError: there is no such network.
        InputError: the data are not numbers, the weights do not fit, or a function of the user gives no network.
        DataError: the file of weights cannot be read.
    """
    import torch

    from tangentkit.core.errors import InputError

    if not isinstance(data.inputs, torch.Tensor):
        raise InputError(
            f"{data.name} does not fit these networks",
            expected="numbers",
            got="sentences",
            hint="in Python: tk.gram(kernel, tokenizer(sentences, padding=True, return_tensors='pt'), store=...)",
        )
    model = own_model(name, seed=seed) if ":" in name else _reference_model(name, data, width, seed)
    if weights is not None:
        _load_weights(model, weights)
    return model.to(getattr(torch, dtype)).eval()


def _reference_model(name: str, data: Any, width: int, seed: int) -> "nn.Module":
    from tangentkit import models
    from tangentkit.core.errors import InputError, UnknownNameError

    form = tuple(data.inputs.shape[1:])
    outputs: dict[str, Any] = {"outputs": len(data.classes) or 1, "seed": seed}
    channels, size = (form[0], form[-1]) if len(form) == 3 else (1, math.prod(form))
    image: dict[str, Any] = {"channels": channels, "size": size}
    builders = {
        "mlp": lambda: models.mlp((math.prod(form), width, width, outputs["outputs"]), seed=seed),
        "lenet": lambda: models.lenet(**image, **outputs),
        "lenet5": lambda: models.lenet5(**image, **outputs),
        "alexnet": lambda: models.alexnet(channels=channels, **outputs),
        "resnet18": lambda: models.resnet18(channels=channels, **outputs),
        "cifar_resnet": lambda: models.cifar_resnet(**outputs),
        "poisoning_cnn": lambda: models.poisoning_cnn(**image, **outputs),
        "mnist2_cnn": lambda: models.mnist2_cnn(**image, **outputs),
        "cifar2_cnn": lambda: models.cifar2_cnn(**image, **outputs),
    }
    if name not in builders:
        raise UnknownNameError("model", name, [*builders, "MODULE:FUNCTION"])
    if len(form) != 3 and name != "mlp":
        raise InputError(f"{data.name} has no images for {name}", expected="mlp", got=name)
    return builders[name]()


def build_kernel(
    kind: str, model: "nn.Module", *, outputs: str, dim: int, seed: int, memory: str | None
) -> "Kernel":
    """The kernel of a model that the options name."""
    from tangentkit.core.memory import parse_bytes
    from tangentkit.empirical import ConjugateKernel, EmbeddingKernel, TangentKernel
    from tangentkit.infinite import InfiniteKernel
    from tangentkit.sketch import SketchedTangentKernel

    size = None if memory is None else parse_bytes(memory)
    which: Any = int(outputs) if outputs.isdecimal() else outputs
    kinds = {
        "tangent": lambda: TangentKernel(model, which, memory=size),
        "sketched": lambda: SketchedTangentKernel(model, dim, which, seed=seed, memory=size),
        "conjugate": lambda: ConjugateKernel(model, memory=size),
        "embedding": lambda: EmbeddingKernel(model, memory=size),
        "infinite": lambda: InfiniteKernel(model, "ntk", memory=size),
        "nngp": lambda: InfiniteKernel(model, "nngp", memory=size),
    }
    return kinds[kind]()


class ProgressLines:
    """Progress for logs: a line now and then, with rate and remaining time."""

    def __init__(self) -> None:
        self._began: dict[str, tuple[float, int]] = {}
        self._spoke = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Hears that a tile is done."""
        from tangentkit.core.text import counted

        now = time.monotonic()
        start, before = self._began.setdefault(stage, (now, done))
        if done < total and now - self._spoke < SECONDS:
            return
        self._spoke = now
        rate = (done - before) / (now - start) if now > start and done > before else 0.0
        left = f", {rate:.3g} tiles/s, {(total - done) / rate:.0f} s left" if rate else ""
        say(f"{stage}: {done}/{counted(total, 'tile')}{left}")


def _load_weights(model: "nn.Module", path: Path) -> None:
    from tangentkit.core.errors import InputError
    from tangentkit.core.files.safe import as_path
    from tangentkit.core.files.weights import load_tensors

    state = load_tensors(as_path(path))
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    try:
        model.load_state_dict(state, strict=True)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise InputError(f"the weights in {path} do not fit the model", got=str(error)) from error
