"""Pages and records of finished runs are small, and enough to make the pages again."""

from studies.toy_study import Config
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
