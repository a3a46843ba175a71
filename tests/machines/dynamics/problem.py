"""A small network linearized at its start, trained explicitly: what predictions of training are compared with."""

import torch
from torch import nn

from tangentkit import models, reference

N, M, C = 7, 4, 3


LOSSES = {
    "half_sum": lambda f, y: (f - y).square().sum() / 2,
    "sum": nn.MSELoss(reduction="sum"),
    "half_mean": lambda f, y: nn.functional.mse_loss(f, y) / 2,
    "mean": nn.MSELoss(),
    "half_sample_mean": lambda f, y: (f - y).square().sum() / len(y) / 2,
    "sample_mean": lambda f, y: (f - y).square().sum() / len(y),
}


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, **({"rtol": 0, "atol": 1e-10} | tolerance))


class Problem:
    """A small network linearized at its start: Jacobians, outputs, kernels and targets."""

    def __init__(self, outputs=C, seed=0):
        generator = torch.Generator().manual_seed(seed)
        model = models.arora_mlp((5, 20, outputs), activation=nn.Tanh, seed=seed).double()
        x, z = (torch.randn(n, 5, dtype=torch.float64, generator=generator) for n in (N, M))
        self.jx, self.jz = reference.jacobian(model, x), reference.jacobian(model, z)
        self.f0, self.f0_test = model(x).detach(), model(z).detach()
        self.y = torch.randn(N, outputs, dtype=torch.float64, generator=generator)
        self.K, self.K_test = (reference.full_kernel(j, self.jx) for j in (self.jx, self.jz))

    @property
    def scalar(self):
        """Kernels (N, N) and (M, N) of the first output."""
        return self.K[:, 0, :, 0], self.K_test[:, 0, :, 0]

    def train(self, optimizer_of, loss, steps):
        """Outputs at training and test points before every step of explicit training."""
        u = torch.zeros(self.jx.shape[-1], dtype=torch.float64, requires_grad=True)
        optimizer, path = optimizer_of([u]), []
        for _ in range(steps):
            f, g = self.f0 + self.jx @ u, self.f0_test + self.jz @ u
            path.append((f.detach(), g.detach()))
            optimizer.zero_grad()
            LOSSES[loss](f, self.y).backward()
            optimizer.step()
        return (torch.stack(part) for part in zip(*path, strict=True))


PROBLEM = Problem()


K, K_TEST = PROBLEM.scalar


Y, F0 = PROBLEM.y, PROBLEM.f0
