"""The study of tangent ranks: its trial against the Jacobian itself, and its claims on records made by hand."""

import dataclasses

import numpy as np
import pytest
import torch

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.models import lenet
from tangentkit.studies.linearization.images import drawn_images
from tangentkit.studies.linearization.tangent_rank import Config, measure, result, trials
from tangentkit.studies.trials.records import Records

CONFIG = Config(samples=600, widths=(1, 2))


def records(growth: dict[int, float], jitter: float = 0.02) -> Records:
    """Ranks, smallest values and inverse conditions that all grow by a factor from width 1 to width 2."""
    rows = []
    for seed in CONFIG.seeds:
        for shift, factor in growth.items():
            for width, times in ((1, 1.0), (2, factor * (1 + jitter * seed))):
                rows.append(
                    {
                        "data": "mnist",
                        "width": width,
                        "shift": shift,
                        "seed": seed,
                        "rows": 6000,
                        "parameters": 61_706,
                        "rank": 6000,
                        "rank_jacobian": 1000.0 * times,
                        "rank_kernel": 100.0 * times,
                        "largest": 10.0,
                        "smallest": 0.1 * times,
                        "levels": np.linspace(-1, 1, 41),
                    }
                )
    return Records(rows)


def verdicts(rows: Records, config: Config = CONFIG) -> list[str]:
    return [claim.verdict for claim in result(config, rows).claims]


def test_claims_hold_where_ranks_grow_and_less_on_shifted_images():
    assert set(verdicts(records({0: 2.0, 7: 1.3}))) == {"holds"}


def test_claims_do_not_hold_where_ranks_shrink_and_less_on_plain_images():
    far, *others = result(CONFIG, records({0: 0.5, 7: 0.8})).claims
    assert far.verdict == others[0].verdict == "holds"
    assert {claim.verdict for claim in others[1:]} == {"does not hold"}


def test_a_rank_of_most_of_the_rows_is_not_far_below():
    assert verdicts(records({0: 5.0, 7: 4.0}))[0] == "does not hold"


def test_few_images_do_not_decide_about_the_published_size():
    assert (
        verdicts(records({0: 2.0, 7: 1.3}), dataclasses.replace(CONFIG, samples=60))[:2]
        == ["not decided"] * 2
    )


def test_a_missing_trial_costs_its_seed_only_where_a_claim_is_not_about_every_width():
    rows = [
        row for row in records({0: 2.0, 7: 1.3}) if (row["seed"], row["shift"], row["width"]) != (3, 7, 2)
    ]
    jacobian, kernel, *_, weaker = result(CONFIG, Records(rows, {"seed 3": "lost"})).claims
    for every_width in (jacobian, kernel):
        assert (len(every_width.values), every_width.verdict) == (4, "not decided")
        assert "width 2, shift 7 (seed 3) is missing" in every_width.remedy
    assert len(weaker.values) == 4
    assert weaker.verdict == "holds"


def test_no_trial_at_all_decides_nothing():
    assert set(verdicts(Records([]))) == {"not decided"}


def test_singular_values_are_those_of_the_jacobian_row_by_row():
    setting = trials(Config(data=("fashion-mini",), samples=4, widths=(0.5, 1), shift=3, seeds=(5,)))[
        1
    ].settings
    assert (setting["width"], setting["shift"]) == (0.5, 3)
    found = measure(**setting)

    key = Key(5).fold("tangent-rank")
    images, _ = drawn_images("fashion-mini", 4, 1, 3, key.fold("images"))
    network = lenet(0.5, seed=key.fold("network")).double()
    rows = [
        torch.cat(
            [g.flatten() for g in torch.autograd.grad(y, list(network.parameters()), retain_graph=True)]
        )
        for y in network(images.inputs.double()).flatten()
    ]
    values = np.linalg.svd(torch.stack(rows).numpy(), compute_uv=False)
    shares = values / values.sum()
    assert found["rows"] == found["rank"] == 40
    np.testing.assert_allclose([found["largest"], found["smallest"]], values[[0, -1]], rtol=1e-6)
    np.testing.assert_allclose(found["rank_jacobian"], np.exp(-(shares * np.log(shares)).sum()), rtol=1e-6)
    squares = values**2 / (values**2).sum()
    np.testing.assert_allclose(found["rank_kernel"], np.exp(-(squares * np.log(squares)).sum()), rtol=1e-6)
    np.testing.assert_allclose(
        found["levels"][[0, 20, 40]], np.quantile(np.log10(values), [0, 0.5, 1]), rtol=1e-5
    )


def test_widths_must_rise():
    with pytest.raises(InputError, match="bad widths"):
        Config(widths=(2, 1))
