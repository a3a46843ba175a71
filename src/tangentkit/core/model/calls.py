"""How a module is called with a batch, and what of its answer are the outputs."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from tangentkit.core.batches import Batch, describe
from tangentkit.core.errors import InputError, ModelError

WAYS = (
    "say which by forward=lambda model, batch: model(**batch) for keywords, model(*batch) for positions, "
    "or model(batch) for the whole batch as one argument"
)


def call(module: nn.Module, batch: Batch) -> Any:
    """The module on a batch, as the signature of its `forward` takes it.

    A dict gives keywords where all its keys are names of arguments, a tuple or list gives positions where they are as
    many as the module takes; else the whole batch is the one argument of a module that takes one.

    Raises:
        InputError: the signature fits none of these; with the three ways to say it.

    Example:
        >>> import torch
        >>> x = torch.ones(4, 3)
        >>> call(nn.Linear(3, 2), {"input": x}).shape, call(nn.Bilinear(3, 3, 2), (x, x)).shape
        (torch.Size([4, 2]), torch.Size([4, 2]))
    """
    if not isinstance(batch, (dict, tuple, list)):
        return module(batch)
    signature = _signature(module)
    if isinstance(batch, dict):
        if signature is None or _binds(signature, **batch):
            return module(**batch)
        known = [key for key in batch if key in signature.parameters]
        if not known and _binds(signature, batch):
            return module(batch)
    else:
        if signature is None or _binds(signature, *batch):
            return module(*batch)
        if _binds(signature, batch):
            return module(batch)
    raise InputError(
        f"it cannot be told how {type(module).__name__} takes this batch",
        expected=f"what forward{signature} takes",
        got=describe(batch),
        hint=samples_in_a_list(batch) + _other_keys(batch, signature) + WAYS,
    )


def read_outputs(answer: Any) -> Any:
    """The outputs in what a model returns: the logits of a Hugging Face output, else the answer itself."""
    logits = answer.get("logits") if isinstance(answer, Mapping) else getattr(answer, "logits", None)
    return answer if logits is None else logits


def samples_in_a_list(batch: Batch) -> str:
    """Advice on a list of dicts, which is most likely a list of samples."""
    if isinstance(batch, (list, tuple)) and len(batch) > 1 and all(isinstance(part, dict) for part in batch):
        return "torch.utils.data.default_collate(samples), if it is a list of samples; or "
    return ""


def check_outputs(answer: Any, n: int, called: str = "model(batch)") -> Tensor:
    """The outputs (n, c) in what a model returns for n samples; one number a sample, (n,), is one output.

    Args:
        answer: what the model returns.
        n: the number of samples.
        called: the code of the call, for the advice in errors.

    Raises:
        ModelError: there are none; with the forward rule that would do.
    """
    outputs = read_outputs(answer)
    if not isinstance(outputs, Tensor):
        raise ModelError(
            "the model's output is not a tensor",
            expected="(n, c)",
            got=type(outputs).__name__,
            hint=f"forward=lambda model, batch: {_tensor_in(outputs, called)}",
        )
    if outputs.ndim == 0:
        raise ModelError(
            "the model returns one number for the whole batch, a loss say",
            expected="(n, c), or (n,), a row for each sample",
            hint="forward=lambda model, batch: ... that returns the outputs before the loss; for gradients of each "
            "sample's loss SketchedTangentKernel(model, outputs='loss', loss=...)",
        )
    if outputs.shape == (n,):
        outputs = outputs[:, None]
    if outputs.ndim != 2 or outputs.shape[0] != n or outputs.shape[1] == 0:
        first = "n" if outputs.shape[0] == n else str(outputs.shape[0])
        got = ", ".join([first, *map(str, outputs.shape[1:])])
        raise ModelError(
            "bad output shape",
            expected="(n, c), a row for each sample",
            got=f"({got},)" if outputs.ndim == 1 else f"({got})",
            hint="forward=lambda model, batch: ... that returns (n, c)"
            + (", by .flatten(1) or the last position [:, -1] say" if outputs.ndim > 2 else ""),
        )
    if not outputs.is_floating_point():
        raise ModelError("bad output dtype", expected="a floating-point type", got=outputs.dtype)
    return outputs


def _signature(module: nn.Module) -> inspect.Signature | None:
    """Of the module's forward; None where Python cannot tell, as of scripted modules."""
    try:
        return inspect.signature(module.forward)
    except (TypeError, ValueError):
        return None


def _binds(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _other_keys(batch: Batch, signature: inspect.Signature | None) -> str:
    """Advice on keys that the module does not take, or misses, where it takes others."""
    if not isinstance(batch, dict) or signature is None:
        return ""
    strange = [key for key in batch if key not in signature.parameters]
    if len(strange) == len(batch):
        return ""
    named = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    missing = [p.name for p in named if p.default is p.empty and p.name not in batch]
    advice = {"add": missing, "leave out": strange}
    return "".join(f"{do} {', '.join(map(repr, keys))}; " for do, keys in advice.items() if keys) + "or "


def _tensor_in(answer: Any, called: str) -> str:
    """Code that takes a tensor (n, c) out of what a model returns."""
    if hasattr(answer, "last_hidden_state"):
        return "model(**batch).last_hidden_state.mean(1), say"
    if isinstance(answer, (tuple, list)):
        return f"{called}[0], or another of the {len(answer)} parts"
    if isinstance(answer, Mapping) and answer:
        return f"{called}[{next(iter(answer))!r}], or another of its entries"
    return "... that returns one tensor"
