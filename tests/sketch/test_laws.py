"""Sketched kernels: unbiased, as accurate as they say, the same however they are computed."""

import math

import pytest
import torch
from torch import nn

from cases import gap
from sketch.models import DRAWS, network
from tangentkit import TangentKernel, reference
from tangentkit.core.seeds import Key
from tangentkit.sketch import SketchedTangentKernel
from tangentkit.sketch.methods.choice import METHODS
from tangentkit.sketch.methods.explicit import CountSketch
from tangentkit.sketch.passes import Passes

FAMILIES = list(DRAWS)
QUICK = {("auto", "transformer"), ("tensor", "mlp"), ("hybrid", "mlp"), ("count", "cnn"), ("gaussian", "mlp")}
"""Pairs of method and family that are tested every time; the others take minutes."""


def over(methods):
    """Every method on every family."""
    return pytest.mark.parametrize(
        ("sketch", "family"),
        [
            pytest.param(method, family, marks=() if (method, family) in QUICK else pytest.mark.slow)
            for method in methods
            for family in FAMILIES
        ],
    )


over_families = pytest.mark.parametrize("family", FAMILIES)


class Recorded(Passes):
    """Passes that were run once and serve many seeds."""

    def __init__(self, passes, x):
        vars(self).update(vars(passes))
        vars(self)["kept"] = list(passes.sides(x))

    def sides(self, x, *, together=False):  # noqa: ARG002
        return iter(vars(self)["kept"])


def repeated(kernel, x, seeds):
    """Sketched kernels of x over seeds, (seeds, n, n), by one pass through the model."""
    kernel.features(x)
    passes = Recorded(kernel._passes(x, kernel._arrangement.directions.vectors), x)
    found = []
    for seed in range(seeds):
        twin = kernel.reseeded(seed)
        with torch.no_grad():
            arranged = twin._arranged(x)
            exact, halves = arranged.features(passes, x)
        phi = torch.cat([exact, *(w**0.5 * h for w, h in zip(arranged.shares, halves, strict=True))], 1)
        found.append(phi @ phi.T)
    return torch.stack(found)


def in_one_pass(kernel, *batches):
    """The kernel, which hands what one pass of each batch left to all that are made of it by other seeds."""
    real, kept = kernel._passes, []
    for x in batches:
        kernel.features(x)
        kept.append((x, Recorded(real(x, kernel._arrangement.directions.vectors), x)))

    def passes(batch, vectors):
        return next((recorded for x, recorded in kept if torch.equal(batch, x)), None) or real(batch, vectors)

    vars(kernel)["_passes"] = passes
    return kernel


def calibration(family, sketch):
    return network(family, 24)[1][8:] if sketch == "hybrid" else None


@over(METHODS)
def test_the_mean_over_seeds_is_the_exact_kernel(family, sketch):
    model, x = network(family)
    truth = TangentKernel(model)(x)
    kernel = SketchedTangentKernel(model, dim=32, sketch=sketch, calibration=calibration(family, sketch))
    found = repeated(kernel, x, 60)
    error = found.std(0) / 60**0.5
    gaps = (found.mean(0) - truth).abs()
    assert gaps.norm() <= 3 * error.norm()
    assert (gaps <= 5 * error + 1e-12 * truth.abs().max()).all()
    assert error.norm() > 0


@over_families
def test_the_sketches_take_the_ways_that_they_are_named_after(family):
    model, x = network(family)
    assert "tensor" in SketchedTangentKernel(model, dim=32, sketch="tensor").plan(x).methods.values()
    hybrid = SketchedTangentKernel(model, dim=32, sketch="hybrid", calibration=calibration(family, "hybrid"))
    plan = hybrid.plan(x)
    assert plan.coordinates[0] > 0
    assert sum(plan.coordinates) == 32
    assert "tensor" in plan.methods.values()
    assert "exact coordinates" in str(plan)


@pytest.mark.parametrize("useless", [False, True])
def test_calibration_may_be_useless_but_never_biases(useless):
    model, x = network("mlp")
    truth = TangentKernel(model)(x)
    batch = torch.zeros(9, 12).double() if useless else x.repeat(2, 1)
    kernel = SketchedTangentKernel(model, dim=48, sketch="hybrid", calibration=batch)
    found = repeated(kernel, x, 40)
    error = found.std(0) / 40**0.5
    assert (found.mean(0) - truth).norm() <= 3 * error.norm() + 1e-9 * truth.norm()
    plain = repeated(SketchedTangentKernel(model, dim=48, sketch="tensor"), x, 25).std(0).norm()
    if not useless:
        # The batch itself is the calibration: nearly nothing is left to chance.
        assert found.std(0).norm() <= plain / 5


