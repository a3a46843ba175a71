"""Anisotropy directions: against the full matrix, the theorem of linear functions, and data along a direction."""

import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.core import InputError, ModelError, NumericalError


class Square(nn.Module):
    def forward(self, x):
        return x**2


def smooth(d=6, outputs=2, activation=nn.GELU):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(d, 9), activation(), nn.Linear(9, outputs)).double()


def image_network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(48, 1)
    ).double()


def mixed_derivative(model, x):
    """M (c, p, d) averaged over samples, by nested Jacobians of torch.func."""
    params = {name: p.detach() for name, p in model.named_parameters()}

    def outputs(params, one):
        return torch.func.functional_call(model, params, (one[None],))[0]

    total = 0
    for one in x:
        found = torch.func.jacrev(torch.func.jacrev(outputs, argnums=0), argnums=1)(params, one)
        parts = [part.reshape(part.shape[0], -1, one.numel()) for part in found.values()]
        total = total + torch.cat(parts, 1) / len(x)
    return total


@pytest.mark.parametrize("top", [2, 12, 64], ids=["Lanczos", "some columns", "all columns"])
def test_directions_are_the_right_singular_vectors_at_the_origin(top):
    model = image_network()
    M = mixed_derivative(model, torch.zeros(1, 1, 8, 8).double())[0]
    values = torch.linalg.svdvals(M)
    found = tk.anisotropy_directions(model, (1, 8, 8), top)
    assert found.directions.shape == (top, 1, 8, 8)
    assert torch.allclose(found.values, values[:top], rtol=1e-6, atol=1e-10)
    flat = found.directions.flatten(1)
    assert torch.allclose(flat @ flat.T, torch.eye(top).double(), atol=1e-8)
    # Each is taken to its own singular value, whatever turns equal ones leave open.
    assert torch.allclose((M @ flat.T).norm(dim=0), values[:top], rtol=1e-5, atol=1e-8)


def test_over_data_derivatives_are_averaged_for_chosen_outputs():
    model, x = smooth(), torch.randn(70, 6).double()
    M = mixed_derivative(model, x)
    stacked = {"trace": M.flatten(0, 1), 1: M[1], "pseudo": M.sum(0) / 2**0.5}
    for outputs, matrix in stacked.items():
        values = torch.linalg.svdvals(matrix)
        for given in (x, torch.utils.data.TensorDataset(x, torch.arange(70))):
            found = tk.anisotropy_directions(model, (6,), 3, x=given, outputs=outputs)
            assert torch.allclose(found.values, values[:3], rtol=1e-8)


def test_theorem_1_is_exact_where_the_average_over_gaussians_is_a_finite_sum():
    # The points ±√d e_i have the moments of N(0, I) up to the third degree, and u·x ∇f is of the third here.
    d, model = 5, smooth(5, 1, Square)
    x = d**0.5 * torch.cat([torch.eye(d), -torch.eye(d)]).double()
    found = tk.anisotropy_directions(model, (d,), d, x=x)
    linear = x @ found.directions.T
    assert torch.allclose(tk.target_alignment(model, x, linear), found.alignments, rtol=1e-8)
    u = torch.randn(d).double()
    predicted = ((found.directions @ u).square() * found.alignments).sum()
    assert torch.allclose(tk.target_alignment(model, x, x @ u), predicted)


def test_theorem_1_holds_on_gaussian_samples_up_to_their_number():
    # E u·x ∇f = E ∂_x ∇f · u: on n samples the two sides differ by 1/√n.
    model, gaps = smooth(4, 1), []
    torch.manual_seed(1)
    for n in (100, 5_000):
        x = torch.randn(n, 4).double()
        found = tk.anisotropy_directions(model, (4,), 4, x=x)
        alignments = tk.target_alignment(model, x, x @ found.directions.T)
        gaps.append(float((alignments - found.alignments).abs().max() / found.alignments[0]))
    assert gaps[1] < 0.1
    assert gaps[1] < gaps[0]


def test_data_along_a_direction_are_separated_by_it_and_have_nothing_else_in_common():
    found = tk.anisotropy_directions(image_network(), (1, 8, 8), 3)
    data = found.data(1, 500)
    assert data.inputs.shape == (500, 1, 8, 8)
    along = data.inputs.flatten(1) @ found.directions[1].flatten()
    assert torch.allclose(along, (2.0 * data.targets - 1).double(), atol=1e-8)
    across = data.inputs.flatten(1) @ found.directions[0].flatten()
    assert abs(float(across[data.targets == 1].mean() - across[data.targets == 0].mean())) < 0.4
    with pytest.raises(InputError, match="0 to 2"):
        found.data(3)


