"""Train the linearized network beside the network: the same start, the same batches, another model.

The linearization f(w0, x) + J(w0, x) u of a network is a linear model in u whose features are the network's own
gradients. Trained beside the network it shows what the network gains by moving its features.

Run with `python docs/tutorials/linearized_beside_network.py [figure.png]`; it takes seconds and needs no download.
The figure of the page is that of `... figure.png full`, of more images and one width more.
"""

import copy
import sys

import torch
from torch.utils.data import TensorDataset

import tangentkit as tk
from tangentkit.core import Key
from tangentkit.linearized import StepDecay, Training, linearize, taylorize, train

full = "full" in sys.argv
m, n, widths = (320, 300, (0.5, 1, 2)) if full else (200, 100, (0.5, 1))

# Four kinds of clothes that are not easily told apart, standardized by the statistics of the training images.
classes = [0, 2, 4, 6]
data = {split: tk.data.load("fashion-mini", split, classes=classes) for split in ("train", "test")}
mean, std = data["train"].inputs.mean(), data["train"].inputs.std()
(x, y), (x_test, y_test) = (((d.inputs - mean) / std, d.targets) for d in data.values())
x, y, x_test, y_test = x[:m], y[:m], x_test[:n], y_test[:n]

# A linearization is a module: called as the network is, and equal to it as long as u = 0.
network = tk.models.lenet(1, outputs=len(classes), seed=0)
model = linearize(network)
print(model)
assert torch.allclose(model(x[:8]), network(x[:8]))
assert [p.shape for p in model.parameters()] == [p.shape for p in network.parameters()]

# It is right to first order: half the displacement, a quarter of the error. `taylorize` goes further. (Of a smooth
# network: one with ReLU is never far from a kink.)
smooth = tk.models.lenet5(channels=1, size=28, outputs=3, activation=torch.nn.GELU).double()


def error(expansion, size):
    """|f(w0 + u) - expansion(u)| for a random u of a size."""
    moved = copy.deepcopy(smooth)
    with torch.no_grad():
        for name, u in expansion.displacement.named_parameters():
            u.copy_(size * torch.randn(u.shape, generator=Key(0).fold(name).torch()))
        moved.load_state_dict(expansion.weights())
        return float((moved(x[:4].double()) - expansion(x[:4].double())).norm())


for degree in (1, 2):
    expansion = taylorize(smooth, degree)
    large, small = error(expansion, 2e-3), error(expansion, 1e-3)
    print(f"degree {degree}: error {large:.1e} -> {small:.1e} when the displacement is halved")
    assert 0.7 < large / small / 2 ** (degree + 1) < 1.4

# A step of gradient descent on it is a step of the tangent kernel: Δf = -(2 lr / n) K (f - y).
few, targets = x[:30], torch.nn.functional.one_hot(y[:30], len(classes)).float()
residual = (network(few) - targets).detach()
kernel_step = -2 * 0.01 / 30 * tk.TangentKernel(network, "full").product(few, residual)
one = linearize(network)
train(one, few, targets, Training(epochs=1, learning_rate=0.01, batch=None), key=Key(0))
step = (one(few) - network(few)).detach()
assert (step - kernel_step).norm() < 1e-3 * kernel_step.norm()

# Side by side, at several widths. The key decides the order of the samples: both see the same mini-batches.
settings = Training(
    epochs=10, learning_rate=0.05, momentum=0.9, weight_decay=5e-5, batch=32, schedule=StepDecay(7, 0.1)
)
histories = {}
for width in widths:
    network = tk.models.lenet(width, outputs=len(classes), seed=0)
    for kind, module in {"linearized": linearize(network), "network": network}.items():
        histories[kind, width] = train(
            module, x, y, settings, key=Key(0), watch={"test": (x_test, y_test)}, stage=f"{kind} x{width}"
        )

# Samples may also be read from a data set, which need not fit in memory: by the same key the same run, bit by bit.
brief, pairs = Training(epochs=1, learning_rate=0.05, batch=32), TensorDataset(x, y)
held, read = (linearize(tk.models.lenet(0.5, outputs=len(classes), seed=0)) for _ in range(2))
assert train(held, x, y, brief, key=Key(0)) == train(read, pairs, None, brief, key=Key(0))
assert all(torch.equal(u, v) for u, v in zip(held.parameters(), read.parameters(), strict=True))

print(f"{'width':>6} {'network':>18} {'linearized':>18}   (accuracy on training and test images)")
for width in widths:
    cells = [
        f"{histories[kind, width]['train accuracy'][-1]:8.1%} {histories[kind, width]['test accuracy'][-1]:8.1%}"
        for kind in ("network", "linearized")
    ]
    print(f"{width:6} {cells[0]:>18} {cells[1]:>18}")
for history in histories.values():
    assert history["train loss"][-1] < history["train loss"][0]
    assert history["test accuracy"][-1] > 0.5  # chance is 0.25

figures = [argument for argument in sys.argv[1:] if argument != "full"]
if figures:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    colors = {"network": "C0", "linearized": "C1"}
    for kind, color in colors.items():
        for width, style in zip(widths, (":", "--", "-"), strict=False):
            history = histories[kind, width]
            axes[0].plot(
                history["epoch"], history["train loss"], style, color=color, label=f"{kind} x{width}"
            )
        for part, marker in (("train", "o"), ("test", "s")):
            final = [100 * histories[kind, width][f"{part} accuracy"][-1] for width in widths]
            axes[1].plot(widths, final, marker=marker, color=color, label=f"{kind}, {part}",
                         linestyle="-" if part == "test" else ":")  # fmt: skip
    axes[0].set(title="training", xlabel="epoch", ylabel="squared error", yscale="log")
    axes[1].set(title="after training", xlabel="width factor", ylabel="accuracy in %", xscale="log")
    axes[1].set_xticks(widths, [f"x{width}" for width in widths])
    axes[1].minorticks_off()
    for axis in axes:
        axis.legend(fontsize=7)
    figure.savefig(figures[0], dpi=130)
