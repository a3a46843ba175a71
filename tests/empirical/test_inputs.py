"""What a model does not take: one short error with the user's own shape, the layer that refused it, the next step."""

import pickle
import traceback

import numpy as np
import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.core import InputError

KERNELS = {
    "tangent": tk.TangentKernel,
    "conjugate": tk.ConjugateKernel,
    "embedding": tk.EmbeddingKernel,
    "sketched": lambda model: tk.SketchedTangentKernel(model, dim=16),
    "infinite": tk.InfiniteKernel,
    "mean": lambda model: tk.MonteCarloKernel(lambda: model, 1),
    "sum": lambda model: 2.0 * tk.TangentKernel(model).normalized() + tk.ConjugateKernel(model),
}
IMAGES = torch.rand(7, 3, 12, 12)


def of_images(channels=3):
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.AvgPool2d(5), nn.Flatten(), nn.Linear(16, 5)
    )


def of_vectors():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


REFUSED = {
    "channels last": (
        of_images(), IMAGES.movedim(1, -1),
        "Conv2d '0' does not take this input: expected (n, 3, height, width), got float32 (7, 12, 12, 3). "
        "Try: x.movedim(-1, 1): channels come second",
    ),
    "one image": (
        of_images(), IMAGES[0],
        "Conv2d '0' does not take this input: expected (n, 3, height, width), got float32 (3, 12, 12). "
        "Try: x[None]: the axis of samples is missing",
    ),
    "one image, channels last": (
        of_images(), IMAGES[0].movedim(0, -1),
        "Conv2d '0' does not take this input: expected (n, 3, height, width), got float32 (12, 12, 3). "
        "Try: x.movedim(-1, 0)[None]: channels come first, and the axis of samples is missing",
    ),
    "no channels": (
        of_images(1), IMAGES[:, 0],
        "Conv2d '0' does not take this input: expected (n, 1, height, width), got float32 (7, 12, 12). "
        "Try: x[:, None]: the axis of channels is missing",
    ),
    "gray images": (
        of_images(), IMAGES[:, :1],
        "Conv2d '0' does not take this input: expected (n, 3, height, width), got float32 (7, 1, 12, 12). "
        "Try: x.expand(-1, 3, -1, -1) for gray images",
    ),
    "bytes": (
        of_images(), (255 * IMAGES).byte(),
        "Conv2d '0' does not take this input: expected float32 numbers, got uint8 (7, 3, 12, 12). "
        "Try: x.float() / 255, scaled as in training",
    ),
    "other size": (
        of_images(), torch.rand(7, 3, 24, 24),
        "Linear '4' does not take what reaches it: expected (n, ..., 16), got float32 (n, 64), "
        "made of float32 (7, 3, 24, 24). Try: inputs of the sizes that the model was made for",
    ),
    "other width": (
        of_vectors(), torch.rand(7, 5),
        "Linear '0' does not take this input: expected (n, ..., 6), got float32 (7, 5). "
        "Try: samples with 6 numbers along the last axis",
    ),
    "one vector": (
        of_vectors(), torch.rand(6),
        "Linear '0' does not take this input: expected (n, ..., 6), got float32 (6,). "
        "Try: x[None]: the axis of samples is missing",
    ),
    "samples second": (
        of_vectors(), torch.rand(6, 9),
        "Linear '0' does not take this input: expected (n, ..., 6), got float32 (6, 9). Try: x.T: samples come first",
    ),
    "images for vectors": (
        of_vectors(), torch.rand(200, 1, 2, 3),
        "Linear '0' does not take this input: expected (n, ..., 6), got float32 (200, 1, 2, 3). Try: x.flatten(1)",
    ),
}  # fmt: skip


def refused(act):
    with pytest.raises(InputError) as caught:
        act()
    return caught.value


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", REFUSED)
def test_inputs_that_a_layer_refuses(kernel, case):
    model, x, message = REFUSED[case]
    error = refused(lambda: KERNELS[kernel](model)(x))
    assert str(error) == message
    # The caller's two frames, and the one that raises.
    assert len(traceback.extract_tb(error.__traceback__)) <= 4
    assert error.__suppress_context__


