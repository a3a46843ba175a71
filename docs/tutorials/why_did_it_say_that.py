"""Why did it say that? A network replaced by a kernel machine, and its decisions traced to training images.

A surrogate is a kernel machine on the network's own kernel and training data. Four questions, in this order: how far
may it stand for the network; which kernel does it best, and at what price; which training images does a decision come
from; and is it true, that is, would a network without them say something else?

Run with `python docs/tutorials/why_did_it_say_that.py [figure.png]`: a LeNet is trained first, in seconds, on the
images that come with tangentkit. The table of the page is that of `... figure.png full`: the pre-trained CIFAR-10
ResNet-20, whose weights `tk.models.load_cifar_resnet` looks for in the folder TANGENTKIT_DATA.
"""

import sys

import torch

import tangentkit as tk
from tangentkit.linearized import Training
from tangentkit.surrogate import influence, representer_points, trak
from tangentkit.surrogate.evaluation import PredictsSubsets, Retraining, random_subsets, retrain_on


def pretrained():
    """ResNet-20 with 2,000 of its training images and 500 test images."""
    train, test = tk.data.load("cifar10", "train", limit=2_000), tk.data.load("cifar10", "test", limit=500)
    moments = tk.models.CIFAR_RESNET_MEAN, tk.models.CIFAR_RESNET_STD
    inputs = [part.standardized(*moments).inputs for part in (train, test)]
    return tk.models.load_cifar_resnet(20), train, test, inputs


def pretrained_with_a_new_head(seed):
    """ResNet-20 that has forgotten its last layer."""
    model = tk.models.load_cifar_resnet(20)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model[-1].reset_parameters()
    return model


def trained_here():
    """A LeNet that is trained on the spot."""
    train, test = (tk.data.load("fashion-mini", s, limit=n) for s, n in (("train", 400), ("test", 100)))
    model = trained(train.inputs, train.targets)(torch.arange(400), 0)
    return model, train, test, [train.inputs, test.inputs]


def trained(x, y):
    """Trains a network on some of these images: (their numbers, a seed) -> the network."""
    if full:
        return Retraining(
            pretrained_with_a_new_head, x, y, Training(5, 0.01, momentum=0.9, batch=32, loss="cross-entropy")
        )
    adam = Training(15, 2e-3, optimizer="adam", batch=50, loss="cross-entropy")
    return Retraining(lambda seed: tk.models.lenet(seed=seed), x, y, adam)


full = "full" in sys.argv
model, train, test, (x, z) = pretrained() if full else trained_here()

# --- Which kernel stands best for the network? ----------------------------------------------------------------
# Kendall's τ: do surrogate and network rank the test images alike, by the probability of the true class? TAD: by how
# many points their accuracies differ. Sketched kernels stand on `dim` numbers an image, the conjugate kernel on 64 or
# 84, the input of the last layer; the embedding kernel sums over the activations of all layers.
dim = 4096 if full else 512
kernels = {
    "trNTK (sketched)": tk.SketchedTangentKernel(model, dim=dim).normalized(),
    "pNTK (sketched)": tk.SketchedTangentKernel(model, dim=dim, outputs="pseudo").normalized(),
    "CK": tk.ConjugateKernel(model).normalized(),
    "Em": tk.EmbeddingKernel(model).normalized(),
}
found = tk.compare_kernels(model, kernels, (x, train.targets), (z, test.targets), progress=False)
print(found)
tau = {name: f.kendall_tau for name, f in found.faithfulness.items()}
assert tau["trNTK (sketched)"].value > 0.4

# --- Why? -----------------------------------------------------------------------------------------------------
# A score is what a training image adds to a logit: they sum to the logit itself, to rounding.
surrogate = found.surrogates["trNTK (sketched)"]
why = surrogate.attribute(z)
everything = why.of()
own = why.logits.gather(1, why.predicted[:, None])[:, 0]
assert (everything.sum(1) - own).abs().max() <= 1e-6 * everything.abs().sum(1).max()

