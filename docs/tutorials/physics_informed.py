"""Physics-informed networks: which part of the loss learns first, predicted from one kernel.

A network u(x) is to solve u'' = f with u = 0 at both ends. Its loss has two terms, the residual u'' - f at inner
points and the value u at the ends, and both are trained at once. How fast each error falls is in the tangent kernel
of the terms: in gradient descent, errors e move by de/dt = -K W e, W being the weights of the points in the loss
(Wang, Yu and Perdikaris 2020, arXiv 2007.14527).

Run with `python docs/tutorials/physics_informed.py [figure.png]`; it takes some seconds and needs no download.
"""

import math
import sys

import torch
from torch import nn

import tangentkit as tk

# Two ends and forty points inside. The exact solution is sin(2 pi x) / 10: small, so that the weights hardly move.
inner = torch.linspace(0, 1, 42, dtype=torch.float64)[1:-1]
x = torch.cat([torch.tensor([0.0, 1.0], dtype=torch.float64), inner])[:, None]
inside = (x > 0) & (x < 1)
points, ends, rest = {"x": x, "inside": inside}, slice(0, 2), slice(2, None)
target = torch.where(inside, -((2 * math.pi) ** 2) * torch.sin(2 * math.pi * x) / 10, 0.0)[:, 0]


def terms(model, batch):
    """What each point adds to the loss: u'' inside, u at the ends. Written as for training; it is also `forward=`."""
    x = batch["x"].requires_grad_()
    u = model(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    return torch.where(batch["inside"], bend, u)


def network(width=2000):
    """A wide layer in the NTK parameterization: its kernel hardly moves while it trains."""
    torch.manual_seed(0)
    layers = tk.nn.Linear(1, width, w_std=2.0, b_std=1.0), nn.Tanh(), tk.nn.Linear(width, 1)
    return nn.Sequential(*layers).double()


# --- One kernel of both terms ---------------------------------------------------------------------------------
model = network()
K = tk.TangentKernel(model, forward=terms)(points)
values = tk.TangentKernel(model)(x[ends])  # at the ends it is the kernel of the network itself
torch.testing.assert_close(K[ends, ends], values)

pace = {"ends": float(K.diagonal()[ends].mean()), "inside": float(K.diagonal()[rest].mean())}
print(f"mean of the diagonal: {pace['ends']:.1f} at the ends, {pace['inside']:.1f} inside")
assert pace["inside"] > 10 * pace["ends"]  # a point inside pulls that much harder than an end

# --- What training will do ------------------------------------------------------------------------------------
# Every term is a mean over its points. By the traces of its blocks, K says which factors make both terms fall at the
# same pace on average; for equally many points of both kinds they are those of the paper.
count = torch.where(inside[:, 0], float(len(inner)), 2.0).double()
factor = torch.where(inside[:, 0], 1 / pace["inside"], 1 / pace["ends"]).double()
weightings = {"plain loss": 1 / count, "weighted by traces": factor / count}
steps, start = 100, terms(model, {"x": x.clone(), "inside": inside})[:, 0].detach() - target


def predicted(weights, lr):
    """Errors after the steps: e -> (1 - lr K W)^steps e, in the eigenvectors of the symmetric W^½ K W^½."""
    root = weights.sqrt()
    rates, vectors = torch.linalg.eigh(root[:, None] * K * root)
    return vectors @ ((1 - lr * rates) ** steps * (vectors.T @ (root * start))) / root


def trained(weights, lr):
    """Errors after the steps of gradient descent, and the network."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        errors = terms(model, {"x": x.clone(), "inside": inside})[:, 0] - target
        (weights @ errors.square() / 2).backward()
        optimizer.step()
    return terms(model, {"x": x.clone(), "inside": inside})[:, 0].detach() - target, model


found, models = {}, {}
for name, weights in weightings.items():
    root = weights.sqrt()
    lr = 0.5 / float(torch.linalg.eigvalsh(root[:, None] * K * root)[-1])
    expected = predicted(weights, lr)
    found[name], models[name] = trained(weights, lr)
    gap = float((found[name] - expected).norm() / (start - expected).norm())
    print(
        f"{name:19} error at the ends {start[ends].norm():.2f} -> {found[name][ends].norm():.4f} "
        f"(predicted {expected[ends].norm():.4f}), inside {start[rest].norm():.0f} -> {found[name][rest].norm():.1f} "
        f"(predicted {expected[rest].norm():.1f})"
    )
    assert gap < 0.05  # of all that changed, the kernel predicted nearly all

# With the plain loss the residual has its way and the ends are left behind; weighted, both fall. It is a statement on
# gradient descent: optimizers that scale each parameter, such as Adam, have paces of their own.
assert found["weighted by traces"][ends].norm() < found["plain loss"][ends].norm() / 10
assert found["weighted by traces"][rest].norm() < start[rest].norm() / 5

if len(sys.argv) > 1:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for name, block in {"inside": K[rest, rest], "ends": K[ends, ends]}.items():
        spectrum = torch.linalg.eigvalsh(block).flip(0)
        left.semilogy(range(1, len(spectrum) + 1), spectrum.clamp_min(1e-12), "o-", markersize=3, label=name)
    left.set(title="eigenvalues of both blocks", xlabel="number", ylim=(1e-6, None))
    left.legend()
    z = torch.linspace(0, 1, 201, dtype=torch.float64)[:, None]
    for name, one in models.items():
        right.plot(z[:, 0], one(z)[:, 0].detach(), label=name)
    right.plot(z[:, 0], torch.sin(2 * math.pi * z[:, 0]) / 10, "k:", label="solution")
    right.set(title=f"u after {steps} steps", xlabel="x")
    right.legend()
    figure.savefig(sys.argv[1], dpi=130)