@pytest.mark.parametrize("kernel", ["tangent", "conjugate", "embedding", "sketched"])
def test_the_error_says_how_a_list_becomes_a_batch(kernel):
    found = KERNELS[kernel](of_vectors())
    error = refused(lambda: found([torch.rand(6) for _ in range(4)]))
    assert "'0' does not take this input: expected a tensor, got [float32 (6,), " in str(error)
    assert "Try: torch.stack(samples)" in str(error)
    error = refused(lambda: found([(torch.rand(6), 1) for _ in range(4)]))
    assert "Try: torch.stack([x for x, *_ in samples])" in str(error)
    error = refused(lambda: found((torch.rand(4, 6), torch.arange(4))))
    assert "got (float32 (4, 6), int64 (4,)). Try: batch[0], if the other part are targets" in str(error)


@pytest.mark.parametrize("kernel", ["tangent", "conjugate", "infinite"])
def test_gram_names_the_users_own_shape(kernel):
    model, x, message = REFUSED["channels last"]
    error = refused(lambda: tk.gram(KERNELS[kernel](model), x))
    assert str(error) == message
    assert len(traceback.extract_tb(error.__traceback__)) <= 4


class Own(nn.Module):
    """A model whose code refuses some samples by itself."""

    def __init__(self):
        super().__init__()
        self.look, self.head = nn.Embedding(10, 3), nn.Linear(3, 2)

    def forward(self, ids):
        if (ids == 7).any():
            raise KeyError("seven")
        return self.head(self.look(ids))


def test_a_sample_that_is_refused_is_named():
    ids = torch.arange(150) % 5
    ids[130] = 12
    kernel = tk.TangentKernel(Own())
    message = str(refused(lambda: kernel(ids)))
    assert (
        "Embedding 'look' does not take this input for sample 130: expected integers from 0 to 9, " in message
    )
    assert "got integers from 0 to 12 in int64 (150,)" in message
    assert "for sample 130" in str(refused(lambda: kernel(ids[:4], ids)))
    ids[130], ids[90] = 3, 7
    message = str(refused(lambda: kernel(ids)))
    assert (
        "Own 'model' fails on this input for sample 90: got int64 (150,); it says: KeyError: 'seven'"
        in message
    )
    assert "(test_inputs.py, line " in message


def test_a_rule_that_fails_is_named_with_its_line():
    kernel = tk.TangentKernel(of_vectors(), forward=lambda m, batch: m(batch["y"]))
    message = str(refused(lambda: kernel({"x": torch.rand(4, 6)})))
    assert (
        "forward= fails on this input: got {'x': float32 (4, 6)}; it says: KeyError: 'y' (test_inputs.py"
        in message
    )


