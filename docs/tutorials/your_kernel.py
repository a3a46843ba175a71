"""The kernel of your model: compute it, look at it, and see what training does to it.

Run with `python docs/tutorials/your_kernel.py [figure.png]`; it takes some seconds and needs no download.
"""

import sys

import torch
from torch import nn

import tangentkit as tk

# Any module will do. This one has a convolution, a normalization and a linear head.
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 5, stride=2),
    nn.GroupNorm(2, 8),
    nn.ReLU(),
    nn.Conv2d(8, 16, 3, stride=2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(16 * 25, 3),
)

# Three classes of clothes, sorted by class so that the structure shows.
data = tk.data.load("fashion-mini", "train", classes=[0, 1, 9], limit=300)
order = data.targets.argsort()
x, y = data.inputs[order], data.targets[order]

# Before any work, the plan: how every parameter will be treated, and what it costs.
kernel = tk.TangentKernel(model).normalized()
print(tk.TangentKernel(model).plan(x))

before = kernel(x)
assert before.shape == (300, 300)
assert torch.allclose(before.diagonal(), torch.ones(300), atol=1e-5)

# The kernel is right: compare some entries with the slow, obvious version in float64.
jacobian = tk.reference.jacobian(model, x[:4])
exact = tk.reference.trace_kernel(jacobian, jacobian)
found = tk.TangentKernel(model)(x[:4])
assert (found - exact).abs().max() < 1e-5 * exact.abs().max()

# Which parameters does it come from? The parts sum to the whole.
parts = tk.TangentKernel(model).by_parameter(x[:50])
whole = tk.TangentKernel(model)(x[:50])
assert torch.allclose(sum(parts.values()), whole, rtol=1e-4)
shares = {name: float(part.diagonal().sum() / whole.diagonal().sum()) for name, part in parts.items()}
for name, share in shares.items():
    print(f"{name:10} {share:6.1%} of the trace")

# Train, and take the kernel again. The first one is a snapshot: it does not move.
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(60):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
accuracy = float((model(x).argmax(1) == y).float().mean())
after = tk.TangentKernel(model).normalized()(x)
assert torch.equal(kernel(x[:5]), kernel(x[:5]))
assert torch.allclose(kernel(x[:5]), before[:5, :5], atol=1e-5)

# What training did: samples of one class have come closer together than samples of different classes.
same = (y[:, None] == y[None, :]) & ~torch.eye(300, dtype=torch.bool)


def contrast(k):
    return float(k[same].mean() - k[y[:, None] != y[None, :]].mean())


print(
    f"accuracy {accuracy:.3f}; class contrast of the kernel {contrast(before):.3f} -> {contrast(after):.3f}"
)
assert accuracy > 0.9
assert contrast(after) > contrast(before)

# A few directions carry most of it.
spectrum = tk.spectrum(after)
print(f"effective rank {tk.spectrum(before).effective_rank():.1f} -> {spectrum.effective_rank():.1f} of 300")

if len(sys.argv) > 1:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    for axis, k, title in zip(axes, (before, after), ("at initialization", "after training"), strict=False):
        image = axis.imshow(k.numpy(), vmin=0, vmax=1, cmap="viridis")
        axis.set(title=f"cosine kernel {title}", xticks=[], yticks=[], xlabel="samples, sorted by class")
    figure.colorbar(image, ax=axes[:2], shrink=0.8)
    index = range(1, 301)
    axes[2].loglog(index, tk.spectrum(before).values.clamp_min(1e-6).numpy(), label="at initialization")
    axes[2].loglog(index, spectrum.values.clamp_min(1e-6).numpy(), label="after training")
    axes[2].set(title="eigenvalues", xlabel="index")
    axes[2].legend()
    figure.savefig(sys.argv[1], dpi=130)