@over(["auto", "tensor", "count"])
def test_the_error_falls_as_one_over_the_root_of_dim(family, sketch):
    model, x = network(family)
    truth = TangentKernel(model)(x)

    def rms(dim):
        found = repeated(SketchedTangentKernel(model, dim=dim, sketch=sketch), x, 40)
        return ((found - truth).square().sum((1, 2)).mean() / truth.square().sum()).sqrt()

    law = (truth.diagonal().sum() ** 2 + truth.square().sum()).sqrt() / truth.norm()
    few, many = rms(32), rms(128)
    # Entries of a chunk never meet, so that hashes may do better than a dense sketch; never much worse.
    assert few <= 1.3 * law / 32**0.5
    assert many <= 1.3 * law / 128**0.5
    # A factor of 2, as far as 40 seeds tell.
    assert 1.4 <= few / many <= 2.9


@over(["auto", "tensor", "count", "hybrid", "gaussian"])
def test_the_estimated_error_is_the_true_one(family, sketch):
    model, x = network(family, 8)
    truth = TangentKernel(model)(x)
    kernel = in_one_pass(
        SketchedTangentKernel(model, dim=64, sketch=sketch, calibration=calibration(family, sketch)), x
    )
    told, true = [], []
    for seed in range(40):
        twin = kernel.reseeded(seed)
        told.append(twin.error(x))
        true.append((twin(x) - truth).norm() / truth.norm())
    told, true = torch.stack(told), torch.stack(true)
    # For single seeds: a sketch that errs little by luck says so. Two halves alone manage half of that on a kernel
    # with one large eigenvalue, as the transformer's.
    assert ((told / true).log().abs() <= math.log(1.5)).double().mean() >= 0.85
    told, true = (values.square().mean().sqrt() for values in (told, true))
    assert true / 1.25 <= told <= 1.25 * true


def test_every_entry_has_its_standard_error():
    model, x = network("mlp", 12)
    x, y = x[:7], x[7:]
    truth = TangentKernel(model)(x, y)
    shares = []
    kernel = in_one_pass(SketchedTangentKernel(model, dim=128), x, y)
    for seed in range(30):
        kernel = kernel.reseeded(seed)
        found, error = kernel.with_error(x, y)
        assert gap(found, kernel(x, y)) <= 1e-12
        shares.append(((found - truth).abs() <= 2 * error).double().mean())
    # Two standard errors hold 95 % of normal numbers.
    assert 0.85 <= torch.stack(shares).mean() <= 0.999


def test_halves_are_two_unbiased_kernels():
    model, x = network("mlp")
    kernel = SketchedTangentKernel(model, dim=65)
    one, other = kernel.halves(x)
    assert (one.shape[1], other.shape[1]) == (33, 32)
    mean = (33 * one @ one.T + 32 * other @ other.T) / 65
    torch.testing.assert_close(mean, kernel(x))


@over(METHODS)
def test_features_do_not_depend_on_batches_order_memory_or_threads(family, sketch):
    model, x = network(family, 9)
    options = {"dim": 40, "sketch": sketch, "calibration": calibration(family, sketch)}
    kernel = SketchedTangentKernel(model, **options)
    features = kernel.features(x)
    order = torch.tensor([3, 1, 8, 0, 2, 7, 5, 4, 6])

    def fresh(**more):
        return SketchedTangentKernel(model, **options, **more)

    threads = torch.get_num_threads()
    torch.set_num_threads(2 if threads == 1 else 1)
    try:
        again = fresh().features(x)
    finally:
        torch.set_num_threads(threads)
    ways = {
        "again": again,
        "order": fresh().features(x[order])[order.argsort()],
        "pieces": torch.cat([fresh().features(piece) for piece in x.split(5)]),
        "memory": fresh(memory="300kB").features(x),
        "one by one": torch.cat([kernel.features(x[i : i + 1]) for i in range(9)]),
    }
    assert {
        way: gap(found, features) for way, found in ways.items() if not gap(found, features) <= 1e-9
    } == {}
    assert gap(kernel.diag(x), kernel(x).diagonal()) <= 1e-12
    assert gap(kernel(x, x[:4]), kernel(x)[:, :4]) <= 1e-12
    assert gap(kernel.normalized()(x).diagonal(), torch.ones(9).double()) <= 1e-12


def test_another_seed_gives_other_features():
    model, x = network("mlp")
    kernel = SketchedTangentKernel(model, dim=32)
    assert not torch.allclose(kernel.features(x), kernel.reseeded(1).features(x))
    assert torch.equal(
        kernel.reseeded(1).features(x), SketchedTangentKernel(model, dim=32, seed=1).features(x)
    )


