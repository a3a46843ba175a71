"""Predict the training curve: what a wide network will do, step by step, before it takes the first step.

Run with `python docs/tutorials/predict_the_training_curve.py [figure.png]`; it takes some seconds and needs no
download.
"""

import sys

import torch
from torch import nn

import tangentkit as tk
from tangentkit import Dynamics, GradientDescent, HeavyBall, max_learning_rate

# Shirts against trousers: small images of norm 1, targets +1 and -1, half for training and half for testing.
data = tk.data.load("fashion-mini", "train", classes=[0, 1], limit=128)
images = nn.functional.normalize(nn.functional.avg_pool2d(data.inputs, 2).flatten(1))
labels = 1.0 - 2.0 * (data.targets == data.targets.min()).float()[:, None]
x, y, x_test, y_test = images[::2], labels[::2], images[1::2], labels[1::2]
steps = torch.arange(201)


def network(width):
    """A wide network in the NTK parameterization: its kernel hardly moves while it trains."""
    return tk.models.arora_mlp((x.shape[1], width, 1), seed=0)


def train(model, *, lr, momentum=0.0):
    """Full-batch training on nn.MSELoss; the outputs on training and test points before every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    train_path, test_path = [], []
    for _ in steps:
        outputs = model(x)
        train_path.append(outputs.detach())
        test_path.append(model(x_test).detach())
        optimizer.zero_grad()
        nn.functional.mse_loss(outputs, y).backward()
        optimizer.step()
    return torch.stack(train_path), torch.stack(test_path)


def loss_of(path, targets):
    return (path - targets).square().mean((1, 2))


# All that a prediction needs is the kernel of the network at its start, and its outputs there.
model = network(1024)
kernel = tk.TangentKernel(model)
K, K_test = kernel(x), kernel(x_test, x)
start, start_test = model(x).detach(), model(x_test).detach()

# The largest learning rate comes from the top eigenvalue. nn.MSELoss is the loss "mean".
largest = max_learning_rate(K, loss="mean")
lr = 0.4 * largest
print(f"gradient descent converges below lr = {largest:.3f}; train with {lr:.3f}")

# One decomposition answers for every number of steps: a loss curve, a test curve, a billion steps, the end.
descent = Dynamics(K, y, f0=start, loss="mean", descent=GradientDescent(lr))
predicted = descent.losses(steps)
predicted_test = loss_of(descent.predictions(steps, K_test, f0_test=start_test), y_test)
end = descent.predictions(torch.inf, K_test, f0_test=start_test)
later = descent.predictions(10**9, K_test, f0_test=start_test)
print(f"loss after {len(steps) - 1} steps: {predicted[-1]:.4f}; test loss {predicted_test[-1]:.4f}")
print(f"test loss at the end of all training: {(end - y_test).square().mean():.4f}")
assert torch.allclose(end, later, atol=1e-2)

# Would momentum help, at a fifth of the learning rate? Ask before training.
ball = Dynamics(K, y, f0=start, loss="mean", descent=HeavyBall(lr / 5, 0.9))
print(f"with momentum 0.9 the loss would be {ball.losses(len(steps) - 1):.4f}")

# A learning rate beyond the bound has no such curve, and says so.
try:
    Dynamics(K, y, loss="mean", descent=GradientDescent(1.2 * largest))
    raise AssertionError("this learning rate diverges")
except tk.TangentkitError as error:
    print(error)

# Now train, and compare.
trained, trained_test = train(network(1024), lr=lr)
measured, measured_test = loss_of(trained, y), loss_of(trained_test, y_test)
with_momentum = loss_of(train(network(1024), lr=lr / 5, momentum=0.9)[0], y)


def deviation(found, expected):
    """The largest deviation of two curves, as a share of where they begin."""
    return float((found - expected).abs().max() / expected[0])


deviations = {
    "loss": deviation(measured, predicted),
    "test loss": deviation(measured_test, predicted_test),
    "loss with momentum": deviation(with_momentum, ball.losses(steps)),
}
for name, value in deviations.items():
    print(f"the {name} of the network stays within {value:.1%} of its start of the prediction")
assert max(deviations.values()) < 0.05
assert measured[-1] < 0.2 * measured[0]

# A narrow network moves its kernel, and leaves its prediction.
narrow = network(16)
narrow_kernel = tk.TangentKernel(narrow)(x)
narrow_lr = 0.4 * max_learning_rate(narrow_kernel, loss="mean")
narrow_predicted = Dynamics(
    narrow_kernel, y, f0=narrow(x).detach(), loss="mean", descent=GradientDescent(narrow_lr)
).losses(steps)
narrow_measured = loss_of(train(narrow, lr=narrow_lr)[0], y)
print(f"at width 16 the loss leaves its prediction by {deviation(narrow_measured, narrow_predicted):.1%}")
assert deviation(narrow_measured, narrow_predicted) > 2 * deviations["loss"]

# Each eigenvector of the kernel is learned at a pace of its own: the largest eigenvalues first.
times = descent.time_to_fit(0.1)
shown = [0, 1, 3, 9, 29]
for i in shown:
    print(f"mode {i + 1:3}: eigenvalue {descent.eigenvalues[i]:8.3f}, {times[i]:9.1f} steps to nine tenths")
assert (times.diff() >= 0).all()
vectors = tk.spectrum(K.double()).vectors
measured_modes = (vectors.T @ (trained - y).double()).squeeze(2)
predicted_modes = descent.modes(steps).squeeze(2)

if len(sys.argv) > 1:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11.5, 3.4), layout="constrained")
    curves = {
        "width 1024": (measured, predicted),
        "width 1024, test": (measured_test, predicted_test),
        "width 1024, momentum": (with_momentum, ball.losses(steps)),
        "width 16": (narrow_measured, narrow_predicted),
    }
    for color, (name, (found, expected)) in enumerate(curves.items()):
        axes[0].semilogy(steps, found, color=f"C{color}", label=name)
        axes[0].semilogy(steps, expected, color="black", linestyle=":", linewidth=1.2)
    axes[0].set(title="loss of the network (dotted: predicted)", xlabel="step")
    axes[0].legend(fontsize=8)
    for color, i in enumerate(shown):
        axes[1].plot(steps, measured_modes[:, i].abs(), color=f"C{color}", label=f"mode {i + 1}")
        axes[1].plot(steps, predicted_modes[:, i].abs(), color="black", linestyle=":", linewidth=1.2)
    axes[1].set(
        title="error along eigenvectors (dotted: predicted)", xlabel="step", yscale="log", ylim=(1e-3, 20)
    )
    axes[1].legend(fontsize=8)
    axes[2].loglog(descent.eigenvalues, times)
    axes[2].axhline(len(steps) - 1, color="gray", linestyle="--")
    axes[2].set(title="steps to fit nine tenths of a mode", xlabel="eigenvalue of the kernel")
    figure.savefig(sys.argv[1], dpi=130)