# Do few images decide? Of the sum of |scores| the largest hundredth of the images holds:
share = why.share_of_mass(0.01)
print(f"share of the mass in the top 1 %: {share.mean():.1%} (from {share.min():.1%} to {share.max():.1%})")
# The class of the largest mean score is nearly always the class that the network says.
by_class = why.by_class()[torch.arange(len(z)), why.predicted]
print(
    f"largest mean score in the predicted class: {(by_class.argmax(1) == why.predicted).double().mean():.1%}"
)

# Error bars: the kernel is sketched, so every score has a standard error.
top = why.top(10)
errors = why.errors().gather(1, top.indices)
print(f"standard error of the largest scores, relative to them: {(errors / top.scores).median():.1%}")

# --- Other scores from the same features ----------------------------------------------------------------------
methods = {
    "surrogate": why,
    "influence": influence(surrogate, z),
    "TRAK's": trak(surrogate, z),
    "representer": representer_points(surrogate, z),
}
tops = {name: one.top(10).indices for name, one in methods.items()}
for name in list(methods)[1:]:
    common = (tops["surrogate"][:, :, None] == tops[name][:, None, :]).any(2).double().mean()
    print(f"of the ten images most helpful to the surrogate, {name} scores have {common:.1%} in common")

# --- Is it true? ----------------------------------------------------------------------------------------------
# Train networks on random halves of the images. Linear datamodeling score: do sums of scores over a half predict
# what its network says? ResNet-20 took 50,000 images and 200 epochs, which a small machine does not repeat. What is
# repeated is the tuning of its body with a new last layer, on 400 images; the network in question is one of these.
few, some = 400, z[:50]
again = trained(x[:few], train.targets[:few])
halves = retrain_on(random_subsets(few, 40 if full else 4), again, some, progress=False)
network = again(torch.arange(few), 0) if full else model
kinds = {
    "pNTK (sketched)": tk.SketchedTangentKernel(network, dim=dim, outputs="pseudo").normalized(),
    "CK": tk.ConjugateKernel(network).normalized(),
}
scored = {}
for name, kernel in kinds.items():
    fitted = tk.Surrogate(network, kernel).fit(x[:few], train.targets[:few], progress=False)
    scored |= {
        name: fitted.attribute,
        f"{name}, influence": lambda samples, fitted=fitted: influence(fitted, samples),
        f"{name}, representer": lambda samples, fitted=fitted: representer_points(fitted, samples),
    }
print(
    tk.evaluate_attribution(
        scored,
        (x[:few], train.targets[:few]),
        (some, test.targets[:50]),
        model=network,
        tests=[PredictsSubsets(retrained=halves)],
        progress=False,
    )
)

# --- The page -------------------------------------------------------------------------------------------------
# One file, with everything above to look at: choose an image, see what speaks for and against it.
if len(sys.argv) > 1:
    from pathlib import Path

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    page = why.report(
        Path(sys.argv[1]).with_suffix(".html"),
        labels=test.targets,
        classes=test.classes,
        test=test.inputs,
        train=train.inputs,
        name="trNTK (sketched)",
        others={"CK": found.surrogates["CK"].attribute(z)},
    )
    print("page:", page)
    wrong = (why.predicted != test.targets).nonzero()[:, 0][:2].tolist()
    rows = [*(why.predicted == test.targets).nonzero()[:, 0][:2].tolist(), *wrong]
    helpful, harmful = why.top(4), why.top(4, largest=False)
    figure, axes = plt.subplots(len(rows), 9, figsize=(11, 1.5 * len(rows)), layout="constrained")
    for row, i in zip(axes, rows, strict=True):
        shown = [(test.inputs[i], f"{test.classes[why.predicted[i]]}?")]
        for found_samples, sign in ((helpful, "+"), (harmful, "−")):
            pairs = zip(found_samples.indices[i].tolist(), found_samples.scores[i].tolist(), strict=True)
            shown += [
                (train.inputs[j], f"{train.classes[train.targets[j]]} {sign}{abs(s):.2f}") for j, s in pairs
            ]
        for ax, (picture, title) in zip(row, shown, strict=True):
            ax.imshow(picture.permute(1, 2, 0).squeeze().numpy(), cmap="gray")
            ax.set_title(title, fontsize=8)
            ax.axis("off")
    figure.suptitle(
        "Test images with what the network says, then four training images for it and four against it"
    )
    figure.savefig(sys.argv[1], dpi=110)
