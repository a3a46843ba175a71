"""Surrogates of networks that somebody else trained (rows of Tables 1 and 2): CIFAR-10 ResNets, MiniLM on CoLA.

The ResNets come with their weights and are not trained here; MiniLM gets a head and is tuned on CoLA, once a seed.
Each kernel of each network gets a surrogate on the network's own training data, and is compared with the network on
test data. Time, memory and what a kernel keeps of each sample are measured beside it.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.metrics import matthews_corrcoef
from torch import Tensor, nn

from tangentkit.compute.gram import gram
from tangentkit.compute.kernel import Kernel
from tangentkit.core.batches import Batch
from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.empirical import ConjugateKernel, EmbeddingKernel, TangentKernel
from tangentkit.linearized import LinearDecay, Training, train
from tangentkit.machines import KernelGLM
from tangentkit.models import CIFAR_RESNET_MEAN, CIFAR_RESNET_STD, load_cifar_resnet
from tangentkit.sketch import SketchedTangentKernel
from tangentkit.studies.surrogates.pretrained_report import report
from tangentkit.studies.surrogates.surrogate_cases import KERNELS
from tangentkit.studies.trials.data import cards, check_images, drawn, first_here, whole
from tangentkit.studies.trials.kept_folder import kept_folder
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.text_models import (
    MINILM,
    TextClassifier,
    check_model,
    embeddings,
    pretrained,
    tokens,
)
from tangentkit.studies.trials.trial import Trial, same_records, sweep
from tangentkit.surrogate.faithfulness import Faithfulness
from tangentkit.surrogate.kernel_comparison import cost_of
from tangentkit.surrogate.surrogate import Surrogate

Labeled = tuple[Batch, Tensor]

LENGTH = 16
"""Tokens of a sentence: few of CoLA have more."""
CHEAP = ("proj-pNTK", "CK")
"""Kernels of one backward pass, or none, a sample."""
ALL, CHECKED = (50_000, 10_000), 300
"""Training and test images of CIFAR-10; training images whose stored kernel is compared with the exact one."""


@dataclass(frozen=True)
class Config:
    """Settings of the surrogates of pre-trained networks."""

    resnets: tuple[int, ...] = (20, 56)
    """Depths of the CIFAR-10 ResNets."""
    train: int = 300
    """Training images that kernels of one pass are fitted to, balanced, drawn anew for each seed."""
    test: int = 200
    """Test images, likewise."""
    dear_train: int = 100
    """Training images on which all kernels of the first ResNet are compared, with those of a pass for each output."""
    dear_test: int = 100
    """Test images of these."""
    exact: int = 20
    """Training images, and as many test images, of the exact kernel that the projected one is compared with."""
    whole: tuple[int, ...] = ()
    """Depths whose kernels of one pass are computed of all 60,000 images, once, on disk: 8 GB for each kernel."""
    model: str = MINILM
    """The text model: a name of Hugging Face, or a folder."""
    sentences: int = 150
    """Sentences of CoLA that the text model is tuned on, at random; 0 leaves it out."""
    test_sentences: int = 120
    """Sentences that it is tested on."""
    epochs: int = 3
    """Passes over these sentences."""
    dim: int = 2048
    """Features of the projected kernels."""
    ridge: float = 1e-4
    """Penalty of the kernel GLM on its squared weights."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One choice of samples, one projection, and one tuned text model for each."""

    def __post_init__(self) -> None:
        for depth in (*self.resnets, *self.whole):
            if depth not in (20, 32, 44, 56):
                raise InputError("bad depth of a CIFAR-10 ResNet", expected="20, 32, 44 or 56", got=depth)
        if min(self.train, self.test, self.dear_train, self.dear_test, self.exact) < 20:
            raise InputError("too few images", expected="20 or more of each kind", got=self.exact)


SCALES = {
    "quick": Config(),
    "evening": Config(train=2_000, test=500, dear_train=2_000, dear_test=500, exact=50, whole=(20, 56),
                      sentences=6_840, test_sentences=1_352),
    "full": Config(train=50_000, test=10_000, dear_train=50_000, dear_test=10_000, exact=1_000, whole=(20, 56),
                   sentences=6_840, test_sentences=1_352, dim=10_240),
}  # fmt: skip


