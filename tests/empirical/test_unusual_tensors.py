"""Models that autograd can differentiate, of tensors that are not plain: the kernel is that of a loop of autograd."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from cases import CASES, Formula, gap
from tangentkit import reference
from tangentkit.core import ModelError, NumericalError
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.linearized import linearize
from tangentkit.sketch import SketchedTangentKernel

EDGES = ((torch.arange(25).view(5, 5) % 3) == 1).double()
NODES = torch.linspace(-1, 2, 4 * 5 * 3).view(4, 5, 3).double().sin()
POINTS = torch.linspace(-1, 1, 8).view(4, 2).double()


def by_autograd(model, x, forward=None):
    """The full kernel by a loop over samples and outputs, of the user's own module and parameters."""
    call, wanted = forward or (lambda m, x: m(x)), [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(len(x)):
        for output in call(model, x[i : i + 1].clone())[0]:
            found = torch.autograd.grad(
                output, wanted, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            rows.append(
                torch.cat([(torch.view_as_real(g) if g.is_complex() else g).flatten() for g in found])
            )
    j = torch.stack(rows).view(len(x), -1, len(rows[0]))
    return torch.einsum("icp,jdp->icjd", j, j)


def graph_layer(edges, a):
    """σ(A X W) by a sparse matrix."""
    return lambda m, x: m.b(
        torch.tanh(torch.stack([torch.sparse.mm(edges(m), a(m, nodes)) for nodes in x]))
    ).sum(1)


def layers(**parts):
    return {"a": nn.Linear(3, 4), "b": nn.Linear(4, 2), **parts}


def sparse_attribute():
    model = Formula(graph_layer(lambda m: m.edges, lambda m, nodes: m.a(nodes)), **layers()).double()
    model.edges = EDGES.to_sparse()
    return model, NODES, None


def sparse_local():
    formula = graph_layer(lambda _: EDGES.to_sparse_csr(), lambda m, nodes: m.a(nodes))
    return Formula(formula, **layers()).double(), NODES, None


def sparse_rows_buffer():
    model = Formula(graph_layer(lambda m: m.edges, lambda m, nodes: m.a(nodes)), **layers()).double()
    model.register_buffer("edges", EDGES.to_sparse_csr())
    return model, NODES, None


def sparse_samples():
    model = Formula(
        lambda m, x: m.b(torch.tanh(torch.sparse.mm(x.to_sparse(), m.w))), w=(3, 4), b=nn.Linear(4, 2)
    )
    return model.double(), NODES[:, 0].relu(), None


def nested():
    def formula(m, x):
        ragged = torch.nested.as_nested_tensor([rows[: 2 + int(rows[0, 0] > 0)] for rows in x])
        return m.b(torch.tanh(torch.nested.to_padded_tensor(m.a(ragged), 0.0)).sum(1))

    return Formula(formula, **layers()).double(), NODES, None


def jagged():
    def formula(m, x):
        ragged = torch.nested.as_nested_tensor([rows[:2] for rows in x], layout=torch.jagged)
        return m.b(torch.tanh(torch.nested.to_padded_tensor(m.a(ragged), 0.0)).sum(1))

    return Formula(formula, **layers()).double(), NODES, None


def network():
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)).double()


def by_jvp():
    return network(), POINTS, lambda m, x: torch.func.jvp(m, (x,), (torch.ones_like(x),))[1]


def by_hessian():
    def laplacian(m, x):
        hessians = torch.func.vmap(torch.func.hessian(lambda point: m(point)[0]))(x)
        return hessians.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)

    return network(), POINTS, laplacian


