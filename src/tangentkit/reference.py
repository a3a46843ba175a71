"""The slow, obvious version of every kernel and solver: the oracle of tests and tutorials.

Everything here works in float64, sample by sample, with plain autograd, and is short enough to be checked by
reading. Use it to understand a quantity or to test a fast version, not to compute anything large.

Notation: f(x) in R^C, J_ic = ∇_θ f_c(x_i) in R^P.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tangentkit.core.batches import Batch, as_batch, batch_size, take
from tangentkit.core.model.functions import Forward, snapshot
from tangentkit.core.model.hooks import refuse_hooked_parameters
from tangentkit.core.model.parameters import Selection


def jacobian(
    model: nn.Module, x: Batch, *, params: Selection = None, forward: Forward | None = None
) -> Float[Tensor, "n c p"]:
    """J[i, c] = ∇_θ f_c(x_i), flattened over the parameters in the module's order, by a loop of autograd.

    A complex parameter counts as two real ones, its real and imaginary parts: <J, J'> is then Re <g, g'> for the
    complex gradients g.

    Example:
        >>> model = nn.Linear(2, 1, bias=False)
        >>> jacobian(model, torch.tensor([[3.0, 4.0]]))
        tensor([[[3., 4.]]], dtype=torch.float64)
    """
    function, x = snapshot(model, params=params, forward=forward), _double(as_batch(x))
    refuse_hooked_parameters(model, function.params)
    theta = {name: p.double().requires_grad_() for name, p in function.params.items()}
    frozen = _double(function.frozen)
    rows = []
    for i in range(batch_size(x)):
        with torch.enable_grad():
            buffers = {name: _double(value).clone() for name, value in function.buffers.items()}
            state = frozen | buffers | theta
            outputs = function(state, take(x, slice(i, i + 1)))[0]
        # Within the snapshot: checkpointed blocks run forward again in backward passes.
        rows.append(function.within(state, lambda outputs=outputs: _gradients(outputs, list(theta.values()))))
    return torch.stack(rows)


def full_kernel(jx: Float[Tensor, "n c p"], jy: Float[Tensor, "m c p"]) -> Float[Tensor, "n c m c"]:
    """K[i, a, j, b] = <J_ia, J_jb>; reshaped to (n c, m c) it is the block kernel."""
    return torch.einsum("iap,jbp->iajb", jx, jy)


def trace_kernel(jx: Float[Tensor, "n c p"], jy: Float[Tensor, "m c p"]) -> Float[Tensor, "n m"]:
    """K[i, j] = Σ_c <J_ic, J_jc>."""
    return torch.einsum("icp,jcp->ij", jx, jy)


def pseudo_kernel(jx: Float[Tensor, "n c p"], jy: Float[Tensor, "m c p"]) -> Float[Tensor, "n m"]:
    """K[i, j] = (1/C) <Σ_c J_ic, Σ_c J_jc>."""
    return jx.sum(1) @ jy.sum(1).T / jx.shape[1]


def vector_kernel(
    jx: Float[Tensor, "n c p"], jy: Float[Tensor, "m c p"], v: Float[Tensor, " c"]
) -> Float[Tensor, "n m"]:
    """K[i, j] = <v·J_i, v·J_j>, the kernel of the output v·f; a unit vector gives one output's kernel."""
    return torch.einsum("icp,c->ip", jx, v) @ torch.einsum("jcp,c->jp", jy, v).T


def conjugate_kernel(
    hx: Float[Tensor, "n d"], hy: Float[Tensor, "m d"], *, bias: bool = False
) -> Float[Tensor, "n m"]:
    """K[i, j] = <h(x_i), h(y_j)> (+ 1 for the bias), h being the input of the last linear layer."""
    return hx @ hy.T + float(bias)


def normalize(
    k: Float[Tensor, "n m"], dx: Float[Tensor, " n"], dy: Float[Tensor, " m"]
) -> Float[Tensor, "n m"]:
    """The cosine kernel k_ij / sqrt(k(x_i, x_i) k(y_j, y_j))."""
    return k / (dx[:, None] * dy[None, :]).sqrt()


def kernel_regression(
    k: Float[Tensor, "n n"],
    y: Float[Tensor, " n *c"],
    k_test: Float[Tensor, "m n"],
    *,
    ridge: float = 0.0,
    rtol: float = 1e-15,
) -> Float[Tensor, " m *c"]:
    """k(z, X) (K + ridge I)⁺ y, by the pseudo-inverse.

    Example:
        >>> kernel_regression(torch.eye(2).double(), torch.tensor([1.0, 2.0]).double(), torch.eye(2).double())
        tensor([1., 2.], dtype=torch.float64)
    """
    return k_test @ (
        torch.linalg.pinv(k + ridge * torch.eye(len(k), dtype=k.dtype), rtol=rtol, hermitian=True) @ y
    )


def gradient_flow(
    k: Float[Tensor, "n n"], y: Float[Tensor, " n *c"], t: float, *, f0: Float[Tensor, " n *c"] | None = None
) -> Float[Tensor, " n *c"]:
    """Training predictions of df/dt = -K (f - y): y + V exp(-λ t) Vᵀ (f0 - y), K = V diag(λ) Vᵀ."""
    values, vectors = torch.linalg.eigh(k)
    f0 = torch.zeros_like(y) if f0 is None else f0
    return y + vectors @ (torch.diag(torch.exp(-t * values)) @ (vectors.T @ (f0 - y)))


def kernel_glm(
    k: Float[Tensor, "n n"], y: Int[Tensor, " n"], *, ridge: float = 1e-4, steps: int = 500
) -> tuple[Float[Tensor, "n c"], Float[Tensor, " c"]]:
    """The softmax kernel GLM: logits k(x, X) W + b, least mean cross-entropy + (ridge/2) ‖W‖², by L-BFGS.

    Returns:
        W (n, c) and b (c,).
    """
    classes = int(y.max()) + 1
    w = torch.zeros(len(k), classes, dtype=k.dtype, requires_grad=True)
    b = torch.zeros(classes, dtype=k.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [w, b], max_iter=steps, tolerance_grad=1e-8, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(k @ w + b, y) + ridge / 2 * w.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # pyright: ignore[reportArgumentType]
    return w.detach(), b.detach()


def _gradients(outputs: Tensor, theta: list[Tensor]) -> Tensor:
    return torch.stack([_gradient(output, theta) for output in outputs])


def _gradient(output: Tensor, theta: list[Tensor]) -> Tensor:
    gradients = torch.autograd.grad(
        output, theta, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return torch.cat([(g.to_dense() if g.is_sparse else g).flatten() for g in gradients])


def _double(tree: Batch) -> Batch:
    def double(leaf: object) -> object:
        if not isinstance(leaf, Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
        return leaf.to(torch.complex128 if leaf.is_complex() else torch.float64)

    return pytree.tree_map(double, tree)
