"""`tangentkit explain`: why a network decides as it does, as one page."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from tangentkit.cli.console import progress_bars, say
from tangentkit.cli.gram import build_kernel, build_model
from tangentkit.cli.options import only_for, width_of_mlp

if TYPE_CHECKING:
    from torch import nn

    from tangentkit.core.progress import Progress
    from tangentkit.data.dataset import Data
    from tangentkit.data.own_files import OwnData
    from tangentkit.surrogate import Attribution, Faithfulness

WHAT_TO_LOOK_AT = (
    "Choose a test image from the list (filter: wrong) and see which training images speak for the class that the "
    "network says, and which against it. Switch the target to the true class to see what it would have taken; the "
    "tab of flags lists training images whose labels or places are in doubt."
)


def explain(
    *,
    data: str = "fashion-mini",
    model: str = "lenet",
    weights: Path | None = None,
    epochs: int = 20,
    train: int = 800,
    test: int = 200,
    kernel: Literal["tangent", "sketched", "conjugate", "embedding"] = "tangent",
    dim: int | None = None,
    ridge: float = 1e-4,
    size: int | None = None,
    width: int | None = None,
    seed: int = 0,
    out: Path = Path("why.html"),
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Write a page on which one asks why a network says what it says, and of which training data that comes.

    Without weights the network is trained first, for a few epochs.

    Args:
        data: a data set of images, see `tangentkit data list`; or a folder with a sub-folder of pictures for each
            class, or a file .npz or .safetensors with x and y, of which the test images are drawn.
        model: a network of tangentkit.models such as lenet, or PACKAGE.MODULE:FUNCTION, one of yours.
        weights: a file of tensors (torch.save of a state dict); loaded without running code.
        epochs: of the training, where there are no weights.
        train: training images of the network and of its surrogate.
        test: test images on the page.
        kernel: of the surrogate: tangent, sketched (tangent, by random features), conjugate or embedding.
        dim: features of a sketched kernel; default: 4096.
        ridge: of the kernel GLM.
        size: pictures of a folder are scaled to so many pixels a side.
        width: of the hidden layers of mlp; default: 512.
        seed: of the images, the weights, the training and a sketch.
        out: the page: a file NAME.html that can be sent to anybody, or a folder for `tangentkit serve`, whose page
            shows every kernel whole.
        as_json: print one JSON object.
    """
    from tangentkit.core.files.safe import as_path
    from tangentkit.machines import KernelGLM
    from tangentkit.surrogate import Surrogate, audit
    from tangentkit.surrogate.explanation import explanation
    from tangentkit.surrogate.page import write_folder, write_page

    width = width_of_mlp(width, model)
    dim = only_for("--kernel sketched", "--dim", dim, 4096, applies=kernel == "sketched")
    only_for("pictures of a folder", "--size", size, None, applies=as_path(data).is_dir())
    known, asked, names = _samples(data, train, test, size, seed)
    network = build_model(model, known, width=width, seed=seed, weights=weights, dtype="float32")
    with progress_bars() as progress:
        if weights is None:
            _train(network, known, epochs, seed, progress)
        found: dict[str, tuple[Surrogate, Attribution]] = {}
        for kind in dict.fromkeys((kernel, "conjugate")):
            k = build_kernel(kind, network, outputs="trace", dim=dim, seed=seed, memory=None).normalized()
            surrogate = Surrogate(network, k, machine=KernelGLM(ridge=ridge))
            surrogate.fit(known.inputs, known.targets, progress=progress)
            found[kind] = surrogate, surrogate.attribute(asked.inputs)
        flags = audit(network, known, names=names.get("train_names"), seed=seed, progress=progress).flags
    surrogate, attribution = found[kernel]
    # One sample has no rank correlation, and shows nothing of the surrogate.
    faithful = surrogate.faithfulness(asked.inputs, asked.targets) if len(asked) > 1 else None
    shown = explanation(
        attribution,
        labels=asked.targets,
        classes=known.classes,
        name=kernel,
        others={name: a for name, (_, a) in found.items() if name != kernel},
        flags=flags,
        title=f"Why does {model} say that? {known.name}",
        notes=[
            f"{model} on {known.name}: {len(known):,} training images, {len(asked):,} test images.",
        ],
        faithfulness=faithful,
        **names,
    )
    page = (write_page if out.suffix == ".html" else write_folder)(shown, out)
    _print(page, faithful, as_json=as_json)


