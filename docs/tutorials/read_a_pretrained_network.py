"""Read a pre-trained network: weights, tangent kernel, layers; no training, and no look at its training run.

Somebody hands you a network. Its weights say where training left more than noise; the spectrum of its tangent kernel,
which functions it would learn next; the layers, where classes come apart and how far they have collapsed to points;
and the similarity of layers, what depth is used for.

Run with `python docs/tutorials/read_a_pretrained_network.py [figure.png]`: a LeNet is trained first, in seconds, on
the images that come with tangentkit. The numbers of the page are those of `... figure.png full`: the CIFAR-10 ResNets
of depth 20, 32, 44 and 56, whose weights `tk.models.load_cifar_resnet` looks for in the folder TANGENTKIT_DATA.
"""

import math
import sys

import torch
from torch import nn

import tangentkit as tk
from tangentkit.report import Column, Interval, Table


def pretrained():
    """Name -> (network, the same without training, layers to look at); training and test images."""
    data = tk.data.load("cifar10", "train", limit=1_000), tk.data.load("cifar10", "test", limit=500)
    moments = tk.models.CIFAR_RESNET_MEAN, tk.models.CIFAR_RESNET_STD
    train, test = ((part.standardized(*moments).inputs, part.targets) for part in data)
    found = {}
    for depth in (20, 32, 44, 56):
        fresh = tk.models.cifar_resnet(depth).train()
        with torch.no_grad():
            fresh(train[0][:200])  # BatchNorm without statistics would not normalize
        blocks = [f"layer{stage}.{block}" for stage in (1, 2, 3) for block in range((depth - 2) // 6)]
        found[f"ResNet-{depth}"] = tk.models.load_cifar_resnet(depth), fresh.eval(), blocks
    return found, train, test


def trained_here():
    """The same of a LeNet that is trained on the spot."""
    data = tk.data.load("fashion-mini", "train", limit=1_000), tk.data.load("fashion-mini", "test", limit=300)
    train, test = ((part.inputs.sub(0.29).div(0.35), part.targets) for part in data)
    model, fresh = tk.models.lenet(seed=0).train(), tk.models.lenet(seed=0).eval()
    adam, order = torch.optim.Adam(model.parameters(), lr=2e-3), torch.Generator().manual_seed(0)
    for _ in range(12):
        for rows in torch.randperm(len(train[0]), generator=order).split(50):
            adam.zero_grad()
            nn.functional.cross_entropy(model(train[0][rows]), train[1][rows]).backward()
            adam.step()
    return {"LeNet": (model.eval(), fresh, ["pool1", "pool2", "act3", "act4"])}, train, test


full = "full" in sys.argv
networks, (x, y), (z, y_test) = pretrained() if full else trained_here()
one_hot = nn.functional.one_hot(y_test, 10).double()


def shown(values, digits=".3g"):
    """The mean over sets of images, and its 95 % interval."""
    found = Interval.over(values)
    return f"{found.mean:{digits}} ({found.low:{digits}} to {found.high:{digits}})"


# --- The weights --------------------------------------------------------------------------------------------
# Every weight beside Gaussian matrices of its shape: how many have a heavier tail than 95 % of those, and how many
# squared singular values stand out of the bulk that independent entries would have? A network before training is the
# control: its tails are heavy at the nominal rate.
weights = {}
for name, (model, fresh, _) in networks.items():
    found, control = tk.weight_spectra(model), tk.weight_spectra(fresh)
    tails, control_tails = ([one.tail for one in spectra if one.tail] for spectra in (found, control))
    weights[name] = (
        len(tails),
        sum(tail.is_heavy for tail in tails),
        sum(tail.is_heavy for tail in control_tails),
        sum(one.num_spikes or 0 for one in found),
        sum(one.num_spikes or 0 for one in control),
    )
columns = ("", "weights with a tail", "heavy", "heavy untrained", "spikes", "spikes untrained")
print(Table("Weights", columns, tuple((name, *row) for name, row in weights.items())), "\n")

# --- The tangent kernel -------------------------------------------------------------------------------------
# On three sets of test images, so that numbers have an interval. Training concentrates the kernel on few functions,
# and those are the classes: the cosine with the kernel of the labels is larger than at the start.
size = 40 if full else 30
sets = [slice(i * size, (i + 1) * size) for i in range(3)]
spectra, aligned, kernels = {}, {}, []
for name, (model, fresh, _) in networks.items():
    row = []
    for which, network in {"untrained": fresh, "trained": model}.items():
        grams = [tk.TangentKernel(network)(z[some]).double() for some in sets]
        spectra[name, which] = [tk.spectrum(K) for K in grams]
        aligned[name, which] = [
            tk.kernel_target_alignment(K, one_hot[some], center=True)
            for K, some in zip(grams, sets, strict=True)
        ]
        ranks = [float(K.trace()) ** 2 / float(K.square().sum()) for K in grams]
        row += [shown(aligned[name, which], ".2f"), shown(ranks, ".1f")]
    kernels.append((name, *row))
columns = ("", "alignment untrained", "participation ratio", "alignment trained", "participation ratio ")
note = f"Means over three sets of {size} test images, and their 95 % intervals."
print(Table("Tangent kernel", columns, tuple(kernels), note=note), "\n")

# --- The layers ---------------------------------------------------------------------------------------------
# What three simple classifiers make of the first principal components of every layer, and how far the layer has
# collapsed: NC1 is the variation within classes over that between them.


def pooled(h):
    """The mean over a 4 x 4 grid of an image, or a vector as it is."""
    return nn.functional.adaptive_avg_pool2d(h, 4).flatten(1) if h.ndim == 4 else h


probes = {
    name: tk.probe_layers(model, x, y, z, y_test, layers=layers, dims=(1, 2, 3, 5, 10, 20, 50), pool=pooled)
    for name, (model, _, layers) in networks.items()
}
rows = []
for name, found in probes.items():
    last = found.layers[-1]
    accuracy = float((networks[name][0](z).argmax(1) == y_test).double().mean())
    error = 1.96 * math.sqrt(accuracy * (1 - accuracy) / len(z))
    rows.append(
        (name, f"{accuracy:.3f} ± {error:.3f}", last.best("nearest center"), found.collapse_layer or "none",
         found.head.nc1, found.head.nc2, found.head.nc3, found.head.nc4)
    )  # fmt: skip
columns = ("", "test accuracy", "nearest center", "collapse layer", "NC1", "NC2", "NC3", "NC4")
print(Table("Layers", tuple(Column(c, ".3f") for c in columns), tuple(rows)), "\n")

# --- Layers beside layers -----------------------------------------------------------------------------------
# CKA of the layers of one network with those of another: which layers see the same?
names = list(networks)
(short, _, short_layers), (deep, _, deep_layers) = networks[names[0]], networks[names[-1]]
similar = tk.layer_cka(short, z[:300], deep, layers=short_layers, other_layers=deep_layers)
print("the layer of", names[-1], "that is most like each of", names[0])
for layer, best, value in similar.best():
    print(f"  {layer:10} {best:10} CKA {value:.2f}")

for name, found in probes.items():
    first, last = found.layers[0], found.layers[-1]
    assert last.collapse.nc1 < first.collapse.nc1  # classes come together on the way through the network
    assert last.best("nearest center") > first.best("nearest center")
    # Weights of a null model are heavy at 5 %; four standard deviations above that rate they are not.
    count, heavy, control, spikes, control_spikes = weights[name]
    bound = 0.05 * count + 4 * math.sqrt(0.05 * 0.95 * count)
    assert control <= bound < heavy
    assert control_spikes < spikes
    if full:
        assert min(aligned[name, "trained"]) > max(aligned[name, "untrained"])

figures = [argument for argument in sys.argv[1:] if argument != "full"]
if figures:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ((a, b), (c, d)) = plt.subplots(2, 2, figsize=(10, 8), layout="constrained")
    model, fresh, _ = networks[names[-1]]
    tk.weight_spectra(model).plot(a)
    a.set_title(f"exponents of the weights of {names[-1]}")
    a.set_ylim(top=1.5 * a.get_ylim()[1])  # room for the names
    a.legend(loc="upper right", ncols=2)
    for name in (names[0], names[-1])[: len(names)]:
        for which, style in {"untrained": "--", "trained": "-"}.items():
            values = spectra[name, which][0].values
            b.loglog(range(1, len(values) + 1), values / values.sum(), style, label=f"{name}, {which}")
    b.set(title="eigenvalues of the tangent kernel, over their sum", xlabel="rank")
    b.legend()
    for name, found in probes.items():
        place = [i / (len(found) - 1) for i in range(len(found))]
        c.semilogy(place, [layer.collapse.nc1 for layer in found], "o-", markersize=3, label=name)
    c.set(
        title="variation within classes over that between them, NC1",
        xlabel="place of the layer, first to last",
    )
    c.legend()
    similar.plot(d)
    d.set(title="CKA of layers", xlabel=names[-1], ylabel=names[0])
    figure.savefig(figures[0], dpi=110)