def trials(config: Config) -> list[Trial]:
    """One for each ResNet, kernel and seed; one for each tuned text model."""
    first_here(("cifar10",))
    train, test = max(config.train, config.dear_train), max(config.test, config.dear_test)
    check_images("cifar10", train=max(train, config.exact), test=max(test, config.exact))
    fixed = {"dim": config.dim, "ridge": config.ridge}
    compared = tuple(name for name in KERNELS if not name.startswith("trNTK"))
    cheap = {"depth": config.resnets, "kernel": CHEAP, "seed": config.seeds}
    costly = {"depth": config.resnets[:1], "kernel": compared, "seed": config.seeds}
    found = []
    if config.sentences:
        first_here(("cola",))
        check_model(config.model, "mean", LENGTH)
        text = {"sentences": config.sentences, "test": config.test_sentences, "epochs": config.epochs}
        found += sweep(of_text_model, {"seed": config.seeds}, model=config.model, **text, **fixed)
    found += sweep(of_resnet, cheap, train=config.train, test=config.test, **fixed)
    found += sweep(of_resnet, costly, train=config.dear_train, test=config.dear_test, **fixed)
    exact = {"depth": config.resnets[:1], "seed": config.seeds}
    found += sweep(exact_beside_projected, exact, images=config.exact, **fixed)
    if config.whole:
        sizes = {"images": ALL[0], "test": ALL[1], "checked": CHECKED, "seed": config.seeds[0]}
        found += sweep(of_all_images, {"depth": config.whole, "kernel": CHEAP}, **sizes, **fixed)
    # Where both kinds of kernels see as many images, some trials are asked for twice.
    return list({trial.key: trial for trial in found}.values())


def of_resnet(
    *, depth: int, kernel: str, train: int, test: int, dim: int, ridge: float, seed: int
) -> dict[str, Any]:
    """Faithfulness and cost of one kernel of a pre-trained ResNet."""
    key = Key(seed).fold("pretrained-surrogate", depth)
    known, new = normalized(train, test, key)
    network = load_cifar_resnet(depth)
    return {
        **measured(network, kernel_of(kernel, network, dim, seed), known, new, ridge),
        "data_cards": cards("cifar10"),
    }


def exact_beside_projected(*, depth: int, images: int, dim: int, ridge: float, seed: int) -> dict[str, Any]:
    """The exact trace of the tangent kernel of a ResNet, and its projection, on the same few images."""
    known, new = normalized(images, images, Key(seed).fold("pretrained-surrogate", "exact", depth))
    network = load_cifar_resnet(depth)
    exact, projected = (
        measured(network, kernel_of(name, network, dim, seed), known, new, ridge)
        for name in ("trNTK", "proj-trNTK")
    )
    left, right = (kernel_of(name, network, dim, seed)(known[0]).double() for name in ("trNTK", "proj-trNTK"))
    return {
        "exact": exact,
        "projected": projected,
        "error": float((left - right).norm() / left.norm()),
        "data_cards": cards("cifar10"),
    }


@same_records("236c89bd264b8d46dff445c327a369f86388b83ca091b8a9250845bd252f4e61")
def of_all_images(
    *, depth: int, kernel: str, images: int, test: int, checked: int, dim: int, ridge: float, seed: int
) -> dict[str, Any]:
    """A surrogate on all training images, asked about all test images by the kernel matrix of all, on disk.

    After a kill the matrix goes on from the tiles that are there; its times are then those of the last attempt.
    """
    known, new = normalized(images, test, Key(seed).fold("pretrained-surrogate", "all", depth))
    network = load_cifar_resnet(depth)
    sketched, start = kernel_of(kernel, network, dim, seed), time.process_time()
    with kept_folder() as folder, cost_of() as cost:
        G = gram(sketched, torch.cat([known[0], new[0]]), store=folder / "gram", progress=False)
        written = time.process_time() - start
        disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        exact = exact_of(kernel, network)(known[0][:checked]).double()
        error = float((G[:checked, :checked] - exact).norm() / exact.norm())
        surrogate = Surrogate(network, sketched, machine=KernelGLM(ridge=ridge))
        surrogate.fit(*known, progress=False)
        cross = G[images:, :images]
        found = surrogate.faithfulness(*new, cross=cross)
        fifths = [
            surrogate.faithfulness(x, y, cross=part, bootstrap=2).kendall_tau.value
            for x, y, part in zip(*(whole.tensor_split(5) for whole in (*new, cross)), strict=True)
        ]
    return {
        "everything": {
            **_numbers(found),
            "tau_error": found.kendall_tau.error,
            "difference_error": found.accuracy_difference.error,
            "fifths": fifths,
            "written": written,
            "time": time.process_time() - start,
            "memory": cost.peak_bytes / 1e6,
            "disk": disk / 1e6,
            "error": error,
        },
        "data_cards": cards("cifar10"),
    }