def test_errors_that_the_model_did_not_raise_are_left_alone(monkeypatch):
    kernel = tk.TangentKernel(of_vectors())

    def broken(*_args, **_kwargs):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("tangentkit.empirical.tangent.Engine.matrices", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        kernel(torch.rand(4, 6))


class Flat(nn.Module):
    """One number a sample, (n,)."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))

    def forward(self, x):
        return self.net(x)[:, 0]


def test_one_number_a_sample_is_one_output_everywhere():
    model, x, y = Flat(), torch.rand(6, 3), torch.rand(4, 3)
    for make in (
        tk.TangentKernel,
        lambda m: tk.TangentKernel(m, 0),
        lambda m: tk.TangentKernel(m, "full"),
        lambda m: tk.SketchedTangentKernel(m, dim=32),
        tk.ConjugateKernel,
        tk.InfiniteKernel,
    ):
        # Parameters have other names in the network inside, and so other random numbers.
        same = tk.TangentKernel(model, forward=lambda m, x: m.net(x)) if make is tk.TangentKernel else None
        found = make(model)(x, y)
        assert found.shape in ((6, 4), (6, 1, 4, 1))
        assert same is None or torch.equal(found, same(x, y))
    assert tk.reference.jacobian(model, x).shape == (6, 1, 26)
    assert torch.equal(tk.linearize(model)(x), model(x))
    machine = tk.KernelRegression(tk.TangentKernel(model), ridge=0.1, f0=model).fit(x, torch.rand(6))
    assert machine.predict(y).shape == (4,)


def test_lambdas_go_into_pickles():
    kernel = tk.TangentKernel(nn.Linear(3, 2), forward=lambda m, x: m(2 * x))
    x = torch.rand(4, 3)
    assert torch.equal(pickle.loads(pickle.dumps(kernel))(x), kernel(x))


def test_the_plan_says_how_packed_sequences_avoid_the_loop():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRU(2, 3, batch_first=True), nn.Linear(3, 2)

        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return self.head(self.cell(packed)[1][0])

    plan = tk.TangentKernel(Packed()).plan((torch.rand(6, 5, 2), torch.tensor([5, 3, 2, 4, 5, 1])))
    assert all(row.route == "fallback (loop)" for row in plan.rows)
    assert all("padded ones avoid the loop" in row.note for row in plan.rows)


def test_kernels_say_what_they_are():
    model = of_vectors().double()
    kernel = tk.TangentKernel(model)
    assert repr(kernel) == "TangentKernel(Sequential, 74 parameters, float64 on cpu; outputs='trace')"
    some = tk.TangentKernel(model, torch.ones(2), params=["2.*"])
    assert repr(some) == "TangentKernel(Sequential, 18 of 74 parameters, float64 on cpu; outputs=vector (2,))"
    probed = tk.TangentKernel(model, probes=3)
    assert repr(probed).endswith("outputs='trace', probes=3, seed=0)")
    conjugate = tk.ConjugateKernel(model, "2", bias=True)
    assert (
        repr(conjugate) == "ConjugateKernel(Sequential, 74 parameters, float64 on cpu; layer='2', bias=True)"
    )
    embedding = tk.EmbeddingKernel(model)
    assert repr(embedding) == "EmbeddingKernel(Sequential, 74 parameters, float64 on cpu; layers: all 3)"
    sketched = tk.SketchedTangentKernel(model, 64, calibration=torch.rand(5, 6).double())
    assert repr(sketched) == (
        "SketchedTangentKernel(Sequential, 74 parameters, float64 on cpu; dim=64, outputs='trace', sketch='auto', "
        "seed=0, calibrated on 5 samples)"
    )
    infinite = tk.InfiniteKernel(model, "nngp", parameterization="standard")
    assert repr(infinite) == (
        "InfiniteKernel(Sequential, layers with weights: 2; kind='nngp', parameterization='standard')"
    )
    mean = tk.MonteCarloKernel(of_vectors, 3, seed=1)
    assert repr(mean) == "MonteCarloKernel(of_vectors, samples=3, seed=1, kernel=TangentKernel)"
    assert repr(2.0 * (kernel + mean).normalized()) == f"2 * ({kernel!r} + {mean!r}).normalized()"
    assert repr((0.5 * kernel).to(torch.float32)) == f"(0.5 * {kernel!r}).to(torch.float32)"


class NoSelf(nn.Module):
    def forward(this, x):
        return torch.einsum("ntd->nd", x)


def test_the_line_of_a_layer_is_its_own_whatever_it_calls_itself():
    with pytest.raises(InputError, match=r"it says: einsum.*\(test_inputs.py, line \d+\)"):
        tk.TangentKernel(nn.Sequential(nn.Linear(3, 3), NoSelf()))(torch.ones(4, 3))


def test_kernels_of_other_shapes_do_not_add():
    model, x = nn.Linear(3, 2), torch.ones(4, 3)
    both = tk.TangentKernel(model) + tk.TangentKernel(model, "full")
    with pytest.raises(InputError, match=r"expected \(4, 4\), got \(4, 2, 4, 2\)"):
        both(x)


@pytest.mark.parametrize("kind", [tk.TangentKernel, tk.SketchedTangentKernel])
def test_a_whole_number_of_numpy_is_an_output(kind):
    model, x = nn.Linear(3, 4), torch.rand(2, 3)
    for label in np.unique([1, 3]):
        assert torch.equal(kind(model, outputs=label)(x), kind(model, outputs=int(label))(x))
