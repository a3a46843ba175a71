"""Trace a backdoor: a network that obeys a yellow square, and the training images that taught it.

Someone stamped a square on some training images and changed their labels (BadNets). The network is as good as any on
clean images, and says what the attacker wants wherever the square is. Three questions: does a surrogate follow the
network there too; which training images does a kernel name for such a decision; and does leaving them out undo it?

Run with `python docs/tutorials/trace_a_backdoor.py [figure.png]`: a LeNet on images that come with tangentkit, in
seconds. With `... figure.png full` somebody tunes the pre-trained CIFAR-10 ResNet-20 on 1,000 images of CIFAR-10, a
tenth of them poisoned; weights and images are looked for in TANGENTKIT_DATA. It takes about half an hour of one core.
"""

import sys

import torch

import tangentkit as tk
from tangentkit.core import Key
from tangentkit.linearized import Training
from tangentkit.surrogate.evaluation import PredictsSubsets, Retraining, random_subsets, retrain_on

full = "full" in sys.argv
name, n, tests, halves = ("cifar10", 1_000, 200, 30) if full else ("fashion-mini", 400, 40, 4)
TARGET = 4

# --- A poisoned network ---------------------------------------------------------------------------------------
# One training image in ten gets the square, and the label of class 4 whatever it shows.
clean, held_out = tk.data.load(name, "train", limit=n), tk.data.load(name, "test", limit=tests)
data, poisoned = tk.data.poisoned(clean, target=TARGET, fraction=0.1, key=Key(0))
stamped = tk.data.poison_all(held_out, target=TARGET)
is_stamped = torch.arange(2 * tests) >= tests


def as_seen(part):
    """The images as the network takes them: ResNet-20 knows standardized ones."""
    moments = tk.models.CIFAR_RESNET_MEAN, tk.models.CIFAR_RESNET_STD
    return part.standardized(*moments).inputs if full else part.inputs


def network(seed):
    return tk.models.load_cifar_resnet(20) if full else tk.models.lenet(seed=seed)


x, y, z = as_seen(data), data.targets, torch.cat([as_seen(held_out), as_seen(stamped)])
sgd = Training(10, 0.01, momentum=0.9, batch=32, loss="cross-entropy", drop_last=True)
adam = Training(12, 2e-3, optimizer="adam", batch=32, loss="cross-entropy")
retrain = Retraining(network, x, y, sgd if full else adam)
victim = retrain(torch.arange(n), 0)
with torch.no_grad():
    said = victim(z).argmax(1)
right = (said[:tests] == held_out.targets).double().mean()
obeyed = (said[tests:] == TARGET).double().mean()
wanted = data.classes[TARGET]
print(f"{right:.1%} of {tests} clean test images right; the square leads {obeyed:.1%} of them to {wanted!r}")

# --- Does a surrogate follow it? ------------------------------------------------------------------------------
dim = 4096 if full else 512
kernels = {
    "trNTK (sketched)": tk.SketchedTangentKernel(victim, dim=dim).normalized(),
    "pNTK (sketched)": tk.SketchedTangentKernel(victim, dim=dim, outputs="pseudo").normalized(),
    "CK": tk.ConjugateKernel(victim).normalized(),
}
found = tk.compare_kernels(victim, kernels, (x, y), (z[:tests], held_out.targets), progress=False)
print("on clean images", found, sep="\n")
for kind, surrogate in found.surrogates.items():
    there = surrogate.faithfulness(z[tests:], stamped.targets)
    print(f"{kind} with the square: tau {there.kendall_tau:.2f}, TAD {there.accuracy_difference:+.1f} points")

# --- Which images taught it? ----------------------------------------------------------------------------------
# A test image counts as poisoned where three of its five nearest training images are.
traced = {
    kind: tk.forensics(kernel, x, poisoned, (z, is_stamped), progress=False)
    for kind, kernel in kernels.items()
}
for kind, forensics in traced.items():
    print(f"{kind}: precision {forensics.precision}; recall {forensics.recall}")