def test_directions_of_a_convolution_have_few_frequencies_and_of_a_perceptron_many():
    # Circular padding and a mean over positions: the directions are waves.
    torch.manual_seed(0)
    conv = nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular")
    waves = nn.Sequential(conv, nn.GELU(), nn.AvgPool2d(8), nn.Flatten(), nn.Linear(4, 1)).double()
    dense = nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.GELU(), nn.Linear(30, 1)).double()
    few, many = (tk.anisotropy_directions(model, (1, 8, 8), 1).table().rows[0][3] for model in (waves, dense))
    assert few == pytest.approx(1, abs=1e-6)  # the mean of the image
    assert many > 5


def test_networks_without_a_derivative_at_the_origin_are_refused_and_averaged_over_data():
    torch.manual_seed(0)
    relu = nn.Sequential(nn.Linear(30, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False)).double()
    for top in (1, 20):
        with pytest.raises(NumericalError, match=r"is zero.*x=samples"):
            tk.anisotropy_directions(relu, (30,), top)
    assert tk.anisotropy_directions(relu, (30,), 1, x=torch.randn(20, 30).double()).values[0] > 0


def test_second_derivatives_that_do_not_belong_together_are_refused():
    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w, x):
            ctx.save_for_backward(w, x)
            return x @ w.T

        @staticmethod
        def backward(ctx, g):
            w, x = ctx.saved_tensors
            return g.T @ x, g @ w.detach()

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(1, 3).double())

        def forward(self, x):
            return Cut.apply(self.w, x)

    with pytest.raises(ModelError, match="do not agree"):
        tk.anisotropy_directions(Layer(), (3,), 1)


def test_bad_shapes_and_numbers_are_refused():
    model = smooth()
    with pytest.raises(InputError, match="1 to 6"):
        tk.anisotropy_directions(model, (6,), 7)
    for shape in ((0,), (), "2,3", (2.0, 3.0)):
        with pytest.raises(InputError, match="bad shape of a sample"):
            tk.anisotropy_directions(model, shape, 1)
    with pytest.raises(InputError, match=r"\(n, 6\).*\(4, 5\)"):
        tk.anisotropy_directions(model, (6,), 1, x=torch.randn(4, 5).double())
    with pytest.raises(InputError, match="Linear '0' does not take"):
        tk.anisotropy_directions(model, (5,), 1)
    with pytest.raises(InputError, match="full"):
        tk.anisotropy_directions(model, (6,), 1, outputs="full")


@pytest.mark.parametrize("shape", [(64,), (8, 8), (1, 8, 8), (3, 4, 4), (2, 4, 8)], ids=str)
def test_pictures_of_any_shape_of_sample(shape):
    torch.manual_seed(0)
    size = torch.Size(shape).numel()
    model = nn.Sequential(nn.Flatten(), nn.Linear(size, 5), nn.GELU(), nn.Linear(5, 1))
    found = tk.anisotropy_directions(model, shape, 2)
    assert found.fourier().shape == found.directions.shape
    assert found.plot() is not None
    assert len(found.table().rows) == 2
    assert set(found.to_dict()) == {"directions", "values"}


def test_the_shape_of_vectors_may_be_their_length_and_a_title_has_room():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 5), nn.GELU(), nn.Linear(5, 1))
    ours, same = (tk.anisotropy_directions(model, shape, 2) for shape in (5, (5,)))
    assert torch.equal(ours.directions, same.directions)
    images = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.GELU(), nn.Linear(4, 1))
    axes = tk.anisotropy_directions(images, (1, 4, 4), 1).plot()
    axes.figure.draw_without_rendering()
    title = axes.title.get_window_extent()
    assert title.x0 >= 0
    assert title.x1 <= axes.figure.bbox.x1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_all_directions_of_a_network_of_half_precision_are_about_those_of_its_copy(dtype):
    model = smooth().to(dtype)
    found = tk.anisotropy_directions(model, 6, 6)
    exact = tk.anisotropy_directions(model.double(), 6, 6)
    assert found.values.dtype == found.directions.dtype == dtype
    torch.testing.assert_close(found.values.double(), exact.values, rtol=0.05, atol=0.01)


@pytest.mark.parametrize("top", [1, 6])
def test_samples_may_be_tensors_of_inference_mode(top):
    model, x = smooth(d=20), torch.randn(5, 20, dtype=torch.float64)
    expected = tk.anisotropy_directions(model, 20, top, x=x).values
    with torch.inference_mode():
        given = x.clone()
        torch.testing.assert_close(tk.anisotropy_directions(model, 20, top, x=given).values, expected)
    torch.testing.assert_close(tk.anisotropy_directions(model, 20, top, x=given).values, expected)


def test_the_names_of_curves_stand_beside_them():
    ax = tk.anisotropy_directions(smooth(), 6, 4).plot()
    ax.figure.draw_without_rendering()
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1 - 1
