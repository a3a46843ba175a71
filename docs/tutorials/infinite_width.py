"""A torch CNN at infinite width: read its kernel off the module, and watch finite networks approach it.

Run with `python docs/tutorials/infinite_width.py [figure.png]`; it takes some seconds and needs no download. The
figure of the page is that of `... figure.png full`, of twice as many networks.
"""

import sys

import torch
from torch import nn

import tangentkit as tk
from tangentkit.infinite import InfiniteKernel
from tangentkit.nn import ntk_parameterize


# An ordinary module, of any width.
def cnn(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 2),
    ).double()


data = tk.data.load("digits", "train", limit=80)
images, labels = data.inputs.double(), data.targets
x = images[:10]

# The limit of the architecture: NNGP covariance of the outputs, and tangent kernel. Weights do not matter, only what
# the layers are: w_std = sqrt(2) keeps the variance of a ReLU network from layer to layer.
scales = {"w_std": 2**0.5, "b_std": 0.1}
nngp = InfiniteKernel(cnn(8), "nngp", **scales)(x)
limit = InfiniteKernel(cnn(8), "ntk", **scales)
theta = limit(x)
assert torch.allclose(theta, InfiniteKernel(cnn(512), **scales)(x))
print(f"variance of the outputs {nngp.diagonal().mean():.3f}, tangent kernel {theta.diagonal().mean():.3f}")

# Finite networks with the same scales. `ntk_parameterize` converts a copy, layer by layer, and draws it anew.
widths, repeats = (8, 32, 128), 16 if "full" in sys.argv else 8
deviations = []
for width in widths:
    kernels = torch.stack(
        [
            tk.TangentKernel(ntk_parameterize(cnn(width), **scales, seed=seed))(x)
            / 2  # the trace over 2 outputs
            for seed in range(repeats)
        ]
    )
    deviations.append(float((kernels - theta).square().mean().sqrt() / theta.norm() * len(x)))
    print(f"width {width:4}: one network deviates by {deviations[-1]:.1%}")

# Four times the width, about half the deviation.
assert deviations[0] > deviations[1] > deviations[2]
assert 1.3 < (deviations[0] / deviations[2]) ** 0.5 < 3.0

# The kernel learns: the infinitely wide network, trained to the end, is kernel regression. Digits 0..9 against the
# mean label, with a little ridge, from 60 images to 20 others.
k = limit(images)
targets = nn.functional.one_hot(labels, 10).double() - 0.1
train, test = slice(0, 60), slice(60, 80)
ridge = 1e-3 * k[train, train].diagonal().mean() * torch.eye(60)
scores = k[test, train] @ torch.linalg.solve(k[train, train] + ridge, targets[train])
accuracy = float((scores.argmax(1) == labels[test]).double().mean())
print(f"kernel regression on 60 digits: {accuracy:.0%} of 20 others are right")
assert accuracy > 0.4  # chance is 10 %

# What has no limit says so, and what to do instead.
pooled = nn.Sequential(nn.Conv2d(1, 8, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 1))
try:
    refused = ""
    InfiniteKernel(pooled)(x)
except tk.TangentkitError as error:
    refused = str(error)
print(refused)
assert "MaxPool2d '1'" in refused

figures = [argument for argument in sys.argv[1:] if argument != "full"]
if figures:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    pictures = ((kernels[0], f"one network of width {widths[-1]}"), (theta, "infinite width"))
    for axis, (picture, title) in zip(axes, pictures, strict=False):
        image = axis.imshow(picture.numpy(), vmin=0, vmax=float(theta.max()), cmap="viridis")
        axis.set(title=title, xticks=[], yticks=[], xlabel="images")
    figure.colorbar(image, ax=axes[:2], shrink=0.8)
    axes[2].loglog(widths, deviations, "o-", label="one network")
    axes[2].loglog(
        widths, [deviations[0] * (widths[0] / w) ** 0.5 for w in widths], "--", label="width^(-1/2)"
    )
    axes[2].set(title="relative deviation from the limit", xlabel="width")
    axes[2].legend()
    figure.savefig(figures[0], dpi=130)
