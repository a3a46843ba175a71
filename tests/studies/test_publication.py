"""Pages and records of finished runs are small, and enough to make the pages again."""

import pytest

from studies.toy_study import Config
from tangentkit.core.errors import DataError
from tangentkit.report import Claim
from tangentkit.studies.earlier_run import EarlierRun, read_earlier
from tangentkit.studies.publication import finished_runs, keep_records, keep_unfinished, publish
from tangentkit.studies.run_folder import claim_folder, damaged_files
from tangentkit.studies.runner import execute, resume


def test_pages_can_be_made_again_from_the_records_alone(toy, tmp_path):
    root = tmp_path / "runs"
    execute(toy, Config(), claim_folder(root / "toy"), scale="quick")
    (root / "no-run").mkdir()
    runs = finished_runs(root)
    assert list(runs) == ["toy"]
    publish(runs, tmp_path / "first")
    keep_records(root, runs, tmp_path / "records")
    publish(finished_runs(tmp_path / "records"), tmp_path / "second")
    for name in ("index.html", "toy.html", "toy.csv"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    index = (tmp_path / "first" / "index.html").read_text()
    assert 'href="toy.html"' in index
    assert 'href="toy.csv"' in (tmp_path / "first" / "toy.html").read_text()


def test_a_run_goes_on_from_its_records(toy, tmp_path):
    root = tmp_path / "runs"
    execute(toy, Config(), claim_folder(root / "toy"), scale="quick")
    keep_records(root, finished_runs(root), tmp_path / "records")
    folder = tmp_path / "records" / "toy"
    assert damaged_files(folder) == []
    assert not (folder / "report.html").exists()
    kept = {path: path.stat().st_mtime_ns for path in (folder / "trials").iterdir()}
    run = resume(folder, {"seeds": "0-3"})
    assert run.records.column("seed") == [0, 1, 2, 3]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_finished_trials_of_an_unfinished_run_are_not_done_again(toy, tmp_path):
    root, records = tmp_path / "runs", tmp_path / "records"
    execute(toy, Config(seeds=(0, 1)), claim_folder(root / "toy"), scale="quick")
    (root / "toy" / "status.json").unlink()
    keep_unfinished(root, ["toy"], records)
    kept = {path: path.stat().st_mtime_ns for path in (records / "toy" / "trials").iterdir()}
    assert kept
    execute(toy, Config(seeds=(0, 1, 2)), records / "toy", scale="evening")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_records_of_a_larger_run_take_the_place_of_those_of_a_smaller_one(toy, tmp_path):
    records = tmp_path / "records"
    for root, seeds in ((tmp_path / "small", (0, 1)), (tmp_path / "large", (1, 2, 3))):
        execute(toy, Config(seeds=seeds), claim_folder(root / "toy"), scale="quick")
        keep_records(root, finished_runs(root), records)
    trials = {path.name for path in (tmp_path / "large" / "toy" / "trials").iterdir()}
    assert {path.name for path in (records / "toy" / "trials").iterdir()} == trials
    assert damaged_files(records / "toy") == []


def test_pages_name_the_verdicts_that_changed_from_the_records_that_were_replaced(toy, tmp_path):
    records, pages = tmp_path / "records", tmp_path / "pages"
    for scale, config in (
        ("quick", Config(seeds=(0,))),
        ("evening", Config(flips=100)),
        ("evening", Config(flips=200)),
    ):
        root = tmp_path / f"{scale}-{config.flips}"
        execute(toy, config, claim_folder(root / "toy"), scale=scale)
        keep_records(root, finished_runs(root), records)
    assert read_earlier(records / "toy") == EarlierRun("quick", {"Heads come up": "not decided"})
    assert damaged_files(records / "toy") == []
    publish(finished_runs(records), pages)
    words = "changed from the scale quick: &#34;Heads come up&#34; was not decided, and holds now."
    assert words in (pages / "toy.html").read_text()


def test_a_run_that_goes_on_at_another_scale_keeps_what_it_said_before(toy, tmp_path):
    folder = claim_folder(tmp_path / "runs" / "toy")
    execute(toy, Config(seeds=(0,)), folder, scale="quick")
    assert resume(folder, {"seeds": "0"}).earlier is None
    run = resume(folder, scale="evening")
    assert run.earlier == EarlierRun("quick", {"Heads come up": "not decided"})
    assert "was not decided" in (folder / "report.html").read_text()
    keep_records(tmp_path / "runs", finished_runs(tmp_path / "runs"), tmp_path / "records")
    assert read_earlier(tmp_path / "records" / "toy") == run.earlier


def test_claims_that_differ_in_sizes_are_the_same_unless_there_are_several():
    before = EarlierRun("quick", {"A, 100 images": "holds", "B at n = 1": "holds", "B at n = 2": "holds"})
    assert '"A, 2,000 images" held' in before.changes([refuted("A, 2,000 images")])
    assert before.changes([refuted("B at n = 3")]) == (
        "No verdict changed from the scale quick. 1 claim has none of that scale."
    )


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("ResNet-56, 300 images: tau at least 0.7", "ResNet-56, 2,000 images: tau at least 0.7"),
        ("MLP: the averages agree at width 2,048", "MLP: the averages agree at width 4,096"),
        ("above its bound at n = 800", "above its bound at n = 1600"),
        ("solved as well (×0.2, mnist)", "solved as well (×0.4, mnist)"),
        ("A probe on 300 tweets is better", "A probe on 1,000 tweets is better"),
        ("after 10 epochs", "after 100 epochs"),
    ],
)
def test_sizes_do_not_tell_claims_apart(before, now):
    assert f'"{now}" held' in EarlierRun("quick", {before: "holds"}).changes([refuted(now)])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ResNet-20, 300 images: it is as accurate", "ResNet-56, 300 images: it is as accurate"),
        ("The gap shrinks with width (rate 0.01)", "The gap shrinks with width (rate 0.001)"),
        ("trNTK0 finds the poison", "trNTK1 finds the poison"),
        ("tau at least 0.7", "tau at least 0.8"),
        ("gets better beyond 100 components", "gets better beyond 50 components"),
    ],
)
def test_numbers_that_are_names_and_bounds_tell_claims_apart(one, other):
    earlier = EarlierRun("quick", {one: "holds"})
    assert "1 claim has none" in earlier.changes([refuted(other)])
    both = EarlierRun("quick", {one.replace("300", "100"): "holds", other.replace("300", "100"): "holds"})
    assert both.changes([refuted(one), refuted(other)]).count(" held") == 2


def refuted(statement: str) -> Claim:
    return Claim(statement, "x", (1.0, 1.1), high=0.5)


def test_damaged_verdicts_are_said_to_be(tmp_path):
    (tmp_path / "earlier-verdicts.json").write_text('{"scale": "quick"}')
    with pytest.raises(DataError, match="damaged"):
        read_earlier(tmp_path)
