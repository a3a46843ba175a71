"""What is refused and how it is said; what a seed means for ever; what a kernel is."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cases import Formula, gap
from sketch.models import network
from tangentkit import TangentKernel
from tangentkit.core import BudgetError, InputError, NumericalError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.sketch import SketchedTangentKernel
from tangentkit.sketch.methods import choice, explicit
from tangentkit.sketch.methods.hashes import words


def line(*shape):
    """A ramp of numbers that no generator makes."""
    return torch.linspace(-1, 1, math.prod(shape), dtype=torch.float64).view(shape)


def fixed_model():
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(line(*p.shape))
    return model


STORED = {
    "count": [
        0.734319135088,
        -1.594432971647,
        1.983519082077,
        0.975280595357,
        -0.701981241687,
        0.471407673938,
        0.910648156559,
        0.050703964942,
    ],
    "tensor": [
        0.676051011445,
        0.302540062734,
        0.57454524965,
        0.219982668035,
        0.117155897611,
        1.192507691731,
        0.732083054903,
        0.272880154321,
    ],
    "gaussian": [
        -1.100884431095,
        -0.071616233386,
        0.591140735312,
        -0.369426489587,
        1.141175241524,
        -0.978193736741,
        -0.464971310029,
        0.824310413099,
    ],
    "rademacher": [
        -0.852984876032,
        -0.092509920323,
        -0.833638535276,
        0.580846144698,
        -0.700035212952,
        -0.790381847332,
        0.220357245499,
        1.04888461851,
    ],
}
"""Features of a fixed sample, the first eight of sixteen, as they were when the contract was made."""


@pytest.mark.parametrize("sketch", STORED)
def test_a_seed_means_the_same_features_for_ever(sketch):
    kernel = SketchedTangentKernel(fixed_model(), 16, sketch=sketch, seed=11)
    found = kernel.features(line(2, 3))
    torch.testing.assert_close(
        found[1, :8], torch.tensor(STORED[sketch], dtype=torch.float64), rtol=1e-9, atol=1e-12
    )
    if sketch == "tensor":
        assert "tensor" in kernel.plan(line(2, 3)).methods.values()


def test_what_auto_chooses_is_part_of_the_contract():
    # With other constants "auto" would give other features of the same seed.
    assert (choice.TRANSFORM, choice.BLOCK, choice.COUNT) == (350.0, 8.0, 100.0)
    model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 3))
    methods = SketchedTangentKernel(model, 64).plan(torch.randn(2, 2, 32, 32)).methods
    # Many positions of a small weight, and one of a large weight.
    assert (methods["0.weight"], methods["3.weight"]) == ("count", "tensor")


@pytest.mark.parametrize("dim", [15, 0, -1, 16.0, True, "64"])
def test_bad_dims_are_refused(dim):
    with pytest.raises(InputError, match=r"bad dim: expected an integer >= 16"):
        SketchedTangentKernel(fixed_model(), dim)


def test_numbers_of_numpy_are_numbers():
    plain = SketchedTangentKernel(fixed_model(), 16, probes=2, seed=3)
    numbers: dict[str, Any] = {"dim": np.int64(16), "probes": np.int32(2), "seed": np.uint8(3)}
    others = SketchedTangentKernel(fixed_model(), **numbers)
    assert torch.equal(others.features(line(4, 3)), plain.features(line(4, 3)))
    assert others.identity() == plain.identity()


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(InputError, match="bad seed"):
        SketchedTangentKernel(fixed_model(), 16, seed=seed)


def test_unknown_names_are_refused_with_the_near_match():
    with pytest.raises(UnknownNameError, match="tensor"):
        SketchedTangentKernel(fixed_model(), 16, sketch="tenser")
    with pytest.raises(UnknownNameError, match="trace"):
        SketchedTangentKernel(fixed_model(), 16, outputs="trance")
    with pytest.raises(InputError, match="features are of one kernel"):
        SketchedTangentKernel(fixed_model(), 16, outputs="full")


def test_bad_calibration_is_refused():
    model = fixed_model()
    with pytest.raises(InputError, match="empty batch"):
        SketchedTangentKernel(model, 16, calibration=torch.zeros(0, 3).double())
    with pytest.raises(InputError, match="not finite"):
        SketchedTangentKernel(model, 16, calibration=torch.full((4, 3), float("nan")).double())
    with pytest.raises(InputError, match="for other sketches"):
        SketchedTangentKernel(model, 16, sketch="count", calibration=line(4, 3))
    with pytest.raises(InputError, match="does not go with random output signs"):
        SketchedTangentKernel(model, 16, probes=4, calibration=line(4, 3)).features(line(4, 3))


def test_gradients_that_are_not_finite_are_named():
    model = Formula(lambda m, x: (x * m.w).sum(1, keepdim=True).sqrt(), w=(3,)).double()
    x = torch.eye(3).double()
    x[1] = 0.0  # the root of zero has no finite slope
    with torch.no_grad():
        model.get_parameter("w").fill_(1.0)
    for sketch in ("count", "auto"):
        with pytest.raises(NumericalError, match=r"samples \[1\]"):
            SketchedTangentKernel(model, 16, sketch=sketch).features(x)
    with pytest.raises(NumericalError, match="calibration"):
        SketchedTangentKernel(model, 16, calibration=x).features(x[:1])


def test_bad_losses_are_refused():
    model, x = fixed_model(), line(4, 3)
    targets = torch.tensor([0, 1, 0, 1])
    with pytest.raises(InputError, match="no loss"):
        SketchedTangentKernel(model, 16, outputs="loss")
    with pytest.raises(InputError, match="a loss is one output"):
        SketchedTangentKernel(model, 16, outputs=1, loss=nn.functional.cross_entropy)
    with pytest.raises(InputError, match=r'one number a sample.*reduction="none"'):
        SketchedTangentKernel(model, 16, outputs="loss", loss=nn.functional.cross_entropy).features(
            (x, targets)
        )
    kernel = SketchedTangentKernel(
        model, 16, outputs="loss", loss=lambda f, t: nn.functional.cross_entropy(f, t, reduction="none")
    )
    with pytest.raises(InputError, match="a pair"):
        kernel.features(x)


def test_the_error_for_a_loss_of_each_output_says_what_to_do():
    def loss(f, t):
        return nn.functional.mse_loss(f, t, reduction="none")

    with pytest.raises(InputError, match=r"one number a sample.*got \(\d, 2\).*\.sum\(1\)"):
        SketchedTangentKernel(fixed_model(), 16, "loss", loss=loss).features((line(4, 3), line(4, 2)))


def test_calibration_samples_without_gradients():
    model = Formula(lambda m, x: m.one(x[:, :2]) * x[:, 2:], one=nn.Linear(2, 1)).double()
    x = line(6, 3)
    # Bases come from every other sample; those that tell what they hold have no gradient.
    batch = torch.where((torch.arange(6) % 2 == 0)[:, None], x, 0)
    kernel = SketchedTangentKernel(model, 16, calibration=batch)
    assert kernel.plan(x).coordinates[0] == 0
    assert kernel.features(x).isfinite().all()
    nothing = SketchedTangentKernel(model, 16, calibration=torch.zeros(4, 3).double())
    assert nothing.features(x).isfinite().all()


def test_bad_probes_are_refused():
    with pytest.raises(InputError, match="bad probes"):
        SketchedTangentKernel(fixed_model(), 16, probes=0)
    with pytest.raises(InputError, match="bad probes: expected an integer"):
        SketchedTangentKernel(fixed_model(), 16, probes=2.5)  # pyright: ignore
    with pytest.raises(InputError, match="bad probes"):
        SketchedTangentKernel(fixed_model(), 16, outputs="pseudo", probes=2)
    with pytest.raises(InputError, match="probes=2 or more"):
        SketchedTangentKernel(fixed_model(), 16, probes=1).error(line(4, 3))


def test_a_budget_that_holds_no_sample():
    with pytest.raises(BudgetError, match="one sample does not fit"):
        SketchedTangentKernel(fixed_model(), 16, memory=100).features(line(4, 3))


def test_what_is_exact_does_not_depend_on_memory():
    model = nn.Linear(15_000, 2).double()
    x = (torch.randn(6, 2) @ torch.randn(2, 15_000)).double()  # samples with much in common
    plenty, little = (SketchedTangentKernel(model, 32, calibration=x, memory=m) for m in ("1GB", "60MB"))
    assert plenty.plan(x).coordinates[0] > 0
    assert gap(little.features(x), plenty.features(x)) <= 1e-9
    with pytest.raises(BudgetError, match=r"calibration does not fit.*fewer calibration samples"):
        SketchedTangentKernel(model, 32, calibration=x, memory="10MB").features(x)


def test_coordinates_of_samples_count_in_the_budget():
    kernel = SketchedTangentKernel(fixed_model(), 4096, memory="2MB")
    x = line(40, 3)
    kernel.features(x)
    passes = kernel._passes(x, kernel._arranged(x).directions.vectors)
    sizes = [rows.stop - rows.start for rows, first, _ in passes.sides(x) if first == 0]
    assert sum(sizes) == 40
    # A sample takes 3 x 4096 numbers of 8 bytes.
    assert max(sizes) * 3 * 4096 * 8 <= 2e6


def test_features_that_fit_no_memory():
    with pytest.raises(BudgetError, match=r"features are beyond the memory budget.*smaller dim"):
        SketchedTangentKernel(fixed_model(), 10**12).features(line(4, 3))


def test_a_kernel_is_a_snapshot_and_leaves_the_model_alone():
    model, x = network("cnn")
    kernel = SketchedTangentKernel(model, 32)
    state = {name: p.clone() for name, p in model.state_dict().items()}
    before = kernel.features(x)
    assert all(torch.equal(p, state[name]) for name, p in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert torch.equal(kernel.features(x), before)
    assert not before.requires_grad


def test_calibration_and_directions_are_snapshots_too():
    model, x = network("mlp")
    batch, v = x.clone(), torch.ones(2).double()
    kernel = SketchedTangentKernel(model, 32, v, calibration=batch)
    identity = kernel.identity()
    batch.zero_()
    v.zero_()
    expected = SketchedTangentKernel(model, 32, torch.ones(2).double(), calibration=x)
    assert gap(kernel.features(x), expected.features(x)) <= 1e-12
    assert kernel.identity() == identity == expected.identity()


def test_signs_that_do_not_fit_in_memory_are_drawn_again(monkeypatch):
    model, x = network("mlp")
    draws = []
    monkeypatch.setattr(explicit, "words", lambda key, n: draws.append(key) or words(key, n))
    whole = SketchedTangentKernel(model, 32, sketch="count")
    features = whole.features(x)
    every, _ = len(draws), draws.clear()
    assert torch.equal(whole.features(x), features)
    assert draws == []
    kernel = SketchedTangentKernel(model, 32, sketch="count")
    kernel._arranged(x).sketch.most_signs = 400
    for _ in range(2):
        draws.clear()
        assert torch.equal(kernel.features(x), features)
    # As many as fit stay.
    assert 0 < len(draws) < every


def test_the_global_generator_is_left_alone():
    model, x = network("mlp")
    before = torch.get_rng_state()
    SketchedTangentKernel(model, 32, calibration=x).features(x)
    assert torch.equal(torch.get_rng_state(), before)


def test_identities_tell_kernels_apart():
    model, x = network("mlp")
    kernels = [
        SketchedTangentKernel(model, 32),
        SketchedTangentKernel(model, 33),
        SketchedTangentKernel(model, 32, seed=1),
        SketchedTangentKernel(model, 32, sketch="count"),
        SketchedTangentKernel(model, 32, outputs="pseudo"),
        SketchedTangentKernel(model, 32, calibration=x),
        SketchedTangentKernel(model, 32, calibration=x[:4]),
    ]
    identities = [kernel.identity() for kernel in kernels]
    assert all(one != other for i, one in enumerate(identities) for other in identities[:i])
    used = SketchedTangentKernel(model, 32)
    used.features(x)
    assert used.identity() == identities[0]


def test_sums_of_exact_and_sketched_kernels_are_those_of_their_values():
    model, x = network("mlp")
    exact, sketched = TangentKernel(model), SketchedTangentKernel(model, 64)
    assert gap((exact + 2.0 * sketched)(x), exact(x) + 2 * sketched(x)) <= 1e-12
    assert sketched.to(torch.float32)(x).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_float_types(dtype):
    model, x = network("mlp", 6)
    truth = TangentKernel(model)(x)
    kernel = SketchedTangentKernel(model.to(dtype), 256, calibration=x.to(dtype))
    features = kernel.features(x.to(dtype))
    assert features.dtype == dtype
    double = SketchedTangentKernel(network("mlp")[0], 256, calibration=x)(x)
    loose = 1e-3 if dtype == torch.float32 else 0.1
    assert (kernel(x.to(dtype)).double() - truth).norm() <= (double - truth).norm() + loose * truth.norm()


def test_sequences_of_other_lengths_have_comparable_features():
    model = Formula(
        lambda m, ids: m.head(m.table(ids).mean(1)), table=nn.Embedding(9, 8), head=nn.Linear(8, 2)
    )
    model = model.double()
    short, long = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[1, 1, 2, 2, 3, 3], [4, 4, 5, 5, 6, 6]])
    for sketch in ("auto", "tensor", "count"):
        kernel = SketchedTangentKernel(model, 32, sketch=sketch)
        # The same mean of the same rows, so the same function of the weights.
        assert gap(kernel.features(long), kernel.features(short)) <= 1e-12


@pytest.mark.filterwarnings("ignore:.*do not reach the output")
def test_samples_that_take_another_way_are_sketched_alike():
    model = Formula(
        lambda m, x: m.one(x) if bool((x > 0).all()) else m.one(x * 1.0) + 0.0 * m.other(x),
        one=nn.Linear(12, 9),
        other=nn.Linear(12, 9),
    ).double()
    x = torch.rand(6, 12).double() + 0.1
    mixed = torch.cat([x[:3], -x[3:]])
    for sketch in ("tensor", "hybrid", "count"):
        batch = x.flip(0) if sketch == "hybrid" else None
        kernel = SketchedTangentKernel(model, 32, "pseudo", sketch, calibration=batch)
        first = kernel.features(x)
        assert ("tensor" in kernel.plan(x).methods.values()) == (sketch != "count")
        # A batch with a negative sample has another graph, whose factors are not known.
        assert gap(kernel.features(mixed)[:3], first[:3]) <= 1e-9


def test_calibration_samples_may_have_another_shape_and_take_another_way():
    def forward(m, x):
        return m.one(x.mean(1)) if bool((x > 0).all()) else m.one((x * 1.0).mean(1))

    model = Formula(forward, one=nn.Linear(12, 9)).double()
    mixed = torch.rand(6, 4, 12).double() + 0.1
    mixed[3:] *= -1
    x = torch.rand(5, 2, 12).double() + 0.1
    kernel = SketchedTangentKernel(model, 64, calibration=mixed)
    truth = TangentKernel(model)(x)
    assert (kernel(x) - truth).norm() <= 0.5 * truth.norm()


def test_twins_share_what_is_known_but_not_what_is_drawn():
    model, x = network("mlp")
    kernel = SketchedTangentKernel(model, 32, calibration=x)
    kernel.features(x)
    twin = kernel.reseeded(4)
    assert twin.seed == 4
    assert Key(twin.seed) != Key(kernel.seed)
    fresh = SketchedTangentKernel(model, 32, seed=4, calibration=x)
    assert gap(twin.features(x), fresh.features(x)) <= 1e-9
