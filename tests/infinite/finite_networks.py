"""Many finite networks at once: the kernel of the last layer (its mean tends to the NNGP) and the tangent kernel."""

from math import sqrt

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

import tangentkit as tk


def finite_kernels(
    model: nn.Module,
    x: Tensor,
    *,
    draws: int,
    w_std: float,
    b_std: float,
    standard: bool = False,
    head: str = "head",
    seed: int = 0,
) -> dict[str, Tensor]:
    """Kernels of independent draws of a model with one output, each of shape (draws, n, n).

    Given its hidden activations h, the output is Gaussian with covariance w_std² <h, h>/fan_in + b_std²: the mean of
    that over draws is that of f(x) f(y), without the noise of f itself.
    """
    if not standard:
        model = tk.ntk_parameterize(model, w_std=w_std, b_std=b_std)
    model = model.to(x.dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    scales = {}
    for name, layer in model.named_modules():
        if hasattr(layer, "weight") and isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            fan_in = layer.weight[0].numel()
            scales |= {f"{name}.weight": w_std / sqrt(fan_in), f"{name}.bias": b_std}
    drawn = {
        name: torch.randn(draws, *p.shape, generator=generator, dtype=x.dtype)
        * (scales[name] if standard else 1.0)
        for name, p in model.named_parameters()
        if p.requires_grad
    }

    def output(parameters: dict[str, Tensor]) -> Tensor:
        return functional_call(model, parameters, (x,)).reshape(len(x))

    def grams(parameters: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        jacobian = jacrev(output)(parameters)
        products = {name: j.flatten(1) @ j.flatten(1).T for name, j in jacobian.items()}
        last = sum(
            product * (scales[name] ** 2 if standard else 1.0)
            for name, product in products.items()
            if name.startswith(f"{head}.")
        )
        return torch.as_tensor(last), torch.stack(list(products.values())).sum(0)

    size = max(1, 2**22 // (len(x) * sum(p.numel() for p in model.parameters())))
    nngp, ntk = vmap(grams, chunk_size=size)(drawn)
    return {"nngp": nngp, "ntk": ntk}