def of_text_model(
    *, model: str, sentences: int, test: int, epochs: int, dim: int, ridge: float, seed: int
) -> dict[str, Any]:
    """Tunes a text model on sentences of CoLA, and measures the kernels of one pass on others of the same kind."""
    key = Key(seed).fold("pretrained-surrogate", "cola")
    everything = whole("cola", "train")
    order = torch.from_numpy(key.fold("split").numpy().permutation(len(everything)))
    parts = (everything.take(rows) for rows in order[: sentences + test].split([sentences, test]))
    known, new = ((tokens(model, list(part.inputs), LENGTH), part.targets) for part in parts)
    network = TextClassifier(pretrained(model), "mean", key.fold("head"))
    settings = Training(
        epochs, 5e-5, optimizer="adam", batch=32, loss="cross-entropy", schedule=LinearDecay()
    )
    train(network, known[0], known[1], settings, key=key.fold("order"))
    found = {
        name: measured(network, kernel_of(name, network, dim, seed), known, new, ridge) for name in CHEAP
    }
    said = network.head(embeddings(network, new[0])).argmax(1)
    return {
        "kernels": found,
        "matthews": float(matthews_corrcoef(new[1], said)),
        "data_cards": cards("cola", splits=("train",)),
    }


def normalized(train: int, test: int, key: Key) -> tuple[Labeled, Labeled]:
    """Training and test images of CIFAR-10 as the ResNets take them."""
    known, new = (
        (part.inputs, part.targets)
        for part in (
            one.standardized(CIFAR_RESNET_MEAN, CIFAR_RESNET_STD)
            for one in drawn("cifar10", train, test, key=key)
        )
    )
    return known, new


def kernel_of(name: str, network: nn.Module, dim: int, seed: int) -> Kernel:
    """A kernel by its published name, as a cosine."""
    if name == "trNTK":
        return TangentKernel(network).normalized()
    if name == "Em":
        return EmbeddingKernel(network).normalized()
    if name == "CK":
        return ConjugateKernel(network).normalized()
    outputs = {"proj-trNTK": "trace", "proj-pNTK": "pseudo"}[name]
    return SketchedTangentKernel(network, dim, outputs, seed=seed).normalized()


def exact_of(name: str, network: nn.Module) -> Kernel:
    """The kernel of one pass that a projected one estimates, as a cosine."""
    exact = ConjugateKernel(network) if name == "CK" else TangentKernel(network, outputs="pseudo")
    return exact.normalized()


def measured(
    network: nn.Module, kernel: Kernel, known: Labeled, new: Labeled, ridge: float
) -> dict[str, float]:
    """Faithfulness of the surrogate on a kernel, and what kernel, fit and test together took."""
    start = time.process_time()
    with cost_of() as cost:
        surrogate = Surrogate(network, kernel, machine=KernelGLM(ridge=ridge))
        surrogate.fit(*known, progress=False)
        found = surrogate.faithfulness(*new, bootstrap=2)
    return {**_numbers(found), "time": time.process_time() - start, "memory": cost.peak_bytes / 1e6}


def _numbers(found: Faithfulness) -> dict[str, float]:
    return {
        "tau": found.kendall_tau.value,
        "difference": found.accuracy_difference.value,
        "agreement": found.agreement.value,
        "accuracy": found.network_accuracy.value,
        "r2": found.r2.value,
    }


def result(config: Config, records: Records) -> Result:
    """Tables, figures and claims."""
    return report(
        records,
        images=(config.train, config.test, config.dear_train, config.dear_test, config.exact),
        sentences=(config.sentences, config.test_sentences),
        model=config.model,
        dim=config.dim,
    )
