"""Lazy or rich: one number decides whether a network learns features, and a tracker sees which it is.

A network is lazy where training moves its weights so little that its tangent kernel stays what it was: then it is a
kernel machine. It is rich where the kernel turns towards the task. Chizat, Oyallon and Bach (2019) go from one to the
other by a factor alone: train alpha (f - f_0) on the loss divided by alpha². For a large alpha tiny steps of the
weights do, and the network is lazy.

Run with `python docs/tutorials/lazy_or_rich.py [figure.png]`; it takes seconds and needs no download. The numbers of
the page are those of `... figure.png full`, on 5,000 images of Fashion-MNIST with three seeds, in some minutes.
"""

import sys

import torch
from torch import nn

import tangentkit as tk
from tangentkit.report import Column, Interval, Table

full = "full" in sys.argv
if full:
    train, test = (tk.data.load("fashion-mnist", split, limit=5_000) for split in ("train", "test"))
    alphas, seeds, epochs, every, samples = (100.0, 10.0, 1.0, 0.3, 0.1), range(3), 8, 100, 150
else:
    train, test = (
        tk.data.load("fashion-mini", "train", limit=600),
        tk.data.load("fashion-mini", "test", limit=150),
    )
    alphas, seeds, epochs, every, samples = (10.0, 0.2), range(2), 4, 24, 30
mean, std = train.inputs.mean(), train.inputs.std()
x, z = (train.inputs - mean) / std, (test.inputs - mean) / std
targets = nn.functional.one_hot(train.targets, 10) - 0.1

# --- One training, tracked ----------------------------------------------------------------------------------
# `Centered` is the network minus itself at the start, so that every alpha starts from the output zero. The probe,
# some training images, is where the tracker looks; `forward` tells it what the network's answer is.


def tracked(alpha, seed):
    model = tk.models.Centered(tk.models.lenet(seed=seed, init=tk.models.lecun_normal))
    tracker = tk.Tracker(
        ["loss", "ntk", "kta", "distance", "lazy"],
        every=every,
        probe=(x, train.targets),
        samples=samples,
        test=(z, test.targets),
        forward=lambda network, images: alpha * network(images),
    )
    sgd = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
    order = torch.Generator().manual_seed(seed)
    tracker.step(model)  # the start
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=order).split(50):
            sgd.zero_grad()
            (0.5 * (alpha * model(x[rows]) - targets[rows]).square().sum(1).mean() / alpha**2).backward()
            sgd.step()
            tracker.step(model)
    return tracker.course


courses = {alpha: [tracked(alpha, seed) for seed in seeds] for alpha in alphas}

# --- What the tracker saw -----------------------------------------------------------------------------------
# At the end: how far weights and kernel have moved, how much better the kernel fits the classes, and the test error.
# An interval is that of the mean over seeds, at 95 %.
SEEN = {
    "weights moved": "lazy/weight change",
    "kernel turned": "distance/ntk/to the start",
    "kernel-target alignment": "kta/ntk/centered",
    "participation ratio": "ntk/participation ratio",
    "train error": "error",
    "test error": "test error",
}


def ends(alpha, name):
    return [course[name][-1] for course in courses[alpha]]


def shown(values):
    found = Interval.over(values)
    return f"{found.mean:.3g} ({found.low:.3g} to {found.high:.3g})"


start = {name: shown([course[name][0] for course in courses[alphas[0]]]) for name in SEEN.values()}
rows = [("start", *start.values())]
rows += [(f"alpha {alpha:g}", *(shown(ends(alpha, name)) for name in SEEN.values())) for alpha in alphas]
print(Table("At the end of training", ("", *map(Column, SEEN)), tuple(rows)))

# The same pairs of seeds: what does richness gain?
lazy, rich = alphas[0], alphas[-1]
gain = Interval.over([a - b for a, b in zip(ends(lazy, "test error"), ends(rich, "test error"), strict=True)])
print(f"test error, lazy minus rich: {gain.mean:.3f} (95 %: {gain.low:.3f} to {gain.high:.3f})")

for seed in range(len(seeds)):
    moved = [courses[alpha][seed]["lazy/weight change"][-1] for alpha in alphas]
    turned = [courses[alpha][seed]["distance/ntk/to the start"][-1] for alpha in alphas]
    assert moved == sorted(moved)  # the smaller alpha, the farther the weights go,
    assert turned == sorted(turned)  # and the farther the kernel turns
    assert turned[0] < 0.01 < 0.05 < turned[-1]
    # A kernel that has turned has turned towards the classes.
    aligned = {alpha: courses[alpha][seed]["kta/ntk/centered"] for alpha in (lazy, rich)}
    assert aligned[rich][-1] - aligned[rich][0] > 5 * abs(aligned[lazy][-1] - aligned[lazy][0])
if full:
    # Lazy weights move as 1 / alpha: ten times the factor, a tenth of the way.
    for far, near in zip(ends(10.0, "lazy/weight change"), ends(100.0, "lazy/weight change"), strict=True):
        assert abs(far / near - 10) < 0.5
    assert gain.low > 0

figures = [argument for argument in sys.argv[1:] if argument != "full"]
if figures:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    figure, ((a, b), (c, d)) = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    colors = dict(zip(alphas, plt.get_cmap("viridis")(np.linspace(0.05, 0.85, len(alphas))), strict=True))
    for ax, name, title in (
        (a, "distance/ntk/to the start", "how far the kernel has turned, 1 - cos(K, K₀)"),
        (b, "kta/ntk/centered", "alignment of the kernel with the classes"),
        (c, "test error", "test error"),
    ):
        for alpha in alphas:
            runs = np.array([course[name] for course in courses[alpha]], dtype=float)
            steps = courses[alpha][0].steps
            ax.plot(steps, runs.mean(0), color=colors[alpha], label=f"alpha {alpha:g}")
            ax.fill_between(steps, runs.min(0), runs.max(0), color=colors[alpha], alpha=0.2, linewidth=0)
        ax.set(title=title, xlabel="step")
    a.set_yscale("symlog", linthresh=1e-3)
    c.set_ylim(top=0.4)
    c.legend(loc="upper right")
    for alpha in (lazy, rich):
        first, last = (courses[alpha][0].spectrum("ntk/values")[i] for i in (0, -1))
        ranks = np.arange(1, len(first) + 1)
        d.loglog(
            ranks, last / last[0], "o-", markersize=3, color=colors[alpha], label=f"alpha {alpha:g}, end"
        )
    d.loglog(ranks, first / first[0], "k--", linewidth=1, label="start")
    d.set(title="largest eigenvalues of the kernel, over the first", xlabel="rank")
    d.legend()
    figure.savefig(figures[0], dpi=110)