def by_dual_numbers():
    def slope(m, x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(m(forward_ad.make_dual(x, torch.ones_like(x)))).tangent

    return network(), POINTS, slope


def all_complex():
    def formula(m, x):
        return torch.view_as_real(torch.tanh(x.to(m.w.dtype) @ m.w + m.b)).flatten(1)

    w, b = (nn.Parameter(torch.randn(*shape, dtype=torch.cdouble)) for shape in ((3, 4), (4,)))
    return Formula(formula, w=w, b=b), NODES[:, 0], None


def in_lists():
    case = CASES["parameters in lists and closures"]
    return case.model(), case.batches()[0], None


@pytest.mark.parametrize(
    "make",
    [
        in_lists,
        sparse_attribute,
        sparse_local,
        sparse_rows_buffer,
        sparse_samples,
        nested,
        jagged,
        by_jvp,
        by_hessian,
        by_dual_numbers,
        all_complex,
    ],
)
@pytest.mark.filterwarnings("ignore:.*do not reach the output", "ignore:.*prototype stage", "ignore:Sparse")
def test_the_kernel_is_that_of_autograd(make):
    torch.manual_seed(0)
    model, x, forward = make()
    truth = by_autograd(model, x, forward)
    kernel = TangentKernel(model, "full", forward=forward)
    j = reference.jacobian(model, x, forward=forward)
    assert gap(reference.full_kernel(j, j), truth) <= 1e-12
    assert gap(kernel(x), truth) <= 1e-12
    assert gap(kernel(x[:3], x[1:]), truth[:3, :, 1:]) <= 1e-12
    assert gap(kernel.diag(x), torch.einsum("icic->ic", truth)) <= 1e-12
    assert gap(sum(kernel.by_parameter(x).values()), truth) <= 1e-12
    assert gap(kernel.product(x, torch.ones(truth.shape[:2]).double()), truth.sum((2, 3))) <= 1e-12
    assert str(kernel.plan(x))
    sketched = SketchedTangentKernel(model, 256, forward=forward)
    assert gap(sketched(x), torch.einsum("icjc->ij", truth)) <= 0.5


def residual(m, x):
    x = x.requires_grad_()
    (slope,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
    return slope


def test_models_that_differentiate_themselves_take_no_part_of_the_callers_mode():
    model = network()
    kernel, features = TangentKernel(model, forward=residual), ConjugateKernel(model, forward=residual)
    with pytest.warns(UserWarning, match="do not reach the output: 2.bias"):
        expected = kernel(POINTS), features(POINTS)
    assert gap(expected[0], torch.einsum("icjc->ij", by_autograd(model, POINTS, residual))) <= 1e-12
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            assert torch.equal(kernel(POINTS), expected[0])
            assert torch.equal(features(POINTS), expected[1])
    assert not any(k.requires_grad for k in expected)


def test_samples_that_see_each_other_are_still_refused_there():
    def mixed(m, x):
        return residual(m, x) + x.mean(0)

    with pytest.raises(ModelError, match="depends on the other samples of its batch"):
        TangentKernel(network(), forward=mixed)(POINTS)


def test_complex_parameters_are_real_and_imaginary_parts():
    """K = Re <g, g'> for the complex gradients that autograd gives."""
    model, x, _ = all_complex()
    wanted = list(model.parameters())

    def gradient(sample):
        found = torch.autograd.grad(model(sample[None])[0, 0], wanted)
        return torch.cat([g.flatten() for g in found])

    g = torch.stack([gradient(sample) for sample in x])
    kernel = TangentKernel(model, 0)
    assert gap(kernel(x), (g.conj() @ g.T).real) <= 1e-12
    assert "real and imaginary parts" in str(kernel.plan(x))


def test_a_linearized_complex_model_is_the_model_moved():
    model, x, _ = all_complex()
    lin = linearize(model)
    with torch.no_grad():
        for u in lin.parameters():
            u.normal_(0, 1e-5)
    moved = all_complex()[0]
    moved.load_state_dict(lin.weights())
    assert moved.w.is_complex()
    assert gap(lin(x).detach(), moved(x).detach()) <= 1e-8
    assert (moved(x) - model(x)).abs().max() > 1e-6


def test_real_and_complex_parameters_of_different_precision_are_refused():
    model = Formula(lambda m, x: m.a(x), a=nn.Linear(2, 2).double(), w=nn.Parameter(torch.ones(2) * 1j))
    with pytest.raises(
        ModelError, match=r"mixed: expected one dtype and device, got torch.float32 .*torch.float64"
    ):
        TangentKernel(model)


class WithTable(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
        self.table = torch.ones(2, 2) / 3

    def forward(self, x):
        return self.layers(x) @ self.table


def test_a_model_made_in_inference_mode():
    torch.manual_seed(0)
    with torch.inference_mode():
        model = WithTable().eval()
    torch.manual_seed(0)
    plain = WithTable().eval()
    x = POINTS.float()
    assert torch.equal(TangentKernel(model)(x), TangentKernel(plain)(x))
    assert torch.equal(linearize(model)(x), plain(x))


def test_arrays_that_run_backwards():
    model, x = network(), POINTS.numpy()
    backwards = x[::-1, ::-1]
    assert backwards.strides[0] < 0
    assert torch.equal(TangentKernel(model)(backwards), TangentKernel(model)(np.ascontiguousarray(backwards)))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_buffers_that_are_not_finite_are_named(layout):
    model = nn.Linear(3, 2).double()
    model.register_buffer(
        "edges", (EDGES * float("inf")).nan_to_num(0.0, posinf=float("inf")).to_sparse(layout=layout)
    )
    with pytest.raises(NumericalError, match="edges is not finite"):
        TangentKernel(model)