def expected_count(jacobian, model, seed, dim):
    """Count-sketch of a Jacobian (n, c, p), in plain words: features by the seed contract."""
    halves = []
    for i, size in enumerate((dim - dim // 2, dim // 2)):
        total = torch.zeros(len(jacobian), size, dtype=jacobian.dtype)
        start = 0
        for name, p in model.named_parameters():
            for c in range(jacobian.shape[1]):
                key = Key(seed).fold("sketch", "half", i, name, "count", c)
                rotations, signs = CountSketch(key, p.numel(), size).draw()
                flat = torch.arange(p.numel())
                places = (flat % size + rotations[flat // size]) % size
                values = jacobian[:, c, start : start + p.numel()] * signs
                total.index_add_(1, places, values)
            start += p.numel()
        halves.append(total * (size / dim) ** 0.5)
    return torch.cat(halves, 1)


@over_families
def test_count_is_the_sketch_of_the_jacobian_that_the_contract_says(family):
    model, x = network(family)
    j = reference.jacobian(model, x)
    found = SketchedTangentKernel(model, dim=33, sketch="count", seed=5).features(x)
    assert gap(found, expected_count(j, model, 5, 33)) <= 1e-12
    c = j.shape[1]
    for outputs, v in (
        ("pseudo", torch.ones(c).double() / c**0.5),
        (1, torch.eye(c).double()[1]),
        (torch.arange(c).double() - 1, torch.arange(c).double() - 1),
    ):
        found = SketchedTangentKernel(model, 33, outputs, "count", 5).features(x)
        along = torch.einsum("ncp,c->np", j, v)[:, None]
        assert gap(found, expected_count(along, model, 5, 33)) <= 1e-12


def test_a_loss_is_sketched_by_its_own_gradient():
    model, x = network("mlp")
    targets = torch.tensor([0, 1, 1, 1, 0])

    def loss(outputs, t):
        return nn.functional.cross_entropy(outputs, t, reduction="none")

    rows = []
    for i in range(len(x)):
        value = loss(model(x[i : i + 1]), targets[i : i + 1]).sum()
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model.parameters()))]))
    jacobian = torch.stack(rows)[:, None]
    found = SketchedTangentKernel(model, 64, "loss", "count", loss=loss).features((x, targets))
    assert gap(found, expected_count(jacobian, model, 0, 64)) <= 1e-12
    by_factors = SketchedTangentKernel(model, 4096, "loss", "tensor", loss=loss)
    truth = torch.einsum("iap,jap->ij", jacobian, jacobian)
    assert (by_factors((x, targets)) - truth).norm() <= 0.1 * truth.norm()


def test_random_output_signs_are_unbiased_and_their_error_is_estimated():
    model, x = network("mlp", 6)

    def forward(m, batch):
        # Outputs that go together, so that signs matter.
        return m(batch) + 2 * m(batch).sum(1, keepdim=True)

    truth = TangentKernel(model, forward=forward)(x)
    kernel = SketchedTangentKernel(model, dim=1024, probes=2, forward=forward)
    kernels = torch.stack([kernel.reseeded(seed)(x) for seed in range(40)])
    told = [kernel.reseeded(seed).with_error(x)[1] for seed in range(12)]
    assert (kernels.mean(0) - truth).norm() <= 3 * (kernels.std(0) / 40**0.5).norm()
    true = (kernels - truth).square().sum((1, 2)).mean().sqrt()
    # The sketch alone would err by much less: most of it is the signs'.
    alone = ((truth.diagonal().sum() ** 2 + truth.square().sum()) / 1024).sqrt()
    assert true >= 2 * alone
    assert true / 1.5 <= torch.stack(told).square().sum((1, 2)).mean().sqrt() <= 1.5 * true


def test_the_error_of_a_single_seed_of_few_signs_is_estimated_within_a_factor():
    model, x = network("mlp", 6)
    truth = TangentKernel(model)(x)
    kernel = SketchedTangentKernel(model, dim=256, probes=4)
    typical = torch.stack([(kernel.reseeded(s)(x) - truth).norm() for s in range(60)]).square().mean().sqrt()
    told = torch.stack([kernel.reseeded(100 + s).error(x) for s in range(12)]) * truth.norm()
    assert typical / 2.5 <= told.min()
    assert told.max() <= 2.5 * typical


def test_standard_errors_cover_beside_an_outlier():
    model, x = network("mlp", 6)
    x = torch.cat([x, 40 * x[:1]])
    truth, kernel = TangentKernel(model)(x), in_one_pass(SketchedTangentKernel(model, dim=256), x)
    covered = []
    for seed in range(40):
        found, error = kernel.reseeded(seed).with_error(x)
        covered.append(((found - truth).abs() <= 2 * error).double().mean())
    covered = torch.stack(covered)
    assert 0.92 <= covered.mean() <= 0.99
    assert covered.min() >= 0.55


def test_more_outputs_than_features_are_taken_by_signs():
    model, x = nn.Linear(3, 40).double(), torch.randn(4, 3).double()
    assert SketchedTangentKernel(model, dim=32).plan(x).directions == 32
    assert SketchedTangentKernel(model, dim=40).plan(x).directions == 40
    # Signs would add more error than calibration saves.
    assert SketchedTangentKernel(model, dim=32, calibration=x).plan(x).directions == 40
    truth = TangentKernel(model)(x)
    kernel = SketchedTangentKernel(model, dim=32)
    found = torch.stack([kernel.reseeded(seed)(x) for seed in range(40)])
    assert (found.mean(0) - truth).norm() <= 3.5 * (found.std(0) / 40**0.5).norm()
