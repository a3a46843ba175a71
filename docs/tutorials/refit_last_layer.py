"""Refit the last layer: a cheap gain in accuracy, large for a network that has just begun to train, small at its end.

The input of a network's last layer is a set of features, and its Gram matrix the conjugate kernel. Given these
features, the best last layer is the solution of a linear problem: no learning rate, no epochs. How much better is it
than the layer that training left?

Run with `python docs/tutorials/refit_last_layer.py [figure.png]`; it takes seconds and needs no download. The
figure of the page is that of `... figure.png full`, which trains for twice as many epochs.
"""

import math
import sys

import torch
from torch import nn

import tangentkit as tk
from tangentkit.machines import KernelRegression

# --- A function on an interval ------------------------------------------------------------------------------
# A network of three tanh layers learns exp(sin(2 pi x)) from 201 points on [-1, 1]. The loss is an integral, so
# points have the weights of the trapezoid rule: inside twice those of the ends.
x = torch.linspace(-1, 1, 201, dtype=torch.float64)[:, None]
z = torch.linspace(-1, 1, 601, dtype=torch.float64)[:, None]
weights, test_weights = (
    torch.full((len(grid),), 2 / (len(grid) - 1), dtype=torch.float64) for grid in (x, z)
)
for w in (weights, test_weights):
    w[0], w[-1] = w[0] / 2, w[-1] / 2


def target(points):
    return torch.exp(torch.sin(2 * math.pi * points))[:, 0]


def error(values):
    return float((test_weights @ (values - target(z)).square()).sqrt())


torch.manual_seed(0)
width = 64
network = nn.Sequential(
    nn.Linear(1, width),
    nn.Tanh(),
    nn.Linear(width, width),
    nn.Tanh(),
    nn.Linear(width, width),
    nn.Tanh(),
    nn.Linear(width, 1),
).double()
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
for _ in range(400):
    optimizer.zero_grad()
    (weights @ (target(x) - network(x)[:, 0]).square()).backward()
    optimizer.step()

# The conjugate kernel with a bias has the 64 activations of the last hidden layer and a one as features. Solved by
# the kernel matrix, the condition number of the features is squared; solved on the features themselves, it is not.
kernel = tk.ConjugateKernel(network, bias=True)
by_matrix = KernelRegression(kernel, solver="eigh").fit(x, target(x), weights)
by_features = KernelRegression(kernel, solver="features").fit(x, target(x), weights)
errors = {
    "the network": error(network(z)[:, 0].detach()),
    "its last layer refitted by the kernel matrix": error(by_matrix.predict(z)),
    "its last layer refitted on the features": error(by_features.predict(z)),
}
for name, value in errors.items():
    print(f"error of {name:46} {value:.1e}")
assert errors["its last layer refitted by the kernel matrix"] < errors["the network"] / 10
assert errors["its last layer refitted on the features"] < errors["the network"] / 1000

# --- Images -------------------------------------------------------------------------------------------------
# Clothes: 2,000 images to train a LeNet, 1,000 to test it. The same recipe after 1, 2, 4, ... epochs.
train, test = tk.data.load("fashion-mini", "train"), tk.data.load("fashion-mini", "test")
one_hot = nn.functional.one_hot(train.targets, 10).float()
model = tk.models.lenet(seed=0)


def right(scores):
    return (scores.argmax(1) == test.targets).double()


def refitted():
    """Test scores of the best last layer; its ridge is the one with the least leave-one-out error."""
    better = tk.refit_last_layer(
        model, train.inputs, one_hot
    )  # a network like the model, which stays as it is
    return better(test.inputs)


epochs, as_trained, as_refitted = [1, 2, 4, 8] if "full" in sys.argv else [1, 2, 4], [], []
gains, chances = [], []
order = torch.Generator().manual_seed(0)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(1, max(epochs) + 1):
    for rows in torch.randperm(len(train.inputs), generator=order).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(train.inputs[rows]), train.targets[rows]).backward()
        optimizer.step()
    if epoch in epochs:
        with torch.no_grad():
            before, after = right(model(test.inputs)), right(refitted())
        as_trained.append(float(before.mean()))
        as_refitted.append(float(after.mean()))
        # Both see the same images, so it is the images on which they differ that tell.
        gains.append(float((after - before).mean()))
        chances.append(float((after - before).std()) / math.sqrt(len(before)))
        print(
            f"epoch {epoch:2}: network {as_trained[-1]:.1%}, refitted {as_refitted[-1]:.1%}, "
            f"gain {100 * gains[-1]:+.1f} points (standard error {100 * chances[-1]:.1f})"
        )

# A network that has seen the data once gains much; the longer it was trained, the less is left to gain. What is found
# at the end is a small number, and its standard error is not much smaller: look at yours before you trust it.
assert gains[0] > 5 * chances[0]
assert gains[0] > gains[-1]

figures = [argument for argument in sys.argv[1:] if argument != "full"]
if figures:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    curves = {
        "network": network(z)[:, 0].detach(),
        "kernel matrix": by_matrix.predict(z),
        "features": by_features.predict(z),
    }
    for name, values in curves.items():
        left.semilogy(z[:, 0], (values - target(z)).abs().clamp_min(1e-14), label=name)
    left.set(title="error on the interval", xlabel="x")
    left.legend()
    right.plot(epochs, as_trained, "o-", label="as trained")
    right.plot(epochs, as_refitted, "s-", label="last layer refitted")
    right.set(title="test accuracy on images of clothes", xlabel="epochs", xscale="log")
    right.set_xticks(epochs, [str(epoch) for epoch in epochs])
    right.minorticks_off()
    right.legend()
    figure.savefig(figures[0], dpi=130)