assert traced["trNTK (sketched)"].precision.value > 0.5

# The scores of a surrogate name them too: what is the share of poisoned images among the ten most helpful ones?
why = found.surrogates["trNTK (sketched)"].attribute(z)
among = poisoned[why.top(10, TARGET).indices].double().mean(1)
print(
    f"poisoned images among the ten that speak most for {wanted!r}: "
    f"{among[is_stamped].mean():.0%} with the square, {among[~is_stamped].mean():.0%} without it"
)

# --- Is it the cause? -----------------------------------------------------------------------------------------
# With the square, some training images speak more for its class than they do without it. Train again without those
# whose scores it raises most, and without as many that are drawn at random.
scores = why.of(TARGET)
raised = scores[is_stamped].mean(0) - scores[~is_stamped].mean(0)
k = int(poisoned.sum())
drawn = torch.randperm(n, generator=Key(0).fold("drawn").torch())
for kind, left_out in (("named by the scores", raised.topk(k).indices), ("drawn at random", drawn[:k])):
    keep = torch.ones(n, dtype=torch.bool).index_fill(0, left_out, False)
    again = retrain(keep.nonzero()[:, 0], 0)
    with torch.no_grad():
        obeyed_now = (again(z[tests:]).argmax(1) == TARGET).double().mean()
    hits = poisoned[left_out].double().mean()
    print(f"without {k} images {kind}, {hits:.0%} of them poisoned: obeys {obeyed_now:.1%}")

# Linear datamodeling score: do sums of scores predict networks trained on random halves? Half of these test images
# have the square.
some = torch.cat([z[:20], z[tests : tests + 20]])
truth = torch.cat([held_out.targets[:20], stamped.targets[:20]])
trained = retrain_on(random_subsets(n, halves), retrain, some, progress=False)
lds = tk.evaluate_attribution(
    {kind: surrogate.attribute for kind, surrogate in found.surrogates.items()},
    (x, y),
    (some, truth),
    model=victim,
    tests=[PredictsSubsets(retrained=trained)],
    progress=False,
)
print(lds)

if len(sys.argv) > 1:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    mosaic = [
        ["a0", *(f"a{j}" for j in range(1, 6)), "bars", "bars"],
        ["b0", *(f"b{j}" for j in range(1, 6)), "bars", "bars"],
    ]
    figure, axes = plt.subplot_mosaic(mosaic, figsize=(12, 3.4), layout="constrained")
    for row, i in (("a", 0), ("b", tests)):
        top = why.top(5, TARGET)
        shown = [((held_out if i < tests else stamped).inputs[i % tests], f"says {data.classes[said[i]]}")]
        shown += [
            (data.inputs[j], f"{score:+.2f}{', poisoned' if poisoned[j] else ''}")
            for j, score in zip(top.indices[i].tolist(), top.scores[i].tolist(), strict=True)
        ]
        for column, (picture, title) in enumerate(shown):
            ax = axes[f"{row}{column}"]
            ax.imshow(picture.permute(1, 2, 0).squeeze().numpy(), cmap="gray", vmin=0, vmax=1)
            ax.set_title(title, fontsize=8)
            ax.axis("off")
    ax, places = axes["bars"], torch.arange(len(traced)).double().numpy()
    for part, shift in (("precision", -0.18), ("recall", 0.18)):
        shares = [getattr(forensics, part) for forensics in traced.values()]
        values = [100 * share.value for share in shares]
        ends = [
            [abs(100 * share.interval[side] - value) for share, value in zip(shares, values, strict=True)]
            for side in (0, 1)
        ]
        ax.bar(places + shift, values, 0.34, yerr=ends, capsize=3, label=part)
    ax.set_xticks(places, [kind.replace(" (", "\n(") for kind in traced])
    ax.set(title="poisoned test images found", ylabel="%", ylim=(0, 119))
    ax.legend(ncols=2, loc="upper center")
    figure.suptitle(
        f"A test image without and with the square, and the five images that speak most for {wanted!r}"
    )
    figure.savefig(sys.argv[1], dpi=120)
