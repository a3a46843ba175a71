"""`tangentkit audit`: what is wrong with the samples of a folder, a file or a data set."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tangentkit.cli.console import progress_bars, say
from tangentkit.cli.gram import build_kernel, build_model
from tangentkit.cli.options import only_for, width_of_mlp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from tangentkit.data.dataset import Data

HUGGING_FACE = "hf:"


def audit(
    *,
    model: str,
    data: str,
    weights: Path | None = None,
    kernel: Literal["conjugate", "sketched"] = "conjugate",
    dim: int | None = None,
    level: float = 0.05,
    poisoned: Path | None = None,
    size: int | None = None,
    text_column: str = "text",
    label_column: str = "label",
    split: str = "train",
    samples: Annotated[int | None, Parameter(name=("--samples", "--limit"))] = None,
    width: int | None = None,
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float32",
    memory: str | None = None,
    out: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Look for mislabeled, duplicated, poisoned, outlying and underrepresented samples.

    Args:
        model: a network of tangentkit.models, or PACKAGE.MODULE:FUNCTION, as for `tangentkit gram`; or hf:NAME, a
            sequence classifier of Hugging Face and its tokenizer, here or to be downloaded.
        data: a folder with a sub-folder of pictures for each class; a file .npz or .safetensors with x and y, .csv or
            .jsonl with sentences; or a data set, see `tangentkit data list`.
        weights: a file of tensors (torch.save of a state dict); loaded without running code.
        kernel: conjugate (the input of the last layer), or sketched (gradients), which tells poison better.
        dim: features of a sketched kernel; default: 1024.
        level: the share of false flags that is allowed, of each kind.
        poisoned: a text file of samples that are known to be poisoned, one a line: names of files in a folder, else
            numbers from 0. Others like them are found by the votes of their nearest samples.
        size: pictures are scaled to so many pixels a side.
        text_column: of .csv and .jsonl, the name of the sentences.
        label_column: of .csv and .jsonl, the name of the labels.
        split: of a data set.
        samples: of a data set, take so many; default: all.
        width: of the hidden layers of mlp; default: 512.
        seed: of the network's weights, of the samples, of folds and of a sketch.
        dtype: of weights and samples.
        memory: working memory, such as 2GB.
        out: the page to write, such as audit.html.
        as_json: print one JSON object.
    """
    from tangentkit import data as data_sets
    from tangentkit.core.files.safe import as_path
    from tangentkit.data.own_files import read_files
    from tangentkit.surrogate import audit as run_audit

    width = width_of_mlp(width, model)
    dim = only_for("--kernel sketched", "--dim", dim, 1024, applies=kernel == "sketched")

    if data in data_sets.SETS and not as_path(data).exists():
        loaded, names = data_sets.load(data, split, limit=samples, seed=seed), None
    else:
        own = read_files(data, size=size, text=text_column, label=label_column)
        loaded, names = own.data, own.names
    network, x = _model_and_inputs(model, loaded, width=width, seed=seed, weights=weights, dtype=dtype)
    chosen = build_kernel(kernel, network, outputs="trace", dim=dim, seed=seed, memory=memory)
    samples_and_labels = SimpleNamespace(inputs=x, targets=loaded.targets, classes=loaded.classes)
    say(f"{loaded!r}, {kernel} kernel of {model}")
    with progress_bars() as progress:
        found = run_audit(
            network,
            samples_and_labels,
            chosen,
            poisoned=None if poisoned is None else _known(poisoned, names, len(loaded)),
            level=level,
            names=names,
            texts=loaded.inputs if isinstance(loaded.inputs, list) else None,
            seed=seed,
            memory=memory,
            progress=progress,
        )
    page = None if out is None else str(found.report(out))
    if as_json:
        print(json.dumps(found.to_dict() | {"data": data, "model": model, "page": page}))
        return
    from tangentkit.core.text import visible

    if found.network_accuracy is not None:
        print(f"the network gives {found.network_accuracy:.1%} of the samples their label")
    print(found.table() if found.flags else f"nothing was flagged in {found.samples} samples")
    for flag in found.flags[:20]:
        print(visible(f"{flag.kind}: {found.name(flag.sample)}: {flag.reason}"))
    if len(found.flags) > 20:
        print(f"... {len(found.flags) - 20} flags more: --out audit.html or --json shows all")
    if found.doubtful:
        some = ", ".join(found.name(flag.sample) for flag in found.doubtful[:10])
        print(visible(f"{len(found.doubtful)} labels in doubt, wrong or rare, the least likely: {some}"))
    for kind, why in found.not_looked_for.items():
        print(visible(f"{kind}, not told: {why}"))
    if page is not None:
        print(f"page: {page}")


def _known(path: Path, names: "Sequence[str] | None", n: int) -> list[bool]:
    """Which of n samples a file names."""
    from tangentkit.core.errors import DataError, InputError
    from tangentkit.core.files.safe import as_path

    try:
        lines = as_path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}", expected="a text file, a sample a line", got=error) from error
    numbers = {name: i for i, name in enumerate(map(str, range(n)) if names is None else names)}
    wanted = [line.strip() for line in lines if line.strip()]
    if strange := [name for name in wanted if name not in numbers]:
        some = ", ".join(list(numbers)[:3])
        raise InputError(
            f"{path} names a sample that is not there", expected=f"names such as {some}", got=strange[0]
        )
    chosen = {numbers[name] for name in wanted}
    return [i in chosen for i in range(n)]


def _model_and_inputs(
    name: str, data: "Data", *, width: int, seed: int, weights: Path | None, dtype: str
) -> "tuple[nn.Module, Any]":
    """The network, and the samples as it takes them."""
    from tangentkit.core.errors import InputError

    sentences = isinstance(data.inputs, list)
    if sentences != name.startswith(HUGGING_FACE):
        raise InputError(
            f"{name} does not fit {data.name}",
            expected="hf:NAME, a Hugging Face classifier with its tokenizer"
            if sentences
            else "numbers or pictures",
            got=f"{name} for sentences" if sentences else "a model of sentences",
        )
    if sentences:
        return _hugging_face(name.removeprefix(HUGGING_FACE), data.inputs)
    network = build_model(name, data, width=width, seed=seed, weights=weights, dtype=dtype)
    return network, data.inputs.to(next(network.parameters()).dtype)


def _hugging_face(name: str, sentences: list[str]) -> "tuple[nn.Module, Any]":
    from tangentkit.core.errors import InputError

    try:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer
    except ImportError:
        raise InputError("sentences need transformers", hint="pip install 'tangentkit[hf]'") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        # Weights of this format hold no code; repositories with code of their own are refused by default.
        model = AutoModelForSequenceClassification.from_pretrained(name, use_safetensors=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot load {name}",
            expected="a sequence classifier and its tokenizer",
            got=str(error).partition("\n")[0],
        ) from error
    batch = tokenizer(sentences, padding=True, truncation=True, return_tensors="pt")
    return model.eval(), {key: batch[key] for key in ("input_ids", "attention_mask") if key in batch}
