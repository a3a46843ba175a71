"""From an attribution to the page: what people see of the samples, and what each kernel says of them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.compute.sources import SampleSource
from tangentkit.core.errors import InputError
from tangentkit.core.memory import memory_budget
from tangentkit.linalg.operators.operator import Operator
from tangentkit.surrogate.cross_matrix import OfOperator
from tangentkit.surrogate.page import Explanation, KernelView, Samples

if TYPE_CHECKING:
    from tangentkit.surrogate.attribution import Attribution
    from tangentkit.surrogate.faithfulness import Faithfulness

NUMBERS = 8
"""Numbers of a sample that is neither picture nor text, as far as they are shown."""
HALVED = (
    "The kernel {} has one logit z for the two classes. Beside the two outputs of this page it is shown as -z/2 and "
    "z/2, whose softmax is its answer."
)
SCALED = "Pictures are scaled to the range of the data: black is the least value, white the largest."


def explanation(
    attribution: "Attribution",
    *,
    labels: Any = None,
    classes: Sequence[str] | None = None,
    test: Any = None,
    train: Any = None,
    test_names: Sequence[Any] | None = None,
    train_names: Sequence[Any] | None = None,
    name: str = "kernel",
    others: "Mapping[str, Attribution] | None" = None,
    flags: Any = (),
    title: str = "Why did it say that?",
    notes: Sequence[str] = (),
    faithfulness: "Faithfulness | None" = None,
) -> Explanation:
    """Everything that the page of an attribution shows.

    Args:
        attribution: of test samples.
        labels: their true classes, where they are known.
        classes: names of the classes; by default their numbers.
        test: how the test samples look: pictures (n, h, w), (n, h, w, 3) or (n, c, h, w) from 0 to 1, paths of
            picture files, or texts. By default inputs of the shape of pictures are shown as such, others as numbers.
        train: the training samples, likewise.
        test_names: a name for each test sample, such as its file; numbers by default.
        train_names: a name for each training sample, likewise.
        name: of the kernel.
        others: attributions of the same samples by other kernels.
        flags: what an audit says of the training samples: `tk.audit(...)` itself, or flags of it.
        title: of the page.
        notes: sentences about the data and the network.
        faithfulness: of the surrogate, `surrogate.faithfulness(x, y)`: a line of every view, and its table.

    Raises:
        InputError: what is given does not go together.
    """
    k = attribution.network.shape[1]
    views = _views(attribution, name, others or {})
    (shown_test, shown_train), told = _shown(attribution, test, train)
    network = attribution.network
    one_logit = attribution.one_logit
    return Explanation(
        test=Samples(labels, names=_names(test_names), **shown_test),
        train=Samples(attribution.labels, names=_names(train_names), **shown_train),
        classes=tuple(map(str, range(k))) if classes is None else tuple(map(str, classes)),
        network=network[:, 1:] - network[:, :1] if one_logit else network,
        kernels=tuple(_view(label, one, one_logit=one_logit) for label, one in views.items()),
        flags=getattr(flags, "flags", flags),  # of an Audit
        title=title,
        notes=[
            *notes,
            *([] if faithfulness is None else [str(faithfulness)]),
            *told,
            *(HALVED.format(label) for label, one in views.items() if one.one_logit and not one_logit),
        ],
        summary="" if faithfulness is None else _in_a_line(faithfulness),
    )


def _in_a_line(found: "Faithfulness") -> str:
    return (
        f"The surrogate agrees with the network on {found.agreement.value:.0f} % of {found.points:,} samples; rank "
        f"correlation of certainty {found.kendall_tau.value:.2f}."
    )


def _views(
    attribution: "Attribution", name: str, others: "Mapping[str, Attribution]"
) -> "dict[str, Attribution]":
    """The attributions that the page shows, by name, the first of which it shows whole."""
    if name in others:
        raise InputError(
            f"two kernels are named {name!r}",
            expected="others=... under names of their own",
            got=f"name={name!r} and others={list(others)}",
            hint="name=... names the attribution whose page it is",
        )
    views = {name: attribution, **others}
    for label, one in views.items():
        if one.about != "classes":
            raise InputError(
                f"the page shows scores of every class, and {label!r} has none",
                expected=f"{attribution.network.shape[1]} outputs",
                got=f"{len(one.offset)}, of the margin",
                hint="surrogate.attribute(x) or tk.surrogate.influence(surrogate, x)",
            )
    return views


def _names(given: Sequence[Any] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(map(str, given))


def _view(name: str, attribution: "Attribution", *, one_logit: bool) -> KernelView:
    """What a kernel says, in as many outputs as the page has: of two classes, one where the first kernel has one."""
    weights, offset = attribution.weights, attribution.offset
    if attribution.one_logit:  # outputs are (-z, z); the softmax of (-z/2, z/2) is the probability of z
        weights, offset = (weights[:, 1:], offset[1:]) if one_logit else (weights / 2, offset / 2)
    elif one_logit:  # the second class against the first
        weights, offset = weights[:, 1:] - weights[:, :1], offset[1:] - offset[:1]
    return KernelView(
        name, _matrix(attribution), weights, offset, gram=attribution.gram, predicts=attribution.predicts
    )


def _matrix(attribution: "Attribution") -> Operator | Float[Tensor, "n m"]:
    cross = attribution.cross
    if isinstance(cross, OfOperator):
        return cross.operator
    n, m = cross.shape
    memory_budget().check(
        4 * n * m,
        "the kernel between samples and training samples is",
        of=f"{n:,} x {m:,} samples",
        hint="fewer test samples, or attribute(x, cross=tk.gram(kernel, x, train, store=...))",
    )
    return cross.dense()


def _shown(attribution: "Attribution", test: Any, train: Any) -> tuple[tuple[dict, dict], list[str]]:
    """What is shown of the test and of the training samples, and what must be said of it."""
    n, m = attribution.cross.shape
    given = [test, train]
    sources = attribution.samples or (None, None)
    looks = [
        None if one is not None or s is None else _pictures(s) for one, s in zip(given, sources, strict=True)
    ]
    scaled = _in_range([look for look in looks if look is not None])
    found, told = [], [SCALED] * bool(scaled)
    for one, look, source, count in zip(given, looks, sources, (n, m), strict=True):
        if one is not None:
            texts = isinstance(one, (list, tuple)) and all(isinstance(item, str) for item in one)
            found.append({"texts": one} if texts and not _are_paths(one) else {"pictures": one})
        elif look is not None:
            found.append({"pictures": scaled.pop(0) if scaled else look})
        else:
            found.append(
                {"texts": [f"sample {i}" for i in range(count)] if source is None else _numbers(source)}
            )
    return (found[0], found[1]), told


def _pictures(source: SampleSource) -> Tensor | None:
    """The samples themselves, where they have the shape of pictures."""
    batch = source.read(slice(0, len(source)))
    is_pictures = isinstance(batch, Tensor) and batch.ndim == 4 and batch.shape[1] in (1, 3)
    return batch.detach().cpu() if is_pictures else None


def _in_range(pictures: list[Tensor]) -> list[Tensor]:
    """The same pictures from 0 to 1; none where they are so already."""
    floats = [p.float() for p in pictures if p.dtype != torch.uint8]
    if not floats or len(floats) < len(pictures):
        return []
    low, high = (torch.stack([getattr(p, end)() for p in floats]) for end in ("amin", "amax"))
    least, largest = float(low.min()), float(high.max())
    if least >= 0 and largest <= 1:
        return []
    return [(p - least) / max(largest - least, 1e-12) for p in floats]


def _are_paths(texts: Sequence[str]) -> bool:
    return bool(texts) and all(
        text.lower().endswith((".png", ".jpg", ".jpeg", ".webp", ".bmp")) for text in texts
    )


def _numbers(source: SampleSource) -> list[str]:
    """Samples that are neither pictures nor texts, by their first numbers."""
    batch = source.read(slice(0, len(source)))
    if not isinstance(batch, Tensor):
        return [f"sample {i}" for i in range(len(source))]
    rows = batch.detach().flatten(1).cpu()
    more = " …" if rows.shape[1] > NUMBERS else ""
    return [" ".join(f"{number:.4g}" for number in row[:NUMBERS].tolist()) + more for row in rows]
