"""Explanations with everything that is hard to show: hostile names, several kernels, flags, pictures, texts."""

import numpy as np

from tangentkit.surrogate.audit import Flag
from tangentkit.surrogate.page import Explanation, KernelView, Samples

HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> & 'quotes' \u202e"
)
N, M, CLASSES = 24, 90, ("cat", "dog & <b>wolf</b>", "bird", "fish")
FORMULA = '=HYPERLINK("http://127.0.0.1/")'


def kernel_view(name: str, seed: int, outputs: int = len(CLASSES), *, mapped: bool = False) -> KernelView:
    rng = np.random.default_rng(seed)
    test, train = rng.normal(size=(N, 6)), rng.normal(size=(M, 6))
    weights = rng.normal(size=(M, outputs)) ** 3  # some samples weigh much more than others
    gram = train @ train.T if mapped else None
    return KernelView(name, test @ train.T + 2, weights, rng.normal(size=outputs), gram=gram)


def picture_explanation() -> Explanation:
    """Pictures, names that are attacks, and three kernels."""
    rng = np.random.default_rng(7)
    kernels = (
        kernel_view("tangent", 0, mapped=True),
        kernel_view(HOSTILE, 1),
        kernel_view("last layer", 2),
    )
    logits = kernels[0].logits / 30
    names = [f"image-{i:02}.png" for i in range(N)]
    names[3], names[4] = HOSTILE, FORMULA
    labels = np.where(rng.random(N) < 0.5, logits.argmax(axis=1), rng.integers(0, 4, N))
    train_names = [f"train/{j}.png" for j in range(M)]
    return Explanation(
        test=Samples(labels, rng.random((N, 8, 8, 3)), names=names),
        train=Samples(
            rng.integers(0, 4, M), rng.integers(0, 256, (M, 8, 8), dtype=np.uint8), names=train_names
        ),
        classes=CLASSES,
        network=logits + rng.normal(size=logits.shape) / 2,
        kernels=kernels,
        flags=(
            Flag(5, "mislabeled", 0.5, f"Its neighbors are birds. {HOSTILE}", (6, 7)),
            Flag(8, "duplicate", 2.0, "It is there twice.", (9,)),
            Flag(11, "mislabeled", 1.0, "Its neighbors are fish."),
        ),
        title=HOSTILE,
        notes=(f"A note. {HOSTILE}",),
    )


def text_explanation() -> Explanation:
    """Sentences, one output for two classes, no truth, no map, no flags."""
    view = kernel_view("tangent", 3, outputs=1)
    sentences = [f"Sentence {i} {'that goes on ' * (i % 5)}and ends." for i in range(N)]
    sentences[2] = HOSTILE
    labels = np.random.default_rng(5).integers(0, 2, M)
    return Explanation(
        test=Samples(None, texts=sentences),
        train=Samples(labels, texts=[f"Training sentence {j}." for j in range(M)]),
        classes=("bad", "good"),
        network=view.logits / 10,
        kernels=(view,),
    )


def many_explanation() -> Explanation:
    """Twenty classes and two kernels, names of numbers only."""
    kernels = tuple(kernel_view(name, seed, outputs=20) for name, seed in (("tangent", 0), ("last layer", 1)))
    rng = np.random.default_rng(9)
    return Explanation(
        test=Samples(rng.integers(0, 20, N)),
        train=Samples(rng.integers(0, 20, M)),
        classes=tuple(f"class {c}" for c in range(20)),
        network=kernels[0].logits / 30,
        kernels=kernels,
    )