def _samples(
    data: str, train: int, test: int, size: int | None, seed: int
) -> "tuple[Data, Data, dict[str, tuple[str, ...]]]":
    """Training and test samples, of a data set or some of the user's own, and the names of the latter."""
    from tangentkit import data as data_sets
    from tangentkit.core.errors import InputError
    from tangentkit.core.files.safe import as_path
    from tangentkit.data.own_files import KINDS, read_files

    for option, number in (("--train", train), ("--test", test)):
        if number < 1:
            raise InputError(f"bad {option}", expected="1 sample or more", got=number)
    where = as_path(data)
    if (entry := data_sets.SETS.get(data)) and "test" not in entry.splits and not where.exists():
        raise InputError(
            f"{data} has no training and test images",
            expected=f"one of {', '.join(one.name for one in data_sets.SETS.values() if one.shape)}, or your own",
            got=entry.title,
        )
    if not where.exists() and where.suffix.lower() not in KINDS:
        known, asked = (
            data_sets.load(data, split, limit=n, seed=seed) for split, n in (("train", train), ("test", test))
        )
        return known, asked, {}
    own = read_files(data, size=size)
    if len(own.data) <= test:
        raise InputError(
            f"{data} has too few samples",
            expected=f"more than the {test} of the page",
            got=len(own.data),
            hint="--test 20",
        )
    _check_finite(data, own)
    known, asked = _drawn(own, train, test, seed)
    return known.data, asked.data, {"train_names": _called(known), "test_names": _called(asked)}


def _drawn(own: "OwnData", train: int, test: int, seed: int) -> "tuple[OwnData, OwnData]":
    """Training and test samples that chance takes from one set."""
    import torch

    from tangentkit.core.seeds import Key

    generator = Key(seed).fold("explain", "samples").torch()
    order = torch.randperm(len(own.data), generator=generator).tolist()
    return own.take(order[test : test + train]), own.take(order[:test])


def _check_finite(data: str, own: "OwnData") -> None:
    import torch

    from tangentkit.core.errors import InputError

    x = own.data.inputs
    if not isinstance(x, torch.Tensor):  # of sentences
        return
    broken = (~x.flatten(1).isfinite().all(1)).nonzero()[:, 0].tolist()
    if broken:
        raise InputError(
            f"{data} has inputs that are not finite",
            expected="finite numbers",
            got=f"nan or infinity in {_called(own.take(broken[:1]))[0]}, {len(broken)} of {len(x):,} samples",
        )


def _called(own: "OwnData") -> tuple[str, ...]:
    """Names as sentences and headings call samples: a number alone is "sample 7"."""
    return tuple(f"sample {name}" if name.isdecimal() else name for name in own.names)


def _train(network: "nn.Module", known: "Data", epochs: int, seed: int, progress: "Progress") -> None:
    from tangentkit.core.seeds import Key
    from tangentkit.linearized import Training
    from tangentkit.linearized import train as train_network

    settings = Training(epochs, 2e-3, optimizer="adam", batch=32, loss=_loss(network, known))
    key = Key(seed).fold("explain")
    train_network(
        network, known.inputs, known.targets, settings, key=key, progress=progress, stage="training"
    )


def _loss(network: "nn.Module", known: "Data") -> Literal["cross-entropy", "bce"]:
    """The loss that fits the outputs: one for each class, or one logit for two classes."""
    import torch

    from tangentkit.core.errors import InputError
    from tangentkit.core.model.calls import call, read_outputs

    with torch.no_grad():
        outputs = read_outputs(call(network, known.inputs[:1]))
    if outputs.numel() > 1:
        return "cross-entropy"
    if len(known.classes) != 2:
        raise InputError(
            "one output tells two classes apart", expected="an output for each class", got=known.classes
        )
    return "bce"


def _print(page: Path, faithful: "Faithfulness | None", *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"page": str(page), "faithfulness": faithful.to_dict() if faithful else None}))
        return
    say(WHAT_TO_LOOK_AT)
    shown = f"page: {page.absolute()}" if page.is_file() else f"tangentkit serve {page}"
    table = str(faithful) if faithful else "How faithful the surrogate is takes two test samples or more."
    print(f"{table}\n\n{shown}")
